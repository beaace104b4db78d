"""What is said of a Kafka that is away: one sentence when it goes, one when it is back."""

from __future__ import annotations

import logging

import pytest

from mercury.bus.kafka.outage import PROBE_INTERVAL_S, Outage, is_not_about_connections

NAME = "kafka://broker:9092"


def test_nothing_is_asked_and_said_while_all_is_well() -> None:
    outage = Outage(NAME)
    assert not outage.probe_due(0.0)
    assert outage.probed(answered=True, now=1.0) is None


def test_an_error_without_an_outage_is_not_told() -> None:
    outage = Outage(NAME)
    outage.note_error()
    assert outage.probe_due(10.0)
    assert outage.probed(answered=True, now=10.1) is None
    assert not outage.probe_due(20.0)


def test_an_outage_is_told_once_however_many_errors_come() -> None:
    outage = Outage(NAME)
    said = []
    asked = 0
    for tick in range(1000):  # 100 s, an error every 0.1 s
        now = tick / 10
        outage.note_error()
        if outage.probe_due(now):
            asked += 1
            said.append(outage.probed(answered=False, now=now))
    assert outage.away_s(now) == pytest.approx(now)
    assert asked == 100 / PROBE_INTERVAL_S
    told = [one for one in said if one is not None]
    assert [level for level, _ in told] == [logging.WARNING]
    assert f"{NAME} cannot be reached" in told[0][1]


def test_the_end_of_an_outage_is_told_once_and_how_long_it_was() -> None:
    outage = Outage(NAME)
    outage.note_error()
    outage.probed(answered=False, now=5.0)
    assert not outage.probe_due(5.1)
    assert outage.probe_due(5.0 + PROBE_INTERVAL_S)  # also when no error comes any more
    back = outage.probed(answered=True, now=17.2)
    assert back is not None
    level, text = back
    assert level == logging.WARNING  # shown wherever "cannot be reached" was
    assert f"{NAME} is back after 12 s" in text
    # An error that comes late finds the cluster there.
    outage.note_error()
    assert outage.probed(answered=True, now=18.0) is None
    # The next outage is told again.
    outage.note_error()
    assert outage.probed(answered=False, now=30.0) is not None


def test_the_clients_own_lines_on_connections_are_dropped_and_no_others() -> None:
    def passes(text: str) -> bool:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "%s", (text,), None)
        return is_not_about_connections(record)

    refused = "FAIL [rdkafka#consumer-5] [thrd:1]: Connect to ipv4#127.0.0.1:46695 failed"
    assert not passes(refused)
    assert not passes("METADATAUPDATE [x] [thrd:main]: Partition t(e)[1]: new leader-1 not found")
    assert not passes("FATAL [x] [thrd:main]: Fatal error: Broker: Static consumer fenced")
    assert passes("CONFWARN [rdkafka#producer-1] [thrd:app]: Configuration property x is y")
