"""Congestion from reports (Mercury §8): slow traffic found before anybody reports it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mercury.detection import (
    CellSpeed,
    Congestion,
    CongestionRule,
    DetectedCondition,
    Verdict,
    restore_congestion,
    snapshot_congestion,
)
from mercury.model import topics
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.core_job import CoreJob
from mercury.pipeline.detection.transforms import cell_speeds, positions
from mercury.pipeline.spark.sources import read_stream

# Partitions of a topic are read in parallel: one may be ahead of another by so much.
WATERMARK = "1 second"
MAX_RECORDS = 400_000  # in a batch, so that a long backlog is read in steps


class TrafficCore:
    """The congestion core, fed from columns."""

    def __init__(self, rule: CongestionRule) -> None:
        self.congestion = Congestion(rule)

    def take(self, rows: pa.Table) -> list[Verdict]:
        columns = [rows.column(name).to_pylist() for name in CellSpeed._fields]
        return self.congestion.add(map(CellSpeed._make, zip(*columns, strict=True)))

    def advance(self, until_us: int) -> list[Verdict]:
        # Without reports no jam ends: the time is that of the windows.
        return []

    def conditions(self) -> list[DetectedCondition]:
        return self.congestion.conditions()

    def snapshot(self) -> bytes:
        return snapshot_congestion(self.congestion)

    def restore(self, snapshot: bytes) -> None:
        self.congestion = restore_congestion(self.congestion.rule, snapshot)


class CongestionJob(CoreJob):
    """From reports to alerts to those who drive towards a jam."""

    name = "congestion"
    trigger = "1 second"

    def __init__(self, rule: CongestionRule, sink: AlertsSink, checkpoint: Path) -> None:
        self._rule = rule
        super().__init__(lambda: TrafficCore(rule), sink, checkpoint)

    def frame(self, spark: SparkSession, bus: str) -> DataFrame:
        records = read_stream(spark, bus, [topics.REPORTS], max_records=MAX_RECORDS, values=False)
        return cell_speeds(positions(records), self._rule, watermark=WATERMARK)
