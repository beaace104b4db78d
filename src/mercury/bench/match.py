"""Location-based publish/subscribe from gateway to gateway, and the same work by Redis beside it.

The load generator runs in this process, the matcher in another; both are on this machine.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from typing import Any

import numpy as np

from mercury.bench import match_kernel, processes
from mercury.dev.processes import free_port
from mercury.load.counters import LoadCounters
from mercury.load.drivers.api import Say, open_driver
from mercury.load.generator import Generator, LoadResult
from mercury.load.workload import Workload, WorkloadSettings
from mercury.matching import Engine
from mercury.model.matching import Publication
from mercury.roads.network import CITY, open_roads

RADIUS_M = (50.0, 310.0)  # about 25,000 matches at 80,000 updates a second
PAPER_RATE = 80_000
P99_MS = 50.0  # what a sustained rate must keep
STEPS = (100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 800_000, 1_000_000)
_FIRST_STEP = 2
_TRIES = 3  # something else on this machine may be in the way
_WARM_UP_S = 4.0
_START_S = 180.0  # a machine makes the kernel's code once
_REDIS_OFFERED = 100_000
_CHECKED_AT_ONCE = 1 << 16
_DRAIN_S = 5.0  # Redis goes on with what waits


def run(*, entities: int, seconds: float, tenfold: bool, redis: bool, say: Say) -> dict[str, Any]:
    """All measurements, in the order of the table in docs/explanation/benchmarks.md."""
    kernel = _kernel(entities, tenfold, say)
    say("roads and trips")
    workload = Workload(
        open_roads(CITY), WorkloadSettings(entities=entities, radius_m=RADIUS_M, inside=True)
    )
    with processes.temporary_bus() as bus:
        port = free_port()
        arguments = ["--bus", bus, "--gateway-port", str(port)]
        with processes.part("matcher", arguments, start_s=_START_S):
            rows = _through_the_gateway(workload, f"ws://127.0.0.1:{port}", seconds, say)
    paper = [row for row in rows if row["rate"] == PAPER_RATE][-1]
    result = {
        "bench": "match",
        "updates_per_s": max((row["rate"] for row in rows if _sustained(row)), default=0),
        "matches_per_s": paper["matches_per_s"],
        "p50_ms": paper["p50_ms"],
        "p99_ms": paper["p99_ms"],
        "kernel_updates_per_s": kernel[0]["updates_per_s"],
        "kernel": kernel,
        "rows": rows,
        "peers": {},
    }
    if redis:
        result["peers"]["redis_geo"] = _redis(workload, seconds, say)
    return result


def _kernel(entities: int, tenfold: bool, say: Say) -> list[dict[str, Any]]:
    population = match_kernel.Population.of(entities)
    populations = {"even": population, "crowded": population.crowded()}
    if tenfold:
        populations["tenfold"] = match_kernel.Population.of(10 * entities)
    rows = []
    for name, one in populations.items():
        say(f"kernel: {name}, {one.entities:,} entities")
        rows.append({"case": name, **match_kernel.measure(one)})
    return rows


def _through_the_gateway(
    workload: Workload, uri: str, seconds: float, say: Say
) -> list[dict[str, Any]]:
    """The paper's rate first, then the highest that is kept up."""
    rows = []
    for _ in range(_TRIES):
        rows.append(_row(PAPER_RATE, workload, uri, seconds, say, check=True))
        if rows[-1]["generator_kept_up"]:  # else it measured itself
            break
    step, climbing = _FIRST_STEP, None
    while 0 <= step < len(STEPS):
        for _ in range(_TRIES):
            rows.append(_row(STEPS[step], workload, uri, seconds, say))
            if kept := _sustained(rows[-1]):
                break
        if climbing is None:
            climbing = kept
        if kept != climbing:
            break
        step += 1 if climbing else -1
    return rows


def _row(
    rate: int, workload: Workload, uri: str, seconds: float, say: Say, *, check: bool = False
) -> dict[str, Any]:
    say(f"{rate:,} updates a second for {seconds:g} s")
    moving = workload.at_rate(rate / len(workload))
    found = _offer(moving, uri, seconds)
    notified = found.counters.matches_by_name()
    row: dict[str, Any] = {
        "rate": rate,
        "taken": found.counters.taken,
        "lost": found.offered - (found.counters.taken or 0),
        "matches_per_s": round(found.counters.events / found.seconds),
        **found.counters.latency.to_json(),
        "own_lag_p99_ms": found.lag.to_json()["p99_ms"],
        "generator_kept_up": found.kept_up,
    }
    if check:
        say("the events to expect, by an engine without a gateway")
        expected = expected_matches(moving, seconds)
        row["events_missing"] = sum(abs(expected[name] - notified[name]) for name in expected)
    return row


def _offer(workload: Workload, uri: str, seconds: float) -> LoadResult:
    generator = Generator(workload, open_driver(uri), seconds=seconds, warm_up_s=_WARM_UP_S)
    return asyncio.run(generator.run())


def _sustained(row: dict[str, Any]) -> bool:
    kept = row["p99_ms"] is not None and row["p99_ms"] <= P99_MS
    return kept and not row["lost"] and row["generator_kept_up"]


def expected_matches(workload: Workload, seconds: float) -> dict[str, int]:
    """How many events of each kind one engine has of the same updates, warm-up not counted."""
    engine = Engine()
    refs = np.empty(len(workload), np.int64)
    for number, entity in enumerate(workload.declarations()):
        if isinstance(entity, Publication):
            refs[number] = engine.publish(entity, 0)
        else:
            refs[number] = engine.subscribe(entity, 0)
    accuracy_m = round(workload.accuracy_m * 10.0) / 10.0
    schedule = workload.schedule()
    counters = LoadCounters(count_from_us=round(_WARM_UP_S * 1e6))
    while True:
        due = schedule.take(_WARM_UP_S + seconds, _CHECKED_AT_ONCE)
        if not len(due):
            return counters.matches_by_name()
        lats, lons = workload.movement.positions(due.entities, due.times_s)
        times_us = np.rint(due.times_s * 1e6).astype(np.int64)
        # As exact as the gateway's rows are.
        lats, lons = np.rint(lats * 1e7) / 1e7, np.rint(lons * 1e7) / 1e7
        engine.move(refs[due.entities], lats, lons, times_us, accuracy_m)
        events = engine.take()
        counters.count(events.event_type, events.time_us)


def _redis(workload: Workload, seconds: float, say: Say) -> dict[str, Any]:
    """Redis with its geographic indexes, offered more than it takes."""
    server = shutil.which("redis-server")
    if server is None:
        return {"updates_per_s": None, "reason": "redis-server is not installed"}
    port = free_port()

    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--loglevel", "warning"]
    with processes.running("redis-server", [*command, "--save", "", "--appendonly", "no"], is_up):
        say("Redis")
        moving = workload.at_rate(_REDIS_OFFERED / len(workload))
        begun = time.monotonic()
        found = _offer(moving, f"redis://127.0.0.1:{port}", seconds)
        took_s = time.monotonic() - begun
    taken = found.counters.taken or 0
    # It goes on with what waits for a while after the last update was offered.
    worked_s = min(took_s, found.seconds + found.warm_up_s + _DRAIN_S)
    return {
        "updates_per_s": round(taken / worked_s),
        "matches_per_s": round(found.counters.events / worked_s),
        "notes": found.counters.notes,
    }
