"""Shows that a client receives at the address it sends from, before anything is kept of it.

Who opens a session is first sent a cookie, and sends it back. It is computed from the address, so
that nothing is stored; the answer is no longer than the question, so that nobody can turn the
adapter against a third.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

from mercury.wire.packet import TOKEN_BYTES

PERIOD_S = 60.0  # a cookie holds for one to two of these


class Cookies:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, address: bytes, now: float) -> bytes:
        return self._cookie(address, int(now // PERIOD_S))

    def is_good(self, cookie: bytes, address: bytes, now: float) -> bool:
        """Whether the cookie was made for this address lately."""
        newest = int(now // PERIOD_S)
        return any(
            compare_digest(cookie, self._cookie(address, period)) for period in (newest, newest - 1)
        )

    def _cookie(self, address: bytes, period: int) -> bytes:
        data = period.to_bytes(8, "big", signed=True) + address
        return blake2b(data, key=self._secret, digest_size=TOKEN_BYTES).digest()
