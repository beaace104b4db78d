"""A MOOS message in a datagram, as pShare sends and takes it.

Layout as MOOS 10.x writes it: one message a datagram and nothing before or behind it, all numbers
little-endian, strings without an end mark behind their length in bytes:

    int32   length of the whole message, this field included
    int32   id, set anew by each MOOSDB
    char    type of message; N is a notification, the only type that pShare forwards
    char    type of data: D double, S string, B binary string
    string  source          (int32 length, bytes): the application that posted it
    string  auxiliary source
    string  community       it was posted in
    string  key             name of the variable
    double  time            seconds since 1970
    double  value           -1 when the value is a string
    double  second value    not used, -1
    string  string value    empty when the value is a double

pShare takes no more than one datagram and posts what it reads without looking at its length. It
passes over variables that it shares itself, so that nothing goes in circles.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from mercury.model.errors import MessageTooLargeError, MoosError
from mercury.model.message import MAX_PACKET_BYTES

NOTIFY = "N"
DOUBLE, STRING, BINARY = "D", "S", "B"

_HEAD = struct.Struct("<iicc")
_LENGTH = struct.Struct("<i")
_NUMBERS = struct.Struct("<ddd")
_UNUSED = -1.0


@dataclass(frozen=True, slots=True)
class MoosPacket:
    """One posting of a variable. Texts hold any bytes: what is no UTF-8 survives as surrogates."""

    key: str
    string_val: str | None = None
    double_val: float | None = None
    source: str = ""
    source_aux: str = ""
    community: str = ""
    time_s: float = 0.0
    id: int = -1
    message_type: str = NOTIFY
    binary: bool = False  # a string that is no text

    @property
    def text(self) -> str:
        """The string value; a variable of our forms that is a double instead is a MoosError."""
        if self.string_val is None:
            raise MoosError("not-a-string", f"{self.key} is a double, expected a string")
        return self.string_val


def write_packet(packet: MoosPacket) -> bytes:
    """Encode for one datagram; raises MessageTooLargeError where it does not fit."""
    data_type = DOUBLE if packet.string_val is None else BINARY if packet.binary else STRING
    parts = [_string(part) for part in (packet.source, packet.source_aux, packet.community)]
    parts.append(_string(packet.key))
    double_val = _UNUSED if packet.double_val is None else packet.double_val
    parts.append(_NUMBERS.pack(packet.time_s, double_val, _UNUSED))
    parts.append(_string(packet.string_val or ""))
    length = _HEAD.size + sum(map(len, parts))
    if length > MAX_PACKET_BYTES:
        raise MessageTooLargeError(length, MAX_PACKET_BYTES)
    types = packet.message_type.encode("latin-1"), data_type.encode("latin-1")
    return b"".join([_HEAD.pack(length, packet.id, *types), *parts])


def read_packet(data: bytes) -> MoosPacket:
    """Decode a datagram; raises MoosError unless every byte of it is accounted for."""
    if len(data) < _HEAD.size:
        raise MoosError("too-short", f"{len(data)} bytes are no message of MOOS")
    length, number, message_type, data_type = _HEAD.unpack_from(data)
    if length != len(data):
        raise MoosError("wrong-length", f"says it has {length} bytes, and has {len(data)}")
    kind = data_type.decode("latin-1")
    if kind not in (DOUBLE, STRING, BINARY):
        raise MoosError("unknown-data-type", f"data of type {kind!r}")
    at = _HEAD.size
    texts = {}
    for name in ("source", "source_aux", "community", "key"):
        texts[name], at = _read_string(data, at)
    if len(data) < at + _NUMBERS.size:
        raise MoosError("cut-off", "ends before its numbers")
    time_s, double_val, _ = _NUMBERS.unpack_from(data, at)
    string_val, at = _read_string(data, at + _NUMBERS.size)
    if at != len(data):
        raise MoosError("bytes-left-over", f"{len(data) - at} bytes too many")
    if not math.isfinite(time_s):
        raise MoosError("bad-time", f"time {time_s}")
    return MoosPacket(
        **texts,
        string_val=None if kind == DOUBLE else string_val,
        double_val=double_val if kind == DOUBLE else None,
        time_s=time_s,
        id=number,
        message_type=message_type.decode("latin-1"),
        binary=kind == BINARY,
    )


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(encoded)) + encoded


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    begin = at + _LENGTH.size
    if len(data) < begin:
        raise MoosError("cut-off", "ends before a string's length")
    [length] = _LENGTH.unpack_from(data, at)
    if not 0 <= length <= len(data) - begin:
        raise MoosError("cut-off", f"a string of {length} bytes, {len(data) - begin} are left")
    return data[begin : begin + length].decode("utf-8", "surrogateescape"), begin + length
