"""Encounters without Spark: against brute force, and against the rule that engines follow live."""

from __future__ import annotations

import numpy as np
import pytest
from matching.encounters_world import (
    BEGIN_US,
    SECOND_US,
    Met,
    Report,
    brute_force,
    random_tracks,
    stands_of,
)
from matching.twin import Twin

from mercury.matching import MatchingRules
from mercury.matching.encounters import (
    NEVER_US,
    Contacts,
    EncounterRule,
    Segments,
    contacts,
    encounters,
    merged,
)
from mercury.model.errors import MatchingError
from mercury.model.matching import EventType, NearSubscription, Publication

RULE = EncounterRule(radius_m=50.0, hysteresis_m=20.0, gap_s=30.0)
PLACES = [(45.0, 9.0), (-16.8, 180.0), (0.0, 0.0), (89.9995, 30.0)]


def segments(reports: list[Report], rule: EncounterRule, names: list[str]) -> Segments:
    rows = [
        (names.index(one.client), one.time_us, until_us, one.lat, one.lon)
        for one, until_us in stands_of(reports, rule)
    ]
    who, from_us, until, lat, lon = (np.array(column) for column in zip(*rows, strict=True))
    return Segments(who, from_us, until, lat, lon, np.ones(len(who), bool), np.ones(len(who), bool))


def found(reports: list[Report], rule: EncounterRule, chunk_rows: int = 1000) -> list[Met]:
    names = sorted({one.client for one in reports})
    met = encounters(
        contacts(segments(reports, rule, names), rule, len(names), chunk_rows=chunk_rows), rule
    )
    return sorted(
        Met(names[pair // len(names)], names[pair % len(names)], *rest)
        for pair, *rest in zip(
            met.pair.tolist(), met.from_us.tolist(), met.until_us.tolist(), met.nearest_m.tolist(),
            met.nearest_us.tolist(), met.lat.tolist(), met.lon.tolist(), strict=True,
        )
    )  # fmt: skip


def same(one: list[Met], other: list[Met]) -> None:
    assert [met[:4] for met in one] == [met[:4] for met in other]
    assert [met[5:] for met in one] == [met[5:] for met in other]
    assert [met.nearest_m for met in one] == pytest.approx(
        [met.nearest_m for met in other], abs=0.002
    )


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("middle", PLACES)
def test_as_by_brute_force(middle: tuple[float, float], together: bool) -> None:
    tracks = random_tracks(1, middle=middle, together=together)
    expected = brute_force(tracks, RULE)
    assert len(expected) > 20
    same(found(tracks, RULE), expected)


@pytest.mark.parametrize("hysteresis_m", [0.0, 40.0])
@pytest.mark.parametrize("min_duration_s", [0.0, 8.0])
def test_other_hysteresis_and_durations_agree_with_brute_force(
    hysteresis_m: float, min_duration_s: float
) -> None:
    rule = EncounterRule(35.0, hysteresis_m, min_duration_s, 10.0)
    tracks = random_tracks(7, together=True)
    expected = brute_force(tracks, rule)
    assert len(expected) > 10
    same(found(tracks, rule), expected)


@pytest.mark.parametrize("chunk_rows", [1, 7, 10**6])
def test_however_it_is_divided(chunk_rows: int) -> None:
    tracks = random_tracks(3, together=True)
    assert found(tracks, RULE, chunk_rows) == found(tracks, RULE)


def test_as_a_live_engine_tells_it() -> None:
    """Nobody reports at the instant of another, so the order within instants does not matter."""
    tracks = random_tracks(11)
    twin = Twin(MatchingRules(ttl_s=RULE.gap_s))
    began: dict[tuple[str, str], int] = {}
    expected = []
    # A tick is as exact as it is frequent: there is one at each instant at which one may expire.
    silent: list[tuple[int, Report | None]] = [
        (one.time_us + round(RULE.gap_s * 1e6), None) for one in tracks
    ]
    moved = [(one.time_us, one) for one in tracks]
    for at_us, report in sorted([*moved, *silent], key=lambda one: one[0]):
        twin.tick(at_us)
        if report is not None:
            if report.client not in twin.publications:
                twin.publish(Publication(report.client, "t"), at_us)
                twin.subscribe(
                    NearSubscription(
                        report.client, "t", RULE.radius_m, hysteresis_m=RULE.hysteresis_m
                    ),
                    at_us,
                )
            for side in ("publication", "subscription"):
                twin.move(side, report.client, report.lat, report.lon, at_us)
        for event in twin.notified:
            couple = event.subscription, event.publication
            if event.event_type is EventType.ENTER:
                began[couple] = event.time_us
            elif couple[0] < couple[1]:
                expected.append((*couple, began[couple], event.time_us))
        twin.notified.clear()
    assert len(expected) > 20
    assert [met[:4] for met in found(tracks, RULE)] == sorted(expected)


def test_nobody_meets_where_another_has_just_been() -> None:
    """A convoy 60 m apart moves 60 m at once: at no time is one where the other is."""
    step = 60.0 / 111_195.0
    tracks = [
        Report(name, BEGIN_US + second * SECOND_US, 45.0 + (second + ahead) * step, 9.0)
        for second in range(5)
        for ahead, name in enumerate(("follower", "leader"))
    ]
    assert found(tracks, EncounterRule(50.0, 5.0)) == []
    (met,) = found(tracks, EncounterRule(65.0, 0.0))
    assert met.nearest_m == pytest.approx(60.0, abs=0.01)
    assert (met.until_us - met.from_us) == 64 * SECOND_US


def test_only_those_who_ask() -> None:
    names = [f"car-{number}" for number in range(12)]
    everyone = segments(random_tracks(5), RULE, names)
    asks = names.index("car-7")
    some = everyone._replace(sees=everyone.who == asks, seen=everyone.who != asks)
    one = merged(contacts(some, RULE, 12, mutual=False))
    assert set((one.pair // 12).tolist()) == {asks}
    both = contacts(everyone, RULE, 12)
    his = both.take((both.pair // 12 == asks) | (both.pair % 12 == asks))
    assert sorted(zip(one.from_us, one.until_us, one.near_us, strict=True)) == sorted(
        zip(his.from_us, his.until_us, his.near_us, strict=True)
    )


def test_no_tracks_have_no_encounters() -> None:
    nobody = Segments(*(np.zeros(0, kind) for kind in (int, int, int, float, float, bool, bool)))
    assert len(contacts(nobody, RULE, 0)) == 0
    assert len(encounters(Contacts.none(), RULE)) == 0


def contact(pair: int, from_us: int, until_us: int, near_us: int = NEVER_US) -> Contacts:
    met = near_us != NEVER_US
    return Contacts(
        *(np.array([value]) for value in (pair, from_us, until_us, near_us)),
        *(np.array([value]) for value in (1.0 * near_us if met else np.inf, near_us, 1.0, 2.0)),
    )


def test_contacts_that_overlap_or_touch_are_one() -> None:
    parts = [
        contact(1, 30, 40), contact(1, 0, 20, 5), contact(1, 20, 30, 25), contact(1, 41, 50),
        contact(2, 0, 100, 60), contact(2, 10, 20, 15), contact(2, 30, 40), contact(0, 3, 3),
    ]  # fmt: skip
    one = merged(Contacts.joined(parts))
    assert one.pair.tolist() == [0, 1, 1, 2]
    assert one.from_us.tolist() == [3, 0, 41, 0]
    assert one.until_us.tolist() == [3, 40, 50, 100]
    assert one.near_us.tolist() == [NEVER_US, 5, NEVER_US, 15]
    assert one.nearest_m.tolist() == [np.inf, 5.0, np.inf, 15.0]
    met = encounters(one, EncounterRule())
    assert list(zip(met.pair, met.from_us, met.until_us, strict=True)) == [(1, 5, 40), (2, 15, 100)]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"radius_m": 0.0}, "a radius of 0 m"),
        ({"radius_m": float("nan")}, "a radius of nan m"),
        ({"hysteresis_m": -1.0}, "a hysteresis of -1 m"),
        ({"radius_m": 150e3, "hysteresis_m": 60e3}, "a hysteresis of 60000 m"),
        ({"min_duration_s": -1.0}, "no encounter lasts -1 s"),
        ({"gap_s": 0.0}, "a gap of 0 s"),
    ],
)
def test_what_is_no_rule(rule: dict[str, float], sentence: str) -> None:
    with pytest.raises(MatchingError, match=sentence):
        EncounterRule(**rule)
