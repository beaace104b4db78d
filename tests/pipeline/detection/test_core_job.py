"""A job around a core, without Spark: what it does with the batches that it is given."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from mercury.bus import open_bus
from mercury.detection import DetectedCondition, Verdict
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.core_job import CoreJob

WAIT_S = 20.0


class SlowCore:
    """Counts rows, and judges when it may."""

    taking = threading.Event()
    may_go_on = threading.Event()

    def __init__(self) -> None:
        self.rows = 0

    def take(self, rows: pa.Table) -> list[Verdict]:
        self.taking.set()
        assert self.may_go_on.wait(WAIT_S)
        self.rows += rows.num_rows
        return []

    def advance(self, until_us: int) -> list[Verdict]:
        return []

    def conditions(self) -> list[DetectedCondition]:
        return []

    def snapshot(self) -> bytes:
        return b"%d" % self.rows

    def restore(self, snapshot: bytes) -> None:
        self.rows = int(snapshot)


class Counting(CoreJob):
    name = "counting"

    def frame(self, spark: SparkSession, bus: str) -> DataFrame:
        raise NotImplementedError


class Batch:
    """What a batch is to a job: rows for Arrow."""

    def toArrow(self) -> pa.Table:
        return pa.table({"row": [1, 2, 3]})


def test_the_first_look_waits_until_a_job_that_goes_on_has_judged(tmp_path: Path) -> None:
    batch: Any = Batch()
    SlowCore.may_go_on.set()
    with ThreadPoolExecutor(2) as threads:
        bus = open_bus("memory:")
        sink = AlertsSink(bus, 0)
        Counting(SlowCore, sink, tmp_path).on_batch(batch, 0)

        SlowCore.taking.clear()
        SlowCore.may_go_on.clear()
        job = Counting(SlowCore, sink, tmp_path)  # goes on from the snapshot
        judging = threads.submit(job.on_batch, batch, 1)
        assert SlowCore.taking.wait(WAIT_S)
        looking = threads.submit(job.await_first_look)
        with pytest.raises(TimeoutError):
            looking.result(timeout=0.1)
        SlowCore.may_go_on.set()
        judging.result(WAIT_S)
        assert looking.result(WAIT_S)
        assert isinstance(job._core, SlowCore)
        assert job._core.rows == 6
        bus.close()
