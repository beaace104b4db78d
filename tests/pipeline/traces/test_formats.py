"""Every format, from small files that are made here; what is broken is told, not fatal."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.transit import gtfs_realtime_pb2 as gtfs
from pyspark.sql import SparkSession

from mercury.model.errors import ConfigurationError
from mercury.pipeline.traces import inputs, job, sumo_fcd
from mercury.pipeline.traces.columns import ColumnNames, Reading
from mercury.pipeline.traces.text_rows import TextRow, UnreadableFileError

FCD = """<?xml version="1.0" encoding="UTF-8"?>
<fcd-export xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
    <timestep time="1800.00">
        <vehicle id="bus 1" x="11.25" y="44.5" angle="345.09" type="bus" speed="3.50" lane="a_0"/>
        <person id="p" x="11.5" y="44.25" angle="0.00" speed="1.00" edge="b"/>
    </timestep>
    <timestep time="1801.00"/>
    <timestep time="1802.50">
        <vehicle id="bus 1" x="11.26" y="44.51" speed="3.50"/>
    </timestep>
</fcd-export>
"""
BILLION_LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE fcd-export [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<fcd-export><timestep time="1"><vehicle id="&b;" x="1" y="1"/></timestep></fcd-export>
"""


def known(row: Any) -> tuple[Any, ...]:
    return (row.vehicle, row.time_us, row.lat, row.lon, row.speed_mps, row.heading_deg, row.problem)


def read_csv(spark: SparkSession, *paths: Path, **reading: Any) -> list[Any]:
    frame = job.read(spark, "csv", [str(path) for path in paths], Reading(**reading))
    return frame.orderBy("source", "block", "row").collect()


def test_csv_with_quotes_and_odd_names_is_read(spark: SparkSession, tmp_path: Path) -> None:
    # A name that Spark would take for a pattern, a byte order mark, Windows' line ends.
    path = tmp_path / "a [1] {b}+%20é.csv"
    lines = [
        "id,when,note,Latitude,Longitude",
        '7,1800,"said ""so, too""",30.25,-97.5',
        "",
        "7,1801,,30.25",
        "7,1802,,30.25,-97.5,9",
        "7,1803,,30.25,-97.5",
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    rows = read_csv(spark, path, columns=ColumnNames(time=("when",)))
    assert [known(row) for row in rows] == [
        ("7", 1_800_000_000, 30.25, -97.5, None, None, None),
        ("7", 1_801_000_000, 30.25, None, None, None, "column-count"),
        ("7", 1_802_000_000, 30.25, -97.5, None, None, "column-count"),
        ("7", 1_803_000_000, 30.25, -97.5, None, None, None),
    ]
    assert [row.original for row in rows] == [line for line in lines[1:] if line]
    assert {row.source for row in rows} == {str(path)}


def test_csv_files_of_different_kinds_together(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,time,lat,lon\n1,1,1,1\n")
    (tmp_path / "b.csv").write_text(
        "timestep_time;vehicle_id;vehicle_x;vehicle_y;vehicle_angle;vehicle_speed\n"
        "1800.00;car;11.25;44.5;345.5;0.5\n"
    )
    (tmp_path / "c.csv.gz").write_bytes(
        gzip.compress(b"id\tdate\ttime\tlat\tlon\tspeed_kmh\n1\t2016-03-22\t01:02:03\t1\t1\t36\n")
    )
    rows = read_csv(spark, tmp_path / "a.csv", tmp_path / "b.csv")
    assert [known(row)[:6] for row in rows] == [
        ("1", 1_000_000, 1.0, 1.0, None, None),
        ("car", 1_800_000_000, 44.5, 11.25, 0.5, 345.5),
    ]
    (row,) = read_csv(spark, tmp_path / "c.csv.gz", columns=ColumnNames(time=("date", "time")))
    assert known(row)[1:5] == (1_458_608_523_000_000, 1.0, 1.0, 10.0)


def test_a_damaged_csv_is_read_up_to_there_and_told(spark: SparkSession, tmp_path: Path) -> None:
    text = "id,time,lat,lon\n" + "".join(f"{i},{i * 7919 % 10007},1,1\n" for i in range(50_000))
    whole = gzip.compress(text.encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "good.csv").write_text("id,time,lat,lon\n1,1,1,1\n")
    (tmp_path / "none.csv.gz").write_bytes(b"id,time,lat,lon\n1,1,1,1\n")
    rows = read_csv(spark, *sorted(tmp_path.iterdir()))
    written = {Path(row.source).name: row for row in rows if row.problem}
    assert sorted(written) == ["cut.csv.gz", "empty.csv", "none.csv.gz"]
    assert {row.problem for row in written.values()} == {"unreadable-file"}
    assert "end-of-stream" in written["cut.csv.gz"].original
    assert "header" in written["empty.csv"].original
    assert 1000 < len(rows) < 50_000


def test_wrong_separators(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,time,lat,lon\n1,1,1,1\n")
    with pytest.raises(ConfigurationError, match="cannot be guessed"):
        read_csv(spark, path, separator=";")
    with pytest.raises(ConfigurationError, match="'::' is not one character"):
        read_csv(spark, path, separator="::")


def test_parquet_is_read(spark: SparkSession, tmp_path: Path) -> None:
    moment_us = 1_458_692_761_123_456
    place = {"lat": [30.1], "lon": [-97.7], "vehicle": [7]}
    pq.write_table(
        pa.table({**place, "time": pa.array([moment_us], pa.timestamp("us", tz="UTC"))}),
        tmp_path / "a.parquet",
    )
    pq.write_table(
        pa.table({**place, "time": pa.array([moment_us], pa.timestamp("us"))}),
        tmp_path / "b.parquet",
    )
    pq.write_table(
        pa.table({**place, "time_us": [1_800_000_000], "my.speed": [36.0]}),
        tmp_path / "c.parquet",
    )
    (tmp_path / "d.parquet").write_bytes(b"no Parquet at all")
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    reading = Reading(time_zone="America/Chicago")
    rows = job.read(spark, "parquet", paths, reading).orderBy("source").collect()
    five_hours_us = 5 * 3600 * 1_000_000
    assert [known(row) for row in rows] == [
        ("7", moment_us, 30.1, -97.7, None, None, None),
        ("7", moment_us + five_hours_us, 30.1, -97.7, None, None, None),
        ("7", 1_800_000_000, 30.1, -97.7, None, None, None),
        (None, None, None, None, None, None, "unreadable-file"),
    ]
    assert [row.source for row in rows] == paths
    assert '"lat":30.1' in rows[0].original
    (row,) = job.read(
        spark,
        "parquet",
        paths[2:3],
        Reading(columns=ColumnNames(speed="my.speed"), speed_unit="km/h"),
    ).collect()
    assert row.speed_mps == pytest.approx(10.0)


def test_sumo_fcd_is_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(FCD)
    (tmp_path / "b.xml.gz").write_bytes(gzip.compress(FCD.encode()))
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    reading = Reading(time_origin_us=5_000_000)
    rows = job.read(spark, "sumo-fcd", paths, reading).orderBy("source", "row").collect()
    expected = [
        ("bus 1", 1_805_000_000, 44.5, 11.25, 3.5, 345.09, None),
        ("p", 1_805_000_000, 44.25, 11.5, 1.0, 0.0, None),
        ("bus 1", 1_807_500_000, 44.51, 11.26, 3.5, None, None),
    ]
    assert [known(row) for row in rows] == expected * 2
    assert '"lane": "a_0"' in rows[0].original


@pytest.mark.parametrize(
    ("text", "rows", "sentence"),
    [
        (FCD[: len(FCD) - 30], 3, "not well-formed"),
        (BILLION_LAUGHS, 0, "declares a document type"),
        ("<routes><vehicle id='1'/></routes>", 0, "is a <routes>"),
        ("noise", 0, "not well-formed"),
        ("", 0, "not well-formed"),
        (f"<fcd-export><vehicle id='{'x' * 5_000_000}'/></fcd-export>", 0, "longer than"),
    ],
)
def test_xml_that_is_refused(tmp_path: Path, text: str, rows: int, sentence: str) -> None:
    path = tmp_path / "a.xml"
    path.write_text(text)
    found: list[TextRow] = []
    with pytest.raises(UnreadableFileError, match=sentence):
        found.extend(sumo_fcd.read_rows(str(path)))
    assert len(found) == rows


def test_gtfs_realtime_is_read(spark: SparkSession, tmp_path: Path) -> None:
    feed = gtfs.FeedMessage()
    feed.header.gtfs_realtime_version = "2.0"
    feed.header.timestamp = 1_505_314_375
    moving = feed.entity.add(id="1").vehicle
    moving.vehicle.id = "1536"
    moving.timestamp = 1_505_314_300
    moving.position.latitude, moving.position.longitude = 28.0625, -82.4375
    moving.position.speed, moving.position.bearing = 12.5, 180.0
    bare = feed.entity.add(id="2").vehicle
    bare.position.latitude, bare.position.longitude = 28.0625, -82.4375
    feed.entity.add(id="3").vehicle.vehicle.label = "nowhere"
    feed.entity.add(id="4").alert.header_text.translation.add(text="not a vehicle")
    (tmp_path / "a.pb").write_bytes(feed.SerializeToString())
    (tmp_path / "b.pb").write_bytes(b"\xff noise")
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    rows = job.read(spark, "gtfs-realtime", paths, Reading()).orderBy("source", "row").collect()
    assert [known(row) for row in rows] == [
        ("1536", 1_505_314_300_000_000, 28.0625, -82.4375, 12.5, 180.0, None),
        ("2", 1_505_314_375_000_000, 28.0625, -82.4375, None, None, None),
        ("nowhere", 1_505_314_375_000_000, None, None, None, None, "no-position"),
        (None, None, None, None, None, None, "unreadable-file"),
    ]


def test_files_are_found_by_their_ending(tmp_path: Path) -> None:
    for name in ("a.csv", "B.CSV", "c.csv.GZ", "c.xml", "d.pb", "x/day=1/e.parquet", "x/_SUCCESS",
                 "x/.hidden.csv", "_old/f.csv", "readme.md"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = inputs.find([tmp_path, tmp_path / "a.csv"])
    assert {kind: [Path(one).name for one in paths] for kind, paths in found.items()} == {
        "csv": ["B.CSV", "a.csv"],
        "sumo-fcd": ["c.xml"],
        "gtfs-realtime": ["d.pb"],
        "parquet": ["e.parquet"],
    }
    assert inputs.find([tmp_path / "readme.md"], "csv") == {"csv": [str(tmp_path / "readme.md")]}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("readme.md", "does not show its format"),
        ("missing.csv", "there is no file"),
        ("_a.csv", "passes by"),
        ("empty", "no files to import"),
    ],
)
def test_files_that_are_not_taken(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "empty").mkdir()
    for there in ("readme.md", "_a.csv"):
        (tmp_path / there).touch()
    with pytest.raises(ConfigurationError, match=sentence):
        inputs.find([tmp_path / name])
