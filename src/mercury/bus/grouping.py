"""Consumer groups: topic patterns, the partition of a key, the assignment of partitions.

Pure functions and values, no client and no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from mercury.model.errors import BusError

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # what Kafka allows, so that names are portable


class Topic(NamedTuple):
    """A topic in the catalogue; ids grow in the order of creation and are never reused."""

    id: int
    name: str
    partitions: int


class RegisteredConsumer(NamedTuple):
    """An open consumer as others see it; with a group it is a member of that group."""

    id: str
    address: str
    patterns: tuple[str, ...]
    group: str | None


@lru_cache(maxsize=4096)
def check_topic(name: str) -> str:
    """Return the name, or say why it cannot be a topic."""
    if not _TOPIC_NAME.fullmatch(name):
        raise BusError(f"{name!r} is no topic name: use letters, digits, ._- or read alerts.*")
    return name


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of a subscription, or say what is wrong with them."""
    if isinstance(patterns, str) or not patterns:
        raise BusError(f"subscribe to a list of topics, not to {patterns!r}")
    for pattern in patterns:
        check_topic(pattern.removesuffix("*") if pattern.endswith(".*") else pattern)
    return tuple(patterns)


def named_topics(patterns: Sequence[str]) -> list[str]:
    """The topics of a subscription that are named outright.

    They are created when a consumer waits for them, not when the first record comes.
    """
    return [pattern for pattern in patterns if not pattern.endswith(".*")]


@lru_cache(maxsize=4096)
def rank_of(patterns: tuple[str, ...], topic: str) -> int | None:
    """Position of the first pattern that takes in the topic: lower is served first."""
    for rank, pattern in enumerate(patterns):
        if topic == pattern or (pattern.endswith(".*") and topic.startswith(pattern[:-1])):
            return rank
    return None


def assignment_of(member: str, members: Iterable[str], partitions: int) -> frozenset[int]:
    """Partitions that belong to one member; each partition belongs to exactly one of `members`."""
    ordered = sorted(members)
    if member not in ordered:
        return frozenset()
    return frozenset(range(ordered.index(member), partitions, len(ordered)))


@dataclass(slots=True)
class Registry:
    """All topics and listeners as of one version; replaced as a whole when that changes."""

    version: int
    topics: tuple[Topic, ...] = ()
    listeners: tuple[RegisteredConsumer, ...] = ()
    moved_us: int = 0  # when a listener came or went, by the clock of the machine's uptime
    by_name: dict[str, Topic] = field(init=False)
    _audience: dict[str, tuple[RegisteredConsumer, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name = {topic.name: topic for topic in self.topics}

    def listener(self, listener_id: str) -> RegisteredConsumer | None:
        return next((one for one in self.listeners if one.id == listener_id), None)

    def matching(self, patterns: tuple[str, ...]) -> list[Topic]:
        """The topics of a subscription, in the order they are served."""
        ranked = sorted(
            (rank, topic)
            for topic in self.topics
            if (rank := rank_of(patterns, topic.name)) is not None
        )
        return [topic for _, topic in ranked]

    def audience(self, topic: str) -> tuple[RegisteredConsumer, ...]:
        """Listeners to wake for records of a topic."""
        found = self._audience.get(topic)
        if found is None:
            found = tuple(one for one in self.listeners if rank_of(one.patterns, topic) is not None)
            self._audience[topic] = found
        return found

    def members(self, group: str) -> tuple[RegisteredConsumer, ...]:
        return tuple(one for one in self.listeners if one.group == group)

    def assignment(self, listener_id: str, group: str, topic: Topic) -> frozenset[int]:
        """Partitions of a topic that a member owns; only members that want the topic count."""
        wanting = (one.id for one in self.audience(topic.name) if one.group == group)
        return assignment_of(listener_id, wanting, topic.partitions)
