"""The lossy link: shares come out, causes combine, and the same seed has the same fate."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.errors import ConfigurationError
from mercury.net import Blackout, DropOff, Link, LinkSettings, OneWay, Outages
from mercury.net.link_settings import PRESETS, parse_link

SEED = 20240607
PACKETS = 20_000

shares = st.floats(0, 1)
places = st.floats(0, 1e5)
drop_offs = st.builds(
    lambda points, smooth: DropOff(tuple(sorted(points)), smooth),
    st.lists(st.tuples(places, shares), min_size=1, max_size=6),
    st.booleans(),
)
times_s = st.floats(0, 10)
positive_s = st.floats(0.01, 100)
settings_of_any_kind = st.builds(
    LinkSettings,
    loss=shares,
    loss_by_range=st.none() | drop_offs,
    loss_by_size=st.none() | drop_offs,
    packets_per_s=st.none() | positive_s,
    bytes_per_s=st.none() | st.floats(1, 1e5),
    burst_s=times_s,
    queue_s=times_s,
    delay_s=times_s,
    jitter_s=times_s,
    duplicate=shares,
    reorder=shares,
    reorder_by_s=times_s,
    blackouts=st.lists(
        st.builds(Blackout, times_s, positive_s, st.none() | st.floats(101, 200)), max_size=2
    ).map(tuple),
    outages=st.none() | st.builds(Outages, positive_s, positive_s, shares),
)
traffic = st.lists(
    st.tuples(st.floats(0, 0.5), st.integers(0, 2000), st.none() | places), max_size=60
)


def one_way(seed: int = SEED, **settings: Any) -> OneWay:
    return OneWay(LinkSettings(**settings), random.Random(seed))


def run(
    way: OneWay,
    packets: int = PACKETS,
    *,
    size: int = 100,
    every_s: float = 0.01,
    range_m: float | None = None,
    begin: float = 1000.0,
) -> list[list[float]]:
    """Send packets at a steady rate; returns how long the copies of each took."""
    took = []
    for number in range(packets):
        now = begin + number * every_s
        took.append([arrival - now for arrival in way.carry(size, now, range_m)])
    return took


def lost(took: list[list[float]]) -> float:
    return sum(not copies for copies in took) / len(took)


def assert_share(share: float, expected: float, of: int = PACKETS) -> None:
    deviation = math.sqrt(expected * (1 - expected) / of)
    assert abs(share - expected) <= 4 * deviation, (share, expected, SEED)


# Loss


def test_a_link_without_settings_carries_everything_at_once() -> None:
    way = one_way()
    assert run(way, 100) == [[0.0]] * 100
    assert (way.statistics.sent, way.statistics.arrived) == (100, 100)
    assert not way.statistics.lost


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.3, 0.9, 1.0])
def test_the_share_of_lost_packets_is_the_loss(loss: float) -> None:
    way = one_way(loss=loss)
    took = run(way)
    assert_share(lost(took), loss)
    assert way.statistics.lost["random"] == sum(not copies for copies in took)
    assert way.statistics.arrived == PACKETS - way.statistics.lost.total()


@pytest.mark.parametrize(
    ("range_m", "expected"),
    [(0, 0), (300, 0), (475, 0.25), (650, 0.5), (1000, 1), (5000, 1), (None, 0)],
)
def test_loss_by_range(range_m: float | None, expected: float) -> None:
    way = one_way(loss_by_range=DropOff.between(300, 1000))
    assert_share(lost(run(way, range_m=range_m)), expected)
    assert set(way.statistics.lost) <= {"range"}


def test_the_range_may_be_set_or_called_for() -> None:
    link = Link(*2 * [LinkSettings(loss_by_range=DropOff.between(100, 100))], random.Random(SEED))
    assert link.carry("up", 10, 0.0) == [0.0]  # unknown
    link.range_m = 101.0
    assert link.carry("up", 10, 0.0) == link.carry("down", 10, 0.0) == []
    assert link.carry("up", 10, 0.0, range_m=100.0) == [0.0]
    link.range_m = iter((100.0, 100.1)).__next__
    assert (link.carry("up", 10, 0.0), link.carry("up", 10, 0.0)) == ([0.0], [])


@pytest.mark.parametrize(("size", "expected"), [(10, 0), (500, 0), (950, 0.1), (1400, 0.2)])
def test_loss_by_size(size: int, expected: float) -> None:
    way = one_way(loss_by_size=DropOff(((500, 0), (1400, 0.2))))
    assert_share(lost(run(way, size=size)), expected)
    assert set(way.statistics.lost) <= {"size"}


def test_causes_combine_as_independent_ones() -> None:
    way = one_way(loss=0.3, loss_by_range=DropOff(((0, 0.5),)), loss_by_size=DropOff(((0, 0.2),)))
    assert_share(lost(run(way, range_m=1.0)), 1 - 0.7 * 0.5 * 0.8)
    assert_share(way.statistics.lost["range"] / PACKETS, 0.5)
    assert_share(way.statistics.lost["size"] / PACKETS, 0.5 * 0.2)
    assert_share(way.statistics.lost["random"] / PACKETS, 0.5 * 0.8 * 0.3)


def test_losses_have_no_memory() -> None:
    fate = [not copies for copies in run(one_way(loss=0.3))]
    both = sum(one and next_one for one, next_one in pairwise(fate))
    assert_share(both / PACKETS, 0.09)


@given(less=shares, more=shares, seed=st.integers(0, 2**32))
def test_more_loss_loses_the_same_packets_and_further_ones(
    less: float, more: float, seed: int
) -> None:
    less, more = sorted((less, more))
    rest = {"jitter_s": 0.1, "duplicate": 0.2, "reorder": 0.3}
    better = run(one_way(seed, loss=less, **rest), 50)
    worse = run(one_way(seed, loss=more, **rest), 50)
    assert all(not bad or bad == good for good, bad in zip(better, worse, strict=True))


# Drop-off


def test_points_are_joined_by_lines() -> None:
    curve = DropOff(((100, 0.1), (200, 0.3), (400, 1.0)))
    assert [curve(at) for at in (0, 100, 150, 200, 300, 400, math.inf)] == pytest.approx(
        [0.1, 0.1, 0.2, 0.3, 0.65, 1.0, 1.0]
    )


def test_two_points_at_one_place_are_a_step() -> None:
    curve = DropOff.between(1000, 1000)
    assert [curve(at) for at in (0, 1000, 1000.1)] == [0, 0, 1]


def test_a_smooth_drop_off_sets_in_gently() -> None:
    line, smooth = DropOff.between(0, 1), DropOff.between(0, 1, smooth=True)
    assert [smooth(at) for at in (0, 0.5, 1)] == [0, 0.5, 1]
    assert smooth(0.1) < line(0.1)
    assert smooth(0.9) > line(0.9)


@given(curve=drop_offs, at=places)
def test_a_drop_off_stays_between_its_points(curve: DropOff, at: float) -> None:
    losses = [loss for _, loss in curve.points]
    assert min(losses) - 1e-9 <= curve(at) <= max(losses) + 1e-9


@given(safe=places, width=places, smooth=st.booleans(), at=st.lists(places, min_size=2))
def test_farther_is_never_better(safe: float, width: float, smooth: bool, at: list[float]) -> None:
    curve = DropOff.between(safe, safe + width, smooth=smooth)
    losses = [curve(one) for one in sorted(at)]
    assert losses == sorted(losses)


# Rate


@pytest.mark.parametrize("sent_per_s", [5, 10, 20, 100])
def test_above_its_capacity_the_surplus_is_lost(sent_per_s: int) -> None:
    way = one_way(packets_per_s=10, burst_s=0.5)
    took = run(way, 100 * sent_per_s, every_s=1 / sent_per_s)
    arrived = sum(map(len, took))
    assert arrived == pytest.approx(min(sent_per_s, 10) * 100, abs=7)
    assert way.statistics.lost.total() == way.statistics.lost["rate"]
    assert all(copies in ([], [0.0]) for copies in took)


def test_capacity_in_bytes() -> None:
    way = one_way(bytes_per_s=1000)
    assert sum(map(len, run(way, 2000, size=50, every_s=0.1))) == 2000  # 500 bytes a second
    way = one_way(bytes_per_s=1000)
    arrived = sum(map(len, run(way, 2000, size=400, every_s=0.1)))  # 4000 bytes a second
    assert arrived == pytest.approx(2000 / 4, abs=5)


def test_both_capacities_hold_apart() -> None:
    """Many small and few large packets: neither limit is reached, so nothing is lost."""
    way = one_way(packets_per_s=10, bytes_per_s=1000, burst_s=0.3)
    for number in range(500):
        assert way.carry(180 if number % 2 else 10, number * 0.101)


def test_after_a_pause_a_burst_passes() -> None:
    way = one_way(packets_per_s=10, burst_s=1.0)
    assert [len(way.carry(1, 0.0)) for _ in range(20)] == [1] * 11 + [0] * 9
    assert [len(way.carry(1, 60.0)) for _ in range(20)] == [1] * 11 + [0] * 9


def test_after_a_pause_a_burst_of_bytes_passes_and_no_more() -> None:
    way = one_way(bytes_per_s=1000, burst_s=1.0)
    for now in (0.0, 3600.0):
        assert [len(way.carry(100, now)) for _ in range(20)] == [1] * 11 + [0] * 9


def test_a_queue_delays_before_it_loses_and_keeps_the_order() -> None:
    way = one_way(packets_per_s=10, burst_s=0.0, queue_s=0.5)
    took = [way.carry(1, 0.0) for _ in range(8)]
    assert [one for copies in took for one in copies] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert way.statistics.lost == {"rate": 2}
    assert way.carry(1, 0.2) == [pytest.approx(0.6)]


def test_what_comes_just_in_time_is_in_time() -> None:
    way = one_way(packets_per_s=10, burst_s=0.0)
    assert lost(run(way, 5000, every_s=0.1)) == 0


# Time, copies, order


def test_delay_and_jitter() -> None:
    took = [one for [one] in run(one_way(delay_s=0.05, jitter_s=0.02))]
    assert 0.05 <= min(took) < 0.0502
    assert 0.0698 < max(took) < 0.07
    assert sum(took) / PACKETS == pytest.approx(0.06, abs=0.0002)


def arrivals(way: OneWay, packets: int = 2000, every_s: float = 0.01) -> list[list[float]]:
    return [way.carry(100, number * every_s) for number in range(packets)]


def test_jitter_reorders_unless_order_is_kept() -> None:
    free = [first for first, *_ in arrivals(one_way(jitter_s=0.1))]
    assert free != sorted(free)
    kept = [first for first, *_ in arrivals(one_way(jitter_s=0.1, keep_order=True))]
    assert kept == sorted(kept)
    assert all(late >= early for early, late in zip(free, kept, strict=True))


def test_a_kept_order_holds_for_copies_too() -> None:
    way = one_way(jitter_s=0.1, keep_order=True, duplicate=0.3, loss=0.2)
    all_of_them = [one for copies in arrivals(way) for one in copies]
    assert all_of_them == sorted(all_of_them)


def test_duplicates_come_out_and_are_in_order() -> None:
    way = one_way(duplicate=0.1, jitter_s=0.05)
    took = run(way)
    assert_share(sum(len(copies) == 2 for copies in took) / PACKETS, 0.1)
    assert all(copies == sorted(copies) for copies in took)
    assert way.statistics.duplicated == way.statistics.arrived - PACKETS
    assert any(len(set(copies)) == 2 for copies in took)


def test_reordered_ones_are_held_up() -> None:
    way = one_way(reorder=0.1, reorder_by_s=0.25, delay_s=0.1)
    took = [one for [one] in run(way)]
    held_up = sum(one == pytest.approx(0.35) for one in took)
    assert_share(held_up / PACKETS, 0.1)
    assert way.statistics.reordered == held_up
    assert all(one == pytest.approx(0.1) or one == pytest.approx(0.35) for one in took)


# Blackouts


def test_fixed_blackouts_count_from_the_begin() -> None:
    way = one_way(blackouts=(Blackout(2.0, 1.0), Blackout(5.0, 0.5, every_s=2.0)))
    way.begin(100.0)
    dark = {now / 10 for now in range(0, 100, 1) if not way.carry(1, 100 + now / 10 + 0.01)}
    expected = {now / 10 for start, end in ((20, 30), (50, 55), (70, 75), (90, 95))
                for now in range(start, end)}  # fmt: skip
    assert dark == expected
    assert way.statistics.lost == {"blackout": len(expected)}


def test_without_a_begin_they_count_from_the_first_packet_of_either_direction() -> None:
    settings = LinkSettings(blackouts=(Blackout(1.0, 1.0),))
    link = Link(settings, settings, random.Random(SEED))
    assert link.carry("up", 1, 500.0)
    assert link.carry("down", 1, 500.9)
    assert not link.carry("down", 1, 501.0)
    assert link.carry("down", 1, 502.0)


def test_random_outages_last_as_long_as_they_should() -> None:
    way = one_way(outages=Outages(mean_up_s=3.0, mean_down_s=1.0))
    took = run(way, 400_000, every_s=0.05)  # some 5,000 outages
    assert lost(took) == pytest.approx(0.25, abs=0.015)
    changes = sum(bool(a) and not b for a, b in pairwise(took))
    # Outages shorter than the time between packets may go unseen.
    assert changes == pytest.approx(5000, rel=0.06)


def test_an_outage_may_lose_less_than_all() -> None:
    """Gilbert and Elliott: errors come in bursts."""
    way = one_way(outages=Outages(1.0, 1.0, loss=0.8))
    took = run(way, 100_000, every_s=0.02)
    assert lost(took) == pytest.approx(0.4, abs=0.02)
    fate = [not copies for copies in took]
    after_a_loss = [later for earlier, later in pairwise(fate) if earlier]
    assert sum(after_a_loss) / len(after_a_loss) > 0.7


def test_outages_do_not_depend_on_traffic() -> None:
    outages = Outages(0.5, 0.5)

    def dark(packets_each: int) -> list[bool]:
        way = one_way(outages=outages, loss=0.0)
        way.begin(0.0)
        fates = [[way.carry(1, n / 10) for _ in range(packets_each)] for n in range(200)]
        return [not first for first, *_ in fates]

    assert dark(1) == dark(3)
    assert 50 < sum(dark(1)) < 150


def test_the_same_outages_befall_both_directions() -> None:
    settings = LinkSettings(outages=Outages(0.5, 0.5))
    link = Link(settings, settings, random.Random(SEED))
    for number in range(1000):
        up = link.carry("up", 1, number / 10) if number % 7 else None
        down = link.carry("down", 1, number / 10)
        assert up is None or bool(up) == bool(down)
    assert 300 < link.down.statistics.lost["blackout"] < 700


def test_years_of_silence_cost_nothing() -> None:
    bad = 0
    for seed in range(2000):
        way = one_way(seed, outages=Outages(0.003, 0.001))
        way.begin(0.0)
        bad += not way.carry(1, 3e8)  # 75 thousand million outages later
    assert_share(bad / 2000, 0.25, 2000)


# Both directions, seeds


def test_directions_differ() -> None:
    link = Link(LinkSettings(loss=0.5), LinkSettings(delay_s=0.2), random.Random(SEED))
    up = [link.carry("up", 1, 0.0) for _ in range(PACKETS)]
    down = [link.carry("down", 1, 0.0) for _ in range(PACKETS)]
    assert_share(lost(up), 0.5)
    assert down == [[0.2]] * PACKETS
    assert link.statistics["up"].lost["random"] == link.up.statistics.lost.total() > 0
    assert not link.statistics["down"].lost


def test_what_goes_up_does_not_change_what_comes_down() -> None:
    def down(up_packets: int) -> list[list[float]]:
        link = Link(*2 * [LinkSettings(loss=0.5, jitter_s=1.0)], random.Random(SEED))
        for _ in range(up_packets):
            link.carry("up", 1, 0.0)
        return [link.carry("down", 1, 0.0) for _ in range(100)]

    assert down(0) == down(17)


@given(settings=settings_of_any_kind, packets=traffic, seed=st.integers(0, 2**32))
def test_same_seed_same_fate_and_nothing_gets_lost_uncounted(
    settings: LinkSettings, packets: list[tuple[float, int, float | None]], seed: int
) -> None:
    first, again = (OneWay(settings, random.Random(seed)) for _ in range(2))
    now = 10.0
    for pause_s, size, range_m in packets:
        now += pause_s
        copies = first.carry(size, now, range_m)
        assert copies == again.carry(size, now, range_m)
        assert len(copies) <= 2
        assert copies == sorted(copies)
        latest = settings.queue_s + settings.delay_s + settings.jitter_s + settings.reorder_by_s
        assert all(now + settings.delay_s <= one <= now + latest + 1e-6 for one in copies)
    seen = first.statistics
    assert seen == again.statistics
    assert seen.sent == len(packets)
    assert seen.sent == seen.arrived - seen.duplicated + seen.lost.total()


def test_other_seed_other_fate() -> None:
    settings = {"loss": 0.5, "jitter_s": 1.0}
    assert run(one_way(1, **settings), 50) != run(one_way(2, **settings), 50)


# Statistics


def test_statistics_add_up_and_are_told() -> None:
    link = Link(LinkSettings(loss=1.0), LinkSettings(), random.Random(SEED))
    for _ in range(3):
        link.carry("up", 1, 0.0)
        link.carry("down", 1, 0.0)
    total = link.up.statistics
    total.add(link.down.statistics)
    assert total.to_json() == {
        "sent": 6, "arrived": 3, "duplicated": 0, "reordered": 0, "lost": {"random": 3},
    }  # fmt: skip
    assert total.phrase() == "50.0 % of 6 packets (random 3)"
    assert link.down.statistics.phrase() == "none of 3 packets"


# What cannot be


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"loss": 1.1}, "loss is a share between 0 and 1, not 1.1"),
        ({"duplicate": -0.1}, "duplicate is a share"),
        ({"reorder": math.nan}, "reorder is a share"),
        ({"delay_s": -1}, "delay_s is not negative"),
        ({"jitter_s": math.inf}, "jitter_s is not negative and has an end"),
        ({"packets_per_s": 0}, "packets_per_s is above 0"),
        ({"bytes_per_s": math.nan}, "bytes_per_s is above 0"),
        ({"keep_order": True, "reorder": 0.1}, "keeps the order cannot reorder"),
        ({"blackouts": (Blackout(1, 0),)}, "the length of a blackout is above 0"),
        ({"blackouts": (Blackout(1, 5, 5),)}, "a blackout of 5 s every 5 s never ends"),
        ({"outages": Outages(0, 1)}, "the mean time up is above 0"),
        ({"outages": Outages(1, 1, 2)}, "the loss in an outage is a share"),
    ],
)
def test_impossible_links_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        LinkSettings(**settings)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ((), "at least one point"),
        (((2, 0), (1, 1)), "not negative and rise"),
        (((-1, 0),), "not negative and rise"),
        (((math.nan, 0), (1, 0)), "not negative and rise"),
        (((1, 2),), "the loss of a drop-off is a share"),
    ],
)
def test_impossible_drop_offs_are_refused(points: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        DropOff(points)


def test_a_drop_off_does_not_end_before_it_begins() -> None:
    with pytest.raises(ConfigurationError, match="cannot begin at 2 and end at 1"):
        DropOff.between(2, 1)


@pytest.mark.parametrize("name", PRESETS)
def test_a_vehicle_at_work_gets_through_on_every_preset(name: str) -> None:
    """A report of 120 bytes every second, 50 m from the antenna: most of them arrive."""
    link = Link(*parse_link(name), random.Random(SEED))
    link.range_m = 50.0
    arrived = sum(bool(link.carry("up", 120, float(now))) for now in range(2000))
    assert 0.45 < arrived / 2000 <= 1.0
    assert (arrived == 2000) == (name == "perfect")
