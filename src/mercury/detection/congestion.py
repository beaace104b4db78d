"""Congestion from telemetry alone, before anybody reports it (Mercury §8).

Rows hold how fast traffic was in one cell, in one direction, in one window of time. Decisions
depend on the rows in the order of their windows and on nothing else, as with the bins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from mercury.detection.jams import Jam, Key, components, extent_of
from mercury.detection.rules import in_us
from mercury.detection.slowdown import CellSpeed, CongestionRule, Slowdown, SpeedLevel
from mercury.detection.verdict import DetectedCondition, Verdict, area_until
from mercury.geo.grid import SECTORS, Grid
from mercury.model.area import LAST_INSTANT_US
from mercury.model.filter import Value
from mercury.model.identity import derived_id

MAX_CELLS = 500_000


@dataclass(slots=True)
class CongestionCounters:
    """Counts of the rows and jams."""

    observed: int = 0  # rows given
    malformed: int = 0  # invalid window, cell, sector or speed
    late: int = 0  # came after their window had been judged
    duplicate: int = 0  # a second row of a cell, sector and window
    sparse: int = 0  # too few vehicles
    free: int = 0
    middling: int = 0
    slow: int = 0
    learning: int = 0  # usual speed not known yet
    begun: int = 0  # jams
    merged: int = 0  # jams that became part of an older one
    ended: int = 0
    alerted: int = 0  # alerts
    dropped: int = 0  # cells dropped above the limit


class Congestion:
    """All cells and jams; a core that takes rows and returns the alerts that are due."""

    def __init__(self, rule: CongestionRule, *, max_cells: int = MAX_CELLS) -> None:
        self.rule = rule
        self.max_cells = max_cells
        self.grid = Grid(rule.cell_m)
        self.counters = CongestionCounters()
        self.watermark_us = 0  # rows of windows that end by then have come, but for late ones
        self.judged_us = 0  # windows that end by then have been judged
        self.waiting: list[CellSpeed] = []  # a heap: others of the window may still come
        self.cells: dict[Key, Slowdown] = {}  # the least recently updated first
        self.jams: list[Jam] = []  # the oldest first
        self._window_us = rule.window_us
        self._lateness_us = in_us(rule.lateness_s)

    def add(self, rows: Iterable[CellSpeed]) -> list[Verdict]:
        """Take rows, in any order; a window is judged when rows of a later one have come."""
        newest_us = 0
        for row in rows:
            self.counters.observed += 1
            if not self._can_be(row):
                self.counters.malformed += 1
            elif row.window_us < self.judged_us:
                self.counters.late += 1
            else:
                heappush(self.waiting, row)
                newest_us = max(newest_us, row.window_us)
        return self.advance(newest_us)

    def advance(self, until_us: int) -> list[Verdict]:
        """Set the time: all rows of windows that end by then have come."""
        self.watermark_us = max(self.watermark_us, min(until_us, LAST_INSTANT_US))
        complete_us = self.watermark_us - self._lateness_us
        verdicts: list[Verdict] = []
        while self.waiting and self.waiting[0].window_us + self._window_us <= complete_us:
            start_us = self.waiting[0].window_us
            rows = []
            while self.waiting and self.waiting[0].window_us == start_us:
                rows.append(heappop(self.waiting))
            verdicts += self._judge(rows, start_us)
        self.judged_us = max(self.judged_us, complete_us - complete_us % self._window_us)
        return verdicts

    def conditions(self) -> list[DetectedCondition]:
        """The jams that are on."""
        forget_us = in_us(self.rule.forget_s)
        found = []
        for jam in self.jams:
            heard_us = max(self.cells[key].heard_us for key in jam.keys)
            if heard_us + forget_us > self.judged_us:
                found.append(self._condition(jam, heard_us, heard_us + forget_us))
        return found

    def _judge(self, rows: list[CellSpeed], start_us: int) -> list[Verdict]:
        end_us = start_us + self._window_us
        before = {key for jam in self.jams for key in jam.keys}
        slow = {row[1:3] for row in rows if self._hear(row) is SpeedLevel.SLOW}
        for key in before:
            cell = self.cells.get(key)
            # Only where a window is judged, so that it does not matter when time advances.
            if cell is not None and cell.on and cell.silent(end_us, self.rule):
                cell.end()
        candidates = before | {row[1:3] for row in rows}
        on = {key for key in candidates if key in self.cells and self.cells[key].on}
        if on != before:
            self._group(on, end_us)
        return [
            self._tell(jam, end_us)
            for jam in self.jams
            if not slow.isdisjoint(jam.keys) and self._is_due(jam, end_us)
        ]

    def _hear(self, row: CellSpeed) -> SpeedLevel | None:
        rule = self.rule
        if row.vehicles < rule.min_vehicles:
            self.counters.sparse += 1
            return None
        key = row[1:3]
        cell = self.cells.pop(key, None)
        if cell is None:
            cell = Slowdown()
            if len(self.cells) >= self.max_cells:
                self.counters.dropped += 1
                del self.cells[next(iter(self.cells))]
        self.cells[key] = cell
        if cell.heard_us > row.window_us:
            self.counters.duplicate += 1
            return None
        level = cell.hear(row, rule)
        setattr(self.counters, level, getattr(self.counters, level) + 1)
        return level

    def _group(self, on: set[Key], at_us: int) -> None:
        """Group the congested cells into jams; each continues the jam it has most cells of."""
        groups = components(on, self.grid)
        number_of = {key: number for number, group in enumerate(groups) for key in group}
        heirs: dict[int, Jam] = {}  # by the number of the group
        for jam in self.jams:
            shared = Counter(number_of[key] for key in jam.keys if key in number_of)
            mostly = min(shared, key=lambda number: (-shared[number], number), default=None)
            if mostly is None:
                self.counters.ended += 1
            elif mostly in heirs:
                self.counters.merged += 1  # the older one continues
            else:
                heirs[mostly] = jam
        jams = []
        for number, group in enumerate(groups):
            heir = heirs.get(number)
            if heir is None:
                heir = self._begin(group, at_us)
            heir.keys = group
            jams.append(heir)
        self.jams = sorted(jams, key=lambda jam: jam.rank)

    def _begin(self, group: frozenset[Key], at_us: int) -> Jam:
        self.counters.begun += 1
        cell, sector = min(group)
        time = (at_us // 1000).to_bytes(6, "big")
        id = derived_id(time + cell.to_bytes(8, "big") + bytes([sector]), "jam")
        jam = Jam(id, min(self.cells[key].on_since_us for key in group), group)
        # A part that split off a jam was covered by its alerts.
        part_of = [old for old in self.jams if not old.keys.isdisjoint(group)]
        if part_of:
            jam.until_us = max(old.until_us for old in part_of)
            jam.alerted_cells = frozenset().union(*(old.alerted_cells for old in part_of))
        return jam

    def _is_due(self, jam: Jam, at_us: int) -> bool:
        grown_m = len(jam.cells - jam.alerted_cells) * self.rule.cell_m
        return jam.until_us <= at_us or grown_m >= self.rule.grown_m

    def _tell(self, jam: Jam, at_us: int) -> Verdict:
        self.counters.alerted += 1
        jam.alerted += 1
        jam.until_us = at_us + in_us(self.rule.validity_s)
        jam.alerted_cells = jam.cells
        condition = self._condition(jam, at_us, jam.until_us)
        alert_id = derived_id(jam.id, f"alert {jam.alerted}")
        return Verdict.about(condition, alert_id, self.rule.priority, self.rule.text)

    def _condition(self, jam: Jam, at_us: int, until_us: int) -> DetectedCondition:
        extent = extent_of(jam.keys, self.grid, self.rule.approach_m)
        cells = [self.cells[key] for key in sorted(jam.keys)]
        vehicles = sum(cell.vehicles for cell in cells)
        values: dict[str, Value] = {
            "count": vehicles,
            "cells": len(jam.cells),
            "length_m": extent.length_m,
            "heading_deg": extent.heading.center_deg,
            "speed_mps": math.fsum(cell.vehicles * cell.speed_mps for cell in cells) / vehicles,
            "usual_mps": math.fsum(cell.vehicles * cell.usual_mps for cell in cells) / vehicles,
        }
        return DetectedCondition(
            kind=self.rule.kind,
            incident_id=jam.id,
            centre=extent.centre,
            radius_m=extent.radius_m,
            area=area_until(extent.shape, until_us, extent.heading),
            since_us=jam.since_us,
            at_us=at_us,
            until_us=until_us,
            values=values,
        )

    def _can_be(self, row: CellSpeed) -> bool:
        return (
            0 <= row.window_us <= LAST_INSTANT_US
            and row.window_us % self._window_us == 0
            and 0 <= row.sector < SECTORS
            and row.vehicles >= 0
            and 0.0 <= row.speed_mps < math.inf
            and self.grid.is_cell(row.cell)
        )
