"""The topics of the bus, from the module that names them."""

from __future__ import annotations

from pathlib import Path

from mercury.model import topics as names

from .md import code, table
from .wire import constants

HEAD = """# Topics

Parts talk to one another over these topics of the bus. Values are [Envelopes](wire.md#envelope) unless the
table says otherwise. `mercury tail TOPIC…` shows what is on them.
"""
# By the constant in model/topics.py: key, who appends, who reads, what is on it.
MEANINGS = {
    "REPORTS": ("client", "adapters", "pipeline", "Where each client is: its INIT and every report."),
    "EVENTS_PREFIX": ("place", "adapters", "brokers, pipeline", "What clients sensed, a topic for each kind."),
    "REQUESTS": ("client", "adapters", "brokers", "Requests of clients."),
    "REPLIES": ("client", "brokers, adapters", "adapters", "The answers to them, and receipts for messages that a client sent."),
    "ALERTS_URGENT": ("place or message", "brokers, pipeline, services, adapters", "adapters, pipeline", "Messages to clients, groups and areas with a priority of 7 and above."),
    "ALERTS_NORMAL": ("the same", "the same", "the same", "Those with a priority of 4 to 6."),
    "ALERTS_LOW": ("the same", "the same", "the same", "Those below."),
    "CONTENT_PREFIX": ("source", "adapters, services", "brokers", "Published content, a topic for each consumer topic."),
    "SUBSCRIPTIONS": ("subscription", "adapters, brokers", "brokers", "Which filters clients of an adapter hold."),
    "MATCHED_CONTENT": ("source", "brokers", "adapters", "Content, with the subscriptions that it matches in a record header."),
    "CONDITIONS": ("place", "pipeline", "brokers", "What is going on where; requests for conditions are answered from it."),
    "DELIVERIES": ("message", "adapters", "`mercury why`, `report`, pipeline", "Receipts: whom a message was addressed to, and how it ended."),
    "STATUS": ("part", "all parts", "`mercury doctor`", "What each part says of itself, every few seconds."),
    "ENTITIES": ("bucket", "adapters, gateways", "matchers", "Declarations and positions of what moves, as frames (`wire/match_frames.py`)."),
    "MATCHES": ("bucket", "matchers", "adapters, gateways", "Match events, as frames."),
    "TILES": ("shard", "shared matchers", "shared matchers", "Work for one shard, between stages of shared matchers."),
    "SIGHTINGS": ("bucket", "shared matchers", "shared matchers", "Candidate events, between stages of shared matchers."),
    "MATCHER_STATES": ("shard", "shared matchers", "shared matchers", "Snapshots, for whoever takes a partition over."),
}  # fmt: skip


def topics() -> str:
    """The page; fails where a topic has no meaning here, or a meaning no topic."""
    found = constants(Path(names.__file__))
    if set(found) != set(MEANINGS):
        raise ValueError(f"topics without a meaning, or the reverse: {set(found) ^ set(MEANINGS)}")
    rows = []
    for name, value in found.items():
        key, written, read, meaning = MEANINGS[name]
        shown = f"{value}NAME" if name.endswith("_PREFIX") else value
        rows.append((code(shown), key, written, read, meaning))
    return HEAD + "\n" + table(("topic", "keyed by", "appended by", "read by", "holds"), rows)
