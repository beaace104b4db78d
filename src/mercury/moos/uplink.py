"""A MOOS vehicle as a client of Mercury: its place goes up, alerts come down.

Between bridges that share no direct route, Mercury carries the same postings that pShare would, as
content of the topic `moos`. It may lose or repeat them like any network; the mediators at both
ends see to that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from mercury.client import Client
from mercury.model.area import Position
from mercury.model.errors import MercuryError
from mercury.model.geojson import area_to_geojson
from mercury.model.message import Event, Kind, Message, Value
from mercury.moos.bridge import Posting
from mercury.moos.node_report import NodeReport
from mercury.net import parse_udp_uri
from mercury.session import SessionSettings, SessionState

log = logging.getLogger(__name__)

TOPIC = "moos"
ALERT_VARIABLE = "MERCURY_ALERT"

_EXPIRES_S = 30.0
_RETRY_S = 5.0
_MAX_TASKS = 1000


class MercuryUplink:
    """The vehicle's session with an adapter; it begins when the vehicle knows where it is.

    Arguments:
        on_posting: called with the variable and text of what another bridge sent to us.
        on_alert: called with an alert as JSON text.
    """

    def __init__(
        self,
        uri: str,
        name: str,
        *,
        on_posting: Callable[[str, str], None],
        on_alert: Callable[[str], None],
        position: Position | None = None,
        session: SessionSettings | None = None,
    ) -> None:
        self.uri = uri
        self.counters: Counter[str] = Counter()
        self._name = name
        self._on_posting = on_posting
        self._on_alert = on_alert
        self._position = position
        self._session = session
        self._client: Client | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Whether there is a session now."""
        client = self._client
        return client is not None and client.session.state is SessionState.ESTABLISHED

    async def open(self) -> None:
        """Seek a session, if it is known where the vehicle is."""
        parse_udp_uri(self.uri)
        if self._position is not None:
            await self._connect(self._position, None)

    async def close(self) -> None:
        """Say goodbye."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def move(self, report: NodeReport) -> None:
        """Follow the vehicle."""
        self.counters["reports"] += 1
        if self._client is not None:
            self._client.move(
                report.lat, report.lon, heading_deg=report.heading_deg, speed_mps=report.speed_mps
            )
        elif not self._tasks:
            self._spawn(self._connect(Position(report.lat, report.lon), report))

    def carry(self, posting: Posting) -> None:
        """Send a posting towards a mate; what cannot go now is lost, as on any network."""
        if self._client is None or not self.connected or len(self._tasks) >= _MAX_TASKS:
            self.counters["not-connected"] += 1
            return
        self._spawn(self._publish(self._client, posting))

    async def _connect(self, position: Position, report: NodeReport | None) -> None:
        client = Client(
            self.uri,
            identity=self._name,
            position=position,
            heading_deg=None if report is None else report.heading_deg,
            speed_mps=None if report is None else report.speed_mps,
            settings=self._session,
        )
        client.on(Kind.ALERT)(self._alerted)
        await client.open()
        self._client = client
        self._spawn(self._subscribe(client))

    async def _subscribe(self, client: Client) -> None:
        await client.connected()
        log.info("%s is connected to %s", self._name, self.uri)
        while True:
            try:
                # Names of vehicles hold no quotes.
                await client.subscribe(
                    TOPIC, where=f'to == "{self._name.lower()}"', handler=self._arrived
                )
                return
            except MercuryError as error:
                log.warning("cannot subscribe to %r: %s", TOPIC, error)
                await asyncio.sleep(_RETRY_S)

    async def _publish(self, client: Client, posting: Posting) -> None:
        values: dict[str, Value] = {
            "to": posting.mate or "",
            "key": posting.key,
            "text": posting.text.encode("utf-8", "surrogateescape"),  # MOOS has bytes, not text
        }
        try:
            await client.publish(TOPIC, values, expires_in_s=_EXPIRES_S)
            self.counters["carried"] += 1
        except MercuryError as error:
            self.counters["not-carried"] += 1
            log.warning("cannot send %s to %s: %s", posting.key, posting.mate, error)

    def _arrived(self, message: Message) -> None:
        key, text = message.values.get("key"), message.values.get("text")
        if not isinstance(key, str) or not isinstance(text, bytes):
            self.counters["not-a-posting"] += 1
            return
        self.counters["arrived"] += 1
        self._on_posting(key, text.decode("utf-8", "surrogateescape"))

    def _alerted(self, message: Message) -> None:
        self.counters["alerts"] += 1
        self._on_alert(alert_json(message))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the way into Mercury failed: %s", error)


def alert_json(message: Message) -> str:
    """An alert as one JSON object, for a MOOS variable."""
    event = message.payload if isinstance(message.payload, Event) else None
    place = None if event is None else event.position
    area = message.destination.area
    return json.dumps(
        {
            "id": str(uuid.UUID(bytes=message.id)),
            "kind": "" if event is None else event.kind,
            "text": "" if event is None else event.text,
            "priority": message.priority,
            "source": str(message.source),
            "sent": message.sent_us / 1e6,
            "expires": message.expires_us / 1e6 if message.expires_us else None,
            "lat": None if place is None else place.lat,
            "lon": None if place is None else place.lon,
            "radius_m": None if event is None else event.radius_m,
            "area": None if area is None else area_to_geojson(area),
            "values": {} if event is None else dict(event.values),
        },
        separators=(",", ":"),
        default=str,
    )
