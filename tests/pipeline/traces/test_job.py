"""A whole import: the table, the bus, the rejects and the summary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline.whole_bus import read_batch
from pyspark.sql import SparkSession

from mercury.bus import Bus, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.model.errors import ConfigurationError
from mercury.model.message import Address, Kind, Telemetry
from mercury.pipeline.detection.transforms import positions
from mercury.pipeline.traces import reports, tables
from mercury.pipeline.traces.job import Import, ImportSummary, run
from mercury.wire import decode
from mercury.wire.records import POSITION, telemetry_fix

DAY_S = 86_400
TRACE = f"""id,time,lat,lon,speed,heading
a,{DAY_S + 2},45.0,9.0,10,90
a,{DAY_S + 1},45.0,9.0,,
a,{DAY_S + 1},45.0,9.0,,
b,10,45.0,9.0,,
b,11,0,0,,
b,12,46.0,9.0,,
b,13,29817659,9.0,,
b,x,45.0,9.0,,
b,14,45.0,9.0,,
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    bus = EmbeddedBus(tmp_path / "bus.db", retention=Retention(None, None))
    yield bus
    bus.close()


def test_an_import_writes_table_bus_and_rejects(
    spark: SparkSession, trace: Path, tmp_path: Path, bus: Bus
) -> None:
    table, rejects = tmp_path / "table", tmp_path / "rejects"
    wanted = Import([trace], rejects, parquet=table, bus=bus)
    summary = run(spark, wanted)

    assert summary == ImportSummary(
        files=1,
        rows=9,
        kept=4,
        rejected={"null-island": 1, "jump": 1, "out-of-range": 1, "bad-time": 1, "duplicate": 1},
        out_of_order=1,
        vehicles=2,
        first="1970-01-01T00:00:10Z",
        last="1970-01-02T00:00:02Z",
        appended=4,
        seconds=summary.seconds,
        rows_per_s=summary.rows_per_s,
    )
    assert sum(summary.rejected.values()) + summary.kept == summary.rows

    stored = spark.read.parquet(str(table)).collect()
    day_us = DAY_S * 1_000_000
    expected: list[tuple[Any, ...]] = [
        ("a", day_us + 1_000_000, 45.0, 9.0, None, None, str(trace), "1970-01-02"),
        ("a", day_us + 2_000_000, 45.0, 9.0, 10.0, 90.0, str(trace), "1970-01-02"),
        ("b", 10_000_000, 45.0, 9.0, None, None, str(trace), "1970-01-01"),
        ("b", 14_000_000, 45.0, 9.0, None, None, str(trace), "1970-01-01"),
    ]
    assert sorted((*row[:7], str(row.day)) for row in stored) == expected
    assert sorted(path.name for path in table.glob("day=*")) == ["day=1970-01-01", "day=1970-01-02"]

    lines = TRACE.splitlines()
    refused = spark.read.parquet(str(rejects)).collect()
    assert refused[0].asDict().keys() == set(tables.REJECT_COLUMNS)
    assert {(row.reason, row.original) for row in refused} == {
        ("duplicate", lines[3]),
        ("null-island", lines[5]),
        ("jump", lines[6]),
        ("out-of-range", lines[7]),
        ("bad-time", lines[8]),
    }

    # On the bus they are as an adapter would have put them there, in the order of time.
    records = bus.subscribe(["reports"], start="earliest").poll()
    assert [record.key for record in records] == [b"b", b"b", b"a", b"a"]
    message = decode(records[-1].value)
    assert (message.kind, message.source) == (Kind.REPORT, Address.client("a"))
    assert message.sent_us == day_us + 2_000_000
    assert isinstance(message.payload, Telemetry)
    assert message.payload.time_us == message.sent_us
    assert records[-1].headers == (telemetry_fix(message.payload),)
    assert len({decode(record.value).id for record in records}) == 4
    read_back = positions(read_batch(spark, f"embedded:{tmp_path}/bus.db", ["reports"])).collect()
    assert [(row.client, row.speed_mps) for row in read_back][-1] == ("a", 10.0)


def test_a_table_that_was_imported_can_be_imported(
    spark: SparkSession, trace: Path, tmp_path: Path
) -> None:
    run(spark, Import([trace], tmp_path / "r", parquet=tmp_path / "one"))
    again = Import([tmp_path / "one"], tmp_path / "r", parquet=tmp_path / "two", overwrite=True,
                   rejects_format="csv")  # fmt: skip
    summary = run(spark, again)
    assert (summary.rows, summary.kept, summary.rejected) == (4, 4, {})
    one, two = (
        sorted(spark.read.parquet(str(tmp_path / name)).drop("source").collect())
        for name in ("one", "two")
    )
    assert one == two


def test_what_would_be_lost_is_refused(spark: SparkSession, trace: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "a.csv").write_text(TRACE)
    with pytest.raises(ConfigurationError, match="is not empty"):
        run(spark, Import([trace], tmp_path / "r", parquet=full))
    with pytest.raises(ConfigurationError, match="is not empty"):
        run(spark, Import([trace], full))
    with pytest.raises(ConfigurationError, match="holds files to import"):
        run(spark, Import([full], tmp_path / "r", parquet=full, overwrite=True))
    with pytest.raises(ConfigurationError, match="is a file"):
        run(spark, Import([trace], trace))


def test_ids_follow_from_the_fix() -> None:
    one = reports.report("a", 1_458_692_761_123_456, 1.0, 2.0, None, None)
    assert one == reports.report("a", 1_458_692_761_123_456, 1.0, 2.0, None, None)
    other = reports.report("a", 1_458_692_761_123_457, 1.0, 2.0, None, None)
    assert decode(one[3]).id != decode(other[3]).id


class Frame:
    """Stands for a DataFrame of reports."""

    def __init__(self, times_s: list[float]) -> None:
        self._times_s = times_s

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[Any]:
        for time_s in self._times_s:
            yield Report(round(time_s * 1e6))


class Report:
    key = position = value = b""

    def __init__(self, time_us: int) -> None:
        self.time_us = time_us


@pytest.mark.parametrize(
    ("speed", "expected"), [(math.inf, [0, 0, 0, 0]), (1.0, [0, 10, 10, 30]), (10.0, [0, 1, 1, 3])]
)
def test_reports_are_appended_at_the_given_speed(
    bus: Bus, speed: float, expected: list[float]
) -> None:
    now = 100.0
    at: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Watched:
        def append(self, *record: Any) -> None:
            assert record[3] == ((POSITION, b""),)
            at.append(now - 100.0)

        def flush_now(self) -> None:
            pass

    frame: Any = Frame([5.0, 15.0, 15.0, 35.0])
    watched: Any = Watched()
    counts: list[int] = []
    assert reports.append(frame, watched, speed, counts.append, lambda: now, sleep) == 4
    assert at == pytest.approx(expected)
    assert counts[-1] == 4
