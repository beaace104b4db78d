"""`udp://HOST:PORT`: every entity is a client with a session of its own at an adapter.

It declares its entity, its reports move that, and it acknowledges what comes, all as clients do.
"""

from __future__ import annotations

import asyncio

import numpy as np

from mercury.load.drivers.api import Batch, Clock, Say
from mercury.load.drivers.udp_declaring import Declaring
from mercury.load.drivers.udp_hearing import Hearing
from mercury.load.drivers.udp_recent import RecentUpdates
from mercury.load.sessions import LoadClients
from mercury.load.tally import Tally
from mercury.load.workload import Workload
from mercury.model.area import Position
from mercury.model.errors import LoadError, MercuryError
from mercury.model.message import Kind, Telemetry
from mercury.net.batch import available
from mercury.service.clock import now
from mercury.session import ClientEvent, Delivered, Established, Lost, SessionState

SOCKETS = 16  # each is a system call of a tick
_CONNECT_S, _CONNECTED_PER_S = 30.0, 500.0
_WORK_S = 0.01
_QUIET_S = 0.3  # timeout: without an event, none is on its way
_SILENT_INTERVALS = 1.5  # of reports; an adapter gives up who is silent for three
_SILENT_HEARTBEATS = 3


class UdpDriver:
    """Sessions over UDP; which reports arrived is seen at the adapter, not here."""

    def __init__(self, host: str, port: int) -> None:
        if not available:
            raise LoadError("load over UDP needs Linux, which sends many packets at once")
        self.tally = Tally()
        self._uri = f"udp://{host}:{port}"
        self._host, self._port = host, port
        self._clock: Clock = lambda: 0
        self._sessions: _Sessions | None = None

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Open all sessions, and declare everybody."""
        self._clock = clock
        say(f"opening {len(workload):,} sessions")
        self._sessions = sessions = _Sessions(self._host, self._port, workload, clock, self.tally)
        timeout_s = _CONNECT_S + len(workload) / _CONNECTED_PER_S
        try:
            await asyncio.to_thread(sessions.clients.connect, timeout_s)
        except MercuryError as error:
            raise LoadError(f"{self._uri}: {error}") from None
        sessions.begin()
        declaring, deadline = sessions.declaring, now() + timeout_s
        while not declaring.is_done:
            if declaring.refusals:
                sentence = next(iter(declaring.refusals.values()))
                raise LoadError(f"{self._uri} refuses the load: {sentence}")
            if now() > deadline:
                missing = len(workload) - len(declaring.answered)
                raise LoadError(
                    f"{self._uri}: {missing:,} of {len(workload):,} declarations were not answered"
                )
            say(f"{len(declaring.answered):,} of {len(workload):,} entities declared")
            await asyncio.sleep(_WORK_S)

    def send(self, batch: Batch) -> None:
        """A report of each session, by a few system calls."""
        assert self._sessions is not None
        self._sessions.report(batch)

    async def settle(self, timeout_s: float) -> None:
        """Until no event comes any more; datagrams are there soon or never."""
        assert self._sessions is not None
        settled_us, hearing = self._clock(), self._sessions.hearing
        while (quiet_us := self._clock()) < settled_us + timeout_s * 1e6:
            if quiet_us - max(settled_us, hearing.news_us) > _QUIET_S * 1e6:
                break
            await asyncio.sleep(_WORK_S)
        self._sessions.sum_up()

    async def close(self) -> None:
        """Say goodbye for everybody, which withdraws what they declared."""
        if self._sessions is not None:
            await self._sessions.close()


class _Sessions:
    """The sessions of a run on the event loop: what they send, and what they hear."""

    def __init__(
        self, host: str, port: int, workload: Workload, clock: Clock, tally: Tally
    ) -> None:
        lats, lons = workload.movement.positions(np.arange(len(workload)), 0.0)
        places = [Position(lat, lon) for lat, lon in zip(lats.tolist(), lons.tolist(), strict=True)]
        workload.movement.motions([0], 0.0)  # machine code is made now
        name = workload.settings.name
        self.clients = LoadClients(port, len(workload), SOCKETS, places, host=host, name=name)
        self.clients.heard = self._heard
        self._recent = RecentUpdates(lats, lons, workload.settings.rate_hz)
        self.declaring = Declaring(workload, self.clients)
        self.hearing = Hearing(workload, self.clients, self._recent, clock, tally)
        self._workload = workload
        self._tally = tally
        self._reported_at = np.full(len(workload), np.inf)
        self._report_interval_s = self._heartbeat_interval_s = np.inf
        self._lost = self._without_session = 0
        self._work: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Hear and work by itself from now on; all sessions are open."""
        loop = asyncio.get_running_loop()
        for sock in self.clients.sockets:
            loop.add_reader(sock.fileno(), self.clients.receive_from, sock.fileno())
        # Spread out, so that while they declare they do not all report at once.
        self._reported_at = now() - np.linspace(0.0, self._silent_s, len(self._workload))
        if self._workload.settings.rate_hz * self._silent_s < 1.0:
            self._tally.note(
                f"the adapter wants a report every {self._report_interval_s:g} s: between their"
                " updates, entities say again where they were"
            )
        self._work = loop.create_task(self._work_on())

    def report(self, batch: Batch) -> None:
        """Send updates."""
        clients, accuracy_m = self.clients, self._workload.accuracy_m
        self._recent.add(batch.entities, batch.lats, batch.lons, batch.times_us)
        self._reported_at[batch.entities] = now()
        motion = self._workload.movement.motions(batch.entities, batch.times_s)
        rows = zip(
            *(column.tolist() for column in batch[:4]),
            motion.heading_deg.tolist(),
            motion.speed_mps.tolist(),
            strict=True,
        )
        reporting = []
        for entity, lat, lon, time_us, heading_deg, speed_mps in rows:
            telemetry = Telemetry(
                Position(lat, lon), heading_deg, speed_mps, accuracy_m, time_us=time_us
            )
            if clients.report(entity, telemetry):
                reporting.append(entity)
        sent, unsent = clients.send_all(reporting)
        without_session = len(batch) - len(reporting)
        self._without_session += without_session
        self._tally.sent += sent
        self._tally.unsent += unsent + without_session
        if unsent:
            self._tally.note("the system did not take all packets")

    def sum_up(self) -> None:
        """Count the rest, and say what was not as it should be."""
        self.hearing.count()
        self.hearing.note()
        if self._lost:
            self._tally.note(
                f"{self._lost:,} sessions were lost and had to be opened again;"
                f" {self._without_session:,} reports found none"
            )
        if self.declaring.refusals:
            refused = list(self.declaring.refusals.values())
            self._tally.note(f"{len(refused):,} entities were refused later: {refused[0]}")

    async def close(self) -> None:
        """Say goodbye."""
        if self._work is not None:
            loop = asyncio.get_running_loop()
            for sock in self.clients.sockets:
                loop.remove_reader(sock.fileno())
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self.clients.close()

    # Inside

    @property
    def _silent_s(self) -> float:
        return _SILENT_INTERVALS * self._report_interval_s

    def _heard(self, entity: int, event: ClientEvent) -> None:
        time = now()
        match event:
            case Delivered():
                if not self.hearing.is_new(entity, event, time):
                    return
                if event.message.kind is Kind.REPLY:
                    self.declaring.replied(entity, event.message, time)
                else:
                    self.hearing.take(entity, event.message)
            case Established(grant):
                self._report_interval_s = grant.report_interval_s
                self._heartbeat_interval_s = grant.heartbeat_interval_s
                self.declaring.connected(entity)
            case Lost():
                self._lost += 1

    async def _work_on(self) -> None:
        while True:
            time = now()
            said = {*self._keep_alive(time), *self.declaring.work(time), *self.hearing.work(time)}
            self.clients.send_all(said)
            self.hearing.count()
            await asyncio.sleep(_WORK_S)

    def _keep_alive(self, time: float) -> list[int]:
        """Who has not reported for long does, and who has no session seeks one."""
        if time - self.clients.heard_at > _SILENT_HEARTBEATS * self._heartbeat_interval_s:
            self._tally.note("the adapter fell silent")
        silent: list[int] = np.flatnonzero(self._reported_at < time - self._silent_s).tolist()
        self._reported_at[silent] = time
        for entity in silent:
            session = self.clients.sessions[entity]
            if session.state is SessionState.ESTABLISHED:
                session.report(time)
            else:
                session.handle_timer(time)
        return silent
