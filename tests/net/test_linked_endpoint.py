"""Sockets on loopback behind a link: what is sent goes up, what arrives comes down."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from live import in_loop, iterate, live, until

import mercury
from mercury.net import (
    Link,
    LinkedEndpoint,
    LinkSettings,
    Packets,
    UdpEndpoint,
    bind_udp,
    link_from,
    open_uplink,
    to_sockaddr,
)
from mercury.session import SessionSettings

SEED = 20240607
PERFECT = LinkSettings()


class Ends:
    """An endpoint behind a link, and a plain one that it speaks with."""

    def __init__(self, up: LinkSettings = PERFECT, down: LinkSettings = PERFECT) -> None:
        self.link = Link(up, down, random.Random(SEED))
        self.came_up: list[tuple[float, bytes]] = []
        self.came_down: list[tuple[float, bytes]] = []
        self.vehicle = LinkedEndpoint(bind_udp("127.0.0.1", 0), self._down, self.link)
        self.adapter = UdpEndpoint(bind_udp("127.0.0.1", 0), self._up)

    def _up(self, packets: Packets) -> None:
        self.came_up += [(time.monotonic(), data) for data, _ in packets]

    def _down(self, packets: Packets) -> None:
        self.came_down += [(time.monotonic(), data) for data, _ in packets]

    def say(self, *data: bytes) -> None:
        to = to_sockaddr(*self.adapter.address)
        self.vehicle.send([(one, to) for one in data])

    def answer(self, *data: bytes) -> None:
        to = to_sockaddr(*self.vehicle.address)
        self.adapter.send([(one, to) for one in data])

    @property
    def up(self) -> list[bytes]:
        return [data for _, data in self.came_up]

    @property
    def down(self) -> list[bytes]:
        return [data for _, data in self.came_down]


@contextmanager
def ends(up: LinkSettings = PERFECT, down: LinkSettings = PERFECT) -> Iterator[Ends]:
    opened = Ends(up, down)
    try:
        yield opened
    finally:
        opened.vehicle.close()
        opened.adapter.close()


async def passed(delay_s: float) -> None:
    """Wait until a link of this delay has delivered whatever was sent before."""
    with ends(down=LinkSettings(delay_s=delay_s)) as later:
        later.answer(b"x")
        await until(lambda: later.down)


NUMBERS = [b"%03d" % number for number in range(200)]


@in_loop
async def test_a_perfect_link_is_a_plain_endpoint() -> None:
    with ends() as both:
        both.say(*NUMBERS)
        await until(lambda: len(both.up) == 200)
        both.answer(*NUMBERS)
        await until(lambda: len(both.down) == 200)
        assert both.up == both.down == NUMBERS
        assert both.vehicle.address[1] == both.vehicle.socket.getsockname()[1]
        assert both.vehicle.unsendable == 0


@in_loop
async def test_each_direction_loses_what_its_link_says() -> None:
    with ends(up=LinkSettings(loss=0.3), down=LinkSettings(loss=0.6)) as both:
        both.say(*NUMBERS)
        both.answer(*NUMBERS)
        await until(lambda: both.link.down.statistics.sent == 200)
        await until(lambda: len(both.up) == both.link.up.statistics.arrived)
        assert len(both.down) == both.link.down.statistics.arrived
        assert 110 < len(both.up) < 170
        assert 50 < len(both.down) < 110


@in_loop
async def test_the_same_seed_loses_the_same_packets() -> None:
    came = []
    for _ in range(2):
        with ends(up=LinkSettings(loss=0.5, duplicate=0.2)) as both:
            both.say(*NUMBERS)
            await until(lambda both=both: len(both.up) == both.link.up.statistics.arrived)
            came.append(both.up)
    assert came[0] == came[1]
    assert len(set(came[0])) < len(came[0])


@in_loop
async def test_delay_holds_back_both_ways_and_keeps_order_where_jitter_does_not_break_it() -> None:
    with ends(up=LinkSettings(delay_s=0.05), down=LinkSettings(delay_s=0.03)) as both:
        begun = time.monotonic()
        both.say(*NUMBERS)
        both.answer(b"back")
        await iterate()
        assert both.up == both.down == []
        await until(lambda: len(both.up) == 200 and both.down)
        assert both.up == NUMBERS
        assert both.came_up[0][0] - begun >= 0.048
        assert both.came_down[0][0] - begun >= 0.028


@in_loop
async def test_jitter_reorders() -> None:
    with ends(up=LinkSettings(jitter_s=0.05)) as both:
        both.say(*NUMBERS)
        await until(lambda: len(both.up) == 200)
        assert both.up != NUMBERS
        assert sorted(both.up) == NUMBERS


@in_loop
async def test_an_earlier_arrival_does_not_wait_for_a_later_one() -> None:
    with ends(up=LinkSettings(delay_s=5.0), down=LinkSettings(delay_s=0.02)) as both:
        both.say(b"slow")
        both.answer(b"quick")
        await until(lambda: both.down, timeout_s=2.0)
        assert both.up == []


@in_loop
async def test_nothing_is_handed_over_or_sent_after_close() -> None:
    with ends(up=LinkSettings(delay_s=0.05), down=LinkSettings(delay_s=0.05)) as both:
        both.answer(b"late")
        await until(lambda: both.link.down.statistics.sent == 1)
        both.say(b"goodbye")
        both.vehicle.close()
        both.vehicle.close()
        both.say(b"too late")
        # What was on the air goes out: at once, since nobody is there to send it later.
        await until(lambda: both.up == [b"goodbye"], timeout_s=2.0)
        await passed(0.05)
        assert both.up == [b"goodbye"]
        assert both.down == []


@in_loop
async def test_after_stopping_to_receive_sending_goes_on() -> None:
    with ends(up=LinkSettings(delay_s=0.03), down=LinkSettings(delay_s=0.03)) as both:
        both.answer(b"late")
        await until(lambda: both.link.down.statistics.sent == 1)
        both.say(b"still")
        both.vehicle.stop_receiving()
        await until(lambda: both.up == [b"still"])
        await passed(0.03)
        assert both.down == []


@in_loop
async def test_closing_while_something_is_handed_over() -> None:
    closed = []

    def close(packets: Packets) -> None:
        closed.append(packets)
        vehicle.close()

    link = link_from("down:duplicate=1,delay=10ms", SEED)
    vehicle = LinkedEndpoint(bind_udp("127.0.0.1", 0), close, link)
    other = UdpEndpoint(bind_udp("127.0.0.1", 0), lambda _: None)
    try:
        other.send([(b"x", to_sockaddr(*vehicle.address))])
        await until(lambda: closed)
        await passed(0.01)
        assert len(closed) == 1
    finally:
        vehicle.close()
        other.close()


@in_loop
async def test_without_a_link_there_is_a_plain_endpoint() -> None:
    for link, kind in ((None, UdpEndpoint), (link_from("perfect", 1), LinkedEndpoint)):
        endpoint = open_uplink("udp://127.0.0.1:9", lambda _: None, link)[0]
        assert type(endpoint) is kind
        endpoint.close()


# A client behind a link

QUICK = SessionSettings(report_interval_s=0.1, init_retry_s=0.05, missed_reports=50)


def client(port: int, link: Link | str, seed: int = SEED) -> mercury.Client:
    return mercury.Client(
        f"udp://127.0.0.1:{port}",
        identity="car",
        position=(40.76, -111.89),
        settings=QUICK,
        seed=seed,
        link=link,
    )


@in_loop
async def test_a_client_gets_its_session_and_its_answers_over_a_bad_link() -> None:
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        await world.broker()
        async with client(adapter.port, "hostile,loss=0.3,reorder=20%+50ms") as car:
            assert car.link is not None
            for _ in range(3):
                await car.query((40.76, -111.89), radius_m=100.0)
            assert car.link.up.statistics.lost["random"] > 0
            assert car.link.down.statistics.lost["random"] > 0
            assert car.session.sessions_opened == 1


@in_loop
async def test_a_goodbye_is_not_lost_by_delay_alone() -> None:
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        async with client(adapter.port, "delay=100ms"):
            assert len(adapter.sessions.table) == 1
        await until(lambda: len(adapter.sessions.table) == 0, timeout_s=2.0)


@in_loop
async def test_out_of_range_the_session_is_lost_and_comes_back() -> None:
    async with live() as world:
        lasting = SessionSettings(
            report_interval_s=0.05, heartbeat_interval_s=0.05, init_retry_s=0.05, jitter=0.0
        )
        adapter = await world.adapter(session=lasting)
        link = link_from("range=300m", SEED)
        link.range_m = 100.0
        async with client(adapter.port, link) as car:
            assert car.link is link
            link.range_m = lambda: 301.0
            await until(lambda: len(adapter.sessions.table) == 0)
            assert link.up.statistics.lost["range"] > 0
            link.range_m = 299.0
            await until(lambda: len(adapter.sessions.table) == 1)
            await until(lambda: car.session.sessions_opened == 2)


def test_a_link_of_text_is_seeded_by_the_client() -> None:
    def fates(seed: int) -> list[list[float]]:
        link = client(9, "lossy50", seed).link
        assert link is not None
        return [link.carry("up", 1, 0.0) for _ in range(64)]

    assert fates(1) == fates(1) != fates(2)
