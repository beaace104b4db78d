"""Where records come from: the bus's URI chooses Spark's way to read it."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.model.errors import PipelineError
from mercury.pipeline.spark import kafka_connector
from mercury.pipeline.spark.embedded_source import FORMAT
from mercury.pipeline.spark.session import submitted
from mercury.wire.records import POSITION


def spark_settings(bus: str) -> dict[str, str]:
    """The settings that Spark needs to read a bus."""
    if _scheme(bus) != "kafka" or submitted():
        return {}
    return {"spark.jars": ",".join(map(str, kafka_connector.jars()))}


def read_stream(
    spark: SparkSession,
    bus: str,
    topics: Sequence[str],
    *,
    max_records: int | None = None,
    values: bool = True,
) -> DataFrame:
    """The records of topics from the oldest on; `.*` at the end of a name is any suffix.

    Without values, these are null: they are neither read nor transferred.
    """
    if _scheme(bus) == "kafka":
        return _read_kafka(spark, bus, topics, max_records, values=values)
    reader = spark.readStream.format(FORMAT).option("path", bus.partition(":")[2])
    reader = reader.option("topics", ",".join(topics)).option("maxRecords", max_records or 0)
    return reader.option("values", values).load()


def _scheme(bus: str) -> str:
    scheme = bus.partition(":")[0]
    if scheme not in ("embedded", "kafka"):
        raise PipelineError(f"the pipeline reads embedded: and kafka: buses, not {bus!r}")
    return scheme


def _read_kafka(
    spark: SparkSession, bus: str, topics: Sequence[str], max_records: int | None, *, values: bool
) -> DataFrame:
    """Kafka's columns as a `RECORD`."""
    address = urlsplit(bus)
    namespace = address.path.strip("/")
    prefix = f"{namespace}." if namespace else ""
    names = "|".join(f"{prefix}{name}" for name in topics)
    options = {
        "kafka.bootstrap.servers": address.netloc,
        "subscribePattern": names.replace(".", r"\.").replace("*", ".*"),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "failOnDataLoss": "false",  # retention may overtake a pipeline that was away
    }
    if max_records:
        options["maxOffsetsPerTrigger"] = str(max_records)
    position = F.filter("headers", lambda header: header["key"] == POSITION)
    return (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .select(
            F.substring("topic", len(prefix) + 1, 249).alias("topic"),
            "partition",
            "offset",
            F.unix_micros("timestamp").alias("time_us"),
            "key",
            F.try_element_at(position["value"], F.lit(1)).alias("position"),
            F.col("value") if values else F.lit(None).cast("binary").alias("value"),
        )
    )
