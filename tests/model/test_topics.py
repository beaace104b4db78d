"""The names of topics: what goes where, and what no client may name."""

from __future__ import annotations

import pytest

from mercury.model import topics
from mercury.model.errors import MessageError


@pytest.mark.parametrize(
    ("priorities", "topic"),
    [
        (range(7, 10), "alerts.urgent"),
        (range(4, 7), "alerts.normal"),
        (range(4), "alerts.low"),
    ],
)
def test_alerts_go_to_three_topics_by_urgency(priorities: range, topic: str) -> None:
    assert {topics.alerts_topic(priority) for priority in priorities} == {topic}
    assert topic in topics.ALERTS


def test_the_more_urgent_topic_stands_first() -> None:
    assert topics.ALERTS == ("alerts.urgent", "alerts.normal", "alerts.low")


@pytest.mark.parametrize("name", ["fuel", "fuel.price", "a-b_c.9", "7up", "x" * 200])
def test_good_names(name: str) -> None:
    assert topics.valid_name(name)
    assert topics.content_topic(name) == f"content.{name}"
    assert topics.events_topic(name) == f"events.{name}"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-x", "_x", "a b", "a/b", "ä", "a\n", "a*", "x" * 201, "../etc"]
)
def test_bad_names_are_refused(name: str) -> None:
    assert not topics.valid_name(name)
    with pytest.raises(MessageError, match="is no name for a topic"):
        topics.content_topic(name)
    with pytest.raises(MessageError, match="is no name for an event kind"):
        topics.events_topic(name)
