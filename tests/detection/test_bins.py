"""The bins of one kind, case by case."""

from __future__ import annotations

import itertools
import math

import pytest
from detection.observations import CITY, ORIGINS, S, at, check_bins, crowd, observation, run

from mercury.detection import DEFAULT_RULES, KindBins, KindRule
from mercury.geo import geodesic_m, haversine_m
from mercury.model.area import Circle
from mercury.model.identity import derived_id

AT_ONCE = KindRule("collision", "count >= 3", memory_s=60.0, validity_s=120.0, lateness_s=5.0)
EVERY_10_S = KindRule("obstacle", "count >= 2", every_s=10.0, validity_s=30.0, lateness_s=2.0)


def test_the_third_vehicle_makes_it_true() -> None:
    bins = KindBins(AT_ONCE)
    first, second, third = (observation(10 + i, i, north_m=20.0 * i) for i in range(3))
    assert bins.add([first]) == bins.add([second]) == []
    (verdict,) = bins.add([third])
    assert verdict.kind == "collision"
    assert verdict.alert_id == derived_id(first.id, "alert 1")
    assert verdict.incident_id == derived_id(first.id, "incident")
    assert (verdict.since_us, verdict.at_us, verdict.until_us) == (10 * S, 12 * S, 132 * S)
    assert verdict.count == 3
    assert float(haversine_m(verdict.centre.lat, verdict.centre.lon, *at(CITY, 20, 0))) < 0.01
    assert verdict.radius_m == pytest.approx(20.0, abs=0.01)
    assert isinstance(verdict.area.shape, Circle)
    assert verdict.area.shape.radius_m == pytest.approx(320.0, abs=0.01)
    assert verdict.area.valid_until_us == 132 * S
    event = verdict.event()
    assert (event.kind, event.position, event.values["count"]) == ("collision", verdict.centre, 3)
    check_bins(bins)


def test_one_vehicle_counts_once_and_its_newest_place_stands_for_it() -> None:
    bins = KindBins(AT_ONCE)
    for i in range(10):
        assert bins.add([observation(i, "lonely", north_m=5.0 * i)]) == []
    (condition,) = bins.conditions()
    assert (condition.count, condition.values["reports"]) == (1, 10)
    assert condition.radius_m < 0.001
    assert float(haversine_m(condition.centre.lat, condition.centre.lon, *at(CITY, 45, 0))) < 0.01
    assert bins.counters.repeated == 9


def test_the_same_observation_again_changes_nothing() -> None:
    bins = KindBins(AT_ONCE)
    one = observation(1, 1)
    bins.add([one, one])
    bins.add([one])
    (condition,) = bins.conditions()
    assert condition.values["reports"] == 1
    assert bins.counters.duplicate == 2


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("rule", [AT_ONCE, EVERY_10_S], ids=["at once", "every 10 s"])
def test_one_incident_is_one_alert_wherever_it_lies(
    rule: KindRule, origin: tuple[float, float]
) -> None:
    bins = KindBins(rule)
    verdicts = run(bins, [crowd(1, 20, (0.0, 0.0), 70.0, 1.0, origin)])
    verdicts += bins.advance(20 * S)
    (verdict,) = verdicts
    distance_m = geodesic_m(verdict.centre.lat, verdict.centre.lon, *origin)
    assert float(distance_m) < 70.0
    if rule is EVERY_10_S:
        assert verdict.count == 20
        assert 35.0 < verdict.radius_m < 140.0


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("bearing_deg", range(0, 360, 45))
@pytest.mark.parametrize("rule", DEFAULT_RULES.values(), ids=list(DEFAULT_RULES))
def test_two_incidents_500_m_apart_are_two(
    rule: KindRule, bearing_deg: int, origin: tuple[float, float]
) -> None:
    turn = math.radians(bearing_deg)
    there = (500.0 * math.cos(turn), 500.0 * math.sin(turn))
    both = crowd(1, 8, (0.0, 0.0), 50.0, 1.0, origin) + crowd(2, 8, there, 50.0, 1.0, origin)
    bins = KindBins(rule)
    verdicts = run(bins, [both]) + bins.advance(100 * S)
    assert len(verdicts) == 2
    assert len({verdict.incident_id for verdict in verdicts}) == 2


def test_bins_that_come_within_reach_become_one() -> None:
    bins = KindBins(AT_ONCE)
    run(bins, [[observation(0, 1, north_m=0)], [observation(1, 2, north_m=160)]])
    assert len(bins.bins) == 2
    (verdict,) = run(bins, [[observation(2, 3, north_m=75)]])
    assert (len(bins.bins), bins.counters.merged, verdict.count) == (1, 1, 3)
    assert verdict.alert_id == derived_id(observation(0, 1, north_m=0).id, "alert 1")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_who_comes_first_in_one_instant_does_not_decide(order: tuple[int, ...]) -> None:
    places_m = [0.0, 160.0, 75.0]
    bins = KindBins(EVERY_10_S)
    for number, who in enumerate(order):  # ids say in which order they are taken
        bins.add([observation(1, who, north_m=places_m[who], number=number)])
    (verdict,) = bins.advance(12 * S)
    assert verdict.count == 3


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_instant_may_arrive_in_pieces_and_in_any_order(order: tuple[int, ...]) -> None:
    """Which two of three in a row are one bin depends on who is taken first: the lowest id."""
    rule = KindRule("x", "count >= 2", every_s=10.0, lateness_s=0.0)
    row = [observation(1, who, north_m=110.0 * who, number=who) for who in range(3)]
    bins = KindBins(rule)
    for who in order:
        bins.add([row[who]])
    (verdict,) = bins.advance(10 * S)
    assert float(haversine_m(verdict.centre.lat, verdict.centre.lon, *at(CITY, 55, 0))) < 0.5


def test_verdicts_of_one_interval_come_in_the_order_of_their_first_observations() -> None:
    bins = KindBins(EVERY_10_S)
    for time_s, place_m in [(1, 0.0), (2, 900.0), (3, 900.0), (4, 0.0)]:
        bins.add([observation(time_s, time_s, north_m=place_m)])
    assert [verdict.since_us for verdict in bins.advance(20 * S)] == [1 * S, 2 * S]


def test_it_is_told_once_while_the_alert_holds_and_again_after() -> None:
    bins = KindBins(AT_ONCE)
    stream = [observation(i, i) for i in range(300)]
    verdicts = run(bins, [[one] for one in stream])
    assert [verdict.at_us // S for verdict in verdicts] == [2, 122, 242]
    assert [v.alert_id for v in verdicts] == [
        derived_id(stream[0].id, f"alert {n}") for n in (1, 2, 3)
    ]
    assert {v.incident_id for v in verdicts} == {derived_id(stream[0].id, "incident")}
    assert (bins.counters.alerted, bins.counters.continued) == (3, 295)


def test_every_interval_judges_anew_but_tells_once_while_the_alert_holds() -> None:
    bins = KindBins(EVERY_10_S)
    verdicts = run(bins, [[observation(i, i, north_m=i)] for i in range(100)])
    assert [verdict.at_us // S for verdict in verdicts] == [10, 40, 70]
    assert all(verdict.count == 10 for verdict in verdicts)
    assert len({verdict.alert_id for verdict in verdicts}) == 3
    assert bins.counters.continued == 6


def test_the_alert_follows_what_it_told_of() -> None:
    # 10 m/s for 100 s: at the end 1 km from where it was told first, yet one incident.
    bins = KindBins(
        KindRule("moving-object", "count >= 2", every_s=5.0, validity_s=600.0, lateness_s=0.0)
    )
    verdicts = run(bins, [[observation(i, i, north_m=10.0 * i)] for i in range(100)])
    assert len(verdicts) == 1
    other = run(
        bins, [[observation(101, "x"), observation(101, "y")], [observation(106, "z", 900)]]
    )
    assert len(other) == 1  # back at the first place, nothing holds any more


def test_intervals_are_aligned_to_the_epoch() -> None:
    bins = KindBins(EVERY_10_S)
    bins.add([observation(9.9, 1), observation(10.0, 2)])  # one on each side of the border
    assert bins.advance(100 * S) == []
    bins.add([observation(1009.8, 1), observation(1009.9, 2)])
    assert bins.due_us == 1012 * S
    assert bins.advance(1012 * S - 1) == []
    (verdict,) = bins.advance(1012 * S)
    assert verdict.at_us == 1010 * S
    assert len(bins.bins) == 0
    assert bins.due_us is None


def test_stragglers_count_in_their_interval_until_it_is_judged() -> None:
    bins = KindBins(EVERY_10_S)
    bins.add([observation(9.0, 1)])
    bins.add([observation(11.9, 2)])
    (verdict,) = run(bins, [[observation(8.0, 3)], [observation(12.0, 4)]])
    assert verdict.alert_id == derived_id(observation(8.0, 3).id, "alert 1")
    assert bins.add([observation(9.5, 5)]) == []
    assert bins.counters.late == 1


def test_a_straggler_counts_at_once_and_what_is_too_late_is_only_counted() -> None:
    bins = KindBins(AT_ONCE)
    bins.add([observation(100, 1), observation(100, 2)])
    assert bins.add([observation(94.9, 3)]) == []
    assert bins.counters.late == 1
    (verdict,) = bins.add([observation(95.0, 4)])
    assert (verdict.at_us, verdict.since_us) == (100 * S, 95 * S)
    check_bins(bins)


def test_a_silent_bin_is_emptied() -> None:
    bins = KindBins(AT_ONCE)
    bins.add([observation(0, 1), observation(0, 2)])
    assert bins.add([observation(60.1, 3)]) == []
    assert [condition.count for condition in bins.conditions()] == [1]
    bins.add([observation(120.1, 4)])  # just in time
    assert [condition.count for condition in bins.conditions()] == [2]
    bins.advance(181 * S)
    assert bins.conditions() == []


def test_conditions_say_what_is_going_on_whether_told_or_not() -> None:
    bins = KindBins(AT_ONCE)
    bins.add([observation(5, 1, speed_mps=4.0, heading_deg=350.0)])
    bins.add([observation(6, 2, 30.0, speed_mps=8.0, heading_deg=10.0)])
    (condition,) = bins.conditions()
    assert (condition.since_us, condition.at_us, condition.until_us) == (5 * S, 6 * S, 66 * S)
    values = condition.values
    assert {key: round(float(value), 2) for key, value in values.items()} == {
        "count": 2, "reports": 2, "spread_m": 15.0, "speed_mps": 6.0, "slowest_mps": 4.0,
        "fastest_mps": 8.0, "heading_deg": 0.0, "alignment": 0.98, "duration_s": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("predicate", "alerted"),
    [
        ("speed_mps < 7", True), ("speed_mps < 5", False), ("slowest_mps == 4", True),
        ("fastest_mps > 7", True), ("spread_m < 16 and spread_m > 14", True),
        ("duration_s >= 1", True), ("reports >= 3", False), ("alignment > 0.9", True),
        ("not speed_mps exists", False),
    ],
)  # fmt: skip
def test_predicates_ask_for_measures(predicate: str, alerted: bool) -> None:
    bins = KindBins(KindRule("x", f"count >= 2 and {predicate}"))
    first = observation(5, 1, speed_mps=4.0, heading_deg=350.0)
    second = observation(6, 2, 30.0, speed_mps=8.0, heading_deg=10.0)
    assert bool(bins.add([first, second])) is alerted


def test_without_a_speed_there_is_no_mean_speed() -> None:
    bins = KindBins(KindRule("x", "count >= 1 and speed_mps >= 0"))
    assert bins.add([observation(1, 1)]) == []
    assert "speed_mps" not in bins.conditions()[0].values


def test_memory_is_bounded_and_what_has_no_room_is_counted() -> None:
    bins = KindBins(AT_ONCE, max_bins=3, max_reporters=2)
    run(bins, [[observation(0, i, north_m=1000.0 * i) for i in range(5)]])
    assert (len(bins.bins), bins.counters.dropped) == (3, 2)
    run(bins, [[observation(1, f"more-{i}") for i in range(5)]])
    assert bins.counters.dropped == 2 + 4
    run(bins, [[observation(100, i, north_m=1000.0 * i) for i in range(5, 8)]])  # room again
    assert (len(bins.bins), bins.counters.dropped) == (3, 6)


def test_alerts_in_force_are_bounded_too() -> None:
    bins = KindBins(KindRule("x", "count >= 1", memory_s=1.0, validity_s=1000.0), max_bins=3)
    verdicts = run(bins, [[observation(2.0 * i, i, north_m=1000.0 * i)] for i in range(5)])
    assert (len(verdicts), len(set(bins.alerts)), bins.counters.forgotten) == (5, 3, 2)


@pytest.mark.parametrize(
    "broken",
    [
        {"lat": math.nan}, {"lat": 90.1}, {"lon": -180.1}, {"lon": math.inf},
        {"time_us": -1}, {"time_us": 2**62},
    ],
)  # fmt: skip
@pytest.mark.parametrize("rule", [AT_ONCE, EVERY_10_S], ids=["at once", "every 10 s"])
def test_what_cannot_be_is_counted_and_left_out(rule: KindRule, broken: dict[str, float]) -> None:
    bins = KindBins(rule)
    assert bins.add([observation(1, 1)._replace(**broken)]) == []  # type: ignore[arg-type]
    assert (bins.counters.observed, bins.counters.malformed, len(bins.bins)) == (1, 1, 0)
    assert bins.newest_us == 0
