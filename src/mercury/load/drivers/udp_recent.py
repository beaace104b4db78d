"""Which updates caused an event, where the event itself does not say when they were due.

An event names a publication, where that was, and how far from the subscription. Positions differ
from update to update, so the position identifies the publication's update and the distance the
subscription's. No other process's clock is needed, and an event of a system that lags behind is
not taken for one of a later update.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.geo.distance import haversine_m
from mercury.wire.match_frames import from_e7, to_e7

NEVER_DUE = -1  # of a place that an entity had before its first update
UNKNOWN = -2
_NOWHERE = -1
_REMEMBERED_S = 30.0
_FEWEST, _MOST = 8, 64  # updates of an entity
_SAME_M, _SAME_SHARE = 0.001, 1e-7  # distances travel with seven digits
_IN_TIME = np.int64(1) << 62


class Met(NamedTuple):
    """The two updates of each event, by their numbers, and when the later one was due."""

    publication: NDArray[np.int64]
    subscription: NDArray[np.int64]
    due_us: NDArray[np.int64]  # UNKNOWN if either update is


class RecentUpdates:
    """The last updates of each entity: a ring of columns."""

    def __init__(self, lats: FloatArray, lons: FloatArray, rate_hz: float) -> None:
        count = len(lats)
        self._size = min(max(math.ceil(_REMEMBERED_S * rate_hz), _FEWEST), _MOST)
        shape = (count, self._size)
        self._lat_e7 = np.zeros(shape, np.int32)
        self._lon_e7 = np.zeros(shape, np.int32)
        self._due_us = np.full(shape, NEVER_DUE, np.int64)
        self._number = np.full(shape, UNKNOWN, np.int64)
        self._next = np.ones(count, np.int64)
        self._numbered = count
        self._lat_e7[:, 0], self._lon_e7[:, 0] = to_e7(lats), to_e7(lons)
        self._number[:, 0] = np.arange(count)

    def add(
        self,
        entities: NDArray[np.int64],
        lats: FloatArray,
        lons: FloatArray,
        due_us: NDArray[np.int64],
    ) -> None:
        """Remember updates that are sent now, in order; an entity may be among them repeatedly."""
        order = np.argsort(entities, kind="stable")
        ranked = entities[order]
        starts = np.flatnonzero(np.diff(ranked, prepend=-1))
        sizes = np.diff(np.append(starts, len(ranked)))
        turn = np.empty(len(entities), np.int64)
        turn[order] = np.arange(len(ranked)) - np.repeat(starts, sizes)
        # Assigned in order: of more than a ring holds, the last stay.
        at = entities, (self._next[entities] + turn) % self._size
        self._lat_e7[at], self._lon_e7[at] = to_e7(lats), to_e7(lons)
        self._due_us[at] = due_us
        self._number[at] = self._numbered + np.arange(len(entities))
        self._numbered += len(entities)
        self._next[ranked[starts]] += sizes

    def find(
        self,
        publications: NDArray[np.int64],
        subscriptions: NDArray[np.int64],
        lats: FloatArray,
        lons: FloatArray,
        distances_m: FloatArray,
        times_us: NDArray[np.int64],
    ) -> Met:
        """The updates that caused events; a publication of another client is below 0.

        The time of the events distinguishes updates at the same position.
        """
        ours = publications >= 0
        is_there = self._lat_e7[publications] == to_e7(lats)[:, None]
        is_there &= self._lon_e7[publications] == to_e7(lons)[:, None]
        published = self._newest(publications, is_there & ours[:, None], times_us)
        off_m = haversine_m(
            from_e7(self._lat_e7[subscriptions]),
            from_e7(self._lon_e7[subscriptions]),
            lats[:, None],
            lons[:, None],
        )
        off_m = np.abs(off_m - distances_m[:, None])
        off_m[self._number[subscriptions] < 0] = np.inf
        is_so_far = off_m <= (_SAME_M + _SAME_SHARE * distances_m)[:, None]
        subscribed = self._newest(subscriptions, is_so_far, times_us)
        due_us = np.maximum(
            self._due_us[publications, published], self._due_us[subscriptions, subscribed]
        )
        publication = self._number[publications, published]
        publication[published == _NOWHERE] = UNKNOWN
        subscription = self._number[subscriptions, subscribed]
        subscription[subscribed == _NOWHERE] = UNKNOWN
        due_us[(publication == UNKNOWN) | (subscription == UNKNOWN)] = UNKNOWN
        return Met(publication, subscription, due_us)

    def _newest(
        self, entities: NDArray[np.int64], fits: NDArray[np.bool_], times_us: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """For each row of what fits, the column of the newest by then, or _NOWHERE.

        Where the clocks differ so much that nothing was due by then, just the newest.
        """
        numbers = self._number[entities]
        in_time = self._due_us[entities] <= times_us[:, None]
        ranks = np.where(fits & (numbers >= 0), numbers + np.where(in_time, _IN_TIME, 0), UNKNOWN)
        return np.where(ranks.max(axis=1) >= 0, ranks.argmax(axis=1), _NOWHERE)
