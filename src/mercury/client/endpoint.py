"""A service endpoint: a central service that speaks to the bus directly (Mercury §3.1.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Self
from uuid import UUID

from mercury.bus import Bus, Start, open_bus
from mercury.client.arguments import check, checked
from mercury.client.messages import PositionLike, as_policy, as_position, compose
from mercury.client.receipts import BusReceipts
from mercury.config.mediator import PolicyName
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.errors import MessageError, MessageTooLargeError, PacketError, RequestError
from mercury.model.message import (
    Address,
    AddressKind,
    Attributes,
    DeliveryPolicy,
    Event,
    Kind,
    Message,
    Priority,
    Values,
)
from mercury.service.clock import clock_time, now_us
from mercury.service.message_trail import TrailReader
from mercury.wire import MAX_BODY_BYTES, decode, encode
from mercury.wire.records import Headers, fix_header, message_route

_UNKNOWN = float("nan")
_NOT_ALERTED = (AddressKind.SERVICE, AddressKind.BROKER, AddressKind.ADAPTER)


class ServiceEndpoint:
    """Publishes content and alerts, and reads topics."""

    @checked
    def __init__(self, bus: Bus | str, name: str) -> None:
        self.name = name
        self.address = Address.service(name)
        self.unreadable = 0  # records that were not messages
        self._owns_bus = isinstance(bus, str)
        self.bus = open_bus(bus) if isinstance(bus, str) else bus

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bus.flush()
        if self._owns_bus:
            self.bus.close()

    @checked
    async def publish(
        self,
        topic: str,
        values: Values,
        *,
        position: PositionLike | None = None,
        priority: int = Priority.CONTENT,
        expires_in_s: float | None = None,
    ) -> Message:
        """Publish content; returns when the bus has it."""
        place = None if position is None else as_position(position)
        payload = Attributes(dict(values), place)
        message = compose(self.address, Kind.CONTENT, topic, payload, priority, expires_in_s)
        headers: Headers = (message_route(message),)
        if place is not None:
            headers = (*headers, fix_header(place.lat, place.lon, _UNKNOWN, _UNKNOWN))
        await self._append(topics.content_topic(topic), message, self.name.encode(), headers)
        return message

    @checked
    async def alert(
        self,
        to: Area | Address | PositionLike,
        *,
        kind: str = "notice",
        text: str = "",
        radius_m: float = 500.0,
        validity_s: float | None = 60.0,
        priority: int = Priority.WARNING,
        policy: PolicyName | DeliveryPolicy = DeliveryPolicy.CRITICAL,
        values: Values | None = None,
    ) -> BusReceipts:
        """Alert everyone in an area, around a place, or at an address; returns when the bus has it.

        With a validity, clients that enter the area before its end are alerted too. Its delivery is
        read from the bus, client by client: `await sent.settled()`.
        """
        topics.events_topic(kind)  # raises if invalid
        time_us = now_us()
        place = None
        if not isinstance(to, Address | Area):
            place = as_position(to)
            to = Area(Circle(place, radius_m))
        begins_us = max(time_us, to.valid_from_us or 0) if isinstance(to, Area) else time_us
        until_us = None if validity_s is None else begins_us + int(validity_s * 1e6)
        if isinstance(to, Area):
            if to.valid_until_us is not None:  # it may outlast the default
                until_us = to.valid_until_us
            to = Address.to_area(replace(to, valid_until_us=until_us))
        elif to.kind in _NOT_ALERTED:
            raise MessageError(f"alerts are for clients, groups, areas or everyone, not {to}")
        message = Message(
            kind=Kind.ALERT,
            source=self.address,
            destination=to,
            priority=priority,
            policy=as_policy(policy),
            sent_us=time_us,
            expires_us=until_us or 0,
            payload=Event(kind=kind, position=place, text=text, values=dict(values or {})),
        )
        await self._append(
            topics.alerts_topic(priority), message, message.id.bytes, (message_route(message),)
        )
        return BusReceipts(message, self.bus)

    @checked
    async def why(self, id: UUID | str, client: str | None = None) -> str:
        """Say what became of a message of the last hour, for one client or for all."""
        reader = TrailReader(self.bus)
        message = await reader.find(str(id))
        if message is None:
            raise RequestError(f"no message {id} on the bus in the last hour")
        _, said = await reader.why(message, client, clock_time)
        return said

    async def listen(
        self, *names: str, group: str | None = None, start: Start = "latest"
    ) -> AsyncIterator[Message]:
        """Yield the messages of bus topics; with a group, share them with its other members."""
        check("listen", "names", list(names))
        check("listen", "start", start)
        consumer = self.bus.subscribe(names, group=group, start=start)
        try:
            while records := await consumer.read():  # none: the bus was closed
                for record in records:
                    try:
                        yield decode(record.value)
                    except PacketError:
                        self.unreadable += 1
                consumer.commit()
        finally:
            consumer.close()

    async def _append(self, topic: str, message: Message, key: bytes, headers: Headers) -> None:
        body = encode(message)
        if len(body) > MAX_BODY_BYTES:
            raise MessageTooLargeError(len(body), MAX_BODY_BYTES)
        self.bus.append(topic, body, key, headers)
        await self.bus.flush()
