"""Records that travel with a wake-up: taken when they continue what is there, read otherwise."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mercury.bus import Record, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.bus.embedded.consumer import EmbeddedConsumer
from mercury.bus.embedded.wake_up import Waker, WakeUp, WakeUpSocket
from mercury.bus.grouping import RegisteredConsumer

WAIT_S = 10.0
DATAGRAM = WakeUp(5, 2, b"a frame")


@pytest.fixture
def ends() -> Iterator[tuple[WakeUpSocket, Waker, RegisteredConsumer]]:
    """A socket, somebody to wake it, and how the socket is listed."""
    listener_id = uuid.uuid4().hex
    wake_up_socket, waker = WakeUpSocket(listener_id), Waker()
    consumer = RegisteredConsumer(listener_id, wake_up_socket.address, ("t",), None)
    yield wake_up_socket, waker, consumer
    wake_up_socket.close()
    waker.close()


Ends = tuple[WakeUpSocket, Waker, RegisteredConsumer]


def test_a_frame_is_handed_over(ends: Ends) -> None:
    wake_up_socket, waker, listener = ends
    assert waker.wake_up(listener, DATAGRAM)
    assert waker.wake_up(listener, WakeUp(6))
    assert waker.alive(listener)
    assert wake_up_socket.drain() == [DATAGRAM, WakeUp(6, 0, b"")]
    assert wake_up_socket.drain() == []


def test_a_full_queue_of_wake_ups_is_noticed(ends: Ends) -> None:
    wake_up_socket, waker, listener = ends
    for topic in range(1, 2000):
        assert waker.wake_up(listener, WakeUp(1, topic, b""))
    assert wake_up_socket.drain() is None
    assert wake_up_socket.drain() == []


def test_who_is_gone_is_noticed_and_who_is_elsewhere_is_not_dead(ends: Ends) -> None:
    wake_up_socket, waker, listener = ends
    wake_up_socket.close()
    assert not waker.wake_up(listener, DATAGRAM)
    assert not waker.alive(listener)
    elsewhere = listener._replace(address="elsewhere@name")
    assert waker.wake_up(elsewhere, DATAGRAM)
    assert waker.alive(elsewhere)


@pytest.mark.parametrize("forged", [uuid.uuid4().hex, "00" * 16], ids=["other", "zeros"])
def test_who_does_not_know_the_listener_is_not_believed(ends: Ends, forged: str) -> None:
    wake_up_socket, waker, listener = ends
    waker.wake_up(listener._replace(id=forged), DATAGRAM)
    assert wake_up_socket.drain() == []


def test_noise_at_the_socket_is_ignored(ends: Ends) -> None:
    wake_up_socket, _, listener = ends
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for noise in (b"", b"\xff" * 4, b"\xff" * 64, b"abc"):
            stranger.sendto(noise, "\0" + listener.address.partition("@")[2])
    assert wake_up_socket.drain() == []


def test_large_frames_are_read_instead(ends: Ends) -> None:
    wake_up_socket, waker, listener = ends
    assert waker.wake_up(listener, WakeUp(5, 2, bytes(100_000)))
    assert wake_up_socket.drain() == [WakeUp(5, 2, b"")]


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
        [cursor] = consumer.assignment.cursors
        bus.append("t", b"1")
        bus.flush_now()
        consumer.wake_up_socket.drain()  # this datagram is lost
        bus.append("t", b"2")
        bus.flush_now()
        found = await consumer.read(timeout_s=WAIT_S)
        assert [record.value for record in found] == [b"1", b"2"]
        assert not cursor.arrived

    asyncio.run(scenario())
    bus.close()
