"""The packet's header: its bytes, its checks, and the same written for many at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.errors import MessageTooLargeError, PacketError
from mercury.model.message import Kind
from mercury.wire import HEADER_BYTES, MAX_BODY_BYTES, pack
from mercury.wire.packet import headers, read_header

TOKENS = st.binary(min_size=16, max_size=16)
SEQUENCES = st.integers(0, 2**64 - 1)
PACKET = pack(Kind.REPORT, 4, bytes(range(16)), 258, b"body")


def reason_of(data: bytes) -> str:
    with pytest.raises(PacketError) as caught:
        read_header(data)
    return caught.value.reason


def test_the_bytes_are_as_documented() -> None:
    expected = b"Hg" + bytes((1, 4, 4, 0)) + b"\0\x04" + bytes(range(16)) + b"\0" * 6 + b"\1\2body"
    assert expected == PACKET


@given(st.sampled_from(Kind), st.integers(0, 9), TOKENS, SEQUENCES, st.binary(max_size=100))
def test_a_header_comes_back_as_it_was(
    kind: Kind, priority: int, token: bytes, sequence: int, body: bytes
) -> None:
    packet = pack(kind, priority, token, sequence, body)
    assert read_header(packet) == (kind, priority, token, sequence)
    assert packet[HEADER_BYTES:] == body


@given(
    st.sampled_from(Kind),
    st.integers(0, 9),
    st.binary(max_size=100),
    st.lists(st.tuples(TOKENS, SEQUENCES), max_size=20),
)
def test_headers_for_many_are_those_of_each(
    kind: Kind, priority: int, body: bytes, recipients: list[tuple[bytes, int]]
) -> None:
    tokens = np.frombuffer(b"".join(token for token, _ in recipients), np.uint8).reshape(-1, 16)
    sequences = np.array([sequence for _, sequence in recipients], np.uint64)
    written = headers(kind, priority, len(body), tokens, sequences)
    assert [head.tobytes() + body for head in written] == [
        pack(kind, priority, token, sequence, body) for token, sequence in recipients
    ]


def test_the_largest_body_fits_and_no_larger() -> None:
    token = np.zeros((1, 16), np.uint8)
    assert len(pack(Kind.CONTENT, 3, bytes(16), 1, bytes(MAX_BODY_BYTES))) == 65_507
    assert headers(Kind.CONTENT, 3, MAX_BODY_BYTES, token, np.ones(1))["length"][0] == 65_475
    with pytest.raises(MessageTooLargeError):
        pack(Kind.CONTENT, 3, bytes(16), 1, bytes(MAX_BODY_BYTES + 1))
    with pytest.raises(MessageTooLargeError):
        headers(Kind.CONTENT, 3, MAX_BODY_BYTES + 1, token, np.ones(1))


@pytest.mark.parametrize("size", [2, 10, 31, 32, 35])
def test_a_cut_packet_is_truncated(size: int) -> None:
    assert reason_of(PACKET[:size]) == "truncated"


def test_a_packet_with_more_than_it_says_is_oversized() -> None:
    assert reason_of(PACKET + b"x") == "oversized"


@pytest.mark.parametrize("data", [b"", b"H", b"GET / HTTP/1.1", b"\0" * 100, b"gH" + PACKET[2:]])
def test_other_protocols_are_not_mercury(data: bytes) -> None:
    assert reason_of(data) == "not-mercury"


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version(version: int) -> None:
    assert reason_of(PACKET[:2] + bytes((version,)) + PACKET[3:]) == "version"


@pytest.mark.parametrize("kind", [0, 10, 15, 23, 255])
def test_an_unknown_kind(kind: int) -> None:
    assert reason_of(PACKET[:3] + bytes((kind,)) + PACKET[4:]) == "unknown-kind"


@pytest.mark.parametrize("priority", [10, 255])
def test_a_priority_out_of_range(priority: int) -> None:
    assert reason_of(PACKET[:4] + bytes((priority,)) + PACKET[5:]) == "malformed"


def test_flags_of_a_newer_version_are_ignored() -> None:
    assert read_header(PACKET[:5] + b"\xff" + PACKET[6:]) == read_header(PACKET)


@given(st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    assert reason_of(data) in ("not-mercury", "truncated", "oversized", "version", "unknown-kind")
