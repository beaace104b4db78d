"""Records that travel with a wake-up: taken when they continue what is there, read otherwise."""

from __future__ import annotations

import asyncio
import socket
import uuid
from pathlib import Path

import pytest

from mercury.bus import Record, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.bus.embedded.consumer import EmbeddedConsumer
from mercury.bus.embedded.wake_up import Datagram, Waker, WakeUpSocket

WAIT_S = 10.0
DATAGRAM = Datagram(5, 2, b"a frame")


def test_a_batch_is_handed_over() -> None:
    listener = uuid.uuid4().hex
    bell, waker = WakeUpSocket(listener), Waker()
    assert waker.hand(bell.address, listener, DATAGRAM)
    assert bell.drain() == (set(), [DATAGRAM])
    bell.close()
    waker.close()


@pytest.mark.parametrize("forged", [uuid.uuid4().hex, "00" * 16], ids=["other", "zeros"])
def test_who_does_not_know_the_listener_is_not_believed(forged: str) -> None:
    bell, waker = WakeUpSocket(uuid.uuid4().hex), Waker()
    waker.hand(bell.address, forged, DATAGRAM)
    assert bell.drain() == (set(), [])
    bell.close()
    waker.close()


def test_noise_at_the_gateway_is_ignored() -> None:
    bell = WakeUpSocket(uuid.uuid4().hex)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for noise in (b"", b"\xff" * 4, b"\xff" * 64, b"abc"):
            stranger.sendto(noise, "\0" + bell.address.partition("@")[2])
    topics, batches = bell.drain()
    assert not batches
    assert topics is not None
    bell.close()


def test_large_batches_are_read_instead() -> None:
    listener = uuid.uuid4().hex
    bell, waker = WakeUpSocket(listener), Waker()
    assert waker.hand(bell.address, listener, Datagram(5, 2, bytes(100_000)))
    assert bell.drain() == ({2}, [])
    bell.close()
    waker.close()


@pytest.fixture
def bus(tmp_path: Path) -> EmbeddedBus:
    return EmbeddedBus(tmp_path / "bus.db", retention=Retention(None, None))


def test_a_reader_that_is_up_to_date_need_not_look(
    bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> list[Record]:
        bus.append("t", b"0")
        bus.flush_now()
        consumer = bus.subscribe(["t"])
        assert await consumer.read(timeout_s=0.01) == []
        looked: list[object] = []
        monkeypatch.setattr(EmbeddedConsumer, "_select", lambda *a: looked.append(a) or [])
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


def test_a_gap_is_filled_by_reading(bus: EmbeddedBus) -> None:
    async def scenario() -> None:
        bus.append("t", b"0")
        bus.flush_now()
        consumer = bus.subscribe(["t"])
        assert await consumer.read(timeout_s=0.01) == []
        [cursor] = consumer._cursors
        bus.append("t", b"1")
        bus.flush_now()
        consumer.wake_up_socket.drain()  # this batch is lost
        bus.append("t", b"2")
        bus.flush_now()
        found = await consumer.read(timeout_s=WAIT_S)
        assert [record.value for record in found] == [b"1", b"2"]
        assert not cursor.arrived

    asyncio.run(scenario())
    bus.close()
