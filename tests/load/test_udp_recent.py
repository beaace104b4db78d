"""Events are traced to the updates that brought them about."""

from __future__ import annotations

import numpy as np
import pytest

from mercury.geo.distance import haversine_m
from mercury.load.drivers.udp_recent import NEVER_DUE, UNKNOWN, RecentUpdates
from mercury.wire.match_frames import from_e7, to_e7

ENTITIES, SECONDS = 20, 12


class Story:
    """Entities that say each second where they are; evens publish, odds subscribe."""

    def __init__(self, *, standing: bool = False, rate_hz: float = 1.0) -> None:
        dice = np.random.default_rng(5)
        shape = (SECONDS + 1, ENTITIES)
        self.lats = from_e7(to_e7(60.0 + dice.random(shape) * 0.01))
        self.lons = from_e7(to_e7(24.0 + dice.random(shape) * 0.01))
        if standing:
            self.lats[:], self.lons[:] = self.lats[0], self.lons[0]
        self.recent = RecentUpdates(self.lats[0], self.lons[0], rate_hz)

    def tell(self, *seconds: int) -> None:
        """Updates of some seconds, as one batch."""
        everybody = np.tile(np.arange(ENTITIES), len(seconds))
        due_us = np.repeat(seconds, ENTITIES) * 1_000_000 + everybody
        lats, lons = self.lats[list(seconds)].ravel(), self.lons[list(seconds)].ravel()
        self.recent.add(everybody, lats, lons, due_us)

    def due_us(self, publication: int, at: int, subscription: int, to: int, time_s: float) -> int:
        """When the update was due of an event between places of two seconds."""
        lat, lon = self.lats[at, publication], self.lons[at, publication]
        away_m = haversine_m(lat, lon, self.lats[to, subscription], self.lons[to, subscription])
        found = self.recent.find(
            np.array([publication]),
            np.array([subscription]),
            np.array([lat]),
            np.array([lon]),
            np.float32(away_m).astype(np.float64).reshape(1),
            np.array([round(time_s * 1e6)]),
        )
        return int(found.due_us[0])


def test_the_later_of_the_two_updates_counts_however_late_the_event() -> None:
    story = Story()
    for second in range(1, 8):
        story.tell(second)
    assert story.due_us(2, 5, 3, 5, 100.0) == 5_000_003
    assert story.due_us(2, 5, 3, 4, 100.0) == 5_000_002
    assert story.due_us(2, 3, 3, 4, 4.1) == 4_000_003


def test_first_places_were_never_due() -> None:
    story = Story()
    story.tell(1)
    assert story.due_us(2, 0, 3, 0, 0.5) == NEVER_DUE
    assert story.due_us(2, 0, 3, 1, 1.5) == 1_000_003


@pytest.mark.parametrize("clock_s", [0.0, -1000.0])
def test_who_stands_still_is_told_apart_by_time_if_clocks_agree(clock_s: float) -> None:
    story = Story(standing=True)
    story.tell(1)
    story.tell(2, 3)
    found = story.due_us(4, 0, 7, 0, clock_s + 2.5)
    assert found == (2_000_007 if clock_s == 0.0 else 3_000_007)


def test_an_entity_may_be_in_a_batch_repeatedly() -> None:
    story = Story()
    story.tell(1, 2, 3)
    story.tell(4)
    for second in range(1, 5):
        assert story.due_us(6, second, 9, second, 9.0) == second * 1_000_000 + 9


def test_what_is_forgotten_or_of_others_is_not_known() -> None:
    story = Story(rate_hz=0.1)  # eight updates are kept
    for second in range(1, SECONDS + 1):
        story.tell(second)
    assert story.due_us(2, 4, 3, 12, 12.5) == UNKNOWN
    assert story.due_us(2, 12, 3, 4, 12.5) == UNKNOWN
    assert story.due_us(2, 5, 3, 5, 12.5) == 5_000_003
    assert story.due_us(-1, 5, 3, 5, 12.5) == UNKNOWN


def test_of_a_batch_larger_than_the_memory_the_end_is_kept() -> None:
    story = Story(rate_hz=0.1)
    story.tell(*range(1, SECONDS + 1))
    assert story.due_us(2, 12, 3, 12, 12.5) == 12_000_003
    assert story.due_us(2, 5, 3, 5, 12.5) == 5_000_003
    assert story.due_us(2, 4, 3, 4, 12.5) == UNKNOWN
