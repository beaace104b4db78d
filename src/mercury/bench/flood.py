"""Honest echoes at a steady rate while strangers flood the adapter's port."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Any

from mercury.bench.echo import EchoLoad
from mercury.bench.processes import Say
from mercury.model.area import Position
from mercury.model.errors import MercuryError
from mercury.model.message import Kind, Telemetry
from mercury.net.batch import SEND_BATCH, send_packets
from mercury.net.udp import bind_udp, to_sockaddr
from mercury.session import ClientSession, SessionSettings
from mercury.wire import NO_TOKEN, pack
from mercury.wire.packet import TOKEN_BYTES

# Strangers have many addresses, of different networks.
_SOURCES = 64
_DIFFERENT = 4000  # packets that are made before, and sent in turn
_TICK_S = 0.002
_SETTLE_S = 0.5
_WARM_UP_S = 3.0

Packets = Callable[[random.Random, int], list[bytes]]


def rubbish(rng: random.Random, count: int) -> list[bytes]:
    """Packets of random bytes; half of them with a good header of an unknown session."""
    bodies = [rng.randbytes(rng.randrange(1, 200)) for _ in range(count)]
    kinds = list(Kind)
    return [
        pack(rng.choice(kinds), 4, rng.randbytes(TOKEN_BYTES), rng.getrandbits(40), body)
        if number % 2
        else body
        for number, body in enumerate(bodies)
    ]


def inits(rng: random.Random, count: int) -> list[bytes]:
    """Requests for a session, each under an invented name; half with an invented cookie."""
    packets = []
    telemetry = Telemetry(Position(40.0, -111.0))
    for number in range(count):
        name = f"x-{rng.getrandbits(64)}"
        client = ClientSession(name, SessionSettings(), rng, telemetry=telemetry)
        client.start(0.0)
        packet = client.outbox.pop()
        if number % 2:
            token = rng.randbytes(TOKEN_BYTES)
            packet = packet.replace(NO_TOKEN, token, 1)
        packets.append(packet)
    return packets


FLOODS: dict[str, Packets] = {"rubbish": rubbish, "inits": inits}


def run(
    port: int, floods: Sequence[str], rate: float, honest_rate: float, seconds: float, say: Say
) -> Iterator[dict[str, Any]]:
    """One row without a flood, and one for each kind of flood."""
    load = EchoLoad(port)
    try:
        say("warm-up, not counted")
        load.run(honest_rate, min(_WARM_UP_S, seconds))
        for name in ("none", *floods):
            say(f"{honest_rate:,g} echoes a second for {seconds:g} s; flood: {name}")
            with _flooding(name, port, rate) as sent:
                before, begun = sent(), time.monotonic()
                found = load.run(honest_rate, seconds)
                per_s = (sent() - before) / (time.monotonic() - begun)
            row = found.row()
            yield {
                "flood": name,
                "packets_per_s": round(per_s),
                "honest_rate": honest_rate,
                "honest_lost": found.sent - found.received,
                "honest_p50_ms": row["p50_ms"],
                "honest_p99_ms": row["p99_ms"],
                "honest_max_ms": row["max_ms"],
                "generator_late_p99_ms": row["generator_late_p99_ms"],
            }
    finally:
        load.close()


@contextmanager
def _flooding(name: str, port: int, rate: float) -> Iterator[Callable[[], int]]:
    """Flood in a process of its own; yields how many packets were sent so far."""
    if name == "none":
        yield lambda: 0
        return
    context = multiprocessing.get_context("spawn")
    sent = context.Value("L", 0)
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=_flood, args=(name, port, rate, sent, ready, stop))
    process.start()
    try:
        if not ready.wait(60.0):
            raise MercuryError("the flood did not start")
        time.sleep(_SETTLE_S)
        yield lambda: int(sent.value)
    finally:
        stop.set()
        process.join()


def _flood(name: str, port: int, rate: float, sent: Any, ready: Event, stop: Event) -> None:
    packets = FLOODS[name](random.Random(1), _DIFFERENT)
    target = to_sockaddr("127.0.0.1", port)
    waiting = [(packet, target) for packet in packets]
    sources = [bind_udp(f"127.{1 + number}.0.1", 0) for number in range(_SOURCES)]
    ready.set()
    begun, done, turn = time.perf_counter(), 0, 0
    while not stop.is_set():
        due = int((time.perf_counter() - begun) * rate) - done
        while due > 0:
            some = min(due, SEND_BATCH)
            at = done % (_DIFFERENT - SEND_BATCH)
            send_packets(sources[turn % _SOURCES].fileno(), waiting[at : at + some])
            turn += 1
            done += some
            due -= some
        sent.value = done
        time.sleep(_TICK_S)
    for source in sources:
        source.close()
