"""The header of a packet, by names."""

from __future__ import annotations

from typing import NamedTuple

from mercury.wire.packet import read_header


class Header(NamedTuple):
    kind: int
    priority: int
    token: bytes
    sequence: int


def unpack(data: bytes) -> Header:
    return Header(*read_header(data))
