"""What became of a message, as it stands on the bus: in columns."""

from __future__ import annotations

from uuid import UUID

from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.errors import PacketError
from mercury.wire import mercury_pb2 as pb

_FIELDS = ("source", "topic", "kind", "priority", "policy", "sent_us", "expires_us")
# Columns of numbers, which follow on the client, its state and the reason.
_NUMBERS = ("tries", "addressed_us", "first_sent_us", "settled_us", "acks", "acks_again")


def deliveries_to_pb(deliveries: Deliveries, target: pb.Deliveries) -> None:
    """Write deliveries."""
    target.message = deliveries.message.bytes
    for name in _FIELDS:
        setattr(target, name, getattr(deliveries, name))
    reasons = {
        reason: number for number, reason in enumerate({row.reason: 0 for row in deliveries.rows})
    }
    target.reasons.extend(reasons)
    target.reason.extend(reasons[row.reason] for row in deliveries.rows)
    for name in ("client", "state", *_NUMBERS):
        getattr(target, name).extend(getattr(row, name) for row in deliveries.rows)


def deliveries_from_pb(source: pb.Deliveries) -> Deliveries:
    """Read deliveries; raises PacketError where the columns do not fit together."""
    try:
        message = UUID(bytes=source.message)
        numbers = (getattr(source, name) for name in _NUMBERS)
        columns = zip(source.client, source.state, source.reason, *numbers, strict=True)
        rows = tuple(
            Delivery(client, DeliveryState(state), source.reasons[reason], *rest)
            for client, state, reason, *rest in columns
        )
    except (ValueError, IndexError):
        raise PacketError("malformed") from None
    fields = {name: getattr(source, name) for name in _FIELDS}
    return Deliveries(message=message, rows=rows, **fields)
