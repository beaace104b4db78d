"""Message ids against RFC 9562, read by the standard library."""

from __future__ import annotations

import os
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.identity import derived_id, new_id

LAST_MS = 2**48 - 1


@given(st.integers(0, LAST_MS))
def test_an_id_has_the_layout_of_uuid_version_7(milliseconds: int) -> None:
    id = uuid.UUID(bytes=new_id(milliseconds * 1000 + 999))
    assert id.version == 7
    assert id.variant == uuid.RFC_4122
    assert id.int >> 80 == milliseconds


def test_by_default_an_id_carries_the_time_of_its_creation() -> None:
    before = time.time_ns() // 1_000_000
    milliseconds = int.from_bytes(new_id()[:6], "big")
    assert before <= milliseconds <= time.time_ns() // 1_000_000


def test_all_74_random_bits_are_used_and_ids_of_one_instant_are_unique() -> None:
    ids = [int.from_bytes(new_id(0), "big") for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    ever_set = ever_clear = 0
    for id in ids:
        ever_set |= id
        ever_clear |= ~id
    random_bits = (0xFFF << 64) | (2**62 - 1)
    assert ever_set & random_bits == random_bits
    assert ever_clear & random_bits == random_bits


@given(st.lists(st.integers(0, LAST_MS), min_size=2, unique=True))
def test_ids_sort_by_time(times_ms: list[int]) -> None:
    ids = [new_id(at * 1000) for at in times_ms]
    assert sorted(ids) == [new for _, new in sorted(zip(times_ms, ids, strict=True))]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_repeat_its_parents_ids() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_id(0))
        os._exit(0)
    os.close(writing)
    mine = new_id(0)
    with os.fdopen(reading, "rb") as pipe:
        offspring = pipe.read()
    os.waitpid(child, 0)
    assert len(offspring) == 16
    assert offspring != mine


@given(st.binary(min_size=16, max_size=16))
def test_a_derived_id_follows_from_parent_and_purpose_alone(parent: bytes) -> None:
    id = derived_id(parent, "alert")
    assert id == derived_id(parent, "alert")
    assert id != derived_id(parent, "reply")
    assert id != parent
    assert uuid.UUID(bytes=id).version == 7
    assert uuid.UUID(bytes=id).variant == uuid.RFC_4122
    assert id[:6] == parent[:6]


def test_parents_of_one_instant_have_different_children() -> None:
    parents = [new_id(0) for _ in range(5000)]
    assert len({derived_id(parent, "alert") for parent in parents}) == len(parents)
