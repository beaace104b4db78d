"""Vehicles that keep moving within a bounded plane (Mercury §7.1), and where that is on the Earth.

x points east, y north, both in metres; headings are degrees clockwise from north.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.geo import destination, geodesic_inverse
from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.distance import compass
from mercury.model.area import Position
from mercury.model.errors import ConfigurationError


@dataclass(eq=False)
class Plane:
    """A rectangle and the vehicles in it, as arrays; time passes only by `step`.

    `turn_deg` and `surge_mps` are how much heading and speed wander in a second (one standard
    deviation); with both 0 everybody drives straight on.
    """

    width_m: float
    height_m: float
    _: KW_ONLY
    x_m: FloatArray
    y_m: FloatArray
    heading_deg: FloatArray
    speed_mps: FloatArray
    rng: np.random.Generator
    slowest_mps: float = 0.0
    fastest_mps: float = 50.0
    turn_deg: float = 8.0
    surge_mps: float = 0.8
    _jams: list[tuple[float, float, float, float]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for name in ("x_m", "y_m", "heading_deg", "speed_mps"):
            # Copies, since they are changed in place.
            setattr(self, name, np.array(getattr(self, name), dtype=np.float64, ndmin=1))
        self.heading_deg = compass(self.heading_deg)
        self._check()

    @classmethod
    def scatter(
        cls,
        vehicles: int,
        width_m: float,
        height_m: float,
        rng: np.random.Generator,
        *,
        slowest_mps: float = 3.0,
        fastest_mps: float = 25.0,
    ) -> Plane:
        """Vehicles anywhere in the plane, in any direction, at any speed between the bounds."""
        return cls(
            width_m,
            height_m,
            x_m=rng.uniform(0.0, width_m, vehicles),
            y_m=rng.uniform(0.0, height_m, vehicles),
            heading_deg=rng.uniform(0.0, 360.0, vehicles),
            speed_mps=rng.uniform(slowest_mps, fastest_mps, vehicles),
            rng=rng,
            slowest_mps=slowest_mps,
            fastest_mps=fastest_mps,
        )

    def __len__(self) -> int:
        return len(self.x_m)

    def step(self, dt_s: float) -> None:
        """Move everybody on by so many seconds."""
        # Steps of any length wander alike: variances add up, so deviations grow with the root.
        root = dt_s**0.5
        if self.turn_deg > 0.0:
            self.heading_deg += self.rng.normal(0.0, self.turn_deg * root, len(self))
        if self.surge_mps > 0.0:
            self.speed_mps += self.rng.normal(0.0, self.surge_mps * root, len(self))
            np.clip(self.speed_mps, self.slowest_mps, self.fastest_mps, out=self.speed_mps)
        for x_m, y_m, radius_m, crawl_mps in self._jams:
            inside = self.inside_circle(x_m, y_m, radius_m)
            self.speed_mps[inside] = np.minimum(self.speed_mps[inside], crawl_mps)
        heading = np.radians(self.heading_deg)
        way_m = self.speed_mps * dt_s
        self.x_m, crossed_x = _turned_back(self.x_m + way_m * np.sin(heading), self.width_m)
        self.y_m, crossed_y = _turned_back(self.y_m + way_m * np.cos(heading), self.height_m)
        turned = np.where(crossed_x, -self.heading_deg, self.heading_deg)
        turned = np.where(crossed_y, 180.0 - turned, turned)
        self.heading_deg = compass(turned)

    def jam(self, x_m: float, y_m: float, radius_m: float, crawl_mps: float) -> None:
        """Limit the speed within a circle from now on."""
        self.slowest_mps = min(self.slowest_mps, crawl_mps)
        self._jams.append((x_m, y_m, radius_m, crawl_mps))

    def inside_circle(self, x_m: float, y_m: float, radius_m: float) -> NDArray[np.intp]:
        """The vehicles within a circle, its edge included (Mercury §7.1: who senses an event)."""
        inside = np.hypot(self.x_m - x_m, self.y_m - y_m) <= radius_m
        return np.flatnonzero(inside)

    def _check(self) -> None:
        if not (self.width_m > 0.0 and self.height_m > 0.0):
            raise ConfigurationError(f"a plane of {self.width_m} × {self.height_m} m has no room")
        columns = (self.x_m, self.y_m, self.heading_deg, self.speed_mps)
        if len({len(column) for column in columns}) != 1:
            raise ConfigurationError("x, y, heading and speed must be given for every vehicle")
        inside = (self.x_m >= 0.0) & (self.x_m <= self.width_m)
        inside &= (self.y_m >= 0.0) & (self.y_m <= self.height_m)
        if not inside.all():
            at = int(np.flatnonzero(~inside)[0])
            raise ConfigurationError(
                f"vehicle {at + 1} at ({self.x_m[at]:g}, {self.y_m[at]:g}) is outside the plane"
            )
        within = (self.speed_mps >= self.slowest_mps) & (self.speed_mps <= self.fastest_mps)
        if not within.all():
            raise ConfigurationError(
                f"speeds must be between {self.slowest_mps:g} and {self.fastest_mps:g} m/s"
            )


@dataclass(frozen=True, slots=True)
class PlaneFrame:
    """Metres east and north of an origin, to and from WGS84.

    Distance and azimuth from the origin are exact (the azimuthal equidistant projection). Between
    two other points 10 km away the plane's distance is off by millimetres, and its north by a tenth
    of a degree: a circle of the plane is a circle on the Earth.
    """

    origin: Position

    def to_wgs84(self, x_m: ArrayLike, y_m: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of places on the plane."""
        x, y = np.asarray(x_m, np.float64), np.asarray(y_m, np.float64)
        azimuth_deg = np.degrees(np.arctan2(x, y))
        return destination(self.origin.lat, self.origin.lon, azimuth_deg, np.hypot(x, y))

    def to_plane(self, lats: ArrayLike, lons: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Places on the plane of latitudes and longitudes."""
        distance_m, azimuth_deg = geodesic_inverse(self.origin.lat, self.origin.lon, lats, lons)
        azimuth = np.radians(azimuth_deg)
        return distance_m * np.sin(azimuth), distance_m * np.cos(azimuth)


def _turned_back(at_m: FloatArray, length_m: float) -> tuple[FloatArray, BoolArray]:
    """Reflect positions at the border; returns also which directions were reversed."""
    laps = np.floor(at_m / length_m)
    odd = np.mod(laps, 2.0) == 1.0
    rest = at_m - laps * length_m
    inside = np.where(odd, length_m - rest, rest)
    return np.clip(inside, 0.0, length_m), odd
