"""The index of content interests: which of them a content message matches."""

from __future__ import annotations

from collections import defaultdict

from mercury.model.errors import TooManyInterestsError
from mercury.model.filter import Filter, compile_filter, interest_id
from mercury.model.message import Values


class InterestIndex:
    """Interests by topic; each is evaluated once, however many clients share it."""

    def __init__(self, lifetime_s: float = 95.0, max_interests: int = 100_000) -> None:
        self._lifetime_s = lifetime_s
        self._max_interests = max_interests
        self._by_topic: dict[str, dict[bytes, Filter]] = defaultdict(dict)
        self._fresh_until: dict[tuple[str, bytes], float] = {}

    def __len__(self) -> int:
        return len(self._fresh_until)

    def add(self, topic: str, text: str, now: float) -> bytes:
        """Add or renew an interest and return its id; raises FilterError, or that it is full."""
        content_filter = compile_filter(text)
        interest = interest_id(topic, content_filter)
        is_known = (topic, interest) in self._fresh_until
        if not is_known and len(self._fresh_until) >= self._max_interests:
            raise TooManyInterestsError(f"{self._max_interests} interests are the most")
        self._by_topic[topic].setdefault(interest, content_filter)
        self._fresh_until[topic, interest] = now + self._lifetime_s
        return interest

    def match(self, topic: str, values: Values) -> list[bytes]:
        interests = self._by_topic.get(topic)
        if not interests:
            return []
        return [id for id, content_filter in interests.items() if content_filter.matches(values)]

    def expire(self, now: float) -> None:
        """Drop interests that no adapter has renewed."""
        for topic, interest in [key for key, until in self._fresh_until.items() if until < now]:
            del self._fresh_until[topic, interest]
            del self._by_topic[topic][interest]
            if not self._by_topic[topic]:
                del self._by_topic[topic]
