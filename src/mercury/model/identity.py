"""Message ids: UUIDv7 (RFC 9562 §5.7), so that ids sort by time of creation."""

from __future__ import annotations

import hashlib
import os
import random
import time
from uuid import UUID

# Ids must be unique, not secret: a generator seeded from the system is enough and costs no syscall.
_random = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):  # a forked process must not repeat its parent's ids
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))

ID_BYTES = 16
_VERSION_7 = 0x7 << 76
_VARIANT_RFC = 0x2 << 62


def new_id(now_us: int | None = None) -> bytes:
    """Return a fresh 16-byte UUIDv7."""
    if now_us is None:
        now_us = time.time_ns() // 1000
    return _uuid7((now_us // 1000) & 0xFFFF_FFFF_FFFF, _random.getrandbits(74))


def new_uuid(now_us: int | None = None) -> UUID:
    """Return a fresh UUIDv7 that people can read and paste."""
    return UUID(bytes=new_id(now_us))


def derived_id(parent: bytes, purpose: str) -> bytes:
    """Return an id that follows from `parent` alone.

    Work repeated after a crash gives the same id, and recipients drop the duplicate.
    The time part is kept, so that derived ids sort with their parents.
    """
    digest = hashlib.blake2b(parent, digest_size=10, person=purpose.encode()[:16]).digest()
    bits = int.from_bytes(digest, "big") & ((1 << 74) - 1)
    return _uuid7(int.from_bytes(parent[:6].ljust(6, b"\0"), "big"), bits)


def _uuid7(milliseconds: int, bits: int) -> bytes:
    """Out of a time of 48 bits, and 74 other bits."""
    return (
        (milliseconds << 80)
        | _VERSION_7
        | ((bits >> 62) << 64)
        | _VARIANT_RFC
        | (bits & 0x3FFF_FFFF_FFFF_FFFF)
    ).to_bytes(16, "big")
