"""The datagram of MOOS, byte by byte, and damaged in every way."""

from __future__ import annotations

import math
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.errors import MessageTooLargeError, MoosError
from mercury.moos.packet import MoosPacket, read_packet, write_packet

texts = st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
finite = st.floats(allow_nan=False, allow_infinity=False)
packets = st.builds(
    MoosPacket,
    key=texts,
    string_val=texts,
    source=texts,
    source_aux=texts,
    community=texts,
    time_s=finite,
    id=st.integers(-(2**31), 2**31 - 1),
    message_type=st.characters(max_codepoint=255),
    binary=st.booleans(),
) | st.builds(MoosPacket, key=texts, double_val=st.floats(allow_nan=False), time_s=finite)

# By hand from the layout: length, id, N, S, source, auxiliary source, community, key, three
# doubles, string value.
BY_HAND = (
    struct.pack("<ii", 54 + 7 + 3 + 12 + 4, 7)
    + b"NS"
    + b"\x07\0\0\0uTimerX"
    + b"\0\0\0\0"
    + b"\x03\0\0\0abe"
    + b"\x0c\0\0\0NODE_MESSAGE"
    + struct.pack("<ddd", 1700000000.25, -1.0, -1.0)
    + b"\x04\0\0\0a=\xc3\xa9"
)
AS_PACKET = MoosPacket(
    "NODE_MESSAGE", "a=é", source="uTimerX", community="abe", time_s=1700000000.25, id=7
)


# What the library of MOOS 10 wrote for the same posting, and for DIST = 1984.5 at time 1.
BY_MOOS = bytes.fromhex(
    "50000000070000004e53070000007554696d65725800000000030000006162650c0000004e4f44455f4d"
    "45535341474500001040fc54d941000000000000f0bf000000000000f0bf04000000613dc3a9"
)
DOUBLE_BY_MOOS = bytes.fromhex(
    "3a000000ffffffff4e440000000000000000000000000400000044495354000000000000f03f00000000"
    "00029f40000000000000f0bf00000000"
)


def test_a_packet_is_laid_out_as_documented() -> None:
    assert read_packet(BY_HAND) == AS_PACKET
    assert write_packet(AS_PACKET) == BY_HAND


def test_moos_writes_the_same_bytes() -> None:
    assert write_packet(AS_PACKET) == BY_MOOS
    assert write_packet(MoosPacket("DIST", double_val=1984.5, time_s=1.0)) == DOUBLE_BY_MOOS


def test_a_double_is_written_and_read() -> None:
    data = write_packet(MoosPacket("DIST", double_val=1984.5, time_s=1.0))
    assert (data[8:9], data[9:10]) == (b"N", b"D")
    assert len(data) == 54 + len("DIST")
    packet = read_packet(data)
    assert packet.double_val == 1984.5
    assert packet.string_val is None
    with pytest.raises(MoosError) as caught:
        _ = packet.text
    assert caught.value.reason == "not-a-string"


@given(packets)
def test_what_is_written_reads_back(packet: MoosPacket) -> None:
    assert read_packet(write_packet(packet)) == packet


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    try:
        read_packet(data)
    except MoosError as error:
        assert error.reason


@given(packets, st.randoms(use_true_random=False))
def test_a_damaged_packet_is_read_or_refused(packet: MoosPacket, dice: random.Random) -> None:
    damaged = bytearray(write_packet(packet))
    for _ in range(3):
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
    try:
        read_packet(bytes(damaged))
    except MoosError as error:
        assert error.reason


@given(packets, st.integers(0, 200))
def test_a_packet_cut_off_or_with_more_behind_it_is_refused(packet: MoosPacket, size: int) -> None:
    data = write_packet(packet)
    wrong = data[:size] if size < len(data) else data + b"x"
    with pytest.raises(MoosError):
        read_packet(wrong)


def _with(at: int, value: bytes) -> bytes:
    return BY_HAND[:at] + value + BY_HAND[at + len(value) :]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too-short"),
        (BY_HAND[:-1], "wrong-length"),
        (_with(0, struct.pack("<i", -1)), "wrong-length"),
        (_with(9, b"Z"), "unknown-data-type"),
        (_with(10, struct.pack("<i", -1)), "cut-off"),
        (_with(10, struct.pack("<i", 2**31 - 1)), "cut-off"),
        (_with(len(BY_HAND) - 8, struct.pack("<i", 3)), "bytes-left-over"),
        (_with(len(BY_HAND) - 32, struct.pack("<d", math.nan)), "bad-time"),
        (struct.pack("<ii", 10, 0) + b"NS", "cut-off"),
        (struct.pack("<ii", 26, 0) + b"NS" + bytes(16), "cut-off"),
    ],
)
def test_malformed_packets_are_refused_by_reason(data: bytes, reason: str) -> None:
    with pytest.raises(MoosError) as caught:
        read_packet(data)
    assert caught.value.reason == reason


def test_what_does_not_fit_in_a_datagram_is_refused() -> None:
    room = 65_507 - 54 - 1
    assert len(write_packet(MoosPacket("X", "a" * room))) == 65_507
    with pytest.raises(MessageTooLargeError):
        write_packet(MoosPacket("X", "a" * (room + 1)))
