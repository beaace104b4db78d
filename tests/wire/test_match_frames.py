"""Frames of what moves: everything comes back, and nothing damaged gets through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.frames import Declared, Described, Happened, Moved, Refused, Withdrawn, read_frame
from wire.strategies import polygons, values

from mercury.model.errors import PacketError
from mercury.model.matching import NearSubscription, Publication, entity_key
from mercury.wire import match_frames
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import Refusal, declaration_to_pb
from mercury.wire.match_frames import FrameWriter

ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
topics = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
lengths = st.floats(0.0, 200_000.0)
times = st.integers(-(2**62), 2**62)
lives = st.none() | st.floats(0.001, 600_000.0)
U64 = st.integers(0, 2**64 - 1)
E7 = st.integers(-1_800_000_000, 1_800_000_000)

publications = st.builds(Publication, ids, topics, values, lengths, lives)
scopes = st.one_of(
    st.tuples(st.floats(0.001, 200_000.0), st.none()), st.tuples(st.none(), polygons())
)


@st.composite
def subscriptions(draw: st.DrawFn) -> NearSubscription:
    radius_m, polygon = draw(scopes)
    return NearSubscription(
        draw(ids),
        draw(topics),
        radius_m,
        polygon,
        draw(st.sampled_from(["", "seats >= 2", 'kind == "taxi" and not closed exists'])),
        draw(st.booleans()),
        draw(st.none() | lengths),
        draw(st.none() | lengths),
        draw(lives),
    )


def rows(kind: np.dtype[np.void], column: st.SearchStrategy[tuple[object, ...]]) -> object:
    return st.lists(column, min_size=1, max_size=20).map(lambda found: np.array(found, kind))


moves = rows(
    match_frames.MOVES,
    st.tuples(U64, times, E7, E7, st.floats(0, 1e6, width=32), st.integers(0, 2**32 - 1)),
)
withdrawals = rows(match_frames.WITHDRAWALS, st.tuples(U64, times))
events = rows(
    match_frames.EVENTS,
    st.tuples(
        U64, U64, times, E7, E7, st.floats(0, 1e6, width=32), st.integers(1, 4),
        st.integers(1, 5), st.just(0),
    ),
)  # fmt: skip
refusals = st.builds(Refusal, U64, ids, ids)


@given(st.lists(st.tuples(publications | subscriptions(), times), min_size=1, max_size=5))
def test_declarations_come_back(declarations: list[tuple[Publication, int]]) -> None:
    [segment] = read_frame(FrameWriter().declare(declarations).to_bytes())
    assert isinstance(segment, Declared)
    assert [(one.what, one.time_us) for one in segment.declarations] == declarations
    for one in segment.declarations:
        assert not isinstance(one.what, Refusal)
        assert one.key == entity_key(one.side, one.what.id)
        assert (one.side == "publication") == isinstance(one.what, Publication)


@given(moves, withdrawals, events, st.lists(publications), st.lists(refusals))
def test_segments_come_back_in_order(
    moved: match_frames.Rows,
    withdrawn: match_frames.Rows,
    happened: match_frames.Rows,
    described: list[Publication],
    refused: list[Refusal],
) -> None:
    by_key = {entity_key("publication", one.id): one for one in described}
    writer = FrameWriter().notify(happened).move(moved).withdraw(withdrawn).move(moved[:1])
    writer.describe(by_key).refuse(refused)
    data = writer.to_bytes()
    assert len(data) == writer.size
    first, second, third, fourth, *rest = read_frame(data)
    assert isinstance(first, Happened)
    assert isinstance(second, Moved)
    assert isinstance(third, Withdrawn)
    assert isinstance(fourth, Moved)
    assert first.rows.tobytes() == happened.tobytes()
    assert second.rows.tobytes() == moved.tobytes()
    assert third.rows.tobytes() == withdrawn.tobytes()
    assert fourth.rows.tobytes() == moved[:1].tobytes()
    expected = ([Described(by_key)] if by_key else []) + ([Refused(refused)] if refused else [])
    assert rest == expected
    assert len(writer) == 4 + len(expected)


def test_positions_travel_to_the_centimetre() -> None:
    degrees = np.array([47.3769001, -180.0, 0.0, 89.9999999])
    assert (match_frames.from_e7(match_frames.to_e7(degrees)) == degrees).all()


def test_the_bucket_of_an_entity_holds_for_arrays_and_single_ones() -> None:
    keys = np.array([entity_key("publication", f"p{n}") for n in range(1000)], np.uint64)
    buckets = match_frames.buckets_of(keys)
    assert set(buckets.tolist()) == set(range(match_frames.BUCKETS))
    for key, bucket in zip(keys.tolist(), buckets.tolist(), strict=True):
        assert int(match_frames.buckets_of(key)) == bucket


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"topic": "no topic"}, "topic"),
        ({"radius_m": -1.0}, "radius"),
        ({"radius_m": float("nan")}, "radius"),
        ({"where": "seats >"}, "where"),
        ({"id": ""}, "id"),
        ({"id": "another"}, "key"),
    ],
)
def test_one_declaration_that_cannot_be_harms_no_other(
    change: dict[str, object], wrong: str
) -> None:
    good = NearSubscription("me", "taxi", 500.0)
    message = pb.Declarations()
    for _ in range(2):
        declaration_to_pb(good, 7, message.declaration.add())
    for name, value in change.items():
        setattr(message.declaration[0].subscription, name, value)
    data = FrameWriter().segment(b"D", message.SerializeToString()).to_bytes()
    [segment] = read_frame(data)
    assert isinstance(segment, Declared)
    bad, other = segment.declarations
    assert isinstance(bad.what, Refusal)
    assert (bad.what.key, bad.what.reason) == (entity_key("subscription", "me"), wrong)
    assert bad.what.sentence
    assert other.what == good


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"\x02", "version"),
        (b"\x01M", "truncated"),
        (b"\x01M\x20\x00\x00\x00short", "truncated"),
        (b"\x01M\x05\x00\x00\x00short", "truncated"),  # no whole rows
        (b"\x01D\x05\x00\x00\x00short", "malformed"),
        (b"\x01R\x05\x00\x00\x00\xff\xff\xff\xff\xff", "malformed"),
        (b"\x01M\xff\xff\xff\xff", "truncated"),
    ],
)
def test_damaged_frames_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(PacketError) as caught:
        read_frame(data)
    assert caught.value.reason == reason


def test_types_of_a_newer_version_are_left_out() -> None:
    newer = FrameWriter().segment(b"~", b"what").withdraw(np.zeros(1, match_frames.WITHDRAWALS))
    assert len(read_frame(newer.to_bytes())) == 1


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(data: bytes) -> None:
    for begin in (b"", b"\x01"):
        try:
            read_frame(begin + data)
        except PacketError as error:
            assert error.reason in ("truncated", "version", "malformed")
