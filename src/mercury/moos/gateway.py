"""The shell around the bridge: the UDP socket, the timer, and the way into Mercury."""

from __future__ import annotations

import asyncio
import os
import random

from mercury.model.area import Position
from mercury.model.errors import MessageTooLargeError
from mercury.moos.bridge import (
    ACK_MESSAGE,
    MEDIATED_MESSAGE,
    BridgeReport,
    MoosBridge,
    Posting,
)
from mercury.moos.settings import ANY, BridgeSettings
from mercury.moos.uplink import MercuryUplink
from mercury.net import Packets, UdpEndpoint, bind_udp, resolve
from mercury.service.clock import now, now_us
from mercury.session import SessionSettings


class MoosGateway:
    """Runs one vehicle's bridge until it is closed."""

    def __init__(
        self,
        settings: BridgeSettings,
        *,
        adapter: str | None = None,
        position: Position | None = None,
        session: SessionSettings | None = None,
        seed: int | None = None,
    ) -> None:
        self.settings = settings
        self.uplink: MercuryUplink | None = None
        if adapter is not None:
            self.uplink = MercuryUplink(
                adapter,
                settings.name,
                on_posting=self._take,
                on_news=self._post_news,
                position=position,
                group=settings.group,
                session=session,
            )
        self.bridge = MoosBridge(
            settings,
            random.Random(os.urandom(8) if seed is None else seed),
            begun_us=now_us(),
            carries_all=adapter is not None,
            on_report=self.uplink.move if self.uplink is not None else None,
        )
        self._begun = now()
        self._endpoint: UdpEndpoint | None = None
        self._local = b""
        self._routes: dict[str, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def time_s(self) -> float:
        """Seconds since the bridge was made: its clock."""
        return now() - self._begun

    @property
    def port(self) -> int:
        """The UDP port it listens on."""
        assert self._endpoint is not None
        return self._endpoint.address[1]

    async def open(self) -> None:
        """Begin to listen; a taken port or an unknown host is a clear error."""
        sock = bind_udp(*self.settings.listen)
        try:
            self._local = resolve(*self.settings.local, wanted=sock.family)[1]
            self._routes = {
                mate: resolve(*where, wanted=sock.family)[1]
                for mate, where in self.settings.routes.items()
            }
        except BaseException:
            sock.close()
            raise
        self._endpoint = UdpEndpoint(sock, self._on_packets)
        if self.uplink is not None:
            try:
                await self.uplink.open()
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """Listen no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self.uplink is not None:
            await self.uplink.close()
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def report(self) -> BridgeReport:
        """What was done so far."""
        return self.bridge.report(self.time_s)

    def _on_packets(self, packets: Packets) -> None:
        for data, _address in packets:
            self.bridge.receive(data, self.time_s)
        self._flush()

    def _take(self, key: str, text: str) -> None:
        if key in (MEDIATED_MESSAGE, ACK_MESSAGE):
            self.bridge.take(key, text, self.time_s)
        else:  # who is elsewhere does not speak for our own community
            self.bridge.dropped["unknown-variable"] += 1
        self._flush()

    def _post_news(self, key: str, text: str) -> None:
        self.bridge.post_locally(key, text)
        self._flush()

    def _flush(self) -> None:
        packets: Packets = []
        for posting in self.bridge.due(self.time_s):
            to = self._local if posting.mate is None else self._route(posting.mate)
            if to is not None:
                packets += self._packet(posting, to)
            elif self.uplink is not None:
                self.uplink.carry(posting)
            else:
                self.bridge.dropped["no-route"] += 1
        if packets and self._endpoint is not None:
            self._endpoint.send(packets)
        self._set_timer()

    def _route(self, mate: str) -> bytes | None:
        return self._routes.get(mate) or self._routes.get(ANY)

    def _packet(self, posting: Posting, to: bytes) -> Packets:
        try:
            return [(self.bridge.datagram(posting, now_us() / 1e6), to)]
        except MessageTooLargeError:
            self.bridge.dropped["too-large"] += 1
            return []

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.bridge.next_timer()
        if due is not None and self._endpoint is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - self.time_s), self._flush)
