"""The shell around the bridge: the UDP socket, the timer, and the connection to Mercury.

A MOOS vehicle is a client of Mercury: its position goes up, alerts and messages come down. Between
bridges without a direct route, Mercury carries the same postings that pShare would, as messages
of the topic `moos` from client to client. It may lose or repeat them like any network; the
mediators at both ends retry and remove duplicates.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import random
from collections import Counter
from typing import Any

from mercury.client import Client
from mercury.mediator import Report
from mercury.model.area import Position
from mercury.model.errors import MercuryError, MessageTooLargeError
from mercury.model.geojson import area_to_geojson
from mercury.model.message import Event, Kind, Message, Value
from mercury.moos.bridge import ACK_MESSAGE, MEDIATED_MESSAGE, MoosBridge, Posting
from mercury.moos.settings import ANY, BridgeSettings
from mercury.moos.text_forms import NodeReport
from mercury.net import Packets, UdpEndpoint, bind_udp, parse_udp_uri, resolve
from mercury.net.timer import Timer
from mercury.service.clock import now, now_us
from mercury.session import SessionSettings, SessionState

log = logging.getLogger(__name__)

TOPIC = "moos"
ALERT_VARIABLE = "MERCURY_ALERT"
MESSAGE_VARIABLE = "MERCURY_MESSAGE"

_EXPIRES_S = 30.0
_MAX_TASKS = 1000


class MoosService:
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
        self.uplink = None if adapter is None else MercuryUplink(self, adapter, position, session)
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
        self._timer = Timer(self._flush, lambda: self.time_s)

    @property
    def time_s(self) -> float:
        """Seconds since the bridge was made: its clock."""
        return now() - self._begun

    @property
    def port(self) -> int:
        assert self._endpoint is not None
        return self._endpoint.address[1]

    async def open(self) -> None:
        """Begin to listen; a taken port or an unknown host is a clear error."""
        sock = bind_udp(*self.settings.listen)
        self._endpoint = UdpEndpoint(sock, self._on_packets)
        try:
            self._local = resolve(*self.settings.local, wanted=sock.family)[1]
            self._routes = {
                mate: resolve(*where, wanted=sock.family)[1]
                for mate, where in self.settings.routes.items()
            }
            if self.uplink is not None:
                await self.uplink.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._timer.cancel()
        if self.uplink is not None:
            await self.uplink.close()
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def report(self) -> Report:
        return self.bridge.report(self.time_s)

    def _on_packets(self, packets: Packets) -> None:
        for data, _address in packets:
            self.bridge.receive(data, self.time_s)
        self._flush()

    def take(self, key: str, text: str) -> None:
        """Take a variable that another bridge sent through Mercury."""
        if key in (MEDIATED_MESSAGE, ACK_MESSAGE):
            self.bridge.take(key, text, self.time_s)
        else:  # only the own pShare may post for the own community
            self.bridge.dropped["unknown-variable"] += 1
        self._flush()

    def post_message(self, key: str, text: str) -> None:
        """Post a message from Mercury to the own community: a variable and its value, JSON text."""
        self.bridge.post_locally(key, text)
        self._flush()

    def _flush(self) -> None:
        packets: Packets = []
        for posting in self.bridge.due(self.time_s):
            if posting.mate is None:
                to: bytes | None = self._local
            else:
                to = self._routes.get(posting.mate) or self._routes.get(ANY)
            if to is not None:
                try:
                    packets.append((self.bridge.datagram(posting, now_us() / 1e6), to))
                except MessageTooLargeError:
                    self.bridge.dropped["too-large"] += 1
            elif self.uplink is not None:
                self.uplink.carry(posting)
            else:
                self.bridge.dropped["no-route"] += 1
        if self._endpoint is not None:
            if packets:
                self._endpoint.send(packets)
            self._timer.set(self.bridge.next_timer())


class MercuryUplink:
    """The vehicle's session with an adapter; it begins with the first position."""

    def __init__(
        self,
        service: MoosService,
        uri: str,
        position: Position | None,
        session: SessionSettings | None,
    ) -> None:
        self.uri = uri
        self.counters: Counter[str] = Counter()
        self._service = service
        self._name = service.settings.name.lower()  # as senders address it
        self._position = position
        self._session = session
        self._client: Client | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        client = self._client
        return client is not None and client.session.state is SessionState.ESTABLISHED

    async def open(self) -> None:
        """Open a session, if the vehicle's position is known."""
        parse_udp_uri(self.uri)
        if self._position is not None:
            await self._connect(NodeReport(self._name, self._position.lat, self._position.lon))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def move(self, report: NodeReport) -> None:
        """Set the vehicle's position."""
        self.counters["reports"] += 1
        if self._client is not None:
            self._client.move(
                report.lat, report.lon, heading_deg=report.heading_deg, speed_mps=report.speed_mps
            )
        elif not self._tasks:
            self._spawn(self._connect(report))

    def carry(self, posting: Posting) -> None:
        """Send a posting towards a mate; what cannot go now is lost, as on any network."""
        if self._client is None or not self.connected or len(self._tasks) >= _MAX_TASKS:
            self.counters["not-connected"] += 1
            return
        self._spawn(self._carry(self._client, posting))

    async def _connect(self, report: NodeReport) -> None:
        group = self._service.settings.group
        client = Client(
            self.uri,
            identity=self._name,
            position=(report.lat, report.lon),
            heading_deg=report.heading_deg,
            speed_mps=report.speed_mps,
            settings=self._session,
            groups=() if group is None else (group,),
        )
        client.on(Kind.ALERT)(self._on_alert)
        client.on(Kind.CONTENT)(self._on_content)
        await client.open()
        self._client = client

    async def _carry(self, client: Client, posting: Posting) -> None:
        values: dict[str, Value] = {
            "key": posting.key,
            "text": posting.text.encode("utf-8", "surrogateescape"),  # MOOS has bytes, not text
        }
        try:
            await client.tell(
                posting.mate,
                values,
                topic=TOPIC,
                policy="fire-and-forget",  # the bridge's mediator retries
                expires_in_s=_EXPIRES_S,
            )
            self.counters["carried"] += 1
        except MercuryError as error:
            self.counters["not-carried"] += 1
            log.warning("cannot send %s to %s: %s", posting.key, posting.mate, error)

    def _on_content(self, message: Message) -> None:
        if message.topic != TOPIC:
            self.counters["messages"] += 1
            said = {"topic": message.topic, "values": dict(message.values)}
            self._service.post_message(MESSAGE_VARIABLE, _json(message, said))
            return
        key, text = message.values.get("key"), message.values.get("text")
        if not isinstance(key, str) or not isinstance(text, bytes):
            self.counters["not-a-posting"] += 1
            return
        self.counters["arrived"] += 1
        self._service.take(key, text.decode("utf-8", "surrogateescape"))

    def _on_alert(self, message: Message) -> None:
        self.counters["alerts"] += 1
        event = message.event or Event("")
        position, area = event.position, message.destination.area
        said = {
            "kind": event.kind,
            "text": event.text,
            "lat": None if position is None else position.lat,
            "lon": None if position is None else position.lon,
            "radius_m": event.radius_m,
            "area": None if area is None else area_to_geojson(area),
            "values": dict(event.values),
        }
        self._service.post_message(ALERT_VARIABLE, _json(message, said))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the way into Mercury failed: %s", error)


def _json(message: Message, said: dict[str, Any]) -> str:
    """A message as one JSON object, for a MOOS variable."""
    envelope = {
        "id": str(message.id),
        "source": str(message.source),
        "priority": message.priority,
        "sent": message.sent_us / 1e6,
        "expires": message.expires_us / 1e6 if message.expires_us else None,
    }
    return json.dumps(envelope | said, separators=(",", ":"), default=_bytes_as_text)


def _bytes_as_text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
