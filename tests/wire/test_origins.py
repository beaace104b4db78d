"""What follows from what: work that was done again is recognised, rows are kept together."""

from __future__ import annotations

import numpy as np
import pytest

from mercury.model.errors import PacketError
from mercury.wire.match_frames import FrameWriter, split_frame
from mercury.wire.origins import Origin, SeenOrigins, origin_header, read_origin
from mercury.wire.worker_frames import (
    SEEDS,
    STEPS,
    Step,
    mark_of,
    offset_of,
    read_steps,
    read_time,
    steps_frame,
    time_frame,
)


def test_only_what_follows_from_later_offsets_is_new() -> None:
    seen = SeenOrigins()
    first, second = ((origin_header(Origin(1, 3, offset)),) for offset in (10, 11))
    assert seen.is_new(first, b"a")
    assert not seen.is_new(first, b"a")
    assert seen.is_new(first, b"b")  # each key has its own order
    assert seen.is_new(second, b"a")
    assert not seen.is_new(first, b"a")
    assert seen.is_new((origin_header(Origin(2, 3, 10)),), b"a")
    assert seen.is_new((), b"a")  # not derived: nobody does it again
    again = SeenOrigins(seen.entries())
    assert not again.is_new(second, b"a")
    assert read_origin((("origin", b"short"),)) is None


def test_marks_grow_with_offset_segment_and_row() -> None:
    marks = [
        mark_of(offset, segment) + row for offset in (7, 8) for segment in (0, 1) for row in (0, 9)
    ]
    assert marks == sorted(set(marks))
    assert [offset_of(mark) for mark in marks] == [7] * 4 + [8] * 4


def test_steps_come_back_with_what_belongs_to_them() -> None:
    rows = np.zeros(3, STEPS)
    rows["step"] = Step.ENTER, Step.MOVE, Step.ARRIVE
    seeds = np.array([(2, 0, 77, 5)], SEEDS)
    steps = read_steps(split_frame(steps_frame(rows, [b"one", b"three"], seeds)))
    assert steps is not None
    assert steps.rows.tobytes() == rows.tobytes()
    assert steps.declarations == [b"one", b"three"]
    assert steps.seeds.tobytes() == seeds.tobytes()
    assert read_steps(split_frame(time_frame(5))) is None


def test_steps_that_do_not_fit_together_are_refused() -> None:
    rows = np.zeros(1, STEPS)
    rows["step"] = Step.ENTER
    bad = [
        steps_frame(rows, []),
        steps_frame(rows, [b"one"], np.array([(1, 0, 77, 5)], SEEDS)),
        FrameWriter().segment(b"S", rows.tobytes()).segment(b"L", b"\xff").to_bytes(),
        FrameWriter().segment(b"S", rows.tobytes()).segment(b"L", b"\xff\x00\x00\x00a").to_bytes(),
        FrameWriter().segment(b"S", b"short").to_bytes(),
    ]
    for frame in bad:
        with pytest.raises(PacketError):
            read_steps(split_frame(frame))


def test_a_time_frame_is_read_back() -> None:
    assert [kind for kind, _ in split_frame(time_frame(5))] == [b"T"]
    assert read_time(split_frame(time_frame(-5))[0][1]) == -5
    with pytest.raises(PacketError):
        read_time(memoryview(b"short"))
