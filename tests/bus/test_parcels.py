"""Records that travel with a nudge: taken when they continue what is there, read otherwise."""

from __future__ import annotations

import asyncio
import socket
import uuid
from pathlib import Path

import pytest

from mercury.bus import Record, Retention
from mercury.bus.sqlite import SqliteBus
from mercury.bus.sqlite_consumer import SqliteConsumer
from mercury.bus.wakeup import Doorbell, Nudger, Parcel

WAIT_S = 10.0
PARCEL = Parcel(5, 2, b"a frame")


def test_a_parcel_is_handed_over() -> None:
    listener = uuid.uuid4().hex
    bell, nudger = Doorbell(listener), Nudger()
    assert nudger.hand(bell.address, listener, PARCEL)
    assert bell.drain() == (set(), [PARCEL])
    bell.close()
    nudger.close()


@pytest.mark.parametrize("forged", [uuid.uuid4().hex, "00" * 16], ids=["other", "zeros"])
def test_who_does_not_know_the_listener_is_not_believed(forged: str) -> None:
    bell, nudger = Doorbell(uuid.uuid4().hex), Nudger()
    nudger.hand(bell.address, forged, PARCEL)
    assert bell.drain() == (set(), [])
    bell.close()
    nudger.close()


def test_noise_at_the_door_is_ignored() -> None:
    bell = Doorbell(uuid.uuid4().hex)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for noise in (b"", b"\xff" * 4, b"\xff" * 64, b"abc"):
            stranger.sendto(noise, "\0" + bell.address.partition("@")[2])
    topics, parcels = bell.drain()
    assert not parcels
    assert topics is not None
    bell.close()


def test_large_batches_are_read_instead() -> None:
    listener = uuid.uuid4().hex
    bell, nudger = Doorbell(listener), Nudger()
    assert nudger.hand(bell.address, listener, Parcel(5, 2, bytes(100_000)))
    assert bell.drain() == ({2}, [])
    bell.close()
    nudger.close()


@pytest.fixture
def bus(tmp_path: Path) -> SqliteBus:
    return SqliteBus(tmp_path / "bus.db", retention=Retention(None, None))


def test_a_reader_that_is_up_to_date_need_not_look(
    bus: SqliteBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> list[Record]:
        bus.append("t", b"0")
        bus.flush_now()
        consumer = bus.subscribe(["t"])
        assert await consumer.read(timeout_s=0.01) == []
        looked: list[object] = []
        monkeypatch.setattr(SqliteConsumer, "_select", lambda *a: looked.append(a) or [])
        bus.append("t", b"1", b"k", (("h", b"x"),))
        bus.append("t", b"2")
        found = await consumer.read(timeout_s=WAIT_S)
        assert looked == []
        monkeypatch.undo()
        replayed = bus.subscribe(["t"], start="earliest").poll()
        assert found == replayed[1:]  # the same in every field
        return found

    assert [record.value for record in asyncio.run(scenario())] == [b"1", b"2"]
    bus.close()


def test_a_gap_is_filled_by_reading(bus: SqliteBus) -> None:
    async def scenario() -> None:
        bus.append("t", b"0")
        bus.flush_now()
        consumer = bus.subscribe(["t"])
        assert await consumer.read(timeout_s=0.01) == []
        [cursor] = consumer._cursors
        bus.append("t", b"1")
        bus.flush_now()
        consumer.doorbell.drain()  # this parcel is lost
        bus.append("t", b"2")
        bus.flush_now()
        found = await consumer.read(timeout_s=WAIT_S)
        assert [record.value for record in found] == [b"1", b"2"]
        assert not cursor.arrived

    asyncio.run(scenario())
    bus.close()
