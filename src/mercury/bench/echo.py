"""`echorate` (Mercury §7.3): round trips through client, adapter, bus, broker and back.

The load is open loop: messages leave on a schedule, whatever comes back. The generator's own
lateness is reported beside the round trips.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from mercury.dev.processes import free_port
from mercury.load.sessions import LoadClients
from mercury.model.area import Position
from mercury.model.errors import MercuryError
from mercury.model.message import Address, Attributes, Kind, Message, Priority
from mercury.net.batch import BatchReceiver
from mercury.net.udp import bind_udp
from mercury.sim.figure import new_figure, save
from mercury.wire import HEADER_BYTES, to_envelope
from mercury.wire import mercury_pb2 as pb

CLIENTS = 32
GRACE_S = 2.0  # how long answers are waited for after the last message
_BURST = 64
_TOKEN = slice(8, 24)  # in a packet
# Messages due within this leave together; sleeping less costs more than it brings.
_TICK_S = 0.00025
# Mercury §7.3: about 10 ms at one message a second, about 1 s from 10 to 500, falling behind
# between 500 and 750.
_PAPER_MS = {1: 10.0, 10: 1000.0, 100: 1000.0, 500: 1000.0}
_PAPER_BREAKS_AT = 750


@dataclass(slots=True)
class Run:
    rate: float
    sent: int
    received: int
    duplicates: int
    round_trips_ms: NDArray[np.float64]
    late_p99_ms: float  # how late the generator itself was

    @property
    def lossless(self) -> bool:
        """Nothing lost, and the generator kept its schedule."""
        return self.received == self.sent and self.late_p99_ms < 50.0

    def row(self) -> dict[str, float]:
        """The documented keys."""
        shares = {"p25_ms": 25, "p50_ms": 50, "p75_ms": 75, "p99_ms": 99, "max_ms": 100}
        trips_ms = self.round_trips_ms if len(self.round_trips_ms) else [np.nan]
        return {
            "rate": self.rate,
            "sent": self.sent,
            "received": self.received,
            "duplicates": self.duplicates,
            **{name: round(float(np.percentile(trips_ms, at)), 4) for name, at in shares.items()},
            "generator_late_p99_ms": round(self.late_p99_ms, 4),
        }


def open_loop(
    rate: float,
    packets: list[bytes],
    sock: socket.socket,
    number_of: Callable[[bytes], int | None],
) -> Run:
    """Send packets on schedule from a connected socket and time the answers.

    The packets are ready beforehand and the loop does as little as it can: on two cores every
    microsecond spent here is taken from what is measured.
    """
    count = len(packets)
    sent_at = [0.0] * count
    came_at = [0.0] * count
    duplicates = received = number = 0
    receiver = BatchReceiver()
    clock, wait_readable, fd = time.perf_counter, select.select, sock.fileno()
    sources = [sock]
    gc.collect()
    gc.disable()
    interval = 1.0 / rate
    begun = clock() + 0.01
    end = begun + count * interval + GRACE_S
    try:
        while received < count:
            now = clock()
            if now > end:
                break
            burst = 0
            # A burst after a hiccup is cut, so that answers are read in between.
            while number < count and burst < _BURST and now >= begun + number * interval:
                sent_at[number] = now
                sock.send(packets[number])
                number += 1
                burst += 1
                now = clock()
            if burst == _BURST:
                wait = 0.0
            elif number < count:
                wait = max(_TICK_S, begun + number * interval - now)
            else:
                wait = 0.05
            # select's timeout is precise to the microsecond, epoll's to the millisecond.
            if wait_readable(sources, (), (), min(wait, 0.05))[0]:
                answers = receiver.receive(fd)
                now = clock()
                for data, _sender in answers:
                    found = number_of(data)
                    if found is None:
                        continue
                    if came_at[found]:
                        duplicates += 1
                    else:
                        came_at[found] = now
                        received += 1
    finally:
        gc.enable()
    sent, came = np.array(sent_at[:number]), np.array(came_at[:number])
    late = sent - (begun + np.arange(number) * interval)
    round_trips = (came - sent)[came > 0.0] * 1000.0
    late_p99 = float(np.percentile(late, 99)) * 1000.0 if number else 0.0
    return Run(rate, number, received, duplicates, round_trips, late_p99)


class EchoLoad:
    """Echo requests from many sessions, over one socket."""

    def __init__(self, adapter_port: int, clients: int = CLIENTS) -> None:
        place = Position(40.7608, -111.8910)
        self._clients = LoadClients(adapter_port, clients, 1, [place])
        self._clients.connect(timeout_s=30.0)
        self._socket = self._clients.sockets[0]
        self._socket.connect(("127.0.0.1", adapter_port))
        # One Envelope a client; only the id, which the reply brings back, changes.
        self._envelopes = [
            to_envelope(
                Message(
                    kind=Kind.REQUEST,
                    source=Address.client(session.identity),
                    destination=Address.broker(),
                    topic="echo",
                    priority=Priority.NORMAL,
                    payload=Attributes({"sent_us": time.time_ns() // 1000, "text": "x" * 64}),
                )
            )
            for session in self._clients.sessions
        ]
        self._run_number = 0
        self._heard: dict[bytes, bytes] = {}  # the last packet of each session, by its token

    def run(self, rate: float, seconds: float) -> Run:
        self._run_number += 1
        # The sessions hear of what came during the last run, and report, before this one: packets
        # are numbered, and those of a session stay in order.
        for session in self._clients.sessions:
            if session.token in self._heard:
                session.receive(self._heard[session.token], time.monotonic())
        self._clients.keep_alive()
        packets = [self._packet(number) for number in range(max(1, round(rate * seconds)))]
        return open_loop(rate, packets, self._socket, self._number_of)

    def close(self) -> None:
        self._clients.close()

    def _packet(self, number: int) -> bytes:
        chosen = number % len(self._envelopes)
        session, envelope = self._clients.sessions[chosen], self._envelopes[chosen]
        envelope.id = self._run_number.to_bytes(8, "big") + number.to_bytes(8, "big")
        session.send_body(Kind.REQUEST, Priority.NORMAL, envelope.SerializeToString())
        return session.outbox.pop()

    def _number_of(self, data: bytes) -> int | None:
        self._heard[data[_TOKEN]] = data
        if data[3] != Kind.REPLY:
            return None
        correlation = pb.Envelope.FromString(data[HEADER_BYTES:]).correlation
        if int.from_bytes(correlation[:8], "big") != self._run_number:
            return None
        return int.from_bytes(correlation[8:], "big")


class _EchoProtocol(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(data, addr)


def _serve_floor(port: int) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(_EchoProtocol, local_addr=("127.0.0.1", port))
        await asyncio.Event().wait()

    asyncio.run(serve())


class FloorLoad:
    """The same load on a bare asyncio UDP echo: what the machine allows at best."""

    def __init__(self) -> None:
        port = free_port(socket.SOCK_DGRAM)
        self._server = multiprocessing.get_context("spawn").Process(
            target=_serve_floor, args=(port,), daemon=True
        )
        self._server.start()
        self._socket = bind_udp("127.0.0.1", 0)
        self._socket.connect(("127.0.0.1", port))
        self._pad = bytes(200)  # about the size of an echo request
        deadline = time.monotonic() + 10.0
        while not self._answers():
            if time.monotonic() > deadline:
                raise MercuryError("the bare echo server did not start")

    def _answers(self) -> bool:
        try:
            return open_loop(100.0, [bytes(208)], self._socket, self._number_of).received == 1
        except ConnectionRefusedError:
            time.sleep(0.05)
            return False

    def run(self, rate: float, seconds: float) -> Run:
        count = max(1, round(rate * seconds))
        packets = [number.to_bytes(8, "big") + self._pad for number in range(count)]
        return open_loop(rate, packets, self._socket, self._number_of)

    def close(self) -> None:
        self._server.terminate()
        self._server.join()
        self._socket.close()

    def _number_of(self, data: bytes) -> int:
        return int.from_bytes(data[:8], "big")


def draw(runs: list[Run], floors: list[Run], path: Path) -> None:
    """Mercury's figure 5: round trips by rate, with the paper's values and the floor."""
    places = range(1, len(runs) + 1)
    figure = new_figure(9.0, 5.5, layout="constrained")
    axes = figure.subplots()
    axes.boxplot(
        [run.round_trips_ms for run in runs],
        positions=list(places),
        widths=0.5,
        whis=(1, 99),
        showfliers=True,
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": "#9aa5b1"},
        medianprops={"color": "#c0392b", "linewidth": 2},
        patch_artist=True,
        boxprops={"facecolor": "#d6e6f5"},
    )
    axes.plot([], [], color="#c0392b", linewidth=2, label="Mercury: median; box 25–75 %, "
              "whiskers 1–99 %")  # fmt: skip
    floor = [run.row()["p50_ms"] for run in floors]
    axes.plot(places, floor, "_", color="#27ae60", markersize=26, markeredgewidth=2.5,
              label="bare asyncio UDP echo on this machine, median")  # fmt: skip
    known = [(at, _PAPER_MS[int(run.rate)]) for at, run in zip(places, runs, strict=True)
             if run.rate in _PAPER_MS]  # fmt: skip
    if known:
        axes.plot(*zip(*known, strict=True), "D", color="#e67e22", markersize=8,
                  label="the paper's prototype (Kafka, 2017), about")  # fmt: skip
    beyond = [at for at, run in zip(places, runs, strict=True) if run.rate >= _PAPER_BREAKS_AT]
    if beyond:
        axes.axvspan(beyond[0] - 0.5, beyond[-1] + 0.5, color="#e67e22", alpha=0.08, zorder=0)
        axes.text(beyond[-1] + 0.45, 1500.0, "the paper's prototype falls behind here",
                  ha="right", va="center", color="#a04000")  # fmt: skip
    axes.set(yscale="log", xlabel="messages per second", ylabel="round trip, ms (log scale)")
    axes.set_ylim(top=4000.0)
    axes.set_xticks(list(places), [f"{run.rate:,g}" for run in runs])
    axes.set_title("Round trip client → adapter → bus → broker → bus → adapter → client")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(0.12, 0.8), framealpha=0.95)
    save(figure, path)
