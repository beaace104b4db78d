"""Observations to test with, places to make them at, and a slow, obvious twin of the bins."""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from mercury.detection import KindBins, KindRule, Observation, Verdict, restore_bins, snapshot_bins
from mercury.detection.spatial_index import SpatialIndex
from mercury.geo import destination
from mercury.geo.space import Point, to_space

S = 1_000_000
# A city, the antimeridian at the equator and far north, both poles, Greenwich, a corner of tiles.
ORIGINS = [
    (40.7608, -111.8910),
    (0.0, 180.0),
    (71.0, -180.0),
    (90.0, 0.0),
    (-89.9999, 37.0),
    (51.4779, 0.0),
    (0.0, 0.0),
]
CITY = ORIGINS[0]


def at(origin: tuple[float, float], north_m: float, east_m: float) -> tuple[float, float]:
    azimuth_deg = math.degrees(math.atan2(east_m, north_m))
    lat, lon = destination(*origin, azimuth_deg, math.hypot(north_m, east_m))
    return float(lat), float(lon)


def observation(
    time_s: float,
    reporter: int | str,
    north_m: float = 0.0,
    east_m: float = 0.0,
    *,
    origin: tuple[float, float] = CITY,
    number: int | None = None,
    speed_mps: float = math.nan,
    heading_deg: float = math.nan,
) -> Observation:
    time_us = round(time_s * S)
    name = reporter if isinstance(reporter, str) else f"car-{reporter}"
    serial = number if number is not None else zlib.crc32(f"{name} {north_m} {east_m}".encode())
    id = (time_us // 1000).to_bytes(6, "big") + serial.to_bytes(10, "big")
    lat, lon = at(origin, north_m, east_m)
    return Observation(time_us, id, name, lat, lon, speed_mps, heading_deg)


def run(bins: KindBins, batches: Iterable[Iterable[Observation]]) -> list[Verdict]:
    """Feed batches, checking the state after each."""
    verdicts = []
    for batch in batches:
        verdicts += bins.add(batch)
        check_bins(bins)
    return verdicts


def indexed(index: SpatialIndex[Any]) -> set[Any]:
    """What an index holds, each item once."""
    found = [item for items in index._cubes.values() for item in items]
    assert len(found) == len(set(found))
    return set(found)


def check_bins(bins: KindBins) -> None:
    """Check what must always hold."""
    assert set(bins.bins) == indexed(bins._bin_index)
    assert len(bins.bins) <= bins.max_bins
    assert set(bins.alerts) == indexed(bins.alerts._index)
    assert len(set(bins.alerts)) <= bins.max_bins
    for bin in bins.bins:
        assert 0 < len(bin.members) <= min(bin.reports, bins.max_reporters)
        assert bin.since_us <= bin.last_us <= bin.heard_us
        assert bin.radius_m() < 100 * bins.rule.reach_m
        assert bins._bin_index.nearest(bin.point, besides=bin) is None, "two that are one"
        if bins.rule.every_us:
            assert bins.closed_us <= bin.since_us <= bin.last_us
            assert bin.last_us < bins.closed_us + bins.rule.every_us
    if bins.rule.every_us:
        assert bins.closed_us % bins.rule.every_us == 0
        assert all(one.time_us >= bins.closed_us for one in bins.waiting)
    else:
        assert not bins.waiting
        assert all(a.heard_us <= b.heard_us for a, b in itertools.pairwise(bins.bins))
    c = bins.counters
    assert c.observed >= c.malformed + c.late + c.duplicate + c.repeated
    assert c.judged >= c.alerted + c.continued


def run_storing(
    rule: KindRule, batches: Iterable[Iterable[Observation]]
) -> tuple[list[Verdict], bytes]:
    """The same through a stored state after every batch, and the last state."""
    stored = snapshot_bins(KindBins(rule))
    verdicts = []
    for batch in batches:
        bins = restore_bins(rule, stored)
        verdicts += bins.add(batch)
        stored = snapshot_bins(bins)
    return verdicts, stored


def cut(stream: Sequence[Observation], cuts: Iterable[int]) -> list[Sequence[Observation]]:
    borders = [0, *sorted(c % (len(stream) + 1) for c in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(borders)]


def crowd(seed: int, vehicles: int, centre_m: tuple[float, float], spread_m: float, time_s: float,
          origin: tuple[float, float] = CITY) -> list[Observation]:  # fmt: skip
    """Vehicles that sense one thing, each once, all within `spread_m` of its place."""
    rng = random.Random(seed)
    found = []
    for vehicle in range(vehicles):
        angle, distance_m = rng.uniform(0, 2 * math.pi), spread_m * math.sqrt(rng.random())
        north_m = centre_m[0] + distance_m * math.cos(angle)
        east_m = centre_m[1] + distance_m * math.sin(angle)
        name = f"{seed}-{vehicle}"
        found.append(
            observation(
                time_s + 0.1 * vehicle,
                name,
                north_m,
                east_m,
                origin=origin,
                number=seed * 1000 + vehicle,
            )
        )
    return found


@st.composite
def streams(draw: st.DrawFn, largest: int = 40, longest_s: int = 60) -> list[Observation]:
    """Observations around one origin, ordered by (time, id), some of them equal in time."""
    origin = draw(st.sampled_from(ORIGINS))
    # Steps of a length that never adds up to the reach.
    steps = st.integers(-60, 60).map(lambda step: step * 11.317)
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, longest_s * 4), st.integers(0, 9), steps, steps,
                st.sampled_from([math.nan, 0.0, 3.5, 20.0]),
            ),
            max_size=largest,
        )
    )  # fmt: skip
    return sorted(
        observation(quarter / 4, reporter, north_m, east_m, origin=origin, number=number,
                 speed_mps=speed_mps)
        for number, (quarter, reporter, north_m, east_m, speed_mps) in enumerate(rows)
    )  # fmt: skip


class NaiveBin:
    def __init__(self) -> None:
        self.all: list[Observation] = []

    @property
    def newest(self) -> dict[str, Observation]:
        return {one.reporter: one for one in sorted(self.all)}

    @property
    def centre(self) -> Point:
        points = [to_space(one.lat, one.lon) for one in self.newest.values()]
        x, y, z = (math.fsum(axis) / len(points) for axis in zip(*points, strict=True))
        return x, y, z

    def holds(self, least: int) -> bool:
        return len(self.newest) >= least


def naive_verdicts(
    rule: KindRule, least: int, stream: Sequence[Observation], until_us: int
) -> list[tuple[int, int, Observation]]:
    """(time, count, the bin's first) of each alert, for `count >= least`, in order."""
    bins: list[NaiveBin] = []
    alerts: list[tuple[int, Point]] = []  # until, place
    found = []

    def judge(bin: NaiveBin, at_us: int) -> None:
        if not bin.holds(least):
            return
        holding = [
            (math.dist(point, bin.centre), number)
            for number, (until, point) in enumerate(alerts)
            if until > at_us and math.dist(point, bin.centre) <= rule.reach_m
        ]
        if holding:
            number = min(holding)[1]
            alerts[number] = (alerts[number][0], bin.centre)
        else:
            alerts.append((at_us + round(rule.validity_s * S), bin.centre))
            found.append((at_us, len(bin.newest), min(bin.all)))

    def take(one: Observation) -> NaiveBin:
        here = to_space(one.lat, one.lon)
        near = [b for b in bins if math.dist(b.centre, here) <= rule.reach_m]
        bin = min(near, key=lambda b: (math.dist(b.centre, here), min(b.all)), default=None)
        if bin is None:
            bin = NaiveBin()
            bins.append(bin)
        bin.all.append(one)
        while True:
            others = [
                b for b in bins if b is not bin and math.dist(b.centre, bin.centre) <= rule.reach_m
            ]
            if not others:
                return bin
            other = min(others, key=lambda b: (math.dist(b.centre, bin.centre), min(b.all)))
            bins.remove(other)
            bin.all += other.all

    every_us = rule.every_us
    if not every_us:
        for one in stream:
            silent_us = one.time_us - round(rule.memory_s * S)
            bins[:] = [b for b in bins if max(o.time_us for o in b.all) >= silent_us]
            judge(take(one), one.time_us)
        return found
    for start_us in range(0, until_us, every_us):
        for one in stream:
            if start_us <= one.time_us < start_us + every_us:
                take(one)
        for bin in sorted(bins, key=lambda b: min(b.all)):
            judge(bin, start_us + every_us)
        bins.clear()
    return found
