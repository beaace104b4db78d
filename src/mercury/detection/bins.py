"""The bins of one kind of event: which bin an observation joins, and when bins are judged.

Decisions depend on the observations in the order of (time, id) and on nothing else: not on how they
were cut into batches, not on when the state was stored and restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from mercury.detection.alerts_in_force import Alert, AlertsInForce
from mercury.detection.bin import MEASURES, Bin, Member, Observation
from mercury.detection.rules import KindRule, in_us
from mercury.detection.spatial_index import SpatialIndex
from mercury.detection.verdict import DetectedCondition, Verdict, area_until
from mercury.geo.space import from_space, to_space
from mercury.model.area import LAST_INSTANT_US, Circle, Position
from mercury.model.identity import derived_id

MAX_BINS = 20_000
MAX_REPORTERS = 1_000  # of one bin


@dataclass(slots=True)
class Counters:
    """Counts of the observations and bins of one kind."""

    observed: int = 0  # observations given
    malformed: int = 0  # invalid position or time
    late: int = 0  # came after their interval was closed
    duplicate: int = 0  # the same observation again
    repeated: int = 0  # a vehicle that was counted in the bin already
    merged: int = 0  # bins that became part of another
    judged: int = 0  # evaluations of a predicate
    alerted: int = 0  # true, and an alert was due
    continued: int = 0  # true, while an alert was still valid
    dropped: int = 0  # reporters above the limit
    forgotten: int = 0  # alerts in force dropped above the limit


class KindBins:
    """All bins of one kind; a core that takes observations and returns the alerts that are due."""

    def __init__(
        self, rule: KindRule, *, max_bins: int = MAX_BINS, max_reporters: int = MAX_REPORTERS
    ) -> None:
        self.rule = rule
        self.max_bins = max_bins
        self.max_reporters = max_reporters
        self.counters = Counters()
        self.newest_us = 0  # the newest time seen
        self.closed_us = 0  # intervals before this have been judged
        self.waiting: list[Observation] = []  # a heap: older ones may still come
        self.bins: dict[Bin, None] = {}  # the least recently updated first
        self.alerts = AlertsInForce(rule.reach_m, max_bins)
        self._bin_index: SpatialIndex[Bin] = SpatialIndex(rule.reach_m)
        self._every_us = rule.every_us
        self._memory_us = in_us(rule.memory_s)
        self._lateness_us = in_us(rule.lateness_s)

    def add(self, observations: Iterable[Observation]) -> list[Verdict]:
        """Take a batch, in any order; returns the alerts that are due because of it."""
        given = list(observations)
        fresh = sorted(filter(_can_be, given))
        self.counters.observed += len(given)
        self.counters.malformed += len(given) - len(fresh)
        if not fresh:
            return []
        if self._every_us:
            for one in fresh:
                if one.time_us >= self.closed_us:
                    heappush(self.waiting, one)
                else:
                    self.counters.late += 1
            return self.advance(fresh[-1].time_us)
        return self._judge_each(fresh)

    def advance(self, until_us: int) -> list[Verdict]:
        """Set the time: observations with an earlier time are late from now on."""
        self.newest_us = max(self.newest_us, min(until_us, LAST_INSTANT_US))
        if self._every_us:
            return self._judge_intervals(self.newest_us - self._lateness_us)
        self._empty_silent(self.newest_us)
        self.alerts.expire(self.newest_us)
        return []

    @property
    def due_us(self) -> int | None:
        """When `advance` must be called next, if nothing else comes."""
        if not self._every_us or not (self.bins or self.waiting):
            return None
        first_us = self.closed_us if self.bins else self.waiting[0].time_us
        return first_us - first_us % self._every_us + self._every_us + self._lateness_us

    def conditions(self) -> list[DetectedCondition]:
        """All bins, as conditions at their positions."""
        found = []
        for bin in self.bins:
            until_us = bin.heard_us + self._memory_us
            if self._every_us:  # until the bins of the next interval have been judged
                until_us = self.closed_us + 2 * self._every_us + self._lateness_us
            found.append(self._condition(bin, bin.last_us, until_us))
        return found

    def put(self, bin: Bin) -> None:
        """Add a bin, as the last one updated."""
        self.bins.pop(bin, None)
        self.bins[bin] = None
        self._bin_index.put(bin)

    # every_s = 0: each observation is judged as it comes.

    def _judge_each(self, fresh: list[Observation]) -> list[Verdict]:
        verdicts = []
        for one in fresh:
            if one.time_us < self.newest_us - self._lateness_us:
                self.counters.late += 1
                continue
            # A late observation does not set the time back.
            now_us = self.newest_us = max(self.newest_us, one.time_us)
            self._empty_silent(now_us)
            bin = self._take(one, now_us)
            if bin is not None and (verdict := self._judge(bin, now_us)):
                verdicts.append(verdict)
        return verdicts

    def _empty_silent(self, now_us: int) -> None:
        while self.bins:
            bin = next(iter(self.bins))
            if bin.heard_us + self._memory_us >= now_us:
                return
            self._remove(bin)

    # every_s > 0: bins are judged and emptied where an interval ends (Mercury §4.3, schedulers).

    def _judge_intervals(self, until_us: int) -> list[Verdict]:
        """Take older observations, in order, and judge each interval that ends by then."""
        verdicts: list[Verdict] = []
        # More observations of the same instant may come, in any order.
        while self.waiting and self.waiting[0].time_us < until_us:
            one = heappop(self.waiting)
            verdicts += self._close(one.time_us)
            self._take(one, one.time_us)
        verdicts += self._close(until_us)
        return verdicts

    def _close(self, until_us: int) -> list[Verdict]:
        """Judge and empty the bins if their interval has ended by then."""
        start_us = until_us - until_us % self._every_us
        if start_us <= self.closed_us:
            return []
        at_us = self.closed_us + self._every_us
        self.closed_us = start_us
        bins = sorted(self.bins, key=lambda bin: bin.rank)
        verdicts = [verdict for bin in bins if (verdict := self._judge(bin, at_us))]
        self.bins.clear()
        self._bin_index = SpatialIndex(self.rule.reach_m)
        return verdicts

    # The bin of an observation.

    def _take(self, one: Observation, now_us: int) -> Bin | None:
        point = to_space(one.lat, one.lon)
        member = Member(one.time_us, one.id, point, one.speed_mps, one.heading_deg)
        bin = self._bin_index.nearest(point)
        if bin is None:
            if len(self.bins) >= self.max_bins:
                self.counters.dropped += 1
                return None
            bin = Bin(one.reporter, member)
            bin.heard_us = now_us
            self.put(bin)
            return bin
        before = bin.members.get(one.reporter)
        if before is not None:
            if before.id == one.id:
                self.counters.duplicate += 1
                return None
            self.counters.repeated += 1
        elif len(bin.members) >= self.max_reporters:
            self.counters.dropped += 1
            return None
        bin.add(one.reporter, member)
        bin.heard_us = max(bin.heard_us, now_us)
        self.put(bin)
        return self._merge(bin)

    def _merge(self, bin: Bin) -> Bin:
        """Merge bins whose centres have come within reach, so that the order does not matter."""
        while (other := self._bin_index.nearest(bin.point, besides=bin)) is not None:
            older, younger = (bin, other) if bin.rank < other.rank else (other, bin)
            self._remove(younger)
            self.counters.dropped += older.absorb(younger, self.max_reporters)
            self.counters.merged += 1
            self.put(older)
            bin = older
        return bin

    def _remove(self, bin: Bin) -> None:
        del self.bins[bin]
        self._bin_index.remove(bin)

    # Alerts.

    def _judge(self, bin: Bin, at_us: int) -> Verdict | None:
        self.counters.judged += 1
        if not self.rule.holds(bin):
            return None
        alert = self.alerts.holding(bin.point, at_us)
        if alert is not None:
            self.counters.continued += 1
            bin.incident_id = alert.incident_id
            return None
        self.counters.alerted += 1
        bin.alerted += 1
        bin.incident_id = bin.incident
        verdict = self._verdict(bin, at_us)
        rank = (at_us, verdict.alert_id)
        alert = Alert(bin.point, rank, verdict.until_us, bin.incident_id)
        self.counters.forgotten += not self.alerts.put(alert)
        return verdict

    def _verdict(self, bin: Bin, at_us: int) -> Verdict:
        rule = self.rule
        condition = self._condition(bin, at_us, at_us + in_us(rule.validity_s))
        # A bin that outlives its alert sends another one.
        alert_id = derived_id(bin.rank[1], f"alert {bin.alerted}")
        return Verdict.about(condition, alert_id, rule.priority, rule.text)

    def _condition(self, bin: Bin, at_us: int, until_us: int) -> DetectedCondition:
        centre, radius_m = Position(*from_space(bin.point)), bin.radius_m()
        return DetectedCondition(
            kind=self.rule.kind,
            incident_id=bin.incident,
            centre=centre,
            radius_m=radius_m,
            area=area_until(Circle(centre, self.rule.alert_radius_m(radius_m)), until_us),
            since_us=bin.since_us,
            at_us=at_us,
            until_us=until_us,
            values=bin.measures(MEASURES),
        )


def _can_be(one: Observation) -> bool:
    return (
        -90.0 <= one.lat <= 90.0
        and -180.0 <= one.lon <= 180.0
        and 0 <= one.time_us <= LAST_INSTANT_US
    )
