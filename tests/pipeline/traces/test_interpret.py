"""Texts become fixes: times, units, and a name for whatever cannot be understood."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from mercury.model.errors import ConfigurationError
from mercury.pipeline.traces.columns import Reading
from mercury.pipeline.traces.interpret import check_reading, fixes
from mercury.pipeline.traces.schemas import TEXT_ROW


def us(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    return round(moment.timestamp() * 1e6)


def read(
    spark: SparkSession, rows: list[dict[str, str | None]], reading: Reading | None = None
) -> list[Any]:
    """Rows of texts, with what they leave out filled in, as fixes."""
    usual = {"vehicle": "bus", "time": "1", "lat": "1", "lon": "2", "speed": "", "heading": None}
    texts = [
        (*{**usual, **row}.values(), "file", 0, number, "row", None)
        for number, row in enumerate(rows)
    ]
    frame = spark.createDataFrame(texts, TEXT_ROW)
    return fixes(frame, reading or Reading(speed_unit="m/s")).orderBy("row").collect()


def times(spark: SparkSession, texts: list[str], time_format: str, **more: Any) -> list[int | None]:
    reading = Reading(time_format=time_format, speed_unit="m/s", **more)
    rows = read(spark, [{"time": text} for text in texts], reading)
    assert [row.problem for row in rows] == [
        None if row.time_us is not None else "bad-time" for row in rows
    ]
    return [row.time_us for row in rows]


def test_guessed_times(spark: SparkSession) -> None:
    expected = {
        "1458692761": us("2016-03-23T00:26:01+00:00"),
        " 1458692761.123456 ": us("2016-03-23T00:26:01.123456+00:00"),
        "1.458692761e9": us("2016-03-23T00:26:01+00:00"),
        "1458692761123": us("2016-03-23T00:26:01.123+00:00"),
        "1458692761123456": us("2016-03-23T00:26:01.123456+00:00"),
        "1458692761123456789": us("2016-03-23T00:26:01.123456+00:00"),
        "1800.50": 1_800_500_000,
        "2016-03-22T19:26:01-05:00": us("2016-03-22T19:26:01-05:00"),
        "2016-03-22T19:26:01-0500": us("2016-03-22T19:26:01-05:00"),
        "2016-03-22T19:26:01Z": us("2016-03-22T19:26:01+00:00"),
        "2016-03-22 19:26:01.5": us("2016-03-22T19:26:01.5", "America/Chicago"),
        "2016-03-22": us("2016-03-22T00:00:00", "America/Chicago"),
        "12:00": None,
        "yesterday": None,
        "NaN": None,
        "": None,
        "-5": None,
        "9999-01-01": None,
        "9223372036854775807": None,
        "1" * 26: None,
        "1" * 30: None,
    }
    found = times(spark, list(expected), "auto", time_zone="America/Chicago")
    assert dict(zip(expected, found, strict=True)) == expected


@pytest.mark.parametrize(
    ("time_format", "text", "expected"),
    [
        ("epoch-s", "1458692761123", None),  # the year 48194
        ("epoch-ms", "1458692761123", 1458692761123000),
        ("epoch-us", "1800000000", 1800000000),
        ("iso", "1458692761", None),
        ("yyyy/MM/dd H m s", "2017/12/01 6 35 59", us("2017-12-01T06:35:59", "America/Chicago")),
        ("yyyy/MM/dd H m s", "2017-12-01", None),
        ("yyyy-MM-dd", "2017-1-1", None),  # Spark 2 would have read it
        ("MM/dd/yyyy hh:mm:ss a Z", "06/13/2018 09:00:03 PM +0000", us("2018-06-13T21:00:03")),
    ],
)
def test_times_as_said(
    spark: SparkSession, time_format: str, text: str, expected: int | None
) -> None:
    assert times(spark, [text], time_format, time_zone="America/Chicago") == [expected]


def test_a_simulations_clock(spark: SparkSession) -> None:
    begun_us = us("2024-05-01T08:00:00")
    texts = ["0", "1.5", "9223372036854.7"]
    assert times(spark, texts, "epoch-s", time_origin_us=begun_us) == [
        begun_us,
        begun_us + 1_500_000,
        None,
    ]


@pytest.mark.parametrize(
    ("unit", "mps"), [("m/s", 36.0), ("km/h", 10.0), ("mph", 16.09344), ("kn", 18.52)]
)
def test_speeds_are_converted_from_their_unit(spark: SparkSession, unit: str, mps: float) -> None:
    (row,) = read(spark, [{"speed": "36"}], Reading(speed_unit=unit))
    assert row.speed_mps == pytest.approx(mps)


def test_an_unknown_speed_or_heading_costs_no_position(spark: SparkSession) -> None:
    rows = read(
        spark,
        [
            {"speed": "-1", "heading": "511"},
            {"speed": "NaN", "heading": "NaN"},
            {"speed": "", "heading": None},
            {"speed": "0", "heading": "-90"},
            {"speed": "Infinity", "heading": "360"},
        ],
    )
    assert [(row.speed_mps, row.heading_deg, row.problem) for row in rows] == [
        (None, None, None),
        (None, None, None),
        (None, None, None),
        (0.0, 270.0, None),
        (None, 0.0, None),
    ]


def test_what_cannot_be_understood_is_named(spark: SparkSession) -> None:
    cases: list[tuple[dict[str, str | None], str | None]] = [
        ({}, None),
        ({"vehicle": " "}, "no-vehicle"),
        ({"vehicle": None, "time": "x"}, "no-vehicle"),
        ({"time": None}, "bad-time"),
        ({"lat": ""}, "no-position"),
        ({"lon": None}, "no-position"),
        ({"lat": "north"}, "bad-number"),
        ({"lon": "12,5"}, "bad-number"),
        ({"speed": "fast"}, "bad-number"),
        ({"heading": "N"}, "bad-number"),
    ]
    rows = read(spark, [case for case, _ in cases])
    assert [row.problem for row in rows] == [problem for _, problem in cases]
    assert {row.original for row in rows} == {"row"}


@pytest.mark.parametrize(
    ("reading", "sentence"),
    [
        (Reading(time_format="qqqq"), "--time-format 'qqqq' is neither"),
        (Reading(time_format="yyyy/bb"), "nor a pattern"),
        (Reading(time_format="YYYY"), "nor a pattern"),
        (Reading(time_zone="Mars/Olympus"), "no time zone 'Mars/Olympus'"),
        (Reading(time_zone=""), "no time zone ''"),
        (Reading(time_zone="/etc"), "no time zone '/etc'"),
    ],
)
def test_wrong_requests(spark: SparkSession, reading: Reading, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        check_reading(spark, reading)


def test_right_requests(spark: SparkSession) -> None:
    for wanted in ("auto", "iso", "epoch-s", "yyyy/MM/dd H m s"):
        check_reading(spark, Reading(time_format=wanted, time_zone="America/Chicago"))
