"""Messages as bytes: the Envelope and the UDP packet around it."""

from mercury.wire.codec import decode, encode, from_envelope, parse, to_envelope
from mercury.wire.packet import HEADER_BYTES, MAX_BODY_BYTES, NO_TOKEN, pack

__all__ = [
    "HEADER_BYTES",
    "MAX_BODY_BYTES",
    "NO_TOKEN",
    "decode",
    "encode",
    "from_envelope",
    "pack",
    "parse",
    "to_envelope",
]
