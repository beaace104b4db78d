"""The names of the topics on the bus."""

from __future__ import annotations

import re

from mercury.model.errors import MessageError
from mercury.model.message import Priority

REPORTS = "reports"
REQUESTS = "requests"
REPLIES = "replies"
SUBSCRIPTIONS = "subscriptions"
MATCHED_CONTENT = "matched-content"
CONDITIONS = "conditions"
DELIVERIES = "deliveries"
STATUS = "status"

# Matching of what moves: declarations and positions come in by the first and go out by the last as
# match events; the two between are for many workers. Values are frames (wire/match_frames.py).
ENTITIES = "entities"
TILES = "tiles"
SIGHTINGS = "sightings"
MATCHES = "matches"
MATCHER_STATES = "matcher.states"  # the state of workers, for those that take over

# Three topics by urgency: a backlog of the lower never delays the higher.
ALERTS_URGENT = "alerts.urgent"
ALERTS_NORMAL = "alerts.normal"
ALERTS_LOW = "alerts.low"
ALERTS = (ALERTS_URGENT, ALERTS_NORMAL, ALERTS_LOW)

EVENTS_PREFIX = "events."
CONTENT_PREFIX = "content."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,199}")


def alerts_topic(priority: int) -> str:
    if priority >= Priority.WARNING:
        return ALERTS_URGENT
    return ALERTS_NORMAL if priority >= Priority.NORMAL else ALERTS_LOW


def valid_name(name: str) -> bool:
    """Whether a client may name a topic or event kind so (the set Kafka allows, too)."""
    return _NAME.fullmatch(name) is not None


def events_topic(kind: str) -> str:
    if not valid_name(kind):
        raise MessageError(f"{kind!r} is no name for an event kind")
    return EVENTS_PREFIX + kind


def content_topic(topic: str) -> str:
    if not valid_name(topic):
        raise MessageError(f"{topic!r} is no name for a topic")
    return CONTENT_PREFIX + topic
