"""Assignment of partitions, keys and topic patterns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.bus.embedded.record_frame import pack_frame, records_of
from mercury.bus.grouping import assignment_of, check_patterns, rank_of
from mercury.bus.headers import decode_headers, encode_headers
from mercury.model.errors import BusError


@given(st.sets(st.text(max_size=8), min_size=1, max_size=40), st.integers(1, 64))
def test_every_partition_is_owned_by_exactly_one_member(members: set[str], partitions: int) -> None:
    assignments = {member: assignment_of(member, members, partitions) for member in members}
    assert sorted(part for assignment in assignments.values() for part in assignment) == list(
        range(partitions)
    )
    sizes = [len(assignment) for assignment in assignments.values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.text(max_size=8), unique=True), st.text(max_size=8), st.randoms())
def test_all_members_come_to_the_same_result(members: list[str], member: str, dice: object) -> None:
    shuffled = list(members)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assignment_of(member, members, 16) == assignment_of(member, shuffled, 16)
    if member not in members:
        assert assignment_of(member, members, 16) == frozenset()


def partitions_of(keys: Sequence[bytes], partitions: int) -> list[int]:
    frame = pack_frame(1, 0, [(key, b"", b"") for key in keys], partitions, itertools.count())
    return [record.partition for record in records_of("t", frame)]


@given(st.binary(), st.integers(1, 1000))
def test_a_partition_is_within_its_bounds(key: bytes, partitions: int) -> None:
    (partition,) = partitions_of([key], partitions)
    assert 0 <= partition < partitions


def test_partitions_never_change() -> None:
    # Files written by one version are read by the next.
    keys = (b"a", b"vehicle-17", b"\x00")
    assert partitions_of(keys, 16) == [3, 13, 13]


@given(st.lists(st.tuples(st.text(), st.binary())).map(tuple))
def test_headers_survive_the_blob(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


@pytest.mark.parametrize(
    ("patterns", "topic", "rank"),
    [
        (("a", "b"), "b", 1),
        (("a.*", "a.b"), "a.b", 0),
        (("a.*",), "a", None),
        (("a.*",), "ab", None),
        (("a.*",), "a.b.c", 0),
        (("a",), "a.b", None),
    ],
)
def test_the_first_matching_pattern_ranks_a_topic(
    patterns: tuple[str, ...], topic: str, rank: int | None
) -> None:
    assert rank_of(patterns, topic) == rank


@pytest.mark.parametrize("patterns", [[], "t", ["a*"], ["*"], [""], ["a b"]])
def test_bad_patterns_are_refused(patterns: list[str]) -> None:
    with pytest.raises(BusError):
        check_patterns(patterns)
