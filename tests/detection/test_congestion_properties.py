"""What holds of all traffic: how its rows are cut, stored and shuffled does not decide."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from detection.observations import S
from detection.traffic import (
    EAST,
    GRID,
    NORTH_EAST,
    RULE,
    WEST,
    check_congestion,
    learned,
    row_of_cells,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mercury.detection import (
    CellSpeed,
    Congestion,
    Verdict,
    restore_congestion,
    snapshot_congestion,
)
from mercury.detection.jams import components
from mercury.model.errors import SnapshotError

# Hasty, so that short streams have jams that begin, merge, split, lapse and end.
HASTY = replace(
    RULE, on_after_s=10.0, off_after_s=10.0, forget_s=30.0, learn_s=20.0, validity_s=40.0,
    grown_m=400.0,
)  # fmt: skip
ROAD = row_of_cells(6)
END_US = 1000 * S


@st.composite
def streams(draw: st.DrawFn) -> list[CellSpeed]:
    """Two windows of usual traffic, then anything."""
    keys = [(cell, sector) for cell in ROAD for sector in (EAST, WEST, NORTH_EAST)]
    rows = [CellSpeed(n * RULE.window_us, *key, 5, 20.0) for n in (0, 1) for key in keys]
    slow = st.sets(st.sampled_from(keys), max_size=len(keys))
    for number in range(2, draw(st.integers(2, 16))):
        if number != 2 and draw(st.booleans()):
            continue  # a window without a row
        for key in sorted(draw(slow)):
            speed_mps = draw(st.sampled_from([2.0, 2.0, 2.0, 12.0, 18.0]))
            rows.append(
                CellSpeed(number * RULE.window_us, *key, draw(st.integers(2, 5)), speed_mps)
            )
    return sorted(rows)


def cut(stream: Sequence[CellSpeed], cuts: Iterable[int]) -> list[Sequence[CellSpeed]]:
    borders = [0, *sorted(c % (len(stream) + 1) for c in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(borders)]


def run(core: Congestion, batches: Iterable[Iterable[CellSpeed]]) -> list[Verdict]:
    verdicts = []
    for batch in batches:
        verdicts += core.add(batch)
        check_congestion(core)
    return verdicts


cuts = st.lists(st.integers(0, 1000), max_size=12)


@given(streams(), cuts)
def test_any_cut_into_batches_gives_the_same(stream: list[CellSpeed], places: list[int]) -> None:
    whole, parts = Congestion(HASTY), Congestion(HASTY)
    assert run(parts, cut(stream, places)) == run(whole, [stream])
    assert parts.advance(END_US) == whole.advance(END_US)
    assert snapshot_congestion(parts) == snapshot_congestion(whole)


@given(streams(), cuts)
def test_storing_the_state_between_batches_changes_nothing(
    stream: list[CellSpeed], places: list[int]
) -> None:
    batches = cut(stream, places)
    kept = Congestion(HASTY)
    expected = run(kept, batches)
    stored = snapshot_congestion(Congestion(HASTY))
    verdicts = []
    for batch in batches:
        core = restore_congestion(HASTY, stored)
        verdicts += run(core, [batch])
        stored = snapshot_congestion(core)
    assert verdicts == expected
    assert stored == snapshot_congestion(kept)


@given(streams(), st.lists(st.integers(0, 170), max_size=8))
def test_saying_how_late_it_is_does_not_decide(stream: list[CellSpeed], times_s: list[int]) -> None:
    silent, alerted = Congestion(HASTY), Congestion(HASTY)
    expected = run(silent, [stream]) + silent.advance(END_US)
    verdicts = []
    left = list(stream)
    for time_s in sorted(times_s):
        complete = [row for row in left if row.window_us + RULE.window_us <= time_s * S]
        left = left[len(complete) :]
        verdicts += run(alerted, [complete]) + alerted.advance(time_s * S)
        check_congestion(alerted)
    verdicts += run(alerted, [left]) + alerted.advance(END_US)
    assert verdicts == expected


@given(streams(), st.randoms(use_true_random=False))
def test_the_order_within_a_batch_does_not_decide(
    stream: list[CellSpeed], rng: random.Random
) -> None:
    shuffled = list(stream)
    rng.shuffle(shuffled)
    assert run(Congestion(HASTY), [shuffled]) == run(Congestion(HASTY), [stream])


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_components_of_one_sector_agree_with_the_obvious_way(
    squares: set[tuple[int, int]],
) -> None:
    rows = [row_of_cells(6, origin) for origin in [(40.0 + 0.0018 * i, 179.999) for i in range(6)]]
    keys = {(rows[i][j], EAST) for i, j in squares}
    left, expected = set(keys), set()
    while left:
        group, todo = set(), [min(left)]
        while todo:
            key = todo.pop()
            if key in left:
                left.remove(key)
                group.add(key)
                todo += [(cell, EAST) for cell in GRID.neighbours(key[0])]
        expected.add(frozenset(group))
    found = components(keys, GRID)
    assert set(found) == expected
    assert found == sorted(found, key=min)


def stored_example() -> bytes:
    keys = [(cell, EAST) for cell in ROAD]
    core = learned(keys)
    for number in range(60, 75):
        core.add([CellSpeed(number * RULE.window_us, *key, 5, 3.0) for key in keys])
    assert core.jams
    assert core.waiting
    return snapshot_congestion(core)


STORED = stored_example()


@given(st.binary(max_size=200))
def test_garbage_is_no_state(garbage: bytes) -> None:
    with pytest.raises(SnapshotError):
        restore_congestion(RULE, garbage)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_is_found(point: int, flip: int) -> None:
    damaged = bytearray(STORED)
    damaged[point % len(damaged)] ^= flip
    with pytest.raises(SnapshotError):
        restore_congestion(RULE, bytes(damaged))


def test_the_state_of_other_cells_is_refused() -> None:
    with pytest.raises(SnapshotError, match="cells of 200 m, not 100 m"):
        restore_congestion(replace(RULE, cell_m=100.0), STORED)
