"""Matched content of the last minute, kept for subscribers that come back."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field

from mercury.model.area import Position
from mercury.wire import mercury_pb2 as pb

# Content waits this long for subscribers that are away, if it is valid for that long.
CONTENT_KEPT_US = 60_000_000
MAX_OWED = 1000  # to one subscription


@dataclass(slots=True, eq=False)
class Content:
    """One message for the holders of some interests."""

    envelope: pb.Envelope
    body: bytes
    position: Position | None
    appended_us: int
    until_us: int  # how long it is kept
    interests: set[bytes] = field(default_factory=set)
    is_dropped: bool = False


class KeptContent:
    """Content by interest, in the order of the bus.

    A broker that was killed may match content a second time.
    """

    def __init__(self, max_messages: int = 20_000) -> None:
        self._by_id: OrderedDict[tuple[str, bytes], Content] = OrderedDict()  # the oldest first
        self._by_interest: dict[bytes, deque[Content]] = {}
        self.max_messages = max_messages

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, content: Content, interests: Collection[bytes], now_us: int) -> set[bytes]:
        """Keep content; returns the interests that it was not known to match."""
        key = (content.envelope.source.client, content.envelope.id)
        known = self._by_id.get(key)
        if known is None:
            known = self._by_id[key] = content
        fresh = set(interests) - known.interests
        known.interests |= fresh
        for interest in fresh:
            self._by_interest.setdefault(interest, deque()).append(known)
        self.expire(now_us)
        return fresh

    def owed(
        self, interest: bytes, since_us: int, heard: Collection[bytes], now_us: int
    ) -> list[Content]:
        """The valid content since a time that a subscriber has not heard, the oldest first.

        The newest are `MAX_OWED` at most, and no more are looked at.
        """
        found = []
        kept = self._by_interest.get(interest, ())
        for _, content in zip(range(MAX_OWED), reversed(kept), strict=False):
            if content.appended_us < since_us:
                break
            if content.envelope.id not in heard and content.until_us > now_us:
                found.append(content)
        return found[::-1]

    def expire(self, now_us: int) -> None:
        """Drop what is a minute old, and the oldest if there are too many."""
        while self._by_id:
            oldest = next(iter(self._by_id.values()))
            is_over = oldest.appended_us + CONTENT_KEPT_US <= now_us
            if not is_over and len(self._by_id) <= self.max_messages:
                break
            self._by_id.popitem(last=False)
            oldest.is_dropped = True
            for interest in oldest.interests:
                kept = self._by_interest[interest]
                while kept and kept[0].is_dropped:
                    kept.popleft()
                if not kept:
                    del self._by_interest[interest]
