"""Sockets on loopback: batches arrive whole and in order, with and without `sendmmsg`."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from live import in_loop, until

from mercury.model.errors import AddressInUseError, ConfigurationError
from mercury.model.message import MAX_PACKET_BYTES, Kind
from mercury.net import Packets, UdpEndpoint, batch, bind_udp, to_sockaddr
from mercury.session.table import ADDRESS_BYTES
from mercury.wire.packet import headers, pack

NOWHERE = to_sockaddr("255.255.255.255", 9)  # broadcasts are not allowed on our sockets


@pytest.fixture(params=["batches", "singly"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test over both ways to send and receive."""
    if request.param == "singly":
        monkeypatch.setattr(batch, "available", False)
    elif not batch.available:
        pytest.skip("needs sendmmsg")
    return str(request.param)


class Receiver:
    """A socket and what came to it."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.packets: Packets = []
        self.batches = 0
        self.endpoint = UdpEndpoint(bind_udp(host, 0), self._on_packets)
        self.raw = to_sockaddr(*self.endpoint.address)

    def _on_packets(self, packets: Packets) -> None:
        self.batches += 1
        self.packets += packets

    @property
    def data(self) -> list[bytes]:
        return [packet for packet, _ in self.packets]


@contextmanager
def receivers(count: int, host: str = "127.0.0.1") -> Iterator[list[Receiver]]:
    opened = [Receiver(host) for _ in range(count)]
    try:
        yield opened
    finally:
        for receiver in opened:
            receiver.endpoint.close()


@in_loop
async def test_a_batch_arrives_whole_and_in_order_with_the_senders_address() -> None:
    with receivers(2) as (sender, receiver):
        sent = [b"%d" % number * (number % 40) for number in range(300)]  # also empty packets
        sender.endpoint.send([(data, receiver.raw) for data in sent])
        await until(lambda: len(receiver.packets) == len(sent))
        assert receiver.data == sent
        assert {address for _, address in receiver.packets} == {sender.raw}
        assert receiver.batches < 100


@in_loop
async def test_more_than_one_system_call_takes_is_sent_all_the_same() -> None:
    with receivers(11) as (sender, *others):  # each gets no more than its buffer surely holds
        packets = [(b"%d" % n, others[n % 10].raw) for n in range(2 * batch.SEND_BATCH + 100)]
        sender.endpoint.send(packets)
        await until(lambda: sum(len(other.packets) for other in others) == len(packets))
        for first, other in enumerate(others):
            assert other.data == [b"%d" % n for n in range(first, len(packets), 10)]


@in_loop
async def test_the_largest_packets_arrive_whole() -> None:
    with receivers(2) as (sender, receiver):
        sent = [bytes((number,)) * MAX_PACKET_BYTES for number in range(5)]
        for data in sent:
            sender.endpoint.send([(data, receiver.raw)])
            await until(lambda data=data: receiver.data[-1:] == [data])
        assert receiver.data == sent
        assert sender.endpoint.unsendable == 0


@in_loop
async def test_a_larger_packet_is_unsendable_and_the_others_go_out() -> None:
    with receivers(2) as (sender, receiver):
        packets = [b"1", bytes(MAX_PACKET_BYTES + 1), b"2", b"3", b"4", b"5"]
        sender.endpoint.send([(data, receiver.raw) for data in packets])
        await until(lambda: len(receiver.packets) == 5)
        assert receiver.data == [b"1", b"2", b"3", b"4", b"5"]
        assert sender.endpoint.unsendable == 1


@pytest.mark.parametrize("count", [3, 20])
@in_loop
async def test_unsendable_addresses_are_counted_and_the_others_served(count: int) -> None:
    with receivers(2) as (sender, receiver):
        packets = [(b"%d" % n, NOWHERE if n % 2 else receiver.raw) for n in range(count)]
        assert sender.endpoint.try_send(packets) == count
        await until(lambda: len(receiver.packets) == (count + 1) // 2)
        assert receiver.data == [b"%d" % n for n in range(0, count, 2)]
        assert sender.endpoint.unsendable == count // 2


@in_loop
async def test_one_body_for_many_is_what_single_packets_would_be() -> None:
    with receivers(4) as (sender, *others):
        tokens = np.arange(3 * 16, dtype=np.uint8).reshape(3, 16)
        sequences = np.array([7, 8, 2**40], np.uint64)
        addresses = np.zeros((3, ADDRESS_BYTES), np.uint8)
        for row, receiver in enumerate(others):
            addresses[row, :16] = np.frombuffer(receiver.raw, np.uint8)
        lengths = np.full(3, 16, np.uint32)
        body = b"x" * 50_000
        heads = headers(Kind.ALERT, 9, len(body), tokens, sequences)
        assert sender.endpoint.try_send_shared(heads, body, addresses, lengths) == 3
        for row, receiver in enumerate(others):
            await until(lambda receiver=receiver: receiver.packets)
            token, sequence = tokens[row].tobytes(), int(sequences[row])
            assert receiver.data == [pack(Kind.ALERT, 9, token, sequence, body)]


@in_loop
async def test_one_body_for_many_skips_who_cannot_be_reached() -> None:
    with receivers(2) as (sender, receiver):
        addresses = np.zeros((3, ADDRESS_BYTES), np.uint8)
        for row, raw in enumerate((receiver.raw, NOWHERE, receiver.raw)):
            addresses[row, :16] = np.frombuffer(raw, np.uint8)
        heads = headers(Kind.ALERT, 9, 4, np.zeros((3, 16), np.uint8), np.arange(3))
        lengths = np.full(3, 16, np.uint32)
        assert sender.endpoint.try_send_shared(heads, b"body", addresses, lengths) == 3
        await until(lambda: len(receiver.packets) == 2)
        assert sender.endpoint.unsendable == 1


@in_loop
async def test_what_the_socket_cannot_take_goes_out_later_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receivers(2) as (sender, receiver):
        honest = UdpEndpoint.try_send
        takes = iter([2, 0, 1])  # as a socket with a full buffer would

        def reluctant(endpoint: UdpEndpoint, packets: Packets) -> int:
            return honest(endpoint, packets[: next(takes, len(packets))])

        monkeypatch.setattr(UdpEndpoint, "try_send", reluctant)
        sender.endpoint.send([(b"%d" % number, receiver.raw) for number in range(6)])
        sender.endpoint.send([(b"later", receiver.raw)])
        await until(lambda: len(receiver.packets) == 7)
        assert receiver.data == [b"0", b"1", b"2", b"3", b"4", b"5", b"later"]


@in_loop
async def test_ipv6_loopback() -> None:
    try:
        bind_udp("::1", 0).close()
    except ConfigurationError:
        pytest.skip("no IPv6 on loopback")
    with receivers(2, "::1") as (sender, receiver):
        sender.endpoint.send([(b"%d" % number, receiver.raw) for number in range(10)])
        sender.endpoint.send([(b"one", receiver.raw)])
        await until(lambda: len(receiver.packets) == 11)
        assert {address for _, address in receiver.packets} == {sender.raw}


@in_loop
async def test_after_close_nothing_is_read_and_closing_twice_is_fine() -> None:
    with receivers(2) as (sender, receiver):
        receiver.endpoint.close()
        receiver.endpoint.close()
        sender.endpoint.send([(b"x", receiver.raw)])
        assert receiver.packets == []


def test_a_taken_port_is_a_clear_error() -> None:
    with bind_udp("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUseError) as caught:
            bind_udp("127.0.0.1", port)
        sentence = f"UDP port {port} on 127.0.0.1 is in use by process {os.getpid()} ("
        assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_a_clear_error(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot .* {host}:7400: "):
        bind_udp(host, 7400)


def test_sockets_do_not_block() -> None:
    with bind_udp("127.0.0.1", 0) as opened, pytest.raises(BlockingIOError) as caught:
        opened.recv(100)
    assert caught.value.errno == errno.EAGAIN
    assert opened.family == socket.AF_INET
