"""History: every record once, as plain columns and as it was, by streams and by batches."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from live import eventually
from pipeline.history import recording
from pipeline.whole_bus import store_batch
from pyspark.sql import SparkSession

from mercury.bus import Bus, Record
from mercury.model.errors import PipelineError
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.history.job import HistoryJob
from mercury.pipeline.history.tables import TABLES

STEPS, VEHICLES = 60, 10
KILLS = 2

RUNS_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from mercury.pipeline.history.job import HistoryJob
from mercury.pipeline.spark.session import start_session

folder, checkpoint, bus = sys.argv[1:]
quick = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"}
spark = start_session("local[2]", settings=quick)
job = HistoryJob(
    Path(folder), Path(checkpoint), interval_s=0.05, batch_records=200, compact_batches=4
)
job.start(spark, bus).awaitTermination()
"""


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Record]]]:
    path = tmp_path_factory.mktemp("hour") / "bus.db"
    with recording.opened(path) as bus:
        recording.fill(bus, STEPS, VEHICLES)
        yield path, recording.everything(bus)


@pytest.fixture(scope="module")
def stored(
    spark: SparkSession,
    hour: tuple[Path, list[Record]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("batch")
    store_batch(spark, f"embedded:{hour[0]}", folder)
    return folder


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    """A table as a Parquet tool sees it, in the bus's order."""
    found = ds.dataset(folder / name, format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def kept(folder: Path) -> list[tuple[Any, ...]]:
    """All records that the tables hold, as they were."""
    rows = [row for name in TABLES if (folder / name).exists() for row in table(folder, name)]
    names = ("topic", "partition", "offset", "time_us", "key", "value")
    return sorted(tuple(row[name] for name in names) for row in rows)


def appended(records: list[Record]) -> list[tuple[Any, ...]]:
    return sorted((*one[:4], one.key, one.value) for one in records)


def run(
    spark: SparkSession, bus: Path, folder: Path, checkpoint: Path, **options: Any
) -> HistoryJob:
    job = HistoryJob(folder, checkpoint, interval_s=0.05, **options)
    try:
        job.start(spark, f"embedded:{bus}").processAllAvailable()
    finally:
        job.stop()
    return job


def test_every_record_is_stored_once(hour: tuple[Path, list[Record]], stored: Path) -> None:
    assert kept(stored) == appended(hour[1])


def test_streams_and_batches_store_the_same_rows(
    spark: SparkSession, hour: tuple[Path, list[Record]], stored: Path, tmp_path: Path
) -> None:
    job = run(spark, hour[0], tmp_path / "h", tmp_path / "c", batch_records=500, compact_batches=2)
    for name, one in TABLES.items():
        if one.of_records:
            assert table(tmp_path / "h", name) == table(stored, name)
    assert job.counters["reports"] == STEPS * VEHICLES
    assert job.rejected == {
        "no-position": 2 * STEPS, "bad-coordinates": 2 * STEPS, "bad-key": STEPS,
        "malformed": 2 * STEPS, "no-event": STEPS, "version": STEPS,
    }  # fmt: skip
    assert job.counters["rejects"] == recording.POISON * STEPS

    # Nothing is added by going on, nor when the checkpoint is lost.
    before = kept(tmp_path / "h")
    assert not run(spark, hour[0], tmp_path / "h", tmp_path / "c").counters
    assert not run(spark, hour[0], tmp_path / "h", tmp_path / "other").counters
    assert kept(tmp_path / "h") == before

    # A new bus counts its offsets from the start again: its records are stored all the same.
    with recording.opened(tmp_path / "new.db") as bus:
        bus.append(*recording.report("car-new", 40.6, -111.9))
        bus.flush_now()
    job = run(spark, tmp_path / "new.db", tmp_path / "h", tmp_path / "third")
    assert job.counters == {"reports": 1}
    assert len(kept(tmp_path / "h")) == len(before) + 1


def test_reports_are_plain_columns(stored: Path) -> None:
    rows = table(stored, "reports")
    assert len(rows) == STEPS * VEHICLES
    row = next(row for row in rows if row["client"] == "car-1")
    assert (row["heading_deg"], row["speed_mps"]) == (90.0, 12.5)
    assert 40.5 <= row["lat"] <= 41.0
    assert row["tile"].startswith("12-")
    for row in rows:
        assert row["day"] == datetime.fromtimestamp(row["time_us"] / 1e6, UTC).date().isoformat()
    assert {row["day"] for row in rows} == {"2026-03-01", "2026-03-02"}


def test_events_and_alerts_are_plain_columns(stored: Path) -> None:
    events = table(stored, "events")
    crash = next(row for row in events if row["kind"] == "collision")
    assert (crash["lat"], crash["lon"], crash["reporter"]) == (40.75, -111.9, "car-1")
    assert (crash["text"], crash["heading_deg"], len(crash["id"])) == ("Bang", 45.0, 36)
    assert json.loads(crash["values"]) == {"b": "AA==", "lanes": 2, "n": None}
    at_sender = next(row for row in events if row["kind"] == "obstacle")
    assert (at_sender["lat"], at_sender["lon"], at_sender["speed_mps"]) == (40.7, -111.95, 3.5)
    to_area, to_all = table(stored, "alerts")[:2]
    assert json.loads(to_area["area"])["properties"] == {"shape": "circle", "radius_m": 800.0}
    assert (to_area["lat"], to_area["lon"], to_area["source"]) == (
        40.75,
        -111.9,
        "service:pipeline",
    )
    assert (to_area["kind"], to_area["priority"], to_area["text"]) == (
        "collision",
        9,
        "Crash ahead",
    )
    assert to_area["expires_us"] == recording.BEGIN_US + recording.HOUR_US
    assert (to_all["destination"], to_all["area"], to_all["tile"]) == ("everyone", None, "none")


def test_deliveries_and_rejects_keep_what_came(stored: Path) -> None:
    [delivery, *others] = table(stored, "deliveries")
    assert len(others) == STEPS - 1
    assert (delivery["message"], delivery["adapter"], delivery["source"], delivery["kind"]) == (
        str(uuid.UUID(bytes=b"m" * 16)),
        "a",
        "service:pipeline",
        "alert",
    )
    assert (delivery["recipients"], delivery["waiting"], delivery["tile"]) == (1, 1, "none")
    reasons = Counter(row["reason"] for row in table(stored, "rejects"))
    assert reasons.total() == recording.POISON * STEPS
    assert reasons["bad-coordinates"] == 2 * STEPS  # beyond the pole, and no number
    assert {row["tile"] for row in table(stored, "rejects")} == {"none"}


def test_nothing_hidden_shows(stored: Path) -> None:
    whole = ds.dataset(stored, format="parquet", partitioning="hive")
    assert whole.count_rows() == len(kept(stored))
    shown = {path.name for path in stored.iterdir() if not path.name.startswith("_")}
    assert shown == {name for name, one in TABLES.items() if one.of_records}
    assert not [path for path in stored.glob("*/**/*") if path.name.startswith(("_", "."))]


def test_how_far_is_stored(tmp_path: Path) -> None:
    job = HistoryJob(tmp_path / "h", tmp_path / "c", interval_s=10.0, batch_records=1000)
    assert job.stored_until_us() == 0
    second_us, begun_us = 1_000_000, recording.BEGIN_US
    job.state.batch_us, job.state.batch_rows = begun_us, 1000
    assert job.stored_until_us() == 0  # there was more than a batch takes
    job.state.batch_rows = 700
    assert job.stored_until_us() == begun_us - second_us
    job.state.idle_us = later_us = begun_us + 60 * second_us  # nothing came
    assert job.stored_until_us() == later_us - second_us
    job.state.idle_us = 0
    assert job.stored_until_us() == later_us - second_us  # it never takes it back


def test_one_job_a_folder(
    spark: SparkSession, hour: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    job = HistoryJob(tmp_path / "h", tmp_path / "c")
    job.start(spark, f"embedded:{hour[0]}")
    try:
        with pytest.raises(PipelineError, match="another job stores history"):
            HistoryJob(tmp_path / "h", tmp_path / "d").start(spark, f"embedded:{hour[0]}")
    finally:
        job.stop()


def test_killed_at_random_moments(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path, folder, checkpoint = tmp_path / "bus.db", tmp_path / "h", tmp_path / "c"
    with recording.opened(path) as bus:
        done = threading.Event()
        load = threading.Thread(target=put_under_load, args=(bus, done))
        load.start()
        try:
            for _ in range(KILLS):
                kill_a_job(rng, path, folder, checkpoint)
        finally:
            done.set()
            load.join()
        run(spark, path, folder, checkpoint)
        assert kept(folder) == appended(recording.everything(bus))
    assert list((folder / "_staging").iterdir()) == []


def put_under_load(bus: Bus, done: threading.Event) -> None:
    while not done.wait(0.02):
        for number in range(10):
            bus.append(*recording.report(f"car-{number}", 40.0 + number / 100, -111.0))
        bus.append(*recording.event("car-1", recording.CRASH))
        bus.append("events.collision", b"poison", b"k")
        bus.flush_now()


def kill_a_job(rng: random.Random, bus: Path, folder: Path, checkpoint: Path) -> None:
    """Start one, let it store something, and kill it with all its processes."""
    before = HistoryFolder(folder).offsets()
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS_UNTIL_KILLED, str(folder), str(checkpoint), f"embedded:{bus}"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(
            lambda: HistoryFolder(folder).offsets() != before or process.poll() is not None, 120.0
        )
        time.sleep(rng.uniform(0.0, 2.0))  # killed at a random moment of a batch
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
