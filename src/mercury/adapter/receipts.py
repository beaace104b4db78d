"""What became of messages, written for the bus: the adapter's part of the ledger."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mercury.mediator import Dispatch, Numbers, Outgoing
from mercury.model.identity import new_id
from mercury.model.message import VERSION, Kind, Priority
from mercury.wire import mercury_pb2 as pb

_SENDER_WAITS_US = 600_000_000
ROWS_PER_RECORD = 300  # long names included, a record stays below what a packet carries


def receipts(
    outgoing: Outgoing,
    dispatch: Dispatch,
    peers: Numbers,
    *,
    adapter: str,
    envelope: pb.Envelope,
    epoch_us: int,
    now: float,
) -> Iterator[pb.Envelope]:
    """Yield what is known now of the copies of these peers.

    Arguments:
        envelope: the message that the copies are of.
        epoch_us: the wall clock when `now` was zero.
    """
    for first in range(0, len(peers), ROWS_PER_RECORD):
        part = peers[first : first + ROWS_PER_RECORD]
        rows = dispatch.rows(part)
        record = pb.Envelope(version=VERSION, kind=pb.RECEIPT, priority=Priority.BACKGROUND)
        record.sent_us = epoch_us + int(now * 1e6)
        record.id = new_id(record.sent_us)
        record.source.adapter = adapter
        record.destination.service = "ledger"
        record.correlation = envelope.id
        found = record.deliveries
        found.message = envelope.id
        found.source = dispatch.source
        found.topic = dispatch.topic
        found.kind = envelope.kind
        found.priority = envelope.priority
        # As it is sent, which a rule may have raised above what the message asks for.
        asked = dispatch.policy.acknowledge
        found.policy = (envelope.policy or pb.REPEAT) if asked else pb.FIRE_AND_FORGET
        found.sent_us = envelope.sent_us
        found.expires_us = envelope.expires_us
        found.client.extend(outgoing.peers.names(part))
        found.state.extend(dispatch.state[rows].tolist())
        numbers, reasons = np.unique(dispatch.reason[rows], return_inverse=True)
        found.reasons.extend(outgoing.reason_text(number) for number in numbers.tolist())
        found.reason.extend(reasons.tolist())
        found.tries.extend(dispatch.tries[rows].tolist())
        found.addressed_us.extend(_wall(dispatch.addressed[rows], epoch_us))
        found.first_sent_us.extend(_wall(dispatch.first_sent[rows], epoch_us))
        found.settled_us.extend(_wall(dispatch.settled[rows], epoch_us))
        found.acks.extend(outgoing.peers.acks[part].tolist())
        found.acks_again.extend(outgoing.peers.acks_again[part].tolist())
        yield record


def for_sender(record: pb.Envelope, client: str) -> pb.Envelope:
    """The same for the client that sent the message: worth repeating, and soon of no use."""
    copy = pb.Envelope()
    copy.CopyFrom(record)
    copy.id = new_id(record.sent_us)
    copy.priority = Priority.REPLY
    copy.policy = pb.REPEAT
    copy.expires_us = record.sent_us + _SENDER_WAITS_US
    copy.destination.client = client
    return copy


def _wall(times: NDArray[np.float64], epoch_us: int) -> list[int]:
    wall = np.where(np.isnan(times), -epoch_us, times * 1e6) + epoch_us
    whole: list[int] = wall.astype(np.int64).tolist()
    return whole


assert int(Kind.RECEIPT) == int(pb.RECEIPT)
