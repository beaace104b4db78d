"""Checks fixes: each function takes fixes and returns them with `problem` filled in.

A fix keeps the first problem that is found, and one that has a problem is not used to judge
others.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mercury.pipeline.spark.fix_columns import on_earth
from mercury.pipeline.traces.jumps import mark_jumps
from mercury.pipeline.traces.schemas import CHECKED, READ_ORDER

# By vehicle and time, with what has a problem already out of the way. The window of the duplicates
# and the check of the jumps share it, so that the rows are sorted once for both.
_TIME_ORDER = ["bad", "time_us", *READ_ORDER]


def checked(fixes: DataFrame, max_speed_mps: float) -> DataFrame:
    """All checks; the fixes of a vehicle are shuffled together once."""
    together = fixes.repartition("vehicle")  # what follows needs no other shuffle
    unique = mark_duplicates(mark_late(mark_misplaced(together)))
    ordered = unique.sortWithinPartitions("vehicle", *_TIME_ORDER).select(CHECKED.names)
    return ordered.mapInArrow(partial(mark_jumps, max_speed_mps), CHECKED)


def mark_misplaced(fixes: DataFrame) -> DataFrame:
    """Positions that are not on Earth, or where receivers are that do not know where they are."""
    nowhere = (F.col("lat") == 0.0) & (F.col("lon") == 0.0)
    return fixes.withColumn(
        "problem",
        F.coalesce("problem", F.when(~on_earth(), "out-of-range").when(nowhere, "null-island")),
    )


def mark_late(fixes: DataFrame) -> DataFrame:
    """Fixes that were read after a newer one of their vehicle: `late`, which is no problem."""
    good = F.col("problem").isNull()
    before = (
        Window.partitionBy("vehicle")
        .orderBy(*READ_ORDER)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    newest_us = F.max(F.when(good, F.col("time_us"))).over(before)
    return fixes.withColumn("late", good & F.coalesce(newest_us > F.col("time_us"), F.lit(False)))


def mark_duplicates(fixes: DataFrame) -> DataFrame:
    """A second fix of a vehicle at the same time; the one that was read first is kept."""
    by_time = Window.partitionBy("vehicle").orderBy(*_TIME_ORDER)
    again = ~F.col("bad") & (F.lag("time_us").over(by_time) == F.col("time_us"))
    return fixes.withColumn("bad", F.col("problem").isNotNull()).withColumn(
        "problem", F.when(again, "duplicate").otherwise(F.col("problem"))
    )
