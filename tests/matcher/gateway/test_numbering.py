"""Handles, numbers and introductions, as slots are given away and given again."""

from __future__ import annotations

import numpy as np

from mercury.matcher.gateway.numbering import (
    NO_REFERENCE,
    Introductions,
    LookupTable,
    PublicationNumbers,
)
from mercury.wire.gateway_frames import NO_HANDLE


def ref(slot: int, generation: int = 1) -> int:
    return generation << 32 | slot


def test_handles_stand_for_references_and_nothing_else_does() -> None:
    table = LookupTable(NO_REFERENCE, np.int64)
    for handle in (0, 63, 64, 1_048_575):
        assert table.look_up(handle) == NO_REFERENCE
        table.put(handle, ref(handle))
    asked = np.array([0, 1, 63, 64, 65, 1_048_575, 1_048_576, 0xFFFF_FFFF], np.uint32)
    known = [ref(handle) if handle in (0, 63, 64, 1_048_575) else -1 for handle in asked.tolist()]
    assert table.look_up(asked).tolist() == known
    table.put(64, NO_REFERENCE)
    assert table.look_up(np.array([64], np.uint32)).tolist() == [NO_REFERENCE]


def test_handles_of_subscriptions() -> None:
    handles = LookupTable(NO_HANDLE, np.uint32)
    handles.put(5, 7)
    handles.put(np.array([5000, 6]), np.array([8, NO_HANDLE]))
    assert handles.look_up(np.array([5, 5000, 6, 4])).tolist() == [7, 8, NO_HANDLE, NO_HANDLE]


def test_a_publication_keeps_its_number_and_nobody_gets_it_again() -> None:
    numbers = PublicationNumbers()
    first = numbers.look_up(np.array([ref(3), ref(9000), ref(3)]))
    assert first[0] == first[2] != first[1]
    # Two generations of one slot in one iteration: each has its own, and the later one keeps it.
    both = numbers.look_up(np.array([ref(3, 1), ref(3, 2), ref(3, 1), ref(3, 2)]))
    assert both.tolist() == [first[0], both[1], first[0], both[1]]
    assert both[1] not in first
    assert numbers.look_up(np.array([ref(3, 2)])).tolist() == [both[1]]


def test_unknown_publications_are_introduced_once_and_again_when_they_change() -> None:
    known = Introductions()
    refs = np.array([ref(1), ref(2), ref(1), ref(700)])
    revisions = np.array([10, 20, 10, 0])
    assert known.unknown(refs, revisions).tolist() == [0, 1, 3]
    assert known.unknown(refs, revisions).tolist() == []
    assert known.unknown(refs, np.array([11, 20, 11, 0])).tolist() == [0]
    # Another generation of a slot is another publication, also beside the first one.
    generations = np.array([ref(1, 1), ref(1, 2)])
    assert known.unknown(generations, np.array([12, 12])).tolist() == [0, 1]
