"""When a reader counts as standing still, told from what checks find, without a Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from mercury.bus.kafka.standstill import (
    CHECK_INTERVAL_S,
    MAX_RENEW_S,
    RENEW_S,
    PartitionId,
    Standstill,
)

T = 1000.0
HERE, THERE = ("t", 0), ("t", 1)


def renewals(
    standstill: Standstill,
    until_s: float,
    waiting: Callable[[int], dict[PartitionId, int]] = lambda check: {},
    has_joined: bool = True,
    begin: float = T,
) -> list[float]:
    """Check at the intervals that it asks for: after what time each new client was due."""
    found = []
    check = 0
    now = begin
    while now <= begin + until_s:
        if standstill.check_due(now):
            if standstill.checked(has_joined, waiting(check), now):
                found.append(now - begin)
            check += 1
        now += 0.5
    return found


def test_a_reader_without_anything_to_read_does_not_stand_still() -> None:
    standstill = Standstill()
    assert renewals(standstill, 600.0) == []
    assert standstill.lasts_s(T + 600.0) == 0.0


def test_a_reader_that_goes_on_does_not_stand_still_however_far_behind_it_is() -> None:
    standstill = Standstill()
    assert renewals(standstill, 600.0, lambda check: {HERE: check, THERE: 5 + check // 2}) == []
    standstill = Standstill()
    assert renewals(standstill, 600.0, lambda check: {HERE: check, THERE: 5 + check}) == []
    assert standstill.lasts_s(T + 600.0) == 0.0


def test_a_group_that_goes_on_without_its_member_gives_it_a_new_client_later_and_later() -> None:
    standstill = Standstill()
    found = renewals(standstill, 600.0, has_joined=False)
    assert RENEW_S <= found[0] < RENEW_S + CHECK_INTERVAL_S
    pauses = [later - sooner for sooner, later in itertools.pairwise(found)]
    assert pauses == sorted(pauses)
    assert MAX_RENEW_S <= pauses[-1] < MAX_RENEW_S + CHECK_INTERVAL_S
    assert standstill.lasts_s(T + 600.0) == 600.0


def test_a_group_that_waits_for_a_member_that_died_is_left_alone() -> None:
    standstill = Standstill()
    assert renewals(standstill, 8.0, has_joined=False) == []
    assert renewals(standstill, 600.0, begin=T + 8.5) == []
    assert standstill.lasts_s(T + 700.0) == 0.0
    # The next time begins anew.
    found = renewals(standstill, RENEW_S + CHECK_INTERVAL_S, has_joined=False, begin=T + 700.0)
    assert len(found) == 1


def test_one_partition_that_stands_still_is_enough() -> None:
    standstill = Standstill()
    found = renewals(standstill, 30.0, lambda check: {HERE: check, THERE: 5})
    assert len(found) == 1
    assert found[0] < RENEW_S + 3 * CHECK_INTERVAL_S


def test_what_even_a_new_client_does_not_get_is_no_record() -> None:
    """The mark at the end of a transaction has an offset, too."""
    standstill = Standstill()
    assert len(renewals(standstill, 600.0, lambda check: {HERE: 5})) == 1
    assert standstill.lasts_s(T + 600.0) == 0.0
    # But it is, where others came meanwhile.
    assert len(renewals(standstill, 600.0, lambda check: {HERE: 6}, begin=T + 601.0)) == 1


def test_while_the_cluster_does_not_answer_nobody_stands_still() -> None:
    standstill = Standstill()
    now = T
    while now < T + 600.0:
        standstill.unknown(now)
        assert not standstill.check_due(now + CHECK_INTERVAL_S - 0.1)
        now += CHECK_INTERVAL_S
    assert renewals(standstill, RENEW_S - 1, has_joined=False, begin=now) == []
    standstill.unknown(now + RENEW_S)
    assert standstill.lasts_s(now + RENEW_S) == 0.0
