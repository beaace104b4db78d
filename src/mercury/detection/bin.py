"""One bin: the observations of one incident (Mercury §4.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mercury.detection.spatial_index import Located
from mercury.geo.space import Point
from mercury.model.filter import Value
from mercury.model.identity import derived_id

US_PER_S = 1_000_000


class Observation(NamedTuple):
    """One sensed event from its record on the bus; NaN where a value is missing."""

    time_us: int  # the bus's time stamp, so that a replay decides the same
    id: bytes
    reporter: str
    lat: float
    lon: float
    speed_mps: float = math.nan
    heading_deg: float = math.nan


class Member(NamedTuple):
    """The newest observation of one reporter."""

    time_us: int
    id: bytes
    point: Point
    speed_mps: float
    heading_deg: float


class Bin(Located):
    """Reporters near one place, and their centre."""

    __slots__ = ("alerted", "heard_us", "incident_id", "last_us", "members", "reports", "total")

    def __init__(self, reporter: str, member: Member) -> None:
        super().__init__(member.point, (member.time_us, member.id))  # the first is its rank
        self.members = {reporter: member}
        self.reports = 1
        self.last_us = member.time_us  # time of the newest observation
        self.heard_us = member.time_us  # when the last one came; a late one comes after its time
        self.incident_id = b""  # of its alert, if there was one
        self.alerted = 0  # alerts given
        self.total = member.point  # the sum of all points; it depends on the order of adding

    @property
    def since_us(self) -> int:
        return self.rank[0]

    @property
    def incident(self) -> bytes:
        return self.incident_id or derived_id(self.rank[1], "incident")

    def add(self, reporter: str, member: Member) -> None:
        """Replace a reporter's observation by its newest, and move the centre (§4.3)."""
        self.rank = min(self.rank, (member.time_us, member.id))
        self.last_us = max(self.last_us, member.time_us)
        self.reports += 1
        self._stand_for(reporter, member)

    def absorb(self, other: Bin, max_reporters: int) -> int:
        """Take over another bin; returns how many of its reporters found no room."""
        dropped = 0
        for reporter, member in sorted(other.members.items(), key=lambda item: item[1][:2]):
            if reporter in self.members or len(self.members) < max_reporters:
                self._stand_for(reporter, member)
            else:
                dropped += 1
        self.rank = min(self.rank, other.rank)
        self.reports += other.reports
        self.last_us = max(self.last_us, other.last_us)
        self.heard_us = max(self.heard_us, other.heard_us)
        self.alerted = max(self.alerted, other.alerted)
        self.incident_id = self.incident_id or other.incident_id
        return dropped

    def _stand_for(self, reporter: str, member: Member) -> None:
        x, y, z = self.total
        before = self.members.get(reporter)
        if before is not None:
            if member[:2] < before[:2]:
                return
            u, v, w = before.point
            x, y, z = x - u, y - v, z - w
        u, v, w = member.point
        self.members[reporter] = member
        self.total = (x + u, y + v, z + w)
        self.recentre()

    def recentre(self) -> None:
        """Put the bin in the middle of its members."""
        (x, y, z), size = self.total, len(self.members)
        self.point = (x / size, y / size, z / size)

    def radius_m(self) -> float:
        """How far the farthest reporter is from the middle."""
        point = self.point
        return max(math.dist(point, member.point) for member in self.members.values())

    def measures(self, names: Iterable[str]) -> dict[str, Value]:
        """The named measures, except those without values: no mean speed without a speed."""
        found: dict[str, Value] = {}
        for name in names:
            value = MEASURES[name][1](self)
            if value is not None:
                found[name] = value
        return found


def _speeds(bin: Bin) -> list[float]:
    return [m.speed_mps for m in bin.members.values() if not math.isnan(m.speed_mps)]


def _mean_speed(bin: Bin) -> float | None:
    speeds = _speeds(bin)
    # fsum rounds once, so the order of the reporters does not change the last digit.
    return math.fsum(speeds) / len(speeds) if speeds else None


def _heading_sums(bin: Bin) -> tuple[float, float, int]:
    turns = [
        math.radians(m.heading_deg) for m in bin.members.values() if not math.isnan(m.heading_deg)
    ]
    return math.fsum(map(math.sin, turns)), math.fsum(map(math.cos, turns)), len(turns)


def _heading(bin: Bin) -> float | None:
    east, north, known = _heading_sums(bin)
    # A tiny negative angle would become 360 by the modulo alone.
    return (math.degrees(math.atan2(east, north)) + 360.0) % 360.0 if known else None


def _alignment(bin: Bin) -> float | None:
    east, north, known = _heading_sums(bin)
    return math.hypot(east, north) / known if known else None


# What a predicate may use.
MEASURES: dict[str, tuple[str, Callable[[Bin], int | float | None]]] = {
    "count": ("different vehicles", lambda bin: len(bin.members)),
    "reports": ("observations, repeated ones of a vehicle included", lambda bin: bin.reports),
    "spread_m": ("distance of the farthest vehicle from the centre", Bin.radius_m),
    "speed_mps": ("mean speed of the vehicles that know theirs", _mean_speed),
    "slowest_mps": ("speed of the slowest", lambda bin: min(_speeds(bin), default=None)),
    "fastest_mps": ("speed of the fastest", lambda bin: max(_speeds(bin), default=None)),
    "heading_deg": ("mean direction of travel", _heading),
    "alignment": ("1 where all head the same way, 0 where in all directions", _alignment),
    "duration_s": (
        "time from the first to the newest observation",
        lambda bin: (bin.last_us - bin.since_us) / US_PER_S,
    ),
}
