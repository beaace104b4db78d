"""Where records come from: the bus's URI chooses Spark's way to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.model.errors import PipelineError
from mercury.pipeline.spark import kafka_connector
from mercury.pipeline.spark.embedded_source import FORMAT
from mercury.pipeline.spark.session import submitted
from mercury.wire.records import POSITION

Start = Literal["earliest", "latest"]


def spark_settings(bus: str) -> dict[str, str]:
    """What Spark must be started with to read a bus."""
    if _scheme(bus) != "kafka" or submitted():
        return {}
    return {"spark.jars": ",".join(map(str, kafka_connector.jars()))}


def read_stream(
    spark: SparkSession,
    bus: str,
    topics: Sequence[str],
    *,
    start: Start = "latest",
    max_records: int | None = None,
    values: bool = True,
) -> DataFrame:
    """The records of topics as they come; a name ending in `.*` follows all with that prefix.

    Without values, these are null: who asks for nothing else has them neither read nor sent.
    """
    if _scheme(bus) == "kafka":
        reader = spark.readStream.format("kafka").options(**_kafka_options(bus, topics))
        reader = reader.option("startingOffsets", start)
        if max_records:
            reader = reader.option("maxOffsetsPerTrigger", max_records)
        return _from_kafka(reader.load(), bus, values=values)
    reader = spark.readStream.format(FORMAT).options(**_embedded_options(bus, topics))
    reader = reader.option("start", start).option("maxRecords", max_records or 0)
    return reader.option("values", values).load()


def read_batch(spark: SparkSession, bus: str, topics: Sequence[str]) -> DataFrame:
    """All records of topics that are there now."""
    if _scheme(bus) == "kafka":
        reader = spark.read.format("kafka").options(**_kafka_options(bus, topics))
        return _from_kafka(reader.load(), bus)
    return spark.read.format(FORMAT).options(**_embedded_options(bus, topics)).load()


def _scheme(bus: str) -> str:
    scheme = bus.partition(":")[0]
    if scheme not in ("embedded", "kafka"):
        raise PipelineError(f"the pipeline reads embedded: and kafka: buses, not {bus!r}")
    return scheme


def _embedded_options(bus: str, topics: Sequence[str]) -> dict[str, str]:
    return {"path": bus.partition(":")[2], "topics": ",".join(topics)}


def _kafka_options(bus: str, topics: Sequence[str]) -> dict[str, str]:
    prefix = _prefix(bus).replace(".", r"\.")
    names = [
        name[:-1].replace(".", r"\.") + ".*" if name.endswith(".*") else name.replace(".", r"\.")
        for name in topics
    ]
    return {
        "kafka.bootstrap.servers": urlsplit(bus).netloc,
        "subscribePattern": "|".join(f"{prefix}{name}" for name in names),
        "includeHeaders": "true",
        "failOnDataLoss": "false",  # retention may overtake a pipeline that was away
    }


def _prefix(bus: str) -> str:
    namespace = urlsplit(bus).path.strip("/")
    return f"{namespace}." if namespace else ""


def _from_kafka(frame: DataFrame, bus: str, *, values: bool = True) -> DataFrame:
    """Kafka's columns as ours."""
    position = F.filter("headers", lambda header: header["key"] == POSITION)
    return frame.select(
        F.substring("topic", len(_prefix(bus)) + 1, 249).alias("topic"),
        "partition",
        "offset",
        F.unix_micros("timestamp").alias("time_us"),
        "key",
        F.try_element_at(position["value"], F.lit(1)).alias("position"),
        F.col("value") if values else F.lit(None).cast("binary").alias("value"),
    )
