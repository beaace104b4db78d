"""Random tracks, and who met whom in them by brute force: every pair, instant by instant."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from operator import attrgetter
from typing import NamedTuple

from mercury.matching.encounters import EncounterRule

SECOND_US = 1_000_000
EARTH_M = 6_371_008.7714
BEGIN_US = 1_772_407_800 * SECOND_US  # half an hour before midnight


class Report(NamedTuple):
    client: str
    time_us: int
    lat: float
    lon: float


class Met(NamedTuple):
    client: str
    other: str
    from_us: int
    until_us: int
    nearest_m: float
    nearest_us: int
    lat: float
    lon: float


def random_tracks(
    seed: int,
    *,
    clients: int = 12,
    seconds: int = 900,
    middle: tuple[float, float] = (45.0, 9.0),
    together: bool = False,
) -> list[Report]:
    """Walks around a place, with silences; `together`, at whole seconds, else each at its own."""
    rng = random.Random(seed)
    found = []
    step_deg = 1.0 / 111_195.0
    squeeze = max(math.cos(math.radians(middle[0])), 0.01)
    for number in range(clients):
        north_m, east_m = rng.uniform(-150, 150), rng.uniform(-150, 150)
        second = rng.uniform(0, 60)
        while second < seconds:
            at = math.floor(second) if together else second
            found.append(
                Report(
                    f"car-{number}",
                    BEGIN_US + round(at * SECOND_US),
                    max(-90.0, min(90.0, middle[0] + north_m * step_deg)),
                    (middle[1] + east_m * step_deg / squeeze + 180.0) % 360.0 - 180.0,
                )
            )
            north_m += rng.uniform(-25, 25) - 0.05 * north_m
            east_m += rng.uniform(-25, 25) - 0.05 * east_m
            second += rng.choice([1, 2, 5, 5, 5, 11, 70 if rng.random() < 0.1 else 3])
            second += 0 if together else rng.random()
    found.sort(key=lambda one: (one.time_us, one.client))
    return found


def brute_force(
    reports: Iterable[Report],
    rule: EncounterRule,
    *,
    of: str | None = None,
    from_us: int = 0,
    to_us: int = 1 << 62,
) -> list[Met]:
    tracks: dict[str, list[Report]] = defaultdict(list)
    for report in sorted(reports, key=lambda one: one.time_us):
        tracks[report.client].append(report)
    found = []
    for one, other in combinations(sorted(tracks), 2):
        if of is not None and of not in (one, other):
            continue
        first, second = (other, one) if of == other else (one, other)
        found += _of_pair(first, second, tracks, rule, from_us, to_us)
    return sorted(found)


def _of_pair(
    one: str,
    other: str,
    tracks: dict[str, list[Report]],
    rule: EncounterRule,
    from_us: int,
    to_us: int,
) -> Iterator[Met]:
    gap_us = round(rule.gap_s * 1e6)
    instants = {from_us, to_us}
    for report in tracks[one] + tracks[other]:
        instants |= {report.time_us, report.time_us + gap_us}
    since_us: int | None = None
    nearest = (math.inf, 0, 0.0, 0.0)
    for at_us in sorted(instants):
        here, there = (_last(tracks[who], at_us, gap_us) for who in (one, other))
        distance_m = math.inf
        if here is not None and there is not None and from_us <= at_us < to_us:
            distance_m = apart_m(here, there)
        if since_us is None and distance_m <= rule.radius_m:
            since_us, nearest = at_us, (math.inf, 0, 0.0, 0.0)
        if since_us is not None and distance_m > rule.radius_m + rule.hysteresis_m:
            if at_us - since_us >= rule.min_duration_s * 1e6:
                yield Met(one, other, since_us, at_us, *nearest)
            since_us = None
        if since_us is not None and there is not None:
            nearest = min(nearest, (round(distance_m, 3), at_us, there.lat, there.lon))


def _last(track: list[Report], at_us: int, gap_us: int) -> Report | None:
    known = bisect_right(track, at_us, key=attrgetter("time_us"))
    if not known or at_us >= track[known - 1].time_us + gap_us:
        return None
    return track[known - 1]


def apart_m(one: Report, other: Report) -> float:
    """By the chord between two unit vectors."""
    return 2.0 * EARTH_M * math.asin(min(math.dist(_vector(one), _vector(other)) / 2.0, 1.0))


def _vector(report: Report) -> tuple[float, float, float]:
    lat, lon = math.radians(report.lat), math.radians(report.lon)
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


def stands_of(reports: Iterable[Report], rule: EncounterRule) -> Iterator[tuple[Report, int]]:
    """Each report, and until when it holds."""
    tracks: dict[str, list[Report]] = defaultdict(list)
    for report in sorted(reports, key=lambda one: one.time_us):
        tracks[report.client].append(report)
    gap_us = round(rule.gap_s * 1e6)
    for track in tracks.values():
        for report, after in pairwise([*track, None]):
            assert report is not None
            until_us = report.time_us + gap_us
            if after is not None:
                until_us = min(until_us, after.time_us)
            if until_us > report.time_us:
                yield report, until_us
