"""What holds of all streams: how they are cut, stored and shuffled does not decide."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from detection.observations import (
    CITY,
    S,
    check_bins,
    crowd,
    cut,
    naive_verdicts,
    observation,
    run,
    run_storing,
    streams,
)
from hypothesis import given
from hypothesis import strategies as st

from mercury.detection import KindBins, KindRule, Observation, restore_bins, snapshot_bins
from mercury.model.errors import SnapshotError
from mercury.model.identity import derived_id

AT_ONCE = KindRule("x", "count >= 3", memory_s=12.0, validity_s=9.0, lateness_s=0.0)
EVERY_5_S = KindRule("x", "count >= 2", every_s=5.0, validity_s=12.0, lateness_s=3.0)
BY_SPEED = KindRule(
    "x", "count >= 2 and speed_mps < 10 and spread_m < 200", memory_s=20.0, validity_s=4.0
)
RULES = [AT_ONCE, EVERY_5_S, BY_SPEED]
END_US = 90 * S
rules = st.sampled_from(RULES)
cuts = st.lists(st.integers(0, 1000), max_size=12)


@given(rules, streams(), cuts)
def test_any_cut_into_batches_gives_the_same(
    rule: KindRule, stream: list[Observation], places: list[int]
) -> None:
    whole, parts = KindBins(rule), KindBins(rule)
    assert run(parts, cut(stream, places)) == run(whole, [stream])
    assert parts.advance(END_US) == whole.advance(END_US)
    assert parts.conditions() == whole.conditions()
    assert parts.counters == whole.counters
    assert snapshot_bins(parts) == snapshot_bins(whole)


@given(rules, streams(), cuts)
def test_storing_the_state_between_batches_changes_nothing(
    rule: KindRule, stream: list[Observation], places: list[int]
) -> None:
    batches = cut(stream, places)
    kept = KindBins(rule)
    assert run_storing(rule, batches) == (run(kept, batches), snapshot_bins(kept))


@given(rules, streams(), cuts)
def test_saying_how_late_it_is_does_not_decide(
    rule: KindRule, stream: list[Observation], places: list[int]
) -> None:
    silent, alerted = KindBins(rule), KindBins(rule)
    expected = run(silent, [stream]) + silent.advance(END_US)
    verdicts = []
    for batch in cut(stream, places):
        if batch:
            verdicts += alerted.advance(batch[0].time_us)  # all earlier ones have come
        verdicts += run(alerted, [batch])
    assert verdicts + alerted.advance(END_US) == expected


@given(rules, streams(), st.randoms(use_true_random=False))
def test_the_order_within_a_batch_does_not_decide(
    rule: KindRule, stream: list[Observation], rng: random.Random
) -> None:
    shuffled = list(stream)
    rng.shuffle(shuffled)
    assert run(KindBins(rule), [shuffled]) == run(KindBins(rule), [stream])


@given(streams(), cuts, st.randoms(use_true_random=False))
def test_disorder_within_the_lateness_does_not_decide(
    stream: list[Observation], places: list[int], rng: random.Random
) -> None:
    arrivals = sorted(stream, key=lambda one: one.time_us + rng.randrange(3 * S))
    disordered, ordered = KindBins(EVERY_5_S), KindBins(EVERY_5_S)
    verdicts = run(disordered, cut(arrivals, places)) + disordered.advance(END_US)
    assert verdicts == run(ordered, [stream]) + ordered.advance(END_US)
    assert disordered.counters.late == 0


@given(st.sampled_from([(AT_ONCE, 3), (EVERY_5_S, 2)]), streams())
def test_agrees_with_the_obvious_way(case: tuple[KindRule, int], stream: list[Observation]) -> None:
    rule, least = case
    bins = KindBins(rule)
    verdicts = run(bins, [stream]) + bins.advance(END_US)
    expected = naive_verdicts(rule, least, stream, END_US)
    assert [(v.at_us, v.count, v.since_us) for v in verdicts] == [
        (at_us, count, first.time_us) for at_us, count, first in expected
    ]
    if rule.every_s:
        first_ids = [derived_id(first.id, "alert 1") for _, _, first in expected]
        assert [v.alert_id for v in verdicts] == first_ids


@given(rules, streams(largest=15), st.data())
def test_what_comes_twice_is_judged_once(
    rule: KindRule, stream: list[Observation], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(stream), max_size=5)) if stream else []
    once, twice = KindBins(rule), KindBins(rule)
    expected = [v.alert_id for v in run(once, [stream]) + once.advance(END_US)]
    found = [v.alert_id for v in run(twice, [sorted(stream + again)]) + twice.advance(END_US)]
    assert found == expected


@given(st.permutations(range(4)), st.integers(0, 100), st.sampled_from(RULES[:2]))
def test_which_of_equal_incidents_comes_first_does_not_decide(
    order: list[int], seed: int, rule: KindRule
) -> None:
    """Four crowds, each narrower than the reach: one bin each, whoever is taken first."""
    places = [(0.0, 0.0), (0.0, 450.0), (450.0, 0.0), (450.0, 450.0)]
    crowds = [crowd(seed + i, 6, point, 74.0, 1.0) for i, point in enumerate(places)]
    mixed = [one for index in order for one in crowds[index]]
    renumbered = [
        one._replace(time_us=S, id=number.to_bytes(16, "big")) for number, one in enumerate(mixed)
    ]
    bins = KindBins(replace(rule, predicate="count >= 6"))
    verdicts = run(bins, [renumbered]) + bins.advance(END_US)
    assert sorted(v.count for v in verdicts) == [6, 6, 6, 6]


def stored_example() -> bytes:
    bins = KindBins(EVERY_5_S)
    bins.add([observation(i / 9, i, north_m=300.0 * (i % 3) + i) for i in range(200)])
    assert bins.waiting
    assert bins.bins
    assert set(bins.alerts)
    return snapshot_bins(bins)


def test_a_stored_state_is_read_back_whole() -> None:
    stored = stored_example()
    again = restore_bins(EVERY_5_S, stored)
    check_bins(again)
    assert snapshot_bins(again) == stored


@given(st.binary(max_size=200))
def test_garbage_is_no_state(garbage: bytes) -> None:
    with pytest.raises(SnapshotError):
        restore_bins(EVERY_5_S, garbage)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_is_found(point: int, flip: int) -> None:
    stored = bytearray(stored_example())
    stored[point % len(stored)] ^= flip
    with pytest.raises(SnapshotError):
        restore_bins(EVERY_5_S, bytes(stored))


@given(st.integers(0, 10**6))
def test_a_cut_state_is_found(length: int) -> None:
    stored = stored_example()
    with pytest.raises(SnapshotError):
        restore_bins(EVERY_5_S, stored[: length % len(stored)])


def test_the_state_of_another_kind_is_refused() -> None:
    with pytest.raises(SnapshotError, match="is of kind 'x', not 'y'"):
        restore_bins(replace(EVERY_5_S, kind="y"), stored_example())


def test_a_changed_rule_goes_on_from_the_stored_state() -> None:
    changed = replace(EVERY_5_S, every_s=0.0, predicate="count >= 1", reach_m=400.0)
    bins = restore_bins(changed, stored_example())
    bins.add([observation(30, 1, origin=CITY)])
    assert bins.counters.observed == 201
