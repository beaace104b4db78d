"""What is wrong with a service, told from what it notes: each cause alone."""

from __future__ import annotations

import pytest

from mercury.service.health import (
    BACKLOG_RECORDS,
    BACKLOG_S,
    BEHIND_S,
    IDLE_S,
    RECENT_S,
    STALL_S,
    UNACKNOWLEDGED_S,
    Health,
)

T = 1000.0


@pytest.fixture
def health() -> Health:
    return Health()


def test_a_service_that_has_done_nothing_yet_is_well(health: Health) -> None:
    assert health.problem(T) == ""
    assert health.behind_s(T) == 0.0


def test_a_record_that_the_bus_refused_is_seen_for_a_while(health: Health) -> None:
    health.bus_failed(T, "no space is left")
    assert health.problem(T + 1) == "the bus does not take what is appended: no space is left"
    health.flushed()  # one success does not undo the loss
    assert health.problem(T + RECENT_S - 1)
    assert health.problem(T + RECENT_S + 1) == ""


def test_a_flush_that_never_returns_is_a_problem(health: Health) -> None:
    health.flushing(T)
    assert health.problem(T + UNACKNOWLEDGED_S - 1) == ""
    assert "not acknowledged what was appended for 7 s" in health.problem(T + 7)
    health.flushed()
    assert health.problem(T + 8) == ""


def test_a_loop_that_stood_still_is_a_problem(health: Health) -> None:
    assert health.problem(T, stall_s=STALL_S / 2) == ""
    assert health.problem(T, stall_s=3.21) == "the event loop stood still for 3.2 s"


def test_a_consumer_that_reads_old_records_is_behind_until_it_has_read_all(health: Health) -> None:
    health.waits("work", T)
    health.took("work", T + 1, age_s=BEHIND_S + 7)
    health.waits("work", T + 1.1)
    assert "it is 12 s behind" in health.problem(T + 1.2)
    health.took("work", T + 1.3, age_s=0.01)
    health.waits("work", T + 1.4)
    assert health.problem(T + 1.5) == ""


def test_a_consumer_that_waits_for_records_has_read_all(health: Health) -> None:
    health.took("work", T, age_s=60.0)
    health.waits("work", T + 0.1)
    assert health.problem(T + 0.2)
    assert health.problem(T + 0.2 + IDLE_S) == ""


def test_a_consumer_that_does_not_come_back_from_its_work_falls_behind(health: Health) -> None:
    health.waits("news", T)
    health.took("work", T, age_s=0.0)
    assert health.problem(T + BEHIND_S - 1) == ""
    assert "it is 30 s behind" in health.problem(T + 30)
    assert health.behind_s(T + 30) == 30.0


def test_records_from_a_clock_that_is_ahead_are_not_early(health: Health) -> None:
    health.took("work", T, age_s=-3600.0)
    assert health.behind_s(T + 1) == 1.0


def test_a_backlog_counts_when_it_does_not_go_away(health: Health) -> None:
    for second in range(0, int(BACKLOG_S) + 10, 10):
        health.backlog("events", T + second, BACKLOG_RECORDS)
    assert "events has had more than 10,000 records waiting" in health.problem(T + BACKLOG_S + 1)
    health.backlog("events", T + 100, BACKLOG_RECORDS - 1)
    health.backlog("events", T + 101, BACKLOG_RECORDS)
    assert health.problem(T + 110) == ""
