"""Spark's real-time mode over Kafka: how soon built-in operators see an event and answer.

No batch is waited for, but Python is refused: this counts events by kind and place, which is as
near to detection as built-in operators come.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from mercury.bus import Bus, Consumer, open_bus
from mercury.model.errors import MercuryError
from mercury.pipeline.spark.session import start_session
from mercury.pipeline.spark.sources import read_stream, spark_settings

_EVENTS, _FOUND = "events.realtime", "found"
_SETTINGS = {
    # All tasks of a real-time query run at once: one that reads and one that counts.
    "spark.sql.shuffle.partitions": "1",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
}
_BATCH = "60 seconds"  # how often a real-time query notes how far it is
_FIRST_S, _PATIENCE_S = 60.0, 10.0
_WARM_UP = 50


def latency(uri: str, count: int, say: Callable[[str], None]) -> list[float]:
    """Milliseconds from an event in Kafka to what Spark counted, in Kafka."""
    bus = open_bus(uri, partitions=1)
    try:
        found = bus.subscribe([_FOUND], start="earliest")
        bus.append(_EVENTS, b"first", b"0")
        bus.flush_now()
        say("Spark is starting in real-time mode")
        spark = start_session("local[4]", settings=spark_settings(uri) | _SETTINGS)
        with tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder:
            query = _start(spark, uri, folder)
            try:
                _await(query, found, b"0", _FIRST_S)
                say(f"{count} events, one after the other")
                times = [_round_trip(bus, query, found, n + 1) for n in range(_WARM_UP + count)]
            finally:
                query.stop()
                spark.stop()
        return times[_WARM_UP:]
    finally:
        bus.close()


def _start(spark: SparkSession, uri: str, checkpoint: str) -> StreamingQuery:
    records = read_stream(spark, uri, [_EVENTS], start="earliest")
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


def _round_trip(bus: Bus, query: StreamingQuery, found: Consumer, number: int) -> float:
    time.sleep(0.02)
    key = b"%d" % number
    begun = time.perf_counter()
    bus.append(_EVENTS, b"event", key)
    bus.flush_now()
    _await(query, found, key, _PATIENCE_S)
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
