"""The numbers of a service: one source for metrics, status records and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

LOSSES = ("bus-full", "bus-unavailable")  # exported from 0 on, so that rates see the first


def with_limits(tables: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Gauges of what tables hold, and of how much that may be, by their names."""
    limits: dict[str, float] = {f"{name}_limit": limit for name, (_, limit) in tables.items()}
    return limits | {name: held for name, (held, _) in tables.items()}


@dataclass(slots=True)
class Statistics:
    """A snapshot of a service's numbers."""

    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)  # by reason

    def flat(self) -> dict[str, float]:
        """All numbers under one name each, as in status records."""
        return {
            **self.gauges,
            **self.counters,
            **{f"dropped.{reason}": count for reason, count in sorted(self.dropped.items())},
        }

    def metrics(self, part: str) -> Iterable[Metric]:
        for name, value in self.gauges.items():
            yield GaugeMetricFamily(f"mercury_{part}_{name}", name.replace("_", " "), value=value)
        for name, value in self.counters.items():
            yield CounterMetricFamily(f"mercury_{part}_{name}", name.replace("_", " "), value=value)
        family = CounterMetricFamily(
            f"mercury_{part}_dropped", "messages not accepted or not sent, by reason",
            labels=["reason"],
        )  # fmt: skip
        for reason, count in sorted({**dict.fromkeys(LOSSES, 0), **self.dropped}.items()):
            family.add_metric([reason], count)
        yield family
