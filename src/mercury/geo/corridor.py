"""Which positions are in a corridor.

Each segment is cut into pieces of at most 20 km along its geodesic. In the frame about a piece's
middle the piece is a straight line, and the distance to it follows from the chord to the middle
as on a sphere; the margin says how far that can be off. Points within the margin are settled
exactly, by walking along the geodesic to the foot of the perpendicular.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mercury.geo.arrays import BoolArray, FloatArray
from mercury.geo.box import Box, box_of_circles
from mercury.geo.distance import MEAN_RADIUS_M, destination_and_azimuth, geodesic_inverse
from mercury.geo.local_frame import EDGE_M, FlatFrame, LocalFrame, chord_limits_squared
from mercury.model.area import Corridor

PIECE_M = 20_000.0
# From here on only the exact distance counts.
_FARTHEST_BY_CHORD_M = 2_000_000.0
_FOOT_STEPS = 4


class Pieces(NamedTuple):
    """Stretches of geodesic: where their middles are, which way they run, half how long."""

    lats: FloatArray
    lons: FloatArray
    azimuths_deg: FloatArray
    half_lengths_m: FloatArray


def segments_of(shape: Corridor) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Latitudes and longitudes of the line's points, lengths and azimuths of its segments."""
    lats = np.array([p.lat for p in shape.line])
    lons = np.array([p.lon for p in shape.line])
    return lats, lons, *geodesic_inverse(lats[:-1], lons[:-1], lats[1:], lons[1:])


def cut_line(shape: Corridor, longest_m: float) -> Pieces:
    """The corridor's line in pieces no longer than this."""
    lats, lons, lengths_m, azimuths_deg = segments_of(shape)
    counts = np.maximum(np.ceil(lengths_m / longest_m), 1.0).astype(np.intp)
    segment = np.repeat(np.arange(counts.size), counts)
    within = np.arange(segment.size) - np.repeat(np.cumsum(counts) - counts, counts)
    half_lengths_m = lengths_m[segment] / counts[segment] / 2.0
    return Pieces(
        *destination_and_azimuth(
            lats[segment],
            lons[segment],
            azimuths_deg[segment],
            (2.0 * within + 1.0) * half_lengths_m,
        ),
        half_lengths_m,
    )


class _Parts:
    """Parts with boxes of their own: inside is who is inside one of them."""

    __slots__ = ("_parts", "box")

    def __init__(self, box: Box, parts: Sequence[_Parts | _Piece]) -> None:
        self.box = box
        self._parts = parts

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        inside = np.zeros(lats.size, dtype=np.bool_)
        for part in self._parts:
            close = np.flatnonzero(part.box.contains(lats, lons) & ~inside)
            if close.size:
                inside[close] = part.contains(lats[close], lons[close])
        return inside

    def contains_point(self, lat: float, lon: float) -> bool:
        return any(
            part.box.contains_point(lat, lon) and part.contains_point(lat, lon)
            for part in self._parts
        )


class PreparedCorridor(_Parts):
    """A corridor with what does not depend on the positions computed ahead."""

    __slots__ = ()

    def __init__(self, shape: Corridor) -> None:
        limit_m = shape.width_m / 2.0 + EDGE_M
        pieces = cut_line(shape, PIECE_M)
        # A tree of two levels: of n pieces a point meets about √n stretches, then √n pieces.
        together = math.isqrt(pieces.lats.size)
        stretches = []
        for first in range(0, pieces.lats.size, together):
            some = Pieces(*(column[first : first + together] for column in pieces))
            box = box_of_circles(some.lats, some.lons, some.half_lengths_m + limit_m)
            rows = zip(*(column.tolist() for column in some), strict=True)
            stretches.append(_Parts(box, [_Piece(limit_m, *row) for row in rows]))
        # Short pieces for a close box.
        length_m = 2.0 * float(np.sum(pieces.half_lengths_m))
        short = cut_line(shape, max(shape.width_m / 8.0, length_m / 256.0, 1e-3))
        box = box_of_circles(short.lats, short.lons, short.half_lengths_m + limit_m)
        super().__init__(box, stretches)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        return self.box.contains_if(super().contains, lats, lons)

    def contains_point(self, lat: float, lon: float) -> bool:
        return self.box.contains_point(lat, lon) and super().contains_point(lat, lon)


class _Piece:
    def __init__(
        self, limit_m: float, lat: float, lon: float, azimuth_deg: float, half_length_m: float
    ) -> None:
        self._lat, self._lon, self._azimuth_deg = lat, lon, azimuth_deg
        self._half_length_m, self._limit_m = half_length_m, limit_m
        self._cos = math.cos(math.radians(azimuth_deg))
        self._sin = math.sin(math.radians(azimuth_deg))
        self._frame = LocalFrame(lat, lon)
        self._flat = FlatFrame.within(lat, lon, 1.5 * (half_length_m + limit_m))
        _, self._outside = chord_limits_squared(half_length_m + limit_m)
        self.box = Box.of_circle(lat, lon, half_length_m + limit_m)

    def contains(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        if self._flat is None:
            return self._contains_by_chord(lats, lons)
        north, east = self._flat.offsets(lats, lons)
        across = east * self._cos - north * self._sin
        along = north * self._cos + east * self._sin
        beyond = np.maximum(np.abs(along) - self._half_length_m, 0.0)
        distance_m = np.hypot(across, beyond)
        inside: BoolArray = distance_m < self._limit_m
        undecided = np.flatnonzero(np.abs(distance_m - self._limit_m) <= self._flat.error_m)
        if undecided.size:
            inside[undecided] = self._contains_by_chord(lats[undecided], lons[undecided])
        return inside

    def _contains_by_chord(self, lats: FloatArray, lons: FloatArray) -> BoolArray:
        east, north, chord_squared = self._frame.offsets(lats, lons)
        inside = np.zeros(lats.size, dtype=np.bool_)
        near = np.flatnonzero(chord_squared <= self._outside)
        if not near.size:
            return inside
        east, north, chord_squared = east[near], north[near], chord_squared[near]
        # As on a sphere: sine and cosine of the angle to the middle, from the chord.
        half_squared = np.minimum(chord_squared / (4.0 * MEAN_RADIUS_M**2), 1.0)
        cosine = 1.0 - 2.0 * half_squared
        sine = 2.0 * np.sqrt(half_squared * (1.0 - half_squared))
        level = sine / np.maximum(np.hypot(east, north), 1e-9)
        across = np.arcsin(np.clip((east * self._cos - north * self._sin) * level, -1.0, 1.0))
        along = np.arctan2((north * self._cos + east * self._sin) * level, cosine)
        beyond = np.maximum(np.abs(along) - self._half_length_m / MEAN_RADIUS_M, 0.0)
        half_sine_squared = (
            np.sin(across / 2.0) ** 2
            + np.cos(across) * np.sin(np.minimum(beyond, np.pi) / 2.0) ** 2
        )
        distance_m = 2.0 * MEAN_RADIUS_M * np.arcsin(np.sqrt(np.minimum(half_sine_squared, 1.0)))
        # Chord and azimuth as for an ellipse, and the sphere's excess with a radius 0.6 % off.
        from_middle_m = np.sqrt(chord_squared)
        margin = 5e-3 * from_middle_m**3 / MEAN_RADIUS_M**2 + 2.0 * EDGE_M
        margin[from_middle_m > _FARTHEST_BY_CHORD_M] = np.inf
        inside[near] = distance_m < self._limit_m
        undecided = np.abs(distance_m - self._limit_m) <= margin
        exact = near[undecided]
        if exact.size:
            start_m = along[undecided] * MEAN_RADIUS_M
            inside[exact] = self._distance_m(lats[exact], lons[exact], start_m) <= self._limit_m
        return inside

    def contains_point(self, lat: float, lon: float) -> bool:
        # The plain cases of `contains`, without arrays; what is close to call goes there.
        east, north, chord_squared = self._frame.offsets_of_point(lat, lon)
        if chord_squared > self._outside:
            return False
        across = abs(east * self._cos - north * self._sin)
        along = abs(north * self._cos + east * self._sin)
        # Flattening onto the plane of the middle moves a point by less than this.
        margin = chord_squared * math.sqrt(chord_squared) / MEAN_RADIUS_M**2 + 3.0 * EDGE_M
        distance_m = math.hypot(across, max(along - self._half_length_m, 0.0))
        if margin <= self._limit_m / 2.0 and abs(distance_m - self._limit_m) > margin:
            return distance_m < self._limit_m
        return bool(self.contains(np.array([lat]), np.array([lon]))[0])

    def _distance_m(self, lats: FloatArray, lons: FloatArray, along_m: FloatArray) -> FloatArray:
        """Exact distances to the piece, by correcting where the foot of the perpendicular is."""
        distance_m = np.full(lats.size, np.inf)
        for _ in range(_FOOT_STEPS):
            along_m = np.clip(along_m, -self._half_length_m, self._half_length_m)
            foot_lats, foot_lons, foot_azimuths_deg = destination_and_azimuth(
                self._lat, self._lon, self._azimuth_deg, along_m
            )
            to_point_m, azimuths_deg = geodesic_inverse(foot_lats, foot_lons, lats, lons)
            # Every distance on the way is to a point of the piece, so the least is the best.
            distance_m = np.minimum(distance_m, to_point_m)
            angle = to_point_m / MEAN_RADIUS_M
            turned = np.radians(azimuths_deg - foot_azimuths_deg)
            along_m = along_m + MEAN_RADIUS_M * np.arctan2(
                np.sin(angle) * np.cos(turned), np.cos(angle)
            )
        return distance_m
