"""Detection (Mercury §4.1, §4.3): events of all vehicles, in bins, judged by predicates."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mercury.detection import (
    DetectedCondition,
    KindBins,
    KindRule,
    Observation,
    Verdict,
    restore_bins,
    snapshot_bins,
)
from mercury.model import topics
from mercury.pipeline.detection.alerts_sink import AlertsSink
from mercury.pipeline.detection.core_job import CoreJob
from mercury.pipeline.detection.transforms import events
from mercury.pipeline.spark.sources import read_stream


class AllKinds:
    """The bins of all kinds, as one core."""

    def __init__(self, rules: Iterable[KindRule], dropped: Counter[str]) -> None:
        self.bins = {rule.kind: KindBins(rule) for rule in rules}
        self._dropped = dropped

    def take(self, rows: pa.Table) -> list[Verdict]:
        """Judge events (the schema `EVENT`)."""
        found: dict[str, list[Observation]] = {}
        kinds = rows.column("kind").to_pylist()
        problems = rows.column("problem").to_pylist()
        columns = [rows.column(name).to_pylist() for name in Observation._fields]
        for kind, problem, row in zip(kinds, problems, zip(*columns, strict=True), strict=True):
            if problem is not None:
                self._dropped[problem] += 1
            elif kind not in self.bins:
                self._dropped["no-rule"] += 1
            else:
                found.setdefault(kind, []).append(Observation(*row))
        before = self._not_judged()
        verdicts = [
            verdict
            for kind, observations in sorted(found.items())
            for verdict in self.bins[kind].add(observations)
        ]
        self._dropped.update(self._not_judged() - before)
        return verdicts

    def advance(self, until_us: int) -> list[Verdict]:
        before = self._not_judged()
        verdicts = [verdict for one in self.bins.values() for verdict in one.advance(until_us)]
        self._dropped.update(self._not_judged() - before)
        return verdicts

    def _not_judged(self) -> Counter[str]:
        """Events that no bin took, by reason, since the state began."""
        counters = [one.counters for one in self.bins.values()]
        return Counter(
            {
                "late": sum(one.late for one in counters),
                "malformed": sum(one.malformed for one in counters),
                "no-room": sum(one.dropped for one in counters),
            }
        )

    def conditions(self) -> list[DetectedCondition]:
        return [condition for one in self.bins.values() for condition in one.conditions()]

    def snapshot(self) -> bytes:
        states = {kind: b64encode(snapshot_bins(bins)) for kind, bins in self.bins.items()}
        return json.dumps({kind: state.decode() for kind, state in states.items()}).encode()

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot; kinds without a rule now are dropped."""
        for kind, state in json.loads(snapshot).items():
            if kind in self.bins:
                self.bins[kind] = restore_bins(self.bins[kind].rule, b64decode(state))


class EventJob(CoreJob):
    """From the topics of events to alerts and conditions."""

    name = "events"

    def __init__(self, rules: Iterable[KindRule], sink: AlertsSink, checkpoint: Path) -> None:
        known = tuple(rules)
        super().__init__(lambda: AllKinds(known, self.dropped), sink, checkpoint)

    def frame(self, spark: SparkSession, bus: str) -> DataFrame:
        return events(read_stream(spark, bus, [f"{topics.EVENTS_PREFIX}*"]))
