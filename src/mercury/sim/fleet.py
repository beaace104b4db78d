"""Many vehicles in one process: real clients, each with its own socket, driven by a plane."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
from collections import Counter
from collections.abc import Callable
from functools import partial

from mercury.client import Client
from mercury.client.reception import Inbox
from mercury.config.mediator import MediatorSettings
from mercury.model.area import Position
from mercury.model.errors import ConfigurationError, NotConnectedError, SessionError
from mercury.model.message import EventKind, Kind, Message
from mercury.net import LinkPair, LinkStatistics, link_from, parse_link
from mercury.roads.plane import Plane, PlaneFrame
from mercury.service.clock import now
from mercury.session import SessionSettings
from mercury.session.client_side import SessionState
from mercury.sim.incident import Incident, Traffic

log = logging.getLogger(__name__)

_SPARE_FILES = 128  # what a process has open besides the vehicles' sockets
_MOVE_CHUNK = 256  # vehicles moved before packets get their turn
# An adapter's receive buffer may be as small as 208 KiB, which some 270 packets fill.
_BURST = 64
_BURST_PAUSE_S = 0.004
_LOSSY_PAUSE_S = 0.3  # over lossy links: timeout of a burst for its sessions, then the next


class Fleet:
    """Vehicles that connect, move, report, sense and are notified (Mercury §7.1).

    Arguments:
        tick_s: interval at which the plane is moved on by the time that has passed; None leaves
            it to the caller to `advance`.
        connect_timeout_s: timeout of a burst of vehicles to get their sessions.
        on_connected: called with the number of vehicles that have a session, as it grows.
        link: every vehicle gets a lossy link like this, with dice of its own. Who gets no session
            then goes on trying while the others drive.
        antenna: x and y of where the links lead to; None is the middle of the plane.
    """

    def __init__(
        self,
        plane: Plane,
        frame: PlaneFrame,
        adapter: str,
        *,
        session: SessionSettings | None = None,
        mediator: MediatorSettings | None = None,
        tick_s: float | None = 0.25,
        connect_timeout_s: float = 10.0,
        seed: int = 1,
        on_connected: Callable[[int], None] | None = None,
        link: LinkPair | str | None = None,
        antenna: tuple[float, float] | None = None,
    ) -> None:
        self.plane = plane
        self.frame = frame
        self.incidents: list[Incident] = []
        self.unrelated_alerts = 0  # received, and not about an incident of this fleet
        self._adapter = adapter
        self._tick_s = tick_s
        self._mediator = mediator
        self._connect_timeout_s = connect_timeout_s
        self._on_connected = on_connected
        self._link = parse_link(link) if isinstance(link, str) else link
        self.antenna = antenna or (plane.width_m / 2, plane.height_m / 2)
        self._ticker: asyncio.Task[None] | None = None
        self._moving = asyncio.Lock()  # held while some have moved and others have not
        # The telemetry of every vehicle: correct at any moment, also within a tick.
        self.traffic = self._traffic_now().copy()
        width = len(str(len(plane)))
        self.identities = [f"car-{number:0{width}d}" for number in range(1, len(plane) + 1)]
        self.clients = [
            self._client(number, adapter, session or SessionSettings(), seed)
            for number in range(len(plane))
        ]

    # Start and stop

    async def start(self) -> None:
        """Open all sessions, in bursts that an adapter can take, and begin to move."""
        _allow_open_files(len(self.clients) + _SPARE_FILES)
        try:
            for first in range(0, len(self.clients), _BURST):
                await self._connect(self.clients[first : first + _BURST])
                if self._on_connected is not None:
                    opened = min(first + _BURST, len(self.clients))
                    self._on_connected(opened if self._link is None else self.connected)
            if not self.connected:
                await self._first_session()
        except BaseException:
            await self.stop()
            raise
        if self._tick_s is not None:
            self._ticker = asyncio.create_task(self._drive(self._tick_s))

    async def stop(self) -> None:
        """Stop moving and end all sessions."""
        if self._ticker is not None:
            self._ticker.cancel()
            (end,) = await asyncio.gather(self._ticker, return_exceptions=True)
            self._ticker = None
            if isinstance(end, Exception):
                log.error("the vehicles stopped moving", exc_info=end)
        for first in range(0, len(self.clients), _BURST):
            for client in self.clients[first : first + _BURST]:
                await client.close()
            await asyncio.sleep(_BURST_PAUSE_S)

    @property
    def connected(self) -> int:
        """How many vehicles have a session now."""
        return sum(_has_session(client) for client in self.clients)

    @property
    def sessions_lost(self) -> int:
        """How often a vehicle had to open its session again."""
        return sum(max(client.session.sessions_opened - 1, 0) for client in self.clients)

    def dropped(self) -> Counter[str]:
        """What the vehicles received and dropped, by reason."""
        total: Counter[str] = Counter()
        for client in self.clients:
            total += client.dropped + client.session.dropped
        return total

    def link_statistics(self) -> dict[str, LinkStatistics]:
        """Packet counts of all vehicles' links, by direction."""
        total = {"up": LinkStatistics(), "down": LinkStatistics()}
        for client in self.clients:
            if client.link is not None:
                for direction, statistics in client.link.statistics.items():
                    total[direction].add(statistics)
        return total

    # Events

    async def simulate_event(
        self, x_m: float, y_m: float, radius_m: float, kind: str = EventKind.EMERGENCY
    ) -> Incident:
        """All vehicles within the circle sense an event at their positions and publish it."""
        async with self._moving:
            incident = self._incident(kind, x_m, y_m, radius_m)
            witnesses = self.plane.inside_circle(x_m, y_m, radius_m).tolist()
            for count, number in enumerate(witnesses, 1):
                client = self.clients[number]
                if _has_session(client):
                    begun = now()
                    message = await client.sense(kind)
                    incident.sensed_by(number, message.id, begun)
                if count % _BURST == 0:
                    await asyncio.sleep(_BURST_PAUSE_S)
        return incident

    async def simulate_jam(
        self, x_m: float, y_m: float, radius_m: float, crawl_mps: float = 1.0
    ) -> Incident:
        """Slow traffic within a circle almost to a stop; no vehicle reports it."""
        async with self._moving:
            incident = self._incident(EventKind.CONGESTION, x_m, y_m, radius_m)
            incident.reported = False
            incident.begun = now()
            self.plane.jam(x_m, y_m, radius_m, crawl_mps)
        return incident

    def _incident(self, kind: str, x_m: float, y_m: float, radius_m: float) -> Incident:
        lat, lon = self.frame.to_wgs84(x_m, y_m)
        place = Position(float(lat), float(lon))
        traffic = self.traffic.copy()
        incident = Incident(kind, x_m, y_m, radius_m, self.identities, traffic, place)
        self.incidents.append(incident)
        return incident

    async def advance(self, dt_s: float, *, report: bool = False) -> None:
        """Move all vehicles; with `report` they report their positions at once."""
        async with self._moving:
            self.plane.step(dt_s)
            now_there = self._traffic_now()
            for first in range(0, len(self.plane), _MOVE_CHUNK):
                part = slice(first, first + _MOVE_CHUNK)
                for known, found in zip(self.traffic, now_there, strict=True):
                    known[part] = found[part]
                columns = (column[part].tolist() for column in now_there[2:])
                for client, *place, heading_deg, speed_mps in zip(
                    self.clients[part], *columns, strict=True
                ):
                    says_so = report and (self._link is None or _has_session(client))
                    client.move(
                        *place, heading_deg=heading_deg, speed_mps=speed_mps, report=says_so
                    )
                await asyncio.sleep(0)

    # Inside

    def _traffic_now(self) -> Traffic:
        plane = self.plane
        lat, lon = self.frame.to_wgs84(plane.x_m, plane.y_m)
        return Traffic(plane.x_m, plane.y_m, lat, lon, plane.heading_deg, plane.speed_mps)

    def _client(self, number: int, adapter: str, session: SessionSettings, seed: int) -> Client:
        traffic = self.traffic
        client_seed = seed * 1_000_003 + number
        link = None if self._link is None else link_from(self._link, client_seed)
        if link is not None:
            link.range_m = partial(self._range_m, number)
        client = Client(
            adapter,
            identity=self.identities[number],
            position=(float(traffic.lat[number]), float(traffic.lon[number])),
            heading_deg=float(traffic.heading_deg[number]),
            speed_mps=float(traffic.speed_mps[number]),
            settings=session,
            seed=client_seed,
            mediator=self._mediator,
            link=link,
        )
        # The handler gets all messages; the inbox would only fill up.
        client.reception.inbox = Inbox(limit=0)
        client.on(Kind.ALERT)(partial(self._heard, number))
        return client

    async def _connect(self, clients: list[Client]) -> None:
        for client in clients:
            await client.open()
        connect_timeout_s = self._connect_timeout_s
        if self._link is not None:
            connect_timeout_s = min(connect_timeout_s, _LOSSY_PAUSE_S)
        waits = [client.connected(connect_timeout_s) for client in clients]
        answers = await asyncio.gather(*waits, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, SessionError):
                if self._link is not None:
                    continue  # it keeps trying
                got, all_of_them = self.connected, len(self.clients)
                raise NotConnectedError(f"{got} of {all_of_them} vehicles have a session: {answer}")
            if isinstance(answer, BaseException):
                raise answer

    async def _first_session(self) -> None:
        """Wait until one vehicle has a session; even on bad links one gets through."""
        deadline = now() + self._connect_timeout_s
        while not self.connected:
            if now() > deadline:
                raise NotConnectedError(
                    f"none of {len(self.clients)} vehicles got a session over its link within"
                    f" {self._connect_timeout_s:g} s: is there an adapter at {self._adapter}?"
                )
            await asyncio.sleep(_BURST_PAUSE_S)

    def _range_m(self, number: int) -> float:
        x_m, y_m = self.antenna
        return math.hypot(self.traffic.x_m[number] - x_m, self.traffic.y_m[number] - y_m)

    async def _drive(self, tick_s: float) -> None:
        moved = now()
        while True:
            await asyncio.sleep(tick_s)
            time = now()
            await self.advance(time - moved)
            moved = time

    def _heard(self, number: int, alert: Message) -> None:
        time = now()
        for incident in self.incidents:
            if incident.caused(alert):
                incident.notified(number, alert, time, self.traffic)
                return
        self.unrelated_alerts += 1


def _has_session(client: Client) -> bool:
    return client.session.state is SessionState.ESTABLISHED


def _allow_open_files(wanted: int) -> None:
    """Raise the soft limit of open files, since every vehicle has a socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):
        raise ConfigurationError(
            f"so many vehicles need {wanted} open files and the system allows {hard}: raise that"
            " with ulimit -n, or let fewer vehicles drive"
        ) from None
