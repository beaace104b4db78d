"""All that is on an embedded bus now, read at once and stored at once."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.job import store
from mercury.pipeline.history.tables import TOPICS
from mercury.pipeline.spark.embedded_source import FORMAT


def read_batch(spark: SparkSession, bus: str, topics: Sequence[str]) -> DataFrame:
    """The records of topics."""
    path = bus.removeprefix("embedded:")
    return spark.read.format(FORMAT).options(path=path, topics=",".join(topics)).load()


def store_batch(spark: SparkSession, bus: str, folder: Path) -> Counter[str]:
    """Store what is not stored yet; how many rows each table got."""
    label = f"all-{uuid.uuid4().hex[:8]}"
    rows, _ = store(read_batch(spark, bus, TOPICS), HistoryFolder(folder), label)
    return rows
