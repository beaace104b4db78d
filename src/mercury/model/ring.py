"""A closed ring of points on the globe: how its longitudes continue and which way it runs.

Edges are straight in longitude and latitude (RFC 7946 §3.1.6). Between neighbours the shorter way
round is meant, so a ring may cross the antimeridian without being cut there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def unwrap_longitudes(lons: Sequence[float]) -> tuple[list[float], int]:
    """The longitudes continued without jumps, and how many turns east the closed ring makes.

    Turns are 0 for an ordinary ring and ±1 for one that goes round a pole. An edge of exactly 180°
    is taken as it is written: that reads the same from either end.
    """
    unwrapped: list[float] = []
    turns = 0
    previous = lons[0]
    for lon in lons:
        turns += _turn(previous, lon)
        # Adding whole turns to the given value, rather than summing differences, keeps it exact.
        unwrapped.append(lon + 360.0 * turns)
        previous = lon
    return unwrapped, turns + _turn(previous, lons[0])


def in_plane(lats: Sequence[float], lons: Sequence[float]) -> tuple[list[float], list[float]]:
    """The ring as a plane figure: longitudes that continue, and latitudes.

    One that goes round a pole encloses the pole it is nearer to.
    """
    xs, turns = unwrap_longitudes(lons)
    ys = list(lats)
    if turns:
        end = xs[0] + 360.0 * turns
        pole = 90.0 if math.fsum(ys) >= 0.0 else -90.0
        xs += [end, end, xs[0]]
        ys += [ys[0], pole, pole]
    return xs, ys


def signed_area_deg2(lats: Sequence[float], lons: Sequence[float]) -> float:
    """The enclosed area in square degrees, positive when the ring runs counterclockwise."""
    xs, ys = in_plane(lats, lons)
    # fsum makes the reversed ring's area the exact negative, so that turning a ring round once
    # settles its direction for good.
    terms: list[float] = []
    for i in range(len(xs)):
        terms.append(xs[i - 1] * ys[i])
        terms.append(-xs[i] * ys[i - 1])
    return math.fsum(terms) / 2.0


def _turn(lon_from: float, lon_to: float) -> int:
    step = lon_to - lon_from
    if step > 180.0:
        return -1
    return 1 if step < -180.0 else 0
