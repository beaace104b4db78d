"""Runs the first, slow batch of a stream before any events come."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mercury.pipeline.detection.transforms import events
from mercury.pipeline.schemas import RECORD


def first_batch(spark: SparkSession) -> None:
    """Run one batch: workers start, libraries load, code is compiled."""
    row = ("events.none", 0, 1, 0, b"", None, b"")
    events(spark.createDataFrame([row, row], RECORD)).toArrow()
