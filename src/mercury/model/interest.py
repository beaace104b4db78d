"""An interest: one topic and one filter, however many clients share it.

The broker evaluates each interest once; adapters know which of their clients hold it. So neither
has to know what the other knows, and a popular filter costs as much as a rare one.
"""

from __future__ import annotations

import hashlib

from mercury.model.filter import Filter

INTEREST_BYTES = 8


def interest_id(topic: str, content_filter: Filter) -> bytes:
    """Return the id that brokers and adapters know an interest by."""
    text = f"{topic}\0{content_filter.canonical}"
    return hashlib.blake2b(text.encode(), digest_size=INTEREST_BYTES).digest()
