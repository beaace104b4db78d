"""Reports (pMediator §8): what was sent to whom, how often, and what was lost.

Of a mediator from its tables, of a client from the receipts that the adapters wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from mercury.mediator.incoming import Incoming
from mercury.mediator.ledger import Entry
from mercury.mediator.outgoing import Outgoing
from mercury.model.delivery import Delivery, DeliveryState

_RECENT = 8
_LOST = (DeliveryState.EXPIRED, DeliveryState.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class PeerRow:
    """What was sent to one peer."""

    peer: str
    sent: int
    resent: int
    resent_per_message: float
    first_try_s: float | None  # mean time to the answer, of those answered at the first try
    acknowledged: int
    dropped: int
    waiting: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """What was sent under one topic, or as one variable."""

    topic: str
    sent: int
    resent: int
    acknowledge: bool
    per_minute: float
    peers: list[str]


@dataclass(frozen=True, slots=True)
class AckRow:
    """The acknowledgements to one peer."""

    peer: str
    received: int
    acks_sent: int
    acks_resent: int
    resent_per_ack: float


@dataclass(frozen=True, slots=True)
class HeardRow:
    """What one sender sent to this client."""

    source: str
    messages: int
    copies: int  # sent, first times and repeats
    acknowledged: int
    refused: int
    dropped: int
    waiting: int
    mean_s: float | None  # from addressed to acknowledged


@dataclass(frozen=True, slots=True)
class EventRow:
    """How one copy ended."""

    time_s: float  # on the mediator's clock, or since the epoch
    id: str
    peer: str
    state: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """All counts and tables of a mediator."""

    name: str
    sent: int
    resent: int
    acknowledged: int
    received: int
    repeated: int
    resends_per_s: float | None  # allowed now
    peers: list[PeerRow] = field(default_factory=list)
    topics: list[TopicRow] = field(default_factory=list)
    acks: list[AckRow] = field(default_factory=list)
    heard: list[HeardRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def report(name: str, outgoing: Outgoing, incoming: Incoming, now: float) -> Report:
    """Sum up both sides of a mediator."""
    known = outgoing.peers
    peers = []
    for number in sorted(known, key=known.name):
        sent, resent = int(known.sent[number]), int(known.resent[number])
        tries = int(known.first_tries[number])
        peers.append(
            PeerRow(
                peer=known.name(number),
                sent=sent,
                resent=resent,
                resent_per_message=resent / sent if sent else 0.0,
                first_try_s=float(known.first_tries_s[number]) / tries if tries else None,
                acknowledged=int(known.acknowledged[number]),
                dropped=int(known.dropped[number]),
                waiting=int(known.waiting[number]),
            )
        )
    topics = [
        TopicRow(
            topic=topic,
            sent=one.sent,
            resent=one.resent,
            acknowledge=one.acknowledge,
            per_minute=one.per_minute(now),
            peers=sorted(one.peers),
        )
        for topic, one in sorted(outgoing.topics.items())
    ]
    acks = [
        AckRow(
            peer=peer,
            received=one.received,
            acks_sent=one.acks_sent,
            acks_resent=one.acks_resent,
            resent_per_ack=one.acks_resent / one.acks_sent if one.acks_sent else 0.0,
        )
        for peer, one in sorted(incoming.statistics.items())
    ]
    events = [
        EventRow(one.time, str(one.id), one.peer, one.state.label, one.elapsed_s)
        for one in reversed(outgoing.recent)
    ]
    return Report(
        name=name,
        sent=sum(one.sent for one in peers),
        resent=sum(one.resent for one in peers),
        acknowledged=outgoing.ended[DeliveryState.ACKNOWLEDGED],
        received=sum(one.received for one in acks),
        repeated=sum(one.repeated for one in incoming.statistics.values()),
        resends_per_s=outgoing.repeat_rate.per_s,
        peers=peers,
        topics=topics,
        acks=acks,
        events=events,
    )


def report_of(client: str, entries: Iterable[Entry], now_us: int) -> Report:
    """What a client sent to others, and what others sent to it."""
    by_peer: dict[str, list[Delivery]] = defaultdict(list)
    by_topic: dict[str, list[tuple[Entry, Delivery]]] = defaultdict(list)
    by_source: dict[str, list[Delivery]] = defaultdict(list)
    settled: list[tuple[Entry, Delivery]] = []
    for entry in entries:
        if entry.about.source == f"client:{client}":
            for row in entry.rows.values():
                by_peer[row.client].append(row)
                by_topic[entry.about.topic].append((entry, row))
                settled.append((entry, row))
        elif client in entry.rows:
            row = entry.rows[client]
            by_source[entry.about.source].append(row)
            settled.append((entry, row))
    peers = [_peer(peer, rows) for peer, rows in sorted(by_peer.items())]
    heard = [_heard(source, rows) for source, rows in sorted(by_source.items())]
    mine = [row for rows in by_source.values() for row in rows]
    acks, again = (
        max((getattr(row, name) for row in mine), default=0) for name in ("acks", "acks_again")
    )
    return Report(
        name=client,
        sent=sum(one.sent for one in peers),
        resent=sum(one.resent for one in peers),
        acknowledged=sum(one.acknowledged for one in peers),
        received=sum(one.acknowledged for one in heard),
        repeated=again,
        resends_per_s=None,
        peers=peers,
        topics=[_topic(topic, rows, now_us) for topic, rows in sorted(by_topic.items())],
        acks=[AckRow("adapter", len(mine), acks, again, again / acks if acks else 0.0)]
        if mine
        else [],
        heard=heard,
        events=_events(client, settled),
    )


def _peer(peer: str, rows: list[Delivery]) -> PeerRow:
    sent = [row for row in rows if row.tries]
    resent = sum(row.tries - 1 for row in sent)
    first = [
        (row.settled_us - row.first_sent_us) / 1e6
        for row in sent
        if row.tries == 1 and row.state is DeliveryState.ACKNOWLEDGED
    ]
    return PeerRow(
        peer=peer,
        sent=len(sent),
        resent=resent,
        resent_per_message=resent / len(sent) if sent else 0.0,
        first_try_s=sum(first) / len(first) if first else None,
        acknowledged=sum(row.state is DeliveryState.ACKNOWLEDGED for row in rows),
        dropped=sum(row.state in _LOST for row in rows),
        waiting=sum(row.state is DeliveryState.WAITING for row in rows),
    )


def _heard(source: str, rows: list[Delivery]) -> HeardRow:
    answered = [row for row in rows if row.state is DeliveryState.ACKNOWLEDGED]
    delays = [(row.settled_us - row.addressed_us) / 1e6 for row in answered if row.tries]
    return HeardRow(
        source=source,
        messages=len(rows),
        copies=sum(row.tries for row in rows),
        acknowledged=len(answered),
        refused=sum(row.state is DeliveryState.REFUSED for row in rows),
        dropped=sum(row.state in _LOST for row in rows),
        waiting=sum(row.state is DeliveryState.WAITING for row in rows),
        mean_s=sum(delays) / len(delays) if delays else None,
    )


def _topic(topic: str, rows: list[tuple[Entry, Delivery]], now_us: int) -> TopicRow:
    since_us = min(entry.about.sent_us for entry, _ in rows)
    minutes = max((now_us - since_us) / 60e6, 1 / 60)
    sent = sum(row.tries > 0 for _, row in rows)
    return TopicRow(
        topic=topic,
        sent=sent,
        resent=sum(max(row.tries - 1, 0) for _, row in rows),
        acknowledge=any(entry.about.policy for entry, _ in rows),
        per_minute=sent / minutes,
        peers=sorted({row.client for _, row in rows}),
    )


def _events(client: str, settled: list[tuple[Entry, Delivery]]) -> list[EventRow]:
    ended = [one for one in settled if one[1].state is not DeliveryState.WAITING]
    ended.sort(key=lambda one: -one[1].settled_us)
    return [
        EventRow(
            time_s=row.settled_us / 1e6,
            id=str(entry.about.message),
            peer=row.client if row.client != client else entry.about.source,
            state=row.state.label,
            elapsed_s=(row.settled_us - row.addressed_us) / 1e6,
        )
        for entry, row in ended[:_RECENT]
    ]
