"""A MOOS vehicle as a client of Mercury: its position goes up, alerts and messages come down.

Between bridges that share no direct route, Mercury carries the same postings that pShare would, as
messages of the topic `moos` from client to client. It may lose or repeat them like any network; the
mediators at both ends see to that.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
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
MESSAGE_VARIABLE = "MERCURY_MESSAGE"

_EXPIRES_S = 30.0
_MAX_TASKS = 1000


class MercuryUplink:
    """The vehicle's session with an adapter; it begins when the vehicle knows where it is.

    Arguments:
        on_posting: called with the variable and text of what another bridge sent to us.
        on_news: called with a variable for the own community and its value, a JSON text.
    """

    def __init__(
        self,
        uri: str,
        name: str,
        *,
        on_posting: Callable[[str, str], None],
        on_news: Callable[[str, str], None],
        position: Position | None = None,
        group: str | None = None,
        session: SessionSettings | None = None,
    ) -> None:
        self.uri = uri
        self.counters: Counter[str] = Counter()
        self._name = name.lower()  # as those who address it write it
        self._group = group
        self._on_posting = on_posting
        self._on_news = on_news
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
        self._spawn(self._carry(self._client, posting))

    async def _connect(self, position: Position, report: NodeReport | None) -> None:
        client = Client(
            self.uri,
            identity=self._name,
            position=position,
            heading_deg=None if report is None else report.heading_deg,
            speed_mps=None if report is None else report.speed_mps,
            settings=self._session,
            groups=() if self._group is None else (self._group,),
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
                policy="fire-and-forget",  # our mediator does the rest
                expires_in_s=_EXPIRES_S,
            )
            self.counters["carried"] += 1
        except MercuryError as error:
            self.counters["not-carried"] += 1
            log.warning("cannot send %s to %s: %s", posting.key, posting.mate, error)

    def _on_content(self, message: Message) -> None:
        if message.topic != TOPIC:
            self.counters["messages"] += 1
            self._on_news(MESSAGE_VARIABLE, message_json(message))
            return
        key, text = message.values.get("key"), message.values.get("text")
        if not isinstance(key, str) or not isinstance(text, bytes):
            self.counters["not-a-posting"] += 1
            return
        self.counters["arrived"] += 1
        self._on_posting(key, text.decode("utf-8", "surrogateescape"))

    def _on_alert(self, message: Message) -> None:
        self.counters["alerts"] += 1
        self._on_news(ALERT_VARIABLE, alert_json(message))

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
    position = None if event is None else event.position
    area = message.destination.area
    return _json(
        message,
        {
            "kind": "" if event is None else event.kind,
            "text": "" if event is None else event.text,
            "lat": None if position is None else position.lat,
            "lon": None if position is None else position.lon,
            "radius_m": None if event is None else event.radius_m,
            "area": None if area is None else area_to_geojson(area),
            "values": {} if event is None else dict(event.values),
        },
    )


def message_json(message: Message) -> str:
    """A message of another client as one JSON object, for a MOOS variable."""
    return _json(message, {"topic": message.topic, "values": dict(message.values)})


def _json(message: Message, said: dict[str, Any]) -> str:
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
