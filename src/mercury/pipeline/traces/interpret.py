"""Parses texts into fixes, with Spark's own expressions; what cannot be parsed has a reason."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mercury.model.errors import ConfigurationError
from mercury.pipeline.traces.columns import MPS_PER_UNIT, Reading
from mercury.pipeline.traces.schemas import FIX

US_PER_UNIT = {"epoch-s": 1_000_000, "epoch-ms": 1_000, "epoch-us": 1}
# A time in another unit than was said lands far in the future or beside the epoch.
_LATEST_US = 4_102_444_800_000_000  # 2100-01-01
# From these sizes on a bare number is in milliseconds (1973), microseconds, nanoseconds.
_MS_FROM, _US_FROM, _NS_FROM = 10**11, 10**14, 10**17
# Spark also takes 12:00 as today, which no trace means.
_ISO = r"^\s*\d{4}-\d{1,2}-\d{1,2}"
_ISO_ZONE = r"(Z|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+(/[A-Za-z_]+)*)\s*$"
_PATTERN_ZONE = set("VzOXxZ")
_PATTERN_LETTERS = _PATTERN_ZONE | set("GyDMLdahKkHmsS")  # that Spark reads a time by


def fixes(rows: DataFrame, reading: Reading) -> DataFrame:
    """Parse rows of texts into fixes."""
    time_us = F.try_add(_time_us(F.trim("time"), reading), F.lit(reading.time_origin_us))
    speed = _number("speed") * F.lit(MPS_PER_UNIT.get(reading.speed_unit, 1.0))
    heading = _number("heading")
    known = rows.select(
        F.nullif(F.trim("vehicle"), F.lit("")).alias("vehicle"),
        F.when(time_us.between(0, _LATEST_US), time_us).alias("time_us"),
        _number("lat").alias("lat"),
        _number("lon").alias("lon"),
        # -1, NaN and AIS's 511 mean unknown: no reason to lose the position.
        F.when((speed >= 0) & (speed < float("inf")), speed).alias("speed_mps"),
        F.when(F.abs(heading) <= 360.0, F.pmod(heading, F.lit(360.0))).alias("heading_deg"),
        "source",
        "block",
        "row",
        "original",
        "problem",
        (_blank("lat") | _blank("lon")).alias("nowhere"),
        (_no_number("lat") | _no_number("lon") | _no_number("speed") | _no_number("heading")).alias(
            "no_number"
        ),
    )
    found = (
        F.when(F.col("vehicle").isNull(), "no-vehicle")
        .when(F.col("time_us").isNull(), "bad-time")
        .when(F.col("nowhere"), "no-position")
        .when(F.col("no_number"), "bad-number")
    )
    return known.withColumn("problem", F.coalesce("problem", found)).select(FIX.names)


def check_reading(spark: SparkSession | None, reading: Reading) -> None:
    """Raise for an unknown zone or pattern; Spark checks patterns fully when it runs."""
    try:
        ZoneInfo(reading.time_zone)
    except (ValueError, OSError, KeyError):
        raise ConfigurationError(
            f"there is no time zone {reading.time_zone!r}; one is America/Chicago"
        ) from None
    pattern = reading.time_format
    if pattern in ("auto", "iso", *US_PER_UNIT):
        return
    letters = set(filter(str.isalpha, _outside_quotes(pattern)))
    good = set() < letters <= _PATTERN_LETTERS and "%" not in pattern
    try:
        if good and spark is not None:
            parsed = F.try_to_timestamp(F.lit("2001-02-03"), F.lit(pattern))
            spark.range(1).select(parsed).collect()
    except PySparkException:
        good = False
    if not good:
        raise ConfigurationError(
            f"--time-format {pattern!r} is neither auto, epoch-s, epoch-ms, epoch-us,"
            " iso nor a pattern such as 'yyyy/MM/dd HH:mm:ss'"
        )


def _time_us(text: Column, reading: Reading) -> Column:
    wanted = reading.time_format
    if wanted in US_PER_UNIT:
        return _epoch_us(text, F.lit(US_PER_UNIT[wanted]))
    if wanted == "iso":
        return _iso_us(text, reading.time_zone)
    if wanted == "auto":
        return F.coalesce(_guessed_epoch_us(text), _iso_us(text, reading.time_zone))
    parsed = F.try_to_timestamp(text, F.lit(wanted))
    says_zone = not _PATTERN_ZONE.isdisjoint(_outside_quotes(wanted))
    return F.unix_micros(parsed if says_zone else _local(parsed, reading.time_zone))


def _epoch_us(text: Column, us_per_unit: Column) -> Column:
    # Decimals, as a double of today's seconds is not exact to the microsecond.
    return F.floor(text.try_cast("decimal(32,6)") * us_per_unit).try_cast("bigint")


def _guessed_epoch_us(text: Column) -> Column:
    size = F.abs(text.try_cast("double"))
    number = text.try_cast("decimal(32,6)")
    exact = (
        F.when(size >= _NS_FROM, number / 1000)
        .when(size >= _US_FROM, number)
        .when(size >= _MS_FROM, number * 1000)
        .otherwise(number * 1_000_000)
    )
    return F.floor(exact).try_cast("bigint")


def _iso_us(text: Column, time_zone: str) -> Column:
    parsed = F.when(text.rlike(_ISO), F.try_to_timestamp(text))
    says_zone = F.regexp_replace(text, _ISO, "").rlike(_ISO_ZONE)
    return F.unix_micros(F.when(says_zone, parsed).otherwise(_local(parsed, time_zone)))


def _local(parsed: Column, time_zone: str) -> Column:
    # The session reads bare times as UTC.
    return F.to_utc_timestamp(parsed, time_zone)


def _outside_quotes(pattern: str) -> str:
    return "".join(pattern.split("'")[::2])


def _number(name: str) -> Column:
    return F.trim(name).try_cast("double")


def _blank(name: str) -> Column:
    return F.coalesce(F.trim(name), F.lit("")) == ""


def _no_number(name: str) -> Column:
    return ~_blank(name) & _number(name).isNull()
