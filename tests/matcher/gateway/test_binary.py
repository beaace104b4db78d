"""The gateway for load: rows of binary frames."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from live import in_loop
from matcher.gateway_client import (
    BINARY,
    LAT,
    LON,
    METRE,
    moves,
    near,
    publish,
    world,
)

from mercury.model.matching import EventReason, EventType
from mercury.service.clock import now_us
from mercury.wire.gateway_frames import pack_moves


@in_loop
async def test_rows_in_rows_out() -> None:
    async with world() as here, here.connect(BINARY) as ann:
        assert ann.websocket.subprotocol == BINARY
        answers = await ann.say(
            near("me", None, handle=8, inside=True),
            publish("taxi-1", handle=7, values={"seats": 4}),
            publish("taxi-2", handle=1_048_575),
        )
        assert answers == [{"ok": True}] * 3
        time_us = now_us() + 1_000_000
        await ann.move((8, LAT, LON), (7, LAT + 100 * METRE, LON, time_us))
        rows = await ann.rows(1)
        assert rows["subscription"].tolist() == [8]
        assert rows["time_us"].tolist() == [time_us]
        assert rows["event_type"].tolist() == [EventType.ENTER]
        assert rows["reason"].tolist() == [EventReason.MOVED]
        assert rows["distance_m"][0] == pytest.approx(100, rel=0.01)
        assert rows["lat_e7"][0] == pytest.approx((LAT + 100 * METRE) * 1e7, abs=1)
        assert rows["lon_e7"][0] == round(LON * 1e7)
        # Its number was introduced before.
        first = int(rows["publication"][0])
        assert ann.names == {first: {"id": "taxi-1", "topic": "taxi", "values": {"seats": 4}}}
        ann.names.clear()
        await ann.move((7, LAT, LON, time_us + 1), (1_048_575, LAT, LON))
        rows = await ann.rows(2)
        assert sorted(rows["event_type"].tolist()) == [EventType.ENTER, EventType.INSIDE]
        assert [one["id"] for one in ann.names.values()] == ["taxi-2"]  # the new one alone
        # And is again when its values are others.
        ann.names.clear()
        assert await ann.say(publish("taxi-1", handle=7, values={"seats": 3})) == {"ok": True}
        await ann.move((7, LAT, LON, time_us + 2))
        await ann.rows(1)
        assert ann.names == {first: {"id": "taxi-1", "topic": "taxi", "values": {"seats": 3}}}
        await ann.until_progress(5, 0)


@in_loop
async def test_without_names_and_with_subscriptions_in_text() -> None:
    async with world() as here, here.connect(BINARY) as ann:
        await ann.ok({"op": "hello", "names": False})
        await ann.ok(near("rows", 0, handle=1), near("text", 0), publish("taxi-1", handle=2))
        await ann.move((2, LAT, LON))
        texts, rows = [], None
        while rows is None or not texts:
            heard = await ann.hear()
            if isinstance(heard, str):
                texts.append(heard)
            elif heard[3] == 2:
                rows = heard
        assert len(texts) == 1
        assert '"subscription":"text"' in texts[0]
        assert len(rows) == 8 + 32


@in_loop
async def test_a_turn_is_one_frame_and_every_pair_is_told() -> None:
    async with world() as here, here.connect(BINARY) as ann:
        await ann.ok({"op": "hello", "names": False})
        count = 40
        await ann.say(*(near(f"n-{i}", 0, handle=i) for i in range(count)))
        await ann.say(*(publish(f"t-{i}", handle=count + i) for i in range(count)))
        await ann.move(*((count + i, LAT, LON) for i in range(count)))
        rows = None
        while rows is None:
            rows = await ann.frame()
        assert len(rows) == count * count
        pairs = set(zip(rows["subscription"].tolist(), rows["publication"].tolist(), strict=True))
        assert len(pairs) == count * count
        # Numbers of this server: not the same as handles, and another connection reads the same.
        async with here.connect(BINARY) as bob:
            await bob.ok(near("b", 0, handle=0))
            await bob.rows(count)
            assert set(bob.names) == set(rows["publication"].tolist())


@in_loop
async def test_two_connections_each_get_their_own() -> None:
    async with world() as here, here.connect(BINARY) as ann, here.connect(BINARY) as bob:
        await ann.ok(near("me", 0, handle=5))
        await bob.ok(near("me", 0, handle=6), publish("taxi-1", handle=5))
        await bob.move((5, LAT, LON))
        assert (await ann.rows(1))["subscription"].tolist() == [5]
        assert (await bob.rows(1))["subscription"].tolist() == [6]


@in_loop
async def test_what_is_wrong_with_rows_is_counted() -> None:
    async with world() as here, here.connect(BINARY) as ann:
        await ann.ok(publish("taxi-1", handle=1), publish("gone", handle=2))
        await ann.ok({"op": "withdraw", "handle": 2})
        hour_us = 3_600_000_000
        await ann.move(
            (1, LAT, LON),
            (2, LAT, LON),  # withdrawn
            (3, LAT, LON),  # never declared
            (0xFFFF_FFFF, LAT, LON),
            (1, 90.5, LON),
            (1, LAT, -180.5),
            (1, -214.7483648, LON),  # the least 32-bit number
            (1, LAT, LON, now_us() + hour_us),
            (1, LAT, LON, -1),
            (1, LAT, LON),
        )
        await ann.until_progress(2, 8)
        assert here.count("gateway_rows") == 2
        dropped = {"gateway.handle": 3, "gateway.no-position": 3, "gateway.time": 2}
        assert here.gateway.statistics().dropped == dropped
        assert here.hub.engine.statistics()["updates"] == 2


def truncated(frame: bytes) -> bytes:
    return frame[:-1]


def longer(frame: bytes) -> bytes:
    return frame + b"\0" * 24


def newer(frame: bytes) -> bytes:
    return frame[:2] + b"\x02" + frame[3:]


def other_type(frame: bytes) -> bytes:
    return frame[:3] + b"\x02" + frame[4:]


def other_letters(frame: bytes) -> bytes:
    return b"XX" + frame[2:]


def too_many(frame: bytes) -> bytes:
    return frame[:4] + struct.pack("<I", 65_537) + frame[8:32] * 65_537


def only_header_is_missing(frame: bytes) -> bytes:
    return frame[:7]


def empty(frame: bytes) -> bytes:
    return b""


SPOILT: list[tuple[Callable[[bytes], bytes], str, int]] = [
    (truncated, "a frame of 2 rows has 56 bytes, not 55", 1),
    (longer, "a frame of 2 rows has 56 bytes, not 80", 3),
    (newer, "frames of version 2 are not known here, only of 1", 2),
    (other_type, "a client sends frames of type 1, not of type 2", 2),
    (other_letters, "a frame begins with the letters Mv", 2),
    (too_many, "a frame of 65537 rows, at most 65536 are allowed", 65_537),
    (only_header_is_missing, "a frame of 7 bytes has no header of 8", 1),
    (empty, "a frame of 0 bytes has no header of 8", 1),
]


@in_loop
async def test_spoilt_frames_are_refused_and_the_connection_goes_on() -> None:
    async with world() as here, here.connect(BINARY) as ann:
        await ann.ok(publish("taxi-1", handle=1))
        frame = pack_moves(moves((1, LAT, LON), (1, LAT, LON)))
        taken = dropped = 0
        for spoil, sentence, rows in SPOILT:
            await ann.websocket.send(spoil(frame))
            await ann.websocket.send(frame)
            assert await ann.say({"op": "hello"}) == {"error": sentence, "reason": "frame"}
            assert await ann.hear_answer() == {"ok": True}
            taken, dropped = taken + 2, dropped + rows
            await ann.until_progress(taken, dropped)
        assert here.count("dropped.gateway.frame") == dropped


@in_loop
async def test_rows_need_the_subprotocol() -> None:
    async with world() as here, here.connect() as ann:
        await ann.ok(publish("taxi-1", handle=1))
        await ann.move((1, LAT, LON))
        answer = await ann.say({"op": "hello"})
        assert answer["error"] == "binary frames need the subprotocol mercury.binary.v1"


@in_loop
async def test_the_largest_frame_and_messages_in_parts() -> None:
    async with world() as here, here.connect(BINARY) as ann:
        await ann.ok(publish("taxi-1", handle=1))
        rows = np.repeat(moves((1, LAT, LON)), 65_536)
        await ann.websocket.send(pack_moves(rows))
        await ann.until_progress(65_536, 0)
        frame = pack_moves(moves((1, LAT, LON)))
        await ann.websocket.send([frame[:5], frame[5:20], frame[20:]])
        await ann.until_progress(65_537, 0)


@in_loop
async def test_a_frame_far_too_large_ends_this_connection_only() -> None:
    async with world() as here, here.connect(BINARY) as ann, here.connect(BINARY) as bob:
        await ann.websocket.send(b"\0" * 3_000_000)
        await ann.websocket.wait_closed()
        assert ann.websocket.close_code == 1009
        await bob.ok({"op": "hello"})
