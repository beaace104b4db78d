"""`udp://HOST:PORT`: every entity is a client with a session of its own at an adapter.

Entities only report where they are. Once clients can publish and subscribe by messages, `open`
declares them as the other drivers do, and `_receive` counts the events that come back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import numpy as np

from mercury.load.drivers.api import Batch, Clock, Say
from mercury.load.sessions import LoadClients
from mercury.load.tally import Tally
from mercury.load.workload import Workload
from mercury.model.area import Position
from mercury.model.errors import LoadError, MercuryError
from mercury.model.message import Telemetry
from mercury.net.batch import SEND_BATCH, available, send_packets

SOCKETS = 16  # each is a system call of a tick
_CONNECT_S, _CONNECTED_PER_S = 30.0, 500.0
_SETTLE_S = 0.2


class UdpDriver:
    """Sessions over UDP; what the adapter does with reports is seen there, not here."""

    def __init__(self, host: str, port: int) -> None:
        if not available:
            raise LoadError("load over UDP needs Linux, which sends many packets at once")
        self.tally = Tally()
        self._host, self._port = host, port
        self._clients: LoadClients | None = None
        self._workload: Workload | None = None

    async def open(self, workload: Workload, clock: Clock, say: Say) -> None:
        """Open all sessions."""
        everybody = np.arange(len(workload))
        lats, lons = workload.movement.positions(everybody, 0.0)
        places = [Position(lat, lon) for lat, lon in zip(lats.tolist(), lons.tolist(), strict=True)]
        workload.movement.motions([0], 0.0)  # machine code is made now
        say(f"opening {len(workload):,} sessions")
        self._workload = workload
        self._clients = LoadClients(
            self._port,
            len(workload),
            SOCKETS,
            places,
            host=self._host,
            name=workload.settings.name,
        )
        timeout_s = _CONNECT_S + len(workload) / _CONNECTED_PER_S
        try:
            await asyncio.to_thread(self._clients.connect, timeout_s)
        except MercuryError as error:
            raise LoadError(f"udp://{self._host}:{self._port}: {error}") from None
        self.tally.note(
            "over UDP entities report where they are, and neither publish nor subscribe"
        )

    def send(self, batch: Batch) -> None:
        """A report of each session, by a few system calls."""
        assert self._clients is not None
        assert self._workload is not None
        clients = self._clients
        self._receive(clients)
        motion = self._workload.movement.motions(batch.entities, batch.times_s)
        rows = zip(
            *(column.tolist() for column in batch[:4]),
            motion.heading_deg.tolist(),
            motion.speed_mps.tolist(),
            strict=True,
        )
        by_socket: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        accuracy_m = self._workload.accuracy_m
        for entity, lat, lon, time_us, heading_deg, speed_mps in rows:
            telemetry = Telemetry(
                Position(lat, lon), heading_deg, speed_mps, accuracy_m, time_us=time_us
            )
            packets = clients.report(entity, telemetry)
            if packets:
                by_socket[clients.socket_of(entity).fileno()] += packets
            else:
                self.tally.unsent += 1
                self.tally.note("some sessions were lost and had to be opened again")
        for fd, packets in by_socket.items():
            self._send(fd, packets)

    async def settle(self, timeout_s: float) -> None:
        """Datagrams are there at once or never."""
        await asyncio.sleep(min(_SETTLE_S, timeout_s))

    async def close(self) -> None:
        """Say goodbye for everybody."""
        if self._clients is not None:
            self._clients.close()

    def _receive(self, clients: LoadClients) -> None:
        clients.receive()

    def _send(self, fd: int, packets: list[tuple[bytes, bytes]]) -> None:
        for begin in range(0, len(packets), SEND_BATCH):
            some = packets[begin : begin + SEND_BATCH]
            handled, unsendable = send_packets(fd, some)
            self.tally.sent += handled - unsendable
            if handled - unsendable < len(some):
                self.tally.unsent += len(some) - handled + unsendable
                self.tally.note("the system did not take all packets")
