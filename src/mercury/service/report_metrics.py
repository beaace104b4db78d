"""A mediator's report as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mercury.mediator import Report


def report_metrics(report: Report) -> Iterable[Metric]:
    """Yield what the report says, by client and mate, topic or sender."""
    name = report.name
    by_mate = {
        "sent": "messages sent the first time",
        "resent": "messages sent again",
        "acknowledged": "messages that were acknowledged",
        "dropped": "messages that expired or were given up",
    }
    for field, text in by_mate.items():
        family = CounterMetricFamily(f"mercury_mediator_{field}", text, labels=["client", "mate"])
        for mate in report.mates:
            family.add_metric([name, mate.mate], getattr(mate, field))
        yield family
    first = GaugeMetricFamily(
        "mercury_mediator_first_try_seconds",
        "mean time to the answer where the first try was enough",
        labels=["client", "mate"],
    )
    for mate in report.mates:
        if mate.first_try_s is not None:
            first.add_metric([name, mate.mate], mate.first_try_s)
    yield first
    for field in ("sent", "resent"):
        family = CounterMetricFamily(
            f"mercury_mediator_topic_{field}", by_mate[field], labels=["client", "topic"]
        )
        for topic in report.topics:
            family.add_metric([name, topic.topic], getattr(topic, field))
        yield family
    acks = {"acks_sent": "receipts sent", "acks_resent": "receipts sent again"}
    for field, text in acks.items():
        family = CounterMetricFamily(f"mercury_mediator_{field}", text, labels=["client", "mate"])
        for row in report.acks:
            family.add_metric([name, row.mate], getattr(row, field))
        yield family
    heard = {
        "messages": "messages addressed to the client",
        "acknowledged": "of which it acknowledged",
        "refused": "of which it refused",
        "dropped": "of which expired or were given up",
    }
    for field, text in heard.items():
        family = CounterMetricFamily(
            f"mercury_mediator_heard_{field}", text, labels=["client", "source"]
        )
        for source in report.heard:
            family.add_metric([name, source.source], getattr(source, field))
        yield family
