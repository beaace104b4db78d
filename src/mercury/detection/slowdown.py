"""One cell and direction: its usual speed, and whether traffic there is slow now (Mercury §8).

The usual speed is learned from free windows alone, and slowly: a jam is not free, so however long
it lasts it does not become usual while it is on. Only what has not been free for `relearn_s` of
windows with traffic, as after a new speed limit, is learned afresh.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mercury.detection.rules import MAX_SPAN_S, check_number, in_us
from mercury.geo.grid import MAX_CELL_M, MIN_CELL_M
from mercury.model.area import HALF_MERIDIAN_M
from mercury.model.errors import DetectionError
from mercury.model.message import EventKind, Priority


@dataclass(frozen=True)
class CongestionRule:
    """When traffic counts as slow, and what its alerts say."""

    kind: str = EventKind.CONGESTION
    cell_m: float = 200.0
    window_s: float = 10.0  # length of a window
    lateness_s: float = 0.0  # a row may come so long after the end of its window
    min_vehicles: int = 3  # a window with fewer neither confirms nor clears
    slow_share: float = 0.5  # slow: below this share of the usual speed
    free_share: float = 0.7  # free: from this share on
    on_after_s: float = 120.0  # of slow windows, until a jam begins; red lights are shorter
    off_after_s: float = 60.0  # of free ones, until it ends
    forget_s: float = 300.0  # timeout of a jam without rows
    learn_s: float = 300.0  # of traffic, before the usual speed is known
    learn_share: float = 0.002  # weight of a window in the usual speed after that
    relearn_s: float = 86_400.0  # of windows that are not free: then their speed is the usual one
    min_usual_mps: float = 4.0  # with a lower usual speed, as in a car park, there is no jam
    approach_m: float = 500.0  # the alert's area reaches this far upstream of the jam
    grown_m: float = 400.0  # it is alerted again when it has grown by this much
    validity_s: float = 300.0
    priority: int = Priority.NORMAL
    text: str = "Slow traffic ahead"

    def __post_init__(self) -> None:
        check_number(self, "cell_m", MIN_CELL_M, MAX_CELL_M)
        for name in ("window_s", "forget_s", "learn_s", "relearn_s", "validity_s"):
            check_number(self, name, 0.001, MAX_SPAN_S)
        for name in ("lateness_s", "on_after_s", "off_after_s"):
            check_number(self, name, 0.0, MAX_SPAN_S)
        for name in ("slow_share", "free_share", "learn_share"):
            check_number(self, name, 1e-6, 1.0)
        check_number(self, "min_vehicles", 1, 1_000_000)
        check_number(self, "min_usual_mps", 0.0, 1000.0)
        check_number(self, "approach_m", 0.0, 100_000.0)
        check_number(self, "grown_m", 1.0, HALF_MERIDIAN_M)
        check_number(self, "priority", 0, 9)
        if self.slow_share > self.free_share:
            raise DetectionError(
                f"slow_share {self.slow_share:g} is above free_share {self.free_share:g}",
                "slow_share",
                "free_share",
            )

    @property
    def window_us(self) -> int:
        return in_us(self.window_s)


class CellSpeed(NamedTuple):
    """The speed of traffic in a cell, in a direction, in the window that starts then."""

    window_us: int
    cell: int
    sector: int
    vehicles: int
    speed_mps: float  # mean


class SpeedLevel(StrEnum):
    """How a window's speed compares with the usual one."""

    LEARNING = "learning"
    FREE = "free"
    MIDDLING = "middling"
    SLOW = "slow"


@dataclass(slots=True)
class Slowdown:
    """The state of one cell and direction."""

    usual_mps: float = 0.0
    learned_us: int = 0  # traffic learned from
    heard_us: int = 0  # end of the last window with enough vehicles
    slow_for_us: int = 0  # windows that were slow without one that was not
    slow_since_us: int = 0  # start of the first of them
    free_for_us: int = 0  # windows that were free without one that was not
    unfree_for_us: int = 0  # windows since the last free one
    on_since_us: int = -1  # start of the jam that is on, or -1
    vehicles: int = 0  # in the last window with enough
    speed_mps: float = 0.0  # in that window

    @property
    def on(self) -> bool:
        return self.on_since_us >= 0

    def silent(self, now_us: int, rule: CongestionRule) -> bool:
        """Whether no window has come for so long that the jam has ended."""
        return self.heard_us + in_us(rule.forget_s) <= now_us

    def end(self) -> None:
        """Reset the jam and its counts; the usual speed stays."""
        self.on_since_us = -1
        self.slow_for_us = self.free_for_us = 0

    def hear(self, row: CellSpeed, rule: CongestionRule) -> SpeedLevel:
        """Take a window with enough vehicles."""
        if self.silent(row.window_us, rule):
            self.end()
        window_us = rule.window_us
        self.heard_us = row.window_us + window_us
        self.vehicles, self.speed_mps = row.vehicles, row.speed_mps
        level = self._speed_level(row.speed_mps, rule)
        if level is SpeedLevel.LEARNING:
            self._learn(row.speed_mps, rule)
            return level
        slow, free = level is SpeedLevel.SLOW, level is SpeedLevel.FREE
        if slow and not self.slow_for_us:
            self.slow_since_us = row.window_us
        self.slow_for_us = self.slow_for_us + window_us if slow else 0
        self.free_for_us = self.free_for_us + window_us if free else 0
        self.unfree_for_us = 0 if free else self.unfree_for_us + window_us
        if self.on and free and self.free_for_us >= in_us(rule.off_after_s):
            self.on_since_us = -1
        elif not self.on and slow and self.slow_for_us >= in_us(rule.on_after_s):
            self.on_since_us = self.slow_since_us
        if free and not self.on:
            self._learn(row.speed_mps, rule)
        elif self.unfree_for_us >= in_us(rule.relearn_s):
            self.end()
            self.learned_us = self.unfree_for_us = 0
        return level

    def _speed_level(self, speed_mps: float, rule: CongestionRule) -> SpeedLevel:
        if self.learned_us < in_us(rule.learn_s):
            return SpeedLevel.LEARNING
        if self.usual_mps < rule.min_usual_mps:
            return SpeedLevel.FREE  # never fast, so never slow; learning continues
        if speed_mps >= rule.free_share * self.usual_mps:
            return SpeedLevel.FREE
        is_slow = speed_mps < rule.slow_share * self.usual_mps
        return SpeedLevel.SLOW if is_slow else SpeedLevel.MIDDLING

    def _learn(self, speed_mps: float, rule: CongestionRule) -> None:
        self.learned_us += rule.window_us
        windows = self.learned_us / rule.window_us
        # A plain mean at first, then an exponential one.
        weight = max(1.0 / windows, rule.learn_share)
        self.usual_mps += weight * (speed_mps - self.usual_mps)
