"""The position header as columns, by Spark's own expressions: no Python runs for a report.

Four big-endian doubles: latitude, longitude, heading, speed. Spark cannot reinterpret bytes as a
double, but it can take them apart: sign, exponent and fraction of IEEE 754.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_BYTES = 8
_EXPONENT_BIAS = 1023
_ALL_ONES = 2047


def double_at(column: Column, index: int) -> Column:
    """The double at a place of a binary column; null if it is too short, NaN where it is none."""
    at = index * _BYTES + 1
    high = _unsigned(F.substring(column, at, 4))
    low = _unsigned(F.substring(column, at + 4, 4))
    exponent = F.shiftright(high, 20).bitwiseAND(F.lit(_ALL_ONES))
    fraction = high.bitwiseAND(F.lit(0xFFFFF)) * F.lit(2.0**32) + low
    size = F.when(exponent == 0, F.lit(0.0)).otherwise(
        (F.lit(1.0) + fraction / F.lit(2.0**52))
        * F.pow(F.lit(2.0), (exponent - F.lit(_EXPONENT_BIAS)).cast("double"))
    )
    signed = F.when(F.shiftright(high, 31) == 1, -size).otherwise(size)
    whole = F.length(column) >= at + _BYTES - 1
    return F.when(whole, F.when(exponent == _ALL_ONES, F.lit(float("nan"))).otherwise(signed))


def _unsigned(four_bytes: Column) -> Column:
    return F.conv(F.hex(four_bytes), 16, 10).cast("long")
