"""What waits to be sent: order, expiry, slots that changed hands, shedding."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from live import in_loop, iterate, until
from numpy.typing import NDArray
from wire.packets import unpack

from mercury.adapter.mediator import FanOut
from mercury.adapter.outbound import Outbound
from mercury.model.message import Kind
from mercury.session import AdapterSessions, Session, SessionSettings
from mercury.wire import HEADER_BYTES

NOW_US = 1_000_000


class Wire:
    """Takes packets as a socket would, as many as it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []  # packet, address
        self.room = 10**9
        self.on_writable: Callable[[], None] | None = None

    def try_send(self, packets: list[tuple[bytes, bytes]]) -> int:
        taken = packets[: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def try_send_shared(
        self,
        heads: NDArray[np.void],
        body: bytes,
        addresses: NDArray[np.uint8],
        lengths: NDArray[np.uint32],
    ) -> int:
        return self.try_send(
            [
                (head.tobytes() + body, address[:length].tobytes())
                for head, address, length in zip(heads, addresses, lengths, strict=True)
            ]
        )

    def when_writable(self, callback: Callable[[], None]) -> None:
        self.on_writable = callback

    def grow(self, room: int) -> None:
        """Make room, as the kernel does when packets have gone out."""
        self.room = room
        callback, self.on_writable = self.on_writable, None
        assert callback is not None
        callback()

    @property
    def bodies(self) -> list[bytes]:
        return [packet[HEADER_BYTES:] for packet, _ in self.sent]


class Bench:
    """An outbound queue over sessions that are opened and closed by hand."""

    def __init__(self, clients: int = 0, **settings: int) -> None:
        self.wire = Wire()
        tokens = itertools.count(1)
        self.sessions = AdapterSessions(
            "adapter-1", SessionSettings(), lambda: next(tokens).to_bytes(16, "big")
        )
        self.now_us = NOW_US
        self.outbound = Outbound(
            self.wire,  # type: ignore[arg-type]
            self.sessions,
            now=lambda: 1.0,
            now_us=lambda: self.now_us,
            **settings,
        )
        self.clients = [self.open(f"car-{number}") for number in range(clients)]

    def open(self, identity: str) -> Session:
        token = len(self.sessions.table.by_token) + 1000 + hash(identity) % 10**9
        address = identity.encode().ljust(16, b"\0")
        return self.sessions.table.add(identity, token.to_bytes(16, "big"), 1, address, 0.0)

    def job(self, body: bytes, priority: int = 3, expires_us: int = 0) -> FanOut:
        """A fan-out to everyone who is there now."""
        table = self.sessions.table
        slots = np.flatnonzero(table.active)
        return FanOut(Kind.CONTENT, priority, body, expires_us, slots, table.generation[slots])


@in_loop
async def test_one_body_goes_to_every_client_under_its_own_header() -> None:
    bench = Bench(clients=5)
    finished: list[list[int]] = []
    job = bench.job(b"hello", priority=7)
    job.tags = np.array([10, 11, 12, 13, 14], np.int32)
    job.on_part = lambda sent, lost, _: finished.append([*sent.tolist(), -1, *lost.tolist()])
    bench.outbound.put_fan_out(job)
    bench.outbound.kick()
    assert bench.wire.bodies == [b"hello"] * 5
    for client, (packet, address) in zip(bench.clients, bench.wire.sent, strict=True):
        assert unpack(packet) == (Kind.CONTENT, 7, client.token, 1)
        assert address == client.address
    assert (bench.outbound.packets_sent, bench.outbound.waiting) == (5, 0)
    assert finished == [[10, 11, 12, 13, 14, -1]]
    bench.outbound.put_fan_out(bench.job(b"again"))
    bench.outbound.kick()
    assert {unpack(packet).sequence for packet, _ in bench.wire.sent[5:]} == {2}


@in_loop
async def test_higher_priority_goes_first_and_equal_in_order() -> None:
    bench = Bench(clients=1)
    for number, priority in enumerate((1, 5, 9, 5, 3, 9)):
        bench.outbound.put(b"%d" % number, b"a", priority)
    bench.outbound.kick()
    assert [packet for packet, _ in bench.wire.sent] == [b"2", b"5", b"1", b"3", b"4", b"0"]


@in_loop
async def test_an_emergency_overtakes_a_large_fan_out_in_the_middle() -> None:
    bench = Bench(clients=100, chunk=10)
    bench.outbound.put_fan_out(bench.job(b"advert"))
    bench.outbound.kick()
    assert len(bench.wire.sent) == 10  # one turn: the loop has others to serve
    bench.outbound.put_fan_out(bench.job(b"crash", priority=9))
    bench.outbound.kick()
    await until(lambda: not bench.outbound.waiting)
    assert bench.wire.bodies == [b"advert"] * 10 + [b"crash"] * 100 + [b"advert"] * 90


@in_loop
async def test_between_chunks_the_loop_serves_others() -> None:
    bench = Bench(clients=50, chunk=10)
    turns: list[int] = []
    bench.outbound.put_fan_out(bench.job(b"x"))
    bench.outbound.kick()
    while bench.outbound.waiting:
        turns.append(len(bench.wire.sent))
        await iterate()
    assert turns == [10, 20, 30, 40]


@in_loop
async def test_what_has_expired_is_not_sent() -> None:
    bench = Bench(clients=30, chunk=10)
    for expires_us in (NOW_US - 1, NOW_US, NOW_US + 1, 0):
        bench.outbound.put(b"%d" % expires_us, b"a", 5, expires_us)
    bench.outbound.put_fan_out(bench.job(b"late", 4, NOW_US))
    bench.outbound.put_fan_out(bench.job(b"in time", 3, NOW_US + 5))
    bench.outbound.kick()
    assert [packet for packet, _ in bench.wire.sent[:2]] == [b"%d" % (NOW_US + 1), b"0"]
    assert bench.outbound.dropped == {"expired": 2 + 30}
    bench.now_us = NOW_US + 5  # the rest of the second fan-out is too late in its middle
    sent = len(bench.wire.sent)
    await until(lambda: not bench.outbound.waiting)
    assert sent < 2 + 30
    assert len(bench.wire.sent) == sent
    assert bench.outbound.dropped == {"expired": 2 + 30 + 30 - (sent - 2)}


@in_loop
async def test_who_left_between_chunks_is_skipped_and_its_slot_is_anothers() -> None:
    bench = Bench(clients=20, chunk=10)
    bench.outbound.put_fan_out(bench.job(b"for those who were there"))
    bench.outbound.kick()
    table = bench.sessions.table
    for client in bench.clients[15:]:
        table.remove(client)
    newcomers = [bench.open(f"new-{number}") for number in range(3)]
    assert {one.slot for one in newcomers} <= set(range(15, 20))
    await until(lambda: not bench.outbound.waiting)
    reached = {address for _, address in bench.wire.sent}
    assert reached == {client.address for client in bench.clients[:15]}
    assert all(table.sequence[one.slot] == 0 for one in newcomers)
    assert bench.outbound.packets_sent == 15


@in_loop
async def test_a_full_socket_is_waited_for_and_nobody_is_left_out() -> None:
    bench = Bench(clients=20, chunk=100)
    job = bench.job(b"x")
    for client in bench.clients[::4]:  # they leave before the first packet
        bench.sessions.table.remove(client)
    here = [client for number, client in enumerate(bench.clients) if number % 4]
    bench.wire.room = 7
    bench.outbound.put_fan_out(job)
    bench.outbound.put(b"single", b"a", 9)
    bench.outbound.kick()
    assert len(bench.wire.sent) == 7
    bench.outbound.kick()  # does nothing: the socket says when
    assert len(bench.wire.sent) == 7
    bench.sessions.table.remove(here[10])
    bench.wire.grow(3)
    bench.wire.grow(100)
    assert bench.outbound.waiting == 0
    assert bench.wire.sent[0][0] == b"single"
    expected = [client.address for client in here if client is not here[10]]
    assert [address for _, address in bench.wire.sent[1:]] == expected


@in_loop
async def test_singles_that_the_socket_does_not_take_keep_their_order() -> None:
    bench = Bench()
    bench.wire.room = 2
    for number in range(5):
        bench.outbound.put(b"%d" % number, b"a", 5)
    bench.outbound.kick()
    assert bench.outbound.waiting == 3
    bench.wire.grow(1)
    bench.wire.grow(10)
    assert [packet for packet, _ in bench.wire.sent] == [b"0", b"1", b"2", b"3", b"4"]


@in_loop
async def test_over_the_limit_the_least_urgent_is_shed() -> None:
    bench = Bench(clients=10, max_waiting=25)
    bench.outbound.put_fan_out(bench.job(b"low", 2))
    bench.outbound.put_fan_out(bench.job(b"middle", 4))
    bench.outbound.put_fan_out(bench.job(b"also middle", 4))
    assert bench.outbound.dropped == {"shed": 10}
    bench.outbound.put_fan_out(bench.job(b"lowest", 1))
    assert bench.outbound.dropped == {"shed": 20}
    bench.outbound.put_fan_out(bench.job(b"crash", 9))
    assert bench.outbound.dropped == {"shed": 30}
    assert bench.outbound.waiting == 20
    bench.outbound.kick()
    await until(lambda: not bench.outbound.waiting)
    assert bench.wire.bodies[:10] == [b"crash"] * 10
    assert len(bench.wire.sent) == 20
    assert b"lowest" not in bench.wire.bodies


@in_loop
async def test_what_can_never_fit_pushes_nothing_out() -> None:
    bench = Bench(clients=30, max_waiting=25)
    bench.outbound.put(b"low", b"a", 1)
    bench.outbound.put_fan_out(bench.job(b"too many", 9))
    assert bench.outbound.dropped == {"shed": 30}
    bench.outbound.kick()
    assert [packet for packet, _ in bench.wire.sent] == [b"low"]


@in_loop
async def test_drained_waits_until_everything_is_sent_but_not_for_ever() -> None:
    bench = Bench(clients=30, chunk=1)
    bench.outbound.put_fan_out(bench.job(b"x"))
    await bench.outbound.drained(timeout_s=10.0)
    assert len(bench.wire.sent) == 30
    bench.wire.room = 0
    bench.outbound.put(b"stuck", b"a", 5)
    await bench.outbound.drained(timeout_s=0.01)
    assert bench.outbound.waiting == 1
