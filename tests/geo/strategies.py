"""Shapes of all kinds and sizes, with a liking for poles and the antimeridian."""

from __future__ import annotations

import math

from geo.oracles import reach, ring_contains
from hypothesis import strategies as st

from mercury.model.area import Circle, Corridor, Ellipse, Polygon, Position, Rectangle, Shape

lats = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, -89.99, 0.0, 85.0, 89.99, 90.0]))
lons = st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, -179.99, 0.0, 179.99, 180.0]))
positions = st.builds(Position, lats, lons)
azimuths_deg = st.floats(0, 360)


def lengths_m(shortest: float, longest: float) -> st.SearchStrategy[float]:
    return st.floats(math.log10(shortest), math.log10(longest)).map(lambda e: 10.0**e)


def circles(longest_m: float = 1.8e7) -> st.SearchStrategy[Circle]:
    return st.builds(Circle, positions, lengths_m(1, longest_m))


@st.composite
def ellipses(draw: st.DrawFn, longest_m: float = 1e7) -> Ellipse:
    semi_major_m = draw(lengths_m(1, longest_m))
    flatness = draw(st.floats(0.02, 1))
    return Ellipse(draw(positions), semi_major_m, semi_major_m * flatness, draw(azimuths_deg))


@st.composite
def corridors(draw: st.DrawFn, longest_step_m: float = 2e5) -> Corridor:
    line = [draw(positions)]
    for _ in range(draw(st.integers(1, 3))):
        line.append(reach(line[-1], draw(azimuths_deg), draw(lengths_m(1, longest_step_m))))
    return Corridor(tuple(line), draw(lengths_m(1, 2e5)))


@st.composite
def polygons(draw: st.DrawFn, longest_deg: float = 60.0) -> Polygon:
    """Rings about a center in degrees; where they reach a pole they are cut off there."""
    lat, lon = draw(st.floats(-89, 89)), draw(lons)
    exterior = draw(_rings(lat, lon, longest_deg))
    holes = draw(st.lists(_rings(lat, lon, longest_deg / 3), max_size=1))
    # A hole that swallows its polygon leaves an area that is nowhere: nothing to agree on.
    holes = [hole for hole in holes if all(ring_contains(exterior, corner) for corner in hole)]
    return Polygon(exterior, tuple(holes))


@st.composite
def _rings(draw: st.DrawFn, lat: float, lon: float, longest_deg: float) -> tuple[Position, ...]:
    corners = draw(st.integers(3, 9))
    size = draw(st.floats(0.001, longest_deg))
    ring = []
    for corner in range(corners):
        angle = 2 * math.pi * (corner + draw(st.floats(0, 0.8))) / corners
        part = size * draw(st.floats(0.3, 1))
        x = lon + part * math.cos(angle)
        y = min(max(lat + part * math.sin(angle), -89.5), 89.5)
        ring.append(Position(y, math.remainder(x, 360.0)))
    return tuple(ring)


@st.composite
def pole_rings(draw: st.DrawFn) -> Polygon:
    """Polygons that go round a pole."""
    pole = draw(st.sampled_from([-1.0, 1.0]))
    corners = draw(st.integers(3, 8))
    start = draw(st.floats(-180, 180))
    return Polygon(
        tuple(
            Position(
                pole * draw(st.floats(20, 89)),
                math.remainder(start + 360.0 * (i + draw(st.floats(0, 0.4))) / corners, 360.0),
            )
            for i in range(corners)
        )
    )


@st.composite
def rectangles(draw: st.DrawFn) -> Rectangle:
    south = draw(st.floats(-90, 89))
    north = draw(st.floats(south + 0.5, 90))
    west = draw(lons)
    east = math.remainder(west + draw(st.floats(0.5, 359)), 360.0)
    return Rectangle(south, west, north, east)


shapes: st.SearchStrategy[Shape] = st.one_of(
    circles(), ellipses(), corridors(), polygons(), pole_rings(), rectangles()
)
