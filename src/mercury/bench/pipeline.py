"""How soon the pipeline finds something, how much it takes in, and how it compares in batches."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mercury.bench import processes
from mercury.bus import Bus, Consumer, open_bus
from mercury.bus.embedded.record_reader import RecordReader
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import MercuryError
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.wire import encode
from mercury.wire.records import telemetry_fix

Say = Callable[[str], None]

START_S = 120.0
KIND = "bench"
# A kind that one witness settles, at once: each event is an incident of its own.
_RULE = f"""
[detection.kinds.{KIND}]
predicate = "count >= 1"
every_s = 0
reach_m = 50.0
validity_s = 60.0
"""
_PATIENCE_S = 30.0
_VEHICLES = 20_000
_TICK_S = 0.02


@contextmanager
def running(bus: str, folder: Path) -> Iterator[int]:
    """A pipeline process on a bus; yields its metrics port."""
    config = folder / "mercury.toml"
    config.write_text(
        f"{_RULE}\n[pipeline]\nhistory_folder = '{folder / 'history'}'\nshare_classes = false\n"
    )
    arguments = ["--bus", bus, "--config", str(config), "--checkpoint", str(folder / "checkpoint")]
    with processes.part("pipeline", arguments, start_s=START_S) as port:
        yield port


def latency(bus_uri: str, count: int, say: Say) -> list[float]:
    """Milliseconds from an event on the bus to the alert about it on the bus."""
    with tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder:
        uri = bus_uri or processes.bus_in(folder)
        bus = open_bus(uri)
        try:
            alerts = bus.subscribe(topics.ALERTS)
            say("Spark is starting")
            with running(uri, Path(folder)):
                say("warming up")
                for number in range(20):
                    _round_trip(bus, alerts, number)
                say(f"{count} events, one after the other")
                rng = random.Random(1)
                found = []
                for number in range(20, 20 + count):
                    time.sleep(rng.uniform(0.05, 0.25))  # at any moment of a batch
                    found.append(_round_trip(bus, alerts, number))
                return found
        finally:
            bus.close()


def _round_trip(bus: Bus, alerts: Consumer, number: int) -> float:
    place = Position(10.0 + number // 100 * 0.01, 20.0 + number % 100 * 0.01)
    message = Message(
        kind=Kind.EVENT,
        source=Address.client(f"car-{number}"),
        destination=Address.broker(),
        payload=Event(KIND, place),
    )
    begun = time.perf_counter()
    bus.append(topics.events_topic(KIND), encode(message), b"here")
    bus.flush_now()
    deadline = begun + _PATIENCE_S
    while time.perf_counter() < deadline:
        if alerts.poll():
            return (time.perf_counter() - begun) * 1e3
        time.sleep(0.0005)
    raise MercuryError(f"no alert came within {_PATIENCE_S:g} s")


def sustained(rate: int, seconds: float, say: Say) -> dict[str, float]:
    """Offer reports at a rate; how far behind the pipeline was, and whether that grew."""
    with tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder:
        uri = processes.bus_in(folder)
        bus = open_bus(uri)
        try:
            say("Spark is starting")
            with running(uri, Path(folder)) as port:
                say(f"{rate:,} reports a second for {seconds:g} s")
                return _offer(bus, uri, port, rate, seconds)
        finally:
            bus.close()


def _offer(bus: Bus, uri: str, port: int, rate: int, seconds: float) -> dict[str, float]:
    reader = RecordReader(uri.partition(":")[2])
    rng = np.random.default_rng(1)
    reports = [_report(number, rng) for number in range(_VEHICLES)]
    lags: list[tuple[float, float]] = []
    begun = time.perf_counter()
    sent, looked = 0, begun
    while (elapsed := time.perf_counter() - begun) < seconds:
        due = int(elapsed * rate)
        for number in range(sent, due):
            key, header, body = reports[number % _VEHICLES]
            bus.append(topics.REPORTS, body, key, (header,))
        sent = due
        bus.flush_now()
        if time.perf_counter() - looked >= 1.0:
            looked = time.perf_counter()
            position = (processes.health(port) or {}).get("congestion_position")
            if position:
                lags.append((elapsed, reader.ends([topics.REPORTS])[topics.REPORTS] - position))
        time.sleep(_TICK_S)
    offered_per_s = sent / (time.perf_counter() - begun)
    reader.close()
    # The first third is the warm-up; then the lag must not grow.
    steady = np.array([lag for at, lag in lags if at > seconds / 3])
    when = np.array([at for at, lag in lags if at > seconds / 3])
    growth = float(np.polyfit(when, steady, 1)[0]) if len(steady) > 2 else float("nan")
    return {
        "offered_per_s": round(offered_per_s),
        "lag_median": float(np.median(steady)) if len(steady) else float("nan"),
        "lag_growth_per_s": round(growth, 1),
    }


def _report(number: int, rng: np.random.Generator) -> tuple[bytes, tuple[str, bytes], bytes]:
    position = Position(40.0 + rng.uniform(0.0, 0.5), -111.0 + rng.uniform(0.0, 0.5))
    telemetry = Telemetry(position, rng.uniform(0.0, 360.0), rng.uniform(0.0, 30.0))
    message = Message(
        kind=Kind.REPORT,
        source=Address.client(f"car-{number}"),
        destination=Address.adapter("any"),
        payload=telemetry,
    )
    return f"car-{number}".encode(), telemetry_fix(telemetry), encode(message)
