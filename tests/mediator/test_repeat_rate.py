"""Repeats give way where they are in vain: alone, and on a link that all share."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest
from mediator.invariants import check_outgoing

from mercury.mediator import CRITICAL, Outgoing
from mercury.mediator.policy import RepeatRateLimiter
from mercury.net.link import OneWay
from mercury.net.link_settings import LinkSettings


def test_repeats_that_are_answered_keep_their_pace() -> None:
    repeat_rate = RepeatRateLimiter(100.0)
    for tenth in range(100):
        for _ in range(repeat_rate.take(10, tenth / 10)):
            repeat_rate.answered()
    assert repeat_rate.per_s == 100.0


def test_repeats_in_vain_slow_down_and_recover() -> None:
    repeat_rate = RepeatRateLimiter(100.0)
    taken = [repeat_rate.take(1000, second / 10) for second in range(100)]
    assert sum(taken[:10]) > 90
    assert repeat_rate.per_s < 5.0
    assert sum(taken[-10:]) > 0  # something always goes on
    now = 10.0
    while repeat_rate.per_s < 100.0:
        now += 0.1
        for _ in range(repeat_rate.take(1000, now)):
            repeat_rate.answered()
        assert now < 40.0
    assert repeat_rate.take(0, now) == 0


def test_no_more_than_allowed_goes_out_at_once() -> None:
    repeat_rate = RepeatRateLimiter(100.0)
    assert repeat_rate.take(1000, 0.0) == 10
    assert repeat_rate.take(1000, 0.0) == 0
    assert repeat_rate.next_s() == pytest.approx(0.01)
    assert repeat_rate.take(1000, 0.05) == 5


def tell_over_a_full_link(clients: int, resends_per_s: float) -> tuple[int, float]:
    """One alert to many over a link that carries 200 packets a second; sends and seconds."""
    outgoing = Outgoing(random.Random(1), resends_per_s=resends_per_s)
    down = OneWay(LinkSettings(packets_per_s=200.0, burst_s=0.1), random.Random(2))
    names = [f"car-{number}" for number in range(clients)]
    peers = np.array([outgoing.peers.number(name) for name in names], np.int32)
    outgoing.peers.present[peers] = True
    outgoing.post("alert", "x", peers, 0.0, policy=CRITICAL, expires=600.0)
    arrivals: list[tuple[float, int]] = []
    now, sends = 0.0, 0
    while outgoing.waiting:
        for dispatch, due in outgoing.due(now):
            outgoing.sent(dispatch, due, now)
            sends += len(due)
            for peer in due.tolist():
                for at in down.carry(100, now):
                    heapq.heappush(arrivals, (at + 0.02, peer))
        times = [time for time in (outgoing.next_timer(),) if time is not None]
        times += [arrivals[0][0]] if arrivals else []
        now = max(min(times), now)
        while arrivals and arrivals[0][0] <= now:
            outgoing.acknowledged(heapq.heappop(arrivals)[1], "alert", now)
    check_outgoing(outgoing)
    assert np.all(outgoing.get("alert").state == 1)  # type: ignore[union-attr]
    return sends, now


def test_a_thousand_that_lose_the_same_alert_are_told_without_a_storm() -> None:
    paced, paced_s = tell_over_a_full_link(1000, 500.0)
    stormy, stormy_s = tell_over_a_full_link(1000, 1e6)
    assert paced < stormy / 1.5, (paced, stormy)
    assert paced_s < stormy_s, (paced_s, stormy_s)
