"""Finds jumps: fixes that no vehicle can reach in time.

A fix is compared with the last accepted one, not with its predecessor: otherwise one stray fix
would reject the good one after it, too. No SQL window function can do that, so a small core does;
it takes the fixes of a vehicle in time order and holds two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mercury.geo.distance import haversine_m

# This many consecutive fixes that fit each other are accepted, however far away: a vehicle that was
# shipped, or whose earlier fix was the stray one.
AGREEING = 3


class TimedPosition(NamedTuple):
    """Where a vehicle was."""

    time_us: int
    lat: float
    lon: float


class JumpCheck:
    """Checks the fixes of vehicles: vehicle by vehicle, each in the order of time."""

    def __init__(self, max_speed_mps: float) -> None:
        self._max_speed_mps = max_speed_mps
        self._vehicle: str | None = None
        self._believed: TimedPosition | None = None
        self._doubted: TimedPosition | None = None  # the last one, unless a later one was accepted
        self._agreeing = 0  # doubted ones in a row that fit to each other

    def jumped(self, vehicle: str, fix: TimedPosition) -> bool:
        """Whether the vehicle cannot be there."""
        if vehicle != self._vehicle:
            self._vehicle, self._believed = vehicle, None
        if self._believed is None or self._reaches(self._believed, fix):
            return self._believe(fix)
        fits = self._doubted is not None and self._reaches(self._doubted, fix)
        self._agreeing = self._agreeing + 1 if fits else 1
        self._doubted = fix
        return self._believe(fix) if self._agreeing == AGREEING else True

    def all_reach(self, vehicles: pa.Array, fixes: tuple[np.ndarray, ...]) -> bool:
        """Whether none of many fixes jumps; if so they are accepted."""
        if not len(vehicles):
            return True
        times_us, lats, lons = fixes
        if self._believed is not None and vehicles[0].as_py() == self._vehicle:
            first = TimedPosition(times_us[0], lats[0], lons[0])
            if not self._reaches(self._believed, first):
                return False
        same = np.asarray(pc.equal(vehicles[1:], vehicles[:-1]))
        steps_m = haversine_m(lats[:-1], lons[:-1], lats[1:], lons[1:])
        if np.any(same & (steps_m > np.diff(times_us) * (self._max_speed_mps * 1e-6))):
            return False
        self._vehicle = vehicles[-1].as_py()
        self._believe(TimedPosition(int(times_us[-1]), float(lats[-1]), float(lons[-1])))
        return True

    def _reaches(self, begin: TimedPosition, end: TimedPosition) -> bool:
        step_m = haversine_m(begin.lat, begin.lon, end.lat, end.lon)
        return bool(step_m <= (end.time_us - begin.time_us) * (self._max_speed_mps * 1e-6))

    def _believe(self, fix: TimedPosition) -> bool:
        self._believed, self._doubted, self._agreeing = fix, None, 0
        return False


def mark_jumps(max_speed_mps: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Mark jumps among fixes that are ordered by vehicle and time."""
    check = JumpCheck(max_speed_mps)
    for batch in batches:
        yield _marked(batch, check)


def _marked(batch: pa.RecordBatch, check: JumpCheck) -> pa.RecordBatch:
    good = pc.is_null(batch.column("problem"))
    rows = batch.filter(good)
    vehicles = rows.column("vehicle")
    fixes = tuple(rows.column(name).to_numpy() for name in ("time_us", "lat", "lon"))
    if check.all_reach(vehicles, fixes):
        return batch
    judged = [
        check.jumped(vehicle, TimedPosition(*fix))
        for vehicle, *fix in zip(vehicles.to_pylist(), *fixes, strict=True)
    ]
    problems = pc.if_else(pa.array(judged), pa.scalar("jump"), pa.scalar(None, pa.string()))
    place = batch.schema.get_field_index("problem")
    return batch.set_column(
        place,
        batch.schema.field(place),
        pc.replace_with_mask(batch.column("problem"), good, problems),
    )
