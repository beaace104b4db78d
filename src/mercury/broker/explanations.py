"""Answers clients who ask what became of a message: read from the bus, in the background."""

from __future__ import annotations

import asyncio
from datetime import UTC
from uuid import UUID

from mercury.bus import Bus
from mercury.model.errors import MercuryError, RequestError
from mercury.model.message import Address, AddressKind, Value
from mercury.service.clock import clock_time
from mercury.service.message_trail import TrailReader
from mercury.wire import mercury_pb2
from mercury.wire.fields import values_from_pb

_MOST_RECORDS = 200_000  # read for one answer: about a second of work, in small pieces
_MOST_WAITING = 16
_TO_MANY = (AddressKind.AREA, AddressKind.EVERYONE, AddressKind.GROUP)


class Explanations:
    """Answers one client after the other, each about its own messages only."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: set[bytes] = set()  # requests
        self._turn = asyncio.Lock()

    def begin(self, request: bytes) -> bool:
        """Take a request; False if it came before and is not answered yet."""
        is_new = request not in self._waiting
        self._waiting.add(request)
        return is_new

    async def answer(self, envelope: mercury_pb2.Envelope) -> dict[str, Value]:
        try:
            if len(self._waiting) > _MOST_WAITING:
                raise RequestError("too many ask at once: ask again later")
            async with self._turn:
                id = values_from_pb(envelope.attributes.values).get("message")
                return {"answer": await self._why(str(id), envelope.source.client)}
        except MercuryError as error:
            return {"error": str(error)}
        finally:
            self._waiting.discard(envelope.id)

    async def _why(self, id: str, client: str) -> str:
        try:
            whole = UUID(id)
        except ValueError:
            raise RequestError(f"{id!r} is no message id") from None
        reader = TrailReader(self._bus, _MOST_RECORDS)
        message = await reader.find(str(whole))
        if message is None:
            raise RequestError(f"no message {id} on the bus in the last hour")
        asker, to = Address.client(client), message.destination
        if message.source == asker:
            whom = to.name if to.kind is AddressKind.CLIENT else None
        elif to == asker or to.kind in _TO_MANY:
            whom = client
        else:
            raise RequestError(f"message {id} is neither from {client} nor for it")
        _, said = await reader.why(message, whom, _utc)
        return said


def _utc(time_us: int) -> str:
    """A time of day in UTC."""
    return f"{clock_time(time_us, UTC)} UTC"
