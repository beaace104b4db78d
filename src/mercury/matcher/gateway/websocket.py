"""A WebSocket (RFC 6455) on the server's own transport, without a queue between.

The framing is that of the `websockets` library; what the frames mean is the connection's. It is
served this way instead of through ASGI, because only the transport knows how many bytes wait for
a client that does not read, and can abort it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from mercury.matcher.gateway.connection import GatewaySession
from mercury.matcher.gateway.register import Register
from mercury.wire.gateway_frames import HEADER_BYTES, MAX_ROWS, MOVE_ROW

log = logging.getLogger(__name__)

PATH = "/v1/match"
JSON, BINARY = Subprotocol("mercury.json.v1"), Subprotocol("mercury.binary.v1")
# A frame with too many rows is answered with an error; a much larger one ends the connection.
_SLACK_BYTES = 1024 * MOVE_ROW.itemsize


class MatchProtocol(asyncio.Protocol):
    """One websocket, from its handshake to its end."""

    def __init__(self, register: Register, open_ones: set[MatchProtocol]) -> None:
        self.connection: GatewaySession | None = None  # once the handshake is done
        self._register = register
        self._settings = register.settings
        self._open_ones = open_ones
        largest = max(self._settings.max_text_bytes, HEADER_BYTES + MAX_ROWS * MOVE_ROW.itemsize)
        self._framing = ServerProtocol(
            select_subprotocol=_select_subprotocol, max_size=largest + _SLACK_BYTES, logger=log
        )
        self._parts: list[bytes] = []  # of a message in several frames
        self._kind = Opcode.BINARY
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._heard_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None  # the next ping, or the ping timeout
        self._transport: asyncio.Transport

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_ones.add(self)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        self._framing.receive_data(data)
        for event in self._framing.events_received():
            if isinstance(event, Request):
                self._shake_hands(event)
            elif isinstance(event, Frame):
                self._take(event)
        self._flush()
        if self._framing.close_sent is not None or self._framing.parser_exc is not None:
            self._part()

    def eof_received(self) -> None:
        if self._framing.state is not State.CONNECTING:
            self._framing.receive_eof()
            self._framing.events_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._open_ones.discard(self)
        self._set_timer(None)
        self._part()
        self.ended.set_result(None)

    # Called by the connection (Wire)

    def send_text(self, text: str) -> None:
        if self._framing.state is State.OPEN:
            self._framing.send_text(text.encode())
            self._flush()

    def send_binary(self, data: bytes) -> None:
        if self._framing.state is State.OPEN:
            self._framing.send_binary(data)
            self._flush()

    def waiting_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def hold(self, held: bool) -> None:
        if not self._transport.is_closing():
            if held:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def close(self, code: int, reason: str) -> None:
        """Send a close frame; without an answer in time the connection is aborted."""
        if self._framing.state is State.OPEN:
            self._framing.send_close(code, reason)
            self._flush()
            self.hold(False)  # for its answer
        self._set_timer(self._settings.close_timeout_s, self._transport.abort)

    def cut_off(self) -> None:
        """Abort the connection without a close frame."""
        self._transport.abort()

    # Inside

    def _shake_hands(self, request: Request) -> None:
        if request.path.partition("?")[0] != PATH:
            response = self._framing.reject(HTTPStatus.NOT_FOUND, f"websockets are at {PATH}\n")
        elif self._register.is_full():
            self._register.counts["connections_refused"] += 1
            response = self._framing.reject(
                HTTPStatus.SERVICE_UNAVAILABLE, "there are too many connections here\n"
            )
        else:
            response = self._framing.accept(request)
        self._framing.send_response(response)
        self._flush()
        if self._framing.state is State.OPEN:
            binary = self._framing.subprotocol == BINARY
            self.connection = GatewaySession(self._register, self, binary=binary)
            self._set_timer(self._settings.ping_interval_s, self._ping)

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return  # pings are answered by the framing
        if frame.opcode is not Opcode.CONT:
            self._kind = frame.opcode
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return
        data = b"".join(self._parts)
        self._parts.clear()
        if self.connection is None or self._framing.state is not State.OPEN:
            return
        if self._kind is Opcode.BINARY:
            self.connection.receive(data)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.close(CloseCode.INVALID_DATA, "a text frame is UTF-8")
            self._part()
            return
        self.connection.receive(text)

    def _flush(self) -> None:
        for data in self._framing.data_to_send():
            if data:
                self._transport.write(data)
            else:  # the end of the stream
                self._transport.close()
                self._set_timer(self._settings.close_timeout_s, self._transport.abort)

    def _part(self) -> None:
        if self.connection is not None:
            self.connection.leave()

    def _ping(self) -> None:
        silence_s = self._loop.time() - self._heard_s
        if silence_s > self._settings.ping_interval_s + self._settings.ping_timeout_s:
            self.close(CloseCode.INTERNAL_ERROR, "no sign of life")
            self._part()
            return
        if self._framing.state is State.OPEN:
            self._framing.send_ping(b"")
            self._flush()
        self._set_timer(self._settings.ping_interval_s, self._ping)

    def _set_timer(self, delay_s: float | None, then: Any = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else self._loop.call_later(delay_s, then)


def _select_subprotocol(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    if not offered:
        return None
    for subprotocol in offered:
        if subprotocol in (JSON, BINARY):
            return subprotocol
    raise NegotiationError(f"the subprotocols here are {JSON} and {BINARY}")
