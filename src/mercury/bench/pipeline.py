"""How soon the pipeline finds something, how much it takes in, and how it compares in batches."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import urlsplit

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from mercury.bench import processes
from mercury.bench.processes import Say
from mercury.bus import Bus, Consumer, open_bus
from mercury.bus.embedded.record_reader import RecordReader
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import MercuryError
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.pipeline.spark.session import start_session
from mercury.pipeline.spark.sources import read_stream, spark_settings
from mercury.wire import encode
from mercury.wire.records import telemetry_fix

START_S = 120.0
KIND = "bench"  # its rule is in _ENVIRONMENT
_ENVIRONMENT = {
    # A kind that one witness settles, at once: each event is an incident of its own.
    "MERCURY_DETECTION__KINDS__BENCH__PREDICATE": "count >= 1",
    "MERCURY_DETECTION__KINDS__BENCH__EVERY_S": "0",
    "MERCURY_DETECTION__KINDS__BENCH__REACH_M": "50",
    "MERCURY_DETECTION__KINDS__BENCH__VALIDITY_S": "60",
    "MERCURY_PIPELINE__SHARE_CLASSES": "false",
}
_TIMEOUT_S = 30.0
_VEHICLES = 20_000
_TICK_S = 0.02

_EVENTS, _FOUND = "events.realtime", "found"
_REALTIME = {
    # All tasks of a real-time query run at once: one that reads and one that counts.
    "spark.sql.shuffle.partitions": "1",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
}
_BATCH = "60 seconds"  # how often a real-time query notes how far it is
_FIRST_S, _ANSWER_S = 60.0, 10.0
_WARM_UP = 50


@contextmanager
def _running(bus_uri: str, say: Say) -> Iterator[tuple[str, Bus, Consumer, int]]:
    """A pipeline process, by default on a new bus: its URI, the bus, alerts and metrics port."""
    with tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder:
        uri = bus_uri or processes.fresh_bus(None, folder)
        arguments = ["--bus", uri, "--checkpoint", f"{folder}/checkpoint"]
        environment = {**_ENVIRONMENT, "MERCURY_PIPELINE__HISTORY_FOLDER": f"{folder}/history"}
        with closing(open_bus(uri)) as bus:
            alerts = bus.subscribe(topics.ALERTS)
            say("Spark is starting")
            with processes.part("pipeline", arguments, environment, START_S) as port:
                yield uri, bus, alerts, port


def latency(bus_uri: str, count: int, say: Say) -> list[float]:
    """Milliseconds from an event on the bus to the alert about it on the bus."""
    with _running(bus_uri, say) as (_, bus, alerts, _):
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
    deadline = begun + _TIMEOUT_S
    while time.perf_counter() < deadline:
        if alerts.poll():
            return (time.perf_counter() - begun) * 1e3
        time.sleep(0.0005)
    raise MercuryError(f"no alert came within {_TIMEOUT_S:g} s")


def sustained(rate: int, seconds: float, say: Say) -> dict[str, float]:
    """Offer reports at a rate; how far behind the pipeline was, and whether that grew."""
    with _running("", say) as (uri, bus, _, port):
        say(f"{rate:,} reports a second for {seconds:g} s")
        return _offer(bus, uri, port, rate, seconds)


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


def realtime_latency(uri: str, count: int, say: Say) -> list[float]:
    """Milliseconds from an event in Kafka to what Spark's real-time mode counted, in Kafka.

    No batch is waited for, but Python is refused: this counts events by kind and place, which is
    as near to detection as built-in operators come.
    """
    with (
        closing(open_bus(uri, partitions=1)) as bus,
        tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder,
        ExitStack() as stack,
    ):
        found = bus.subscribe([_FOUND], start="earliest")
        bus.append(_EVENTS, b"first", b"0")
        bus.flush_now()
        say("Spark is starting in real-time mode")
        spark = start_session("local[4]", settings=spark_settings(uri) | _REALTIME)
        stack.callback(spark.stop)
        query = _start_query(spark, uri, folder)
        stack.callback(query.stop)
        _await(query, found, b"0", _FIRST_S)
        say(f"{count} events, one after the other")
        times = [_realtime_round_trip(bus, query, found, n + 1) for n in range(_WARM_UP + count)]
    return times[_WARM_UP:]


def _start_query(spark: SparkSession, uri: str, checkpoint: str) -> StreamingQuery:
    records = read_stream(spark, uri, [_EVENTS])
    counted = records.groupBy("topic", "key").agg(F.count("*").alias("count"))
    alerts = counted.where("count >= 1").select("key", F.col("count").cast("string").alias("value"))
    address = urlsplit(uri)
    writer = alerts.writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", address.netloc)
    writer = writer.option("topic", f"{address.path.strip('/')}.{_FOUND}")
    writer = writer.option("checkpointLocation", checkpoint)
    # The type hints do not know this trigger yet.
    query: StreamingQuery = writer.trigger(realTime=_BATCH).start()  # type: ignore[call-overload]
    return query


def _realtime_round_trip(bus: Bus, query: StreamingQuery, found: Consumer, number: int) -> float:
    time.sleep(0.02)
    key = b"%d" % number
    begun = time.perf_counter()
    bus.append(_EVENTS, b"event", key)
    bus.flush_now()
    _await(query, found, key, _ANSWER_S)
    return (time.perf_counter() - begun) * 1e3


def _await(query: StreamingQuery, found: Consumer, key: bytes, seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        if any(record.key == key for record in found.poll()):
            return
        if not query.isActive:
            raise MercuryError(f"the real-time query ended: {query.exception()}")
        time.sleep(0.0005)
    raise MercuryError(f"no answer came within {seconds:g} s")
