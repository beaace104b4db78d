"""One alert to many clients: when the last one has it, and how long the loop is blocked."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

from mercury.bench import processes
from mercury.bench.processes import Say
from mercury.client import ServiceEndpoint
from mercury.geo import destination
from mercury.load.sessions import LoadClients
from mercury.model.area import Area, Circle, Position
from mercury.model.message import Kind, Priority

CENTER = Position(40.7608, -111.8910)
RADIUS_M = 5000.0
SOCKETS = 256
ROUNDS = 5
_ENVIRONMENT = {
    # The sessions stay open without reports: the fan-out is measured by itself.
    "MERCURY_SESSION__REPORT_INTERVAL_S": "3600",
    "MERCURY_SESSION__HEARTBEAT_INTERVAL_S": "3600",
    "MERCURY_ADAPTER__STALL_PROBE_S": "0.001",
}


def run(counts: list[int], rounds: int, say: Say) -> list[dict[str, float]]:
    """Measure each number of clients; the median of some rounds."""
    return [_measure(count, rounds, say) for count in counts]


def _measure(count: int, rounds: int, say: Say) -> dict[str, float]:
    say(f"opening {count:,} sessions")
    with (
        processes.temporary_bus() as bus,
        processes.adapter(bus, _ENVIRONMENT) as (port, metrics_port),
        closing(LoadClients(port, count, SOCKETS, _spread(count))) as clients,
    ):
        clients.connect(timeout_s=60.0 + count / 500)
        results = []
        for number in range(rounds):
            say(f"{count:,} clients: alert {number + 1} of {rounds}")
            time.sleep(_window(metrics_port))
            results.append(_alert(bus, clients, metrics_port, count))
    results.sort(key=lambda result: result["last_ms"])
    median = results[len(results) // 2]
    return {
        "clients": count,
        "received": min(result["received"] for result in results),
        "last_ms": median["last_ms"],
        "worst_last_ms": results[-1]["last_ms"],
        "first_ms": median["first_ms"],
        "stall_ms": max(result["stall_ms"] for result in results),
        "sockets": len(clients.sockets),
        "rounds": rounds,
    }


def _alert(bus: str, clients: LoadClients, metrics_port: int, count: int) -> dict[str, float]:
    published = asyncio.run(_publish(bus))
    seen: set[bytes] = set()
    first = last = published
    while len(seen) < count:
        ready = clients.poller.poll(2.0)
        if not ready:
            break  # what has not come by now, does not come
        for fd, _ in ready:
            packets = clients.receiver.receive(fd)
            last = time.perf_counter()
            if not seen:
                first = last
            for data, _sender in packets:
                if data[3] == Kind.ALERT:
                    seen.add(data[8:24])  # the session's token
    health = processes.health(metrics_port) or {}
    return {
        "received": len(seen),
        "first_ms": round((first - published) * 1000.0, 3),
        "last_ms": round((last - published) * 1000.0, 3),
        "stall_ms": round(health.get("loop_stall_s", float("nan")) * 1000.0, 3),
    }


async def _publish(bus: str) -> float:
    async with ServiceEndpoint(bus, "bench") as endpoint:
        published = time.perf_counter()
        await endpoint.alert(
            Area(Circle(CENTER, RADIUS_M)),
            kind="emergency",
            text="x" * 100,
            priority=Priority.EMERGENCY,
            validity_s=5.0,
        )
    return published


def _window(metrics_port: int) -> float:
    health = processes.health(metrics_port) or {}
    return 2.0 * health.get("loop_stall_window_s", 5.0) + 0.5  # past stalls must be forgotten


def _spread(count: int) -> list[Position]:
    # On a spiral around the centre, all inside the area.
    lats, lons = destination(
        CENTER.lat,
        CENTER.lon,
        [137.5 * number % 360.0 for number in range(count)],
        [RADIUS_M * 0.98 * (number / count) ** 0.5 for number in range(count)],
    )
    return [Position(lat, lon) for lat, lon in zip(lats, lons, strict=True)]
