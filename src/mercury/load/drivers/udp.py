"""`udp://HOST:PORT`: every entity is a client with a session of its own at an adapter.

It declares its entity, its reports move that, and it acknowledges what comes, all as clients do.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import numpy as np

from mercury.load.counters import LoadCounters
from mercury.load.drivers.api import Batch, Clock, Say
from mercury.load.drivers.udp_exchange import LoadDeclarations, LoadReceiver
from mercury.load.drivers.udp_recent import RecentUpdates
from mercury.load.sessions import LoadClients
from mercury.load.workload import Workload
from mercury.model.area import Position
from mercury.model.errors import LoadError, MercuryError
from mercury.model.message import Kind, Telemetry
from mercury.net.batch import available
from mercury.service.clock import now
from mercury.session import ClientEvent, Delivered, Established, Lost

SOCKETS = 16  # each is a system call of a tick
_CONNECT_S, _CONNECTED_PER_S = 30.0, 500.0
_WORK_S = 0.01
_QUIET_S = 0.3  # timeout: without an event, none is on its way
_SILENT_INTERVALS = 1.5  # of reports; an adapter ends a session after three missed ones
_SILENT_HEARTBEATS = 3


class UdpDriver:
    """Sessions over UDP; which reports arrived is seen at the adapter, not here."""

    def __init__(self, host: str, port: int) -> None:
        if not available:
            raise LoadError("load over UDP needs Linux, which sends many packets at once")
        self.counters = LoadCounters()
        self._uri = f"udp://{host}:{port}"
        self._host, self._port = host, port
        self._report_interval_s = self._heartbeat_interval_s = np.inf
        self._lost = self._without_session = 0
        self._opened = AsyncExitStack()

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        self._workload, self._clock = workload, clock
        say(f"opening {len(workload):,} sessions")
        lats, lons = workload.movement.positions(np.arange(len(workload)), 0.0)
        places = [Position(lat, lon) for lat, lon in zip(lats.tolist(), lons.tolist(), strict=True)]
        workload.movement.motions([0], 0.0)  # machine code is made now
        name = workload.settings.name
        self._clients = clients = LoadClients(
            self._port, len(workload), SOCKETS, places, host=self._host, name=name
        )
        self._opened.callback(clients.close)
        clients.heard = self._heard
        self._recent = RecentUpdates(lats, lons, workload.settings.rate_hz)
        self._declarations = declarations = LoadDeclarations(workload, clients)
        self._receiver = LoadReceiver(workload, clients, self._recent, clock, self.counters)
        timeout_s = _CONNECT_S + len(workload) / _CONNECTED_PER_S
        try:
            await asyncio.to_thread(clients.connect, timeout_s)
        except MercuryError as error:
            raise LoadError(f"{self._uri}: {error}") from None
        self._begin()
        deadline = now() + timeout_s
        while not declarations.is_done:
            if declarations.refusals:
                sentence = next(iter(declarations.refusals.values()))
                raise LoadError(f"{self._uri} refuses the load: {sentence}")
            if now() > deadline:
                missing = len(workload) - len(declarations.answered)
                raise LoadError(
                    f"{self._uri}: {missing:,} of {len(workload):,} declarations were not answered"
                )
            say(f"{len(declarations.answered):,} of {len(workload):,} entities declared")
            await asyncio.sleep(_WORK_S)

    def send(self, batch: Batch) -> None:
        """A report of each session, by a few system calls."""
        clients, accuracy_m = self._clients, self._workload.accuracy_m
        self._recent.add(batch.entities, batch.lats, batch.lons, batch.times_us)
        self._reported_at[batch.entities] = now()
        motion = self._workload.movement.motions(batch.entities, batch.times_s)
        rows = zip(
            *(column.tolist() for column in batch[:4]),
            motion.heading_deg.tolist(),
            motion.speed_mps.tolist(),
            strict=True,
        )
        reporting: list[int] = []
        seeking: list[int] = []
        for entity, lat, lon, time_us, heading_deg, speed_mps in rows:
            clients.sessions[entity].telemetry = Telemetry(
                Position(lat, lon), heading_deg, speed_mps, accuracy_m, time_us=time_us
            )
            if clients.report(entity):
                reporting.append(entity)
            else:
                seeking.append(entity)
        sent, unsent = clients.send_all(reporting)
        clients.send_all(seeking)
        self._without_session += len(seeking)
        self.counters.sent += sent
        self.counters.unsent += unsent + len(seeking)
        if unsent:
            self.counters.note("the system did not take all packets")

    async def drain(self, timeout_s: float) -> None:
        """Wait until no event comes any more; datagrams arrive soon or never."""
        begun_us = self._clock()
        while (quiet_us := self._clock()) < begun_us + timeout_s * 1e6:
            if quiet_us - max(begun_us, self._receiver.newest_us) > _QUIET_S * 1e6:
                break
            await asyncio.sleep(_WORK_S)
        self._receiver.count()
        self._receiver.note()
        if self._lost:
            self.counters.note(
                f"{self._lost:,} sessions were lost and had to be opened again;"
                f" {self._without_session:,} reports found none"
            )
        if self._declarations.refusals:
            refused = list(self._declarations.refusals.values())
            self.counters.note(f"{len(refused):,} entities were refused later: {refused[0]}")

    async def close(self) -> None:
        """Close all sessions, which withdraws their declarations."""
        await self._opened.aclose()

    # Inside

    def _begin(self) -> None:
        """Start to receive in the background; all sessions are open."""
        loop = asyncio.get_running_loop()
        for sock in self._clients.sockets:
            loop.add_reader(sock.fileno(), self._clients.receive_from, sock.fileno())
            self._opened.callback(loop.remove_reader, sock.fileno())
        # Spread out, so that while they declare they do not all report at once.
        self._reported_at = now() - np.linspace(0.0, self._silent_s, len(self._workload))
        if self._workload.settings.rate_hz * self._silent_s < 1.0:
            self.counters.note(
                f"the adapter wants a report every {self._report_interval_s:g} s: between their"
                " updates, entities say again where they were"
            )
        work = loop.create_task(self._work_on())
        self._opened.push_async_callback(asyncio.wait, [work])
        self._opened.callback(work.cancel)

    @property
    def _silent_s(self) -> float:
        return _SILENT_INTERVALS * self._report_interval_s

    def _heard(self, entity: int, event: ClientEvent) -> None:
        time = now()
        match event:
            case Delivered():
                if not self._receiver.is_new(entity, event, time):
                    return
                if event.message.kind is Kind.REPLY:
                    self._declarations.replied(entity, event.message, time)
                else:
                    self._receiver.take(entity, event.message)
            case Established(grant):
                self._report_interval_s = grant.report_interval_s
                self._heartbeat_interval_s = grant.heartbeat_interval_s
                self._declarations.connected(entity)
            case Lost():
                self._lost += 1

    async def _work_on(self) -> None:
        while True:
            time = now()
            said = (*self._keep_alive(time), *self._declarations.work(time))
            self._clients.send_all({*said, *self._receiver.work(time)})
            self._receiver.count()
            await asyncio.sleep(_WORK_S)

    def _keep_alive(self, time: float) -> list[int]:
        """Report for sessions that are silent for long, and reopen lost ones."""
        if time - self._clients.heard_at > _SILENT_HEARTBEATS * self._heartbeat_interval_s:
            self.counters.note("the adapter fell silent")
        silent: list[int] = np.flatnonzero(self._reported_at < time - self._silent_s).tolist()
        self._reported_at[silent] = time
        for entity in silent:
            self._clients.report(entity)
        return silent
