"""Messages that clients and services compose."""

from __future__ import annotations

from collections.abc import Sequence

from mercury.config.mediator import PolicyName
from mercury.mediator import NAMES
from mercury.model.area import Area, Circle, Polygon, Position
from mercury.model.errors import MessageError
from mercury.model.identity import new_uuid
from mercury.model.message import (
    Address,
    AddressKind,
    DeliveryPolicy,
    Kind,
    Message,
    Payload,
    Priority,
)
from mercury.service.clock import now_us

RETRY_S = 0.5

PositionLike = Position | tuple[float, float]
_OTHERS = (AddressKind.CLIENT, AddressKind.GROUP, AddressKind.AREA)


def as_position(place: PositionLike) -> Position:
    return place if isinstance(place, Position) else Position(*place)


def as_polygon(polygon: Polygon | Sequence[PositionLike] | None) -> Polygon | None:
    """Accept a Polygon or its corners."""
    if polygon is None or isinstance(polygon, Polygon):
        return polygon
    return Polygon(tuple(as_position(corner) for corner in polygon))


def as_policy(policy: PolicyName | DeliveryPolicy) -> DeliveryPolicy:
    return policy if isinstance(policy, DeliveryPolicy) else NAMES[policy]


def compose(
    source: Address,
    kind: Kind,
    topic: str,
    payload: Payload,
    priority: int = Priority.NORMAL,
    expires_in_s: float | None = None,
) -> Message:
    """A message to the brokers, sent now."""
    time_us = now_us()
    return Message(
        kind=kind,
        source=source,
        destination=Address.broker(),
        topic=topic,
        payload=payload,
        priority=priority,
        id=new_uuid(time_us),
        sent_us=time_us,
        expires_us=0 if expires_in_s is None else time_us + int(expires_in_s * 1e6),
    )


def to_whom(
    to: str | Address | Area | None, within_m: float | None, here: Position | None
) -> Address:
    """The address of a client by name, a group, an area, or all within a distance of here."""
    if within_m is not None:
        if to is not None or here is None:
            raise MessageError("`within_m` is around this client's position, and for all there")
        return Address.to_area(Area(Circle(here, within_m)))
    if to is None:
        raise MessageError("whom to tell? A name, an Address, an Area, or within_m")
    if isinstance(to, Area):
        return Address.to_area(to)
    address = Address.client(to) if isinstance(to, str) else to
    if address.kind not in _OTHERS:
        raise MessageError(f"a client tells clients, groups and areas, not {address}")
    return address
