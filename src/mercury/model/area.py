"""Areas: the part of the Earth, direction of travel and span of time a message is meant for.

All positions are WGS84 degrees, all lengths metres along the ellipsoid, all azimuths and headings
degrees clockwise from north. Everything here is immutable and hashable, and is valid once built:
what cannot exist raises `AreaError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TypeAlias

from mercury.model.errors import AreaError
from mercury.model.ring import signed_area_deg2

# The longest geodesic on WGS84 runs from pole to pole; nothing on Earth is farther away.
HALF_MERIDIAN_M = 20_003_931.4586
# 9999-12-31T23:59:59.999999Z, the last instant RFC 3339 can write.
LAST_INSTANT_US = 253_402_300_799_999_999


@dataclass(frozen=True, slots=True)
class Position:
    """A point on the WGS84 ellipsoid."""

    lat: float
    lon: float

    def __post_init__(self) -> None:
        _store_number(self, "lat", "latitude", -90.0, 90.0)
        _store_number(self, "lon", "longitude", -180.0, 180.0)


@dataclass(frozen=True, slots=True)
class Circle:
    """Everything within `radius_m` of `center`."""

    center: Position
    radius_m: float

    def __post_init__(self) -> None:
        _require_position(self.center, "a circle's center")
        _store_length(self, "radius_m")


@dataclass(frozen=True, slots=True)
class Ellipse:
    """An ellipse in the plane of distance and azimuth from `center`.

    `azimuth_deg` is the direction of the major axis.
    """

    center: Position
    semi_major_m: float
    semi_minor_m: float
    azimuth_deg: float

    def __post_init__(self) -> None:
        _require_position(self.center, "an ellipse's center")
        _store_length(self, "semi_major_m")
        _store_length(self, "semi_minor_m")
        _store_number(self, "azimuth_deg", "azimuth_deg", -360.0, 360.0)
        if self.semi_minor_m > self.semi_major_m:
            raise AreaError(
                f"semi_minor_m {self.semi_minor_m} is larger than semi_major_m {self.semi_major_m}"
            )


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Between two parallels and two meridians; `west > east` crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float

    def __post_init__(self) -> None:
        for side, limit in (("south", 90.0), ("north", 90.0), ("west", 180.0), ("east", 180.0)):
            _store_number(self, side, side, -limit, limit)
        if self.south >= self.north:
            raise AreaError(f"a rectangle's south {self.south} is not below its north {self.north}")
        if self.west == self.east or (self.west == 180.0 and self.east == -180.0):
            raise AreaError(f"a rectangle from west {self.west} to east {self.east} has no width")


@dataclass(frozen=True, slots=True)
class Polygon:
    """A ring and the holes in it, with edges straight in longitude and latitude (RFC 7946).

    Between neighbouring points the shorter way round is meant. A ring that goes round a pole
    encloses the pole it is nearer to. Rings may be given open or closed and in either direction;
    they are stored open and without repeated neighbours, the exterior counterclockwise and holes
    clockwise. Where a ring crosses itself, the even-odd rule says what is inside.
    """

    exterior: tuple[Position, ...]
    holes: tuple[tuple[Position, ...], ...] = ()
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        exterior = _ring(self.exterior, "a polygon's exterior", counterclockwise=True)
        try:
            given_holes = tuple(self.holes)
        except TypeError:
            raise AreaError("a polygon's holes are not a sequence of rings") from None
        holes = tuple(_ring(h, "a polygon's hole", counterclockwise=False) for h in given_holes)
        object.__setattr__(self, "exterior", exterior)
        object.__setattr__(self, "holes", holes)
        # A cache of prepared shapes is asked for every received message: hash the points once.
        object.__setattr__(self, "_hash", hash((exterior, holes)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Corridor:
    """Everything within half of `width_m` of a line of geodesic segments, so its ends are round."""

    line: tuple[Position, ...]
    width_m: float
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        line = _positions(self.line, "a corridor's line")
        if len(line) < 2:
            raise AreaError(f"a corridor's line needs at least 2 points, not {len(line)}")
        object.__setattr__(self, "line", line)
        _store_length(self, "width_m")
        object.__setattr__(self, "_hash", hash((line, self.width_m)))

    def __hash__(self) -> int:
        return self._hash


Shape: TypeAlias = Circle | Ellipse | Rectangle | Polygon | Corridor


@dataclass(frozen=True, slots=True)
class HeadingSector:
    """The directions of travel within `half_width_deg` of `center_deg`: one side of the road."""

    center_deg: float
    half_width_deg: float

    def __post_init__(self) -> None:
        _store_number(self, "center_deg", "center_deg", -360.0, 360.0)
        _store_number(self, "half_width_deg", "half_width_deg", 0.0, 180.0)


@dataclass(frozen=True, slots=True)
class Area:
    """A shape, optionally only for one direction of travel and one span of time.

    The validity starts at `valid_from_us` and ends just before `valid_until_us`, both in
    microseconds since 1970 UTC.
    """

    shape: Shape
    heading: HeadingSector | None = None
    valid_from_us: int | None = None
    valid_until_us: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Shape):
            raise AreaError(f"an area's shape cannot be a {type(self.shape).__name__}")
        if self.heading is not None and not isinstance(self.heading, HeadingSector):
            raise AreaError(f"an area's heading cannot be a {type(self.heading).__name__}")
        for name in ("valid_from_us", "valid_until_us"):
            _store_instant(self, name)
        if (
            self.valid_from_us is not None
            and self.valid_until_us is not None
            and self.valid_from_us >= self.valid_until_us
        ):
            raise AreaError(
                f"valid_from_us {self.valid_from_us} is not before"
                f" valid_until_us {self.valid_until_us}"
            )


def _store_number(owner: object, attribute: str, name: str, low: float, high: float) -> None:
    value = getattr(owner, attribute)
    if type(value) is float and low <= value <= high:
        return  # nothing to store; most positions come from sensors, so this is the usual way
    if isinstance(value, bool) or not isinstance(value, Real):
        raise AreaError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not low <= number <= high:
        raise AreaError(f"{name} {number} is not between {low:g} and {high:.8g}")
    object.__setattr__(owner, attribute, number)


def _store_length(owner: object, attribute: str) -> None:
    _store_number(owner, attribute, attribute, 0.0, HALF_MERIDIAN_M)
    if getattr(owner, attribute) == 0.0:
        raise AreaError(f"{attribute} must be larger than 0")


def _store_instant(owner: object, attribute: str) -> None:
    value = getattr(owner, attribute)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise AreaError(f"{attribute} must be a whole number of µs, not {type(value).__name__}")
    instant_us = int(value)
    if not 0 <= instant_us <= LAST_INSTANT_US:
        raise AreaError(f"{attribute} is not between the years 1970 and 9999")
    object.__setattr__(owner, attribute, instant_us)


def _require_position(value: object, name: str) -> None:
    if not isinstance(value, Position):
        raise AreaError(f"{name} must be a Position, not {type(value).__name__}")


def _positions(points: Iterable[Position], name: str) -> tuple[Position, ...]:
    try:
        positions = tuple(points)
    except TypeError:
        raise AreaError(f"{name} must be a sequence of Positions") from None
    for position in positions:
        _require_position(position, f"a point of {name}")
    return positions


def _ring(points: Iterable[Position], name: str, *, counterclockwise: bool) -> tuple[Position, ...]:
    ring = _positions(points, name)
    # Without repeated neighbours a ring has one form, open or closed, whichever way it runs.
    ring = tuple(p for i, p in enumerate(ring) if i == 0 or p != ring[i - 1])
    if len(ring) > 1 and ring[0] == ring[-1]:
        ring = ring[:-1]
    distinct = len(set(ring))
    if distinct < 3:
        raise AreaError(f"{name} needs at least 3 distinct points, not {distinct}")
    area = signed_area_deg2([p.lat for p in ring], [p.lon for p in ring])
    if area == 0.0 and _has_edge_round_the_earth(ring):
        # Between -180 and 180 the shorter way has no length, so the ring would be empty although
        # its writer meant a band round the whole Earth.
        raise AreaError(
            f"{name} has an edge from longitude -180 to 180 and encloses nothing;"
            " use a rectangle, or add points less than 180° apart"
        )
    if (area < 0.0) == counterclockwise and area != 0.0:
        ring = (ring[0], *ring[:0:-1])
    return ring


def _has_edge_round_the_earth(ring: tuple[Position, ...]) -> bool:
    return any(
        ring[i - 1].lat == ring[i].lat and abs(ring[i - 1].lon - ring[i].lon) == 360.0
        for i in range(len(ring))
    )
