"""A mediator's report as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mercury.mediator import Report

_SENT = {"sent": "messages sent the first time", "resent": "messages sent again"}
# Rows of the report, what tells them apart, how their metrics begin, and what each counts.
_COUNTERS = (
    ("mates", "mate", "", {
        **_SENT,
        "acknowledged": "messages that were acknowledged",
        "dropped": "messages that expired or were given up",
    }),
    ("topics", "topic", "topic_", _SENT),
    ("acks", "mate", "", {"acks_sent": "receipts sent", "acks_resent": "receipts sent again"}),
    ("heard", "source", "heard_", {
        "messages": "messages addressed to the client",
        "acknowledged": "of which it acknowledged",
        "refused": "of which it refused",
        "dropped": "of which expired or were given up",
    }),
)  # fmt: skip


def report_metrics(report: Report) -> Iterable[Metric]:
    """Yield what the report says, by client and mate, topic or sender."""
    for rows, label, prefix, fields in _COUNTERS:
        for field, text in fields.items():
            name = f"mercury_mediator_{prefix}{field}"
            family = CounterMetricFamily(name, text, labels=["client", label])
            for row in getattr(report, rows):
                family.add_metric([report.name, getattr(row, label)], getattr(row, field))
            yield family
    first = GaugeMetricFamily(
        "mercury_mediator_first_try_seconds",
        "mean time to the answer where the first try was enough",
        labels=["client", "mate"],
    )
    for mate in report.mates:
        if mate.first_try_s is not None:
            first.add_metric([report.name, mate.mate], mate.first_try_s)
    yield first
