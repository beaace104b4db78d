"""The system calls for many packets, without an event loop."""

from __future__ import annotations

import errno
import socket

import numpy as np
import pytest

from mercury.net import batch, bind_udp, to_sockaddr
from mercury.session.table import ADDRESS_BYTES
from mercury.wire.packet import HEADER_DTYPE

pytestmark = pytest.mark.skipif(not batch.available, reason="needs sendmmsg")


def raw(sock: socket.socket) -> bytes:
    return to_sockaddr(*sock.getsockname()[:2])


def test_a_receiver_takes_what_is_there_and_does_not_wait() -> None:
    receiver = batch.BatchReceiver(batch=4)
    with bind_udp("127.0.0.1", 0) as here, bind_udp("127.0.0.1", 0) as there:
        assert receiver.receive(here.fileno()) == []
        sent = [(b"%d" % number, raw(here)) for number in range(6)]
        assert batch.send_packets(there.fileno(), sent) == (6, 0)
        first = receiver.receive(here.fileno())
        assert first == [(b"%d" % number, raw(there)) for number in range(4)]
        rest = receiver.receive(here.fileno())
        assert rest == [(b"4", raw(there)), (b"5", raw(there))]
        assert first[0][0] == b"0"  # what was handed out is not overwritten


def test_a_receiver_serves_sockets_of_both_families() -> None:
    receiver = batch.BatchReceiver(batch=2)
    with bind_udp("127.0.0.1", 0) as four:
        try:
            six = bind_udp("::1", 0)
        except Exception:
            pytest.skip("no IPv6 on loopback")
        with six:
            for sock in (six, four, six):
                assert batch.send_packets(sock.fileno(), [(b"x", raw(sock))]) == (1, 0)
                assert receiver.receive(sock.fileno()) == [(b"x", raw(sock))]


def test_one_call_takes_at_most_a_batch() -> None:
    with bind_udp("127.0.0.1", 0) as here:
        packets = [(b"x", raw(here))] * (batch.SEND_BATCH + 1)
        assert batch.send_packets(here.fileno(), packets) == (batch.SEND_BATCH, 0)


def test_nothing_to_send_is_fine() -> None:
    with bind_udp("127.0.0.1", 0) as here:
        heads = np.empty(0, HEADER_DTYPE)
        addresses = np.empty((0, ADDRESS_BYTES), np.uint8)
        lengths = np.empty(0, np.uint32)
        assert batch.send_packets(here.fileno(), []) == (0, 0)
        assert batch.send_shared(here.fileno(), heads, b"", addresses, lengths) == (0, 0)


def test_a_closed_socket_is_an_error_and_no_endless_loop() -> None:
    here = bind_udp("127.0.0.1", 0)
    to, number = raw(here), here.fileno()
    here.close()
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        batch.send_packets(number, [(b"x", to)])
    assert caught.value.errno == errno.EBADF
    assert batch.BatchReceiver(batch=1).receive(number) == []
