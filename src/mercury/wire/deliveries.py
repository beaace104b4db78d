"""What became of a message, as it stands on the bus: in columns."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.errors import PacketError
from mercury.wire import mercury_pb2 as pb


def deliveries_to_pb(deliveries: Deliveries, target: pb.Deliveries) -> None:
    """Write deliveries."""
    target.message = deliveries.message.bytes
    target.source = deliveries.source
    target.topic = deliveries.topic
    target.kind = deliveries.kind
    target.priority = deliveries.priority
    target.policy = cast("pb.DeliveryPolicy", deliveries.policy)
    target.sent_us = deliveries.sent_us
    target.expires_us = deliveries.expires_us
    reasons = {
        reason: number for number, reason in enumerate({row.reason: 0 for row in deliveries.rows})
    }
    target.reasons.extend(reasons)
    for row in deliveries.rows:
        target.client.append(row.client)
        target.state.append(row.state)
        target.reason.append(reasons[row.reason])
        target.tries.append(row.tries)
        target.addressed_us.append(row.addressed_us)
        target.first_sent_us.append(row.first_sent_us)
        target.settled_us.append(row.settled_us)
        target.acks.append(row.acks)
        target.acks_again.append(row.acks_again)


def deliveries_from_pb(source: pb.Deliveries) -> Deliveries:
    """Read deliveries; raises PacketError where the columns do not fit together."""
    try:
        message = UUID(bytes=source.message)
        rows = tuple(
            Delivery(client, DeliveryState(state), source.reasons[reason], tries, *numbers)
            for client, state, reason, tries, *numbers in zip(
                source.client,
                source.state,
                source.reason,
                source.tries,
                source.addressed_us,
                source.first_sent_us,
                source.settled_us,
                source.acks,
                source.acks_again,
                strict=True,
            )
        )
    except (ValueError, IndexError):
        raise PacketError("malformed") from None
    return Deliveries(
        message=message,
        source=source.source,
        rows=rows,
        topic=source.topic,
        kind=source.kind,
        priority=source.priority,
        policy=int(source.policy),
        sent_us=source.sent_us,
        expires_us=source.expires_us,
    )
