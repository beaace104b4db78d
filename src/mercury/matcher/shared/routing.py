"""Which lane a publication belongs to, and which lanes a scope touches.

The Earth is cut into tiles of a few kilometres. A tile and a topic are a place; places are spread
over a fixed number of lanes by their hash, and a lane is what one engine serves. A place with too
many publications is split: they are spread over several lanes, and subscriptions are in all of
them.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercury.geo.distance import MEAN_RADIUS_M
from mercury.geo.grid import ROW, Grid
from mercury.matching import MatchingRules
from mercury.matching.outline import Outline
from mercury.model.matching import NearSubscription
from mercury.wire.match_frames import from_e7

LANES = 16
ALL_LANES = (1 << LANES) - 1
MOST_PARTS = 16
_MOST_TILES = 4 * LANES  # a scope that touches so many is in all lanes
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Keys = NDArray[np.uint64]


class Routing:
    """Tiles, their splits, and the lanes of both."""

    def __init__(self, tile_m: float) -> None:
        self.grid = Grid(tile_m)
        self.splits: dict[int, int] = {}  # place -> parts
        self._split_places = np.zeros(0, np.uint64)
        self._split_parts = np.zeros(0, np.int64)

    def split(self, place: int, parts: int) -> bool:
        """Spread a place over more lanes; False if it is already."""
        if min(parts, MOST_PARTS) <= self.splits.get(place, 1):
            return False
        self.splits[place] = min(parts, MOST_PARTS)
        places = sorted(self.splits)
        self._split_places = np.array(places, np.uint64)
        self._split_parts = np.array([self.splits[one] for one in places], np.int64)
        return True

    def places_of(self, lats_e7: ArrayLike, lons_e7: ArrayLike, topics: Keys) -> Keys:
        """The places of publications."""
        cells = self.grid.cell_of(from_e7(lats_e7), from_e7(lons_e7))
        return _place(cells, topics)

    def lanes_of(
        self, lats_e7: ArrayLike, lons_e7: ArrayLike, topics: Keys, keys: Keys
    ) -> NDArray[np.int64]:
        """The lane of each publication."""
        places = self.places_of(lats_e7, lons_e7, topics)
        if not self.splits:
            return _lane(places)
        parts = self._parts_of(places)
        return _lane(places + (keys % parts.astype(np.uint64)) * _GOLDEN)

    def lanes_touched(
        self, lats: ArrayLike, lons: ArrayLike, reach_m: ArrayLike, topics: Keys
    ) -> Keys:
        """The lanes of all tiles that circles may touch, as bits."""
        lats, lons = np.asarray(lats, np.float64), np.asarray(lons, np.float64)
        angle = np.asarray(reach_m, np.float64) / MEAN_RADIUS_M
        step_deg, rows = self.grid.step_deg, self.grid.rows
        high_deg = np.degrees(angle) * 1.0001 + 1e-6
        first = np.maximum(np.floor((lats - high_deg + 90.0) / step_deg), 0.0).astype(np.int64)
        last = np.floor((lats + high_deg + 90.0) / step_deg).astype(np.int64)
        last = np.minimum(last, rows - 1)
        first = np.minimum(first, last)
        sine = np.sin(np.minimum(angle, np.pi / 2)) / np.maximum(np.cos(np.radians(lats)), 1e-9)
        wide_deg = np.degrees(np.arcsin(np.minimum(sine, 1.0))) * 1.0001 + 1e-6
        wide_deg = np.where(np.abs(lats) + high_deg >= 89.0, 180.0, wide_deg)
        masks = np.zeros(len(lats), np.uint64)
        # About how many; exact where it matters, far from the poles.
        tiles = (last - first + 1) * (2 * wide_deg * np.cos(np.radians(lats)) / step_deg + 1)
        masks[tiles > _MOST_TILES] = np.uint64(ALL_LANES)
        left = np.flatnonzero(tiles <= _MOST_TILES)
        row = first[left]
        while len(left):
            columns = self.grid.columns(row)
            west = np.floor((lons[left] - wide_deg[left] + 180.0) / 360.0 * columns).astype(
                np.int64
            )
            east = np.floor((lons[left] + wide_deg[left] + 180.0) / 360.0 * columns).astype(
                np.int64
            )
            wide = np.minimum(east - west, columns - 1)
            for step in range(int(wide.max()) + 1):
                here = np.flatnonzero(wide >= step)
                cells = row[here] * ROW + (west[here] + step) % columns[here]
                masks[left[here]] |= self._bits(_place(cells, topics[left[here]]))
            row = row + 1
            more = row <= last[left]
            left, row = left[more], row[more]
        return masks

    def _bits(self, places: Keys) -> Keys:
        one = np.uint64(1)
        bits = one << _lane(places).astype(np.uint64)
        if self.splits:
            parts = self._parts_of(places)
            for part in range(1, int(parts.max(initial=1))):
                here = parts > part
                spread = np.asarray(places[here] + np.uint64(part) * _GOLDEN_ARRAY, np.uint64)
                bits[here] |= one << _lane(spread).astype(np.uint64)
        return np.asarray(bits, np.uint64)

    def _parts_of(self, places: Keys) -> NDArray[np.int64]:
        at = np.searchsorted(self._split_places, places)
        at = np.minimum(at, len(self._split_places) - 1)
        return np.where(self._split_places[at] == places, self._split_parts[at], 1)


_GOLDEN_ARRAY = np.array([_GOLDEN])  # numbers of arrays wrap around without a word


def topic_number(topic: str) -> int:
    """A number for a topic, the same in every process."""
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=8).digest(), "little")


def reach_of(subscription: NearSubscription, rules: MatchingRules) -> tuple[Outline | None, float]:
    """How far from its centre a subscription may still match, whatever the positions' accuracy.

    The second is in metres; the first is there if the centre is that of a polygon.
    """
    outline = None if subscription.polygon is None else Outline.of(subscription.polygon)
    radius_m = outline.radius_m if outline else subscription.radius_m
    assert radius_m is not None
    rules.check(subscription.topic, radius_m, publication=False)
    size_m = radius_m * 1.001 + (rules.max_publication_radius_m if rules.overlap else 0.0)
    slack_m = rules.hysteresis_m if subscription.hysteresis_m is None else subscription.hysteresis_m
    # Positions that may be wrong keep a pair together as far as it is wide.
    return outline, size_m + max(slack_m, size_m) + 1.0


def lane_key(lane: int) -> bytes:
    """The key of records of a lane."""
    return b"%02d" % lane


def _place(cells: NDArray[np.int64], topics: Keys) -> Keys:
    return _mixed(cells.astype(np.uint64) * _GOLDEN + topics)


def _lane(places: Keys) -> NDArray[np.int64]:
    return (_mixed(places) >> np.uint64(60)).astype(np.int64)


def _mixed(numbers: Keys) -> Keys:
    """Spread over all 64 bits, as splitmix64 ends."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
