"""What a client declared, on a clock of its own: renewed, resolved, found lost."""

from __future__ import annotations

from collections import Counter

import pytest

from mercury.client.moving_entities import GAP_S, RENEW_S, RESOLVE_S, DueActions, MovingEntities
from mercury.model.declarations import NumberedMatch
from mercury.model.errors import MatchingError
from mercury.model.matching import EventReason, EventType, Match

NOTHING = DueActions(False, [], [])


def match(event_type: EventType, cab: str, name: str = "taxi") -> Match:
    reason = EventReason.MOVED
    return Match(event_type, reason, name, f"{cab}/taxi", "taxi", {}, 40.0, -111.0, 10.0, 1000)


class Entities(MovingEntities):
    """With one subscription, `taxi`."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        super().__init__(self.dropped)
        self.add("subscription", "taxi")

    def enter(self, incarnation: int, number: int, cab: str, now: float = 0.0) -> list[str]:
        fresh = self.take(NumberedMatch(incarnation, number, match(EventType.ENTER, cab)), now)
        return [one.publication for one in fresh]


def test_names_are_made_up_or_taken_once_on_each_side() -> None:
    entities = Entities()
    assert entities.free_name("publication", "taxi", None) == "taxi"
    assert entities.free_name("subscription", "taxi", None) == "taxi-2"
    entities.add("subscription", "taxi-2")
    assert entities.free_name("subscription", "taxi", None) == "taxi-3"
    assert entities.free_name("subscription", "taxi", "mine") == "mine"
    with pytest.raises(MatchingError, match="declared already"):
        entities.free_name("subscription", "taxi", "taxi")
    entities.remove("subscription", "taxi")
    assert entities.free_name("subscription", "taxi", None) == "taxi"
    assert list(entities.pairs) == ["taxi-2"]


def test_what_was_declared_is_renewed_an_interval_after_the_last_time_ended() -> None:
    entities = Entities()
    assert entities.next_timer() is None
    entities.renewed(10.0)
    entities.renewed(15.0)  # something else was declared: the first is still due as before
    assert entities.next_timer() == 10.0 + RENEW_S
    assert entities.handle_timer(9.9 + RENEW_S, 0) == NOTHING
    assert entities.dropped == {}
    assert entities.handle_timer(10.0 + RENEW_S, 0) == DueActions(True, [], [])
    # Until that is done, which may take long without a session, nothing more is due.
    assert entities.next_timer() is None
    assert entities.handle_timer(500.0, 0) == NOTHING
    entities.renewed(500.0)
    assert entities.next_timer() == 500.0 + RENEW_S


def test_what_does_not_come_in_again_after_a_new_beginning_went_out() -> None:
    entities = Entities()
    assert entities.enter(1, 1, "a") == ["a/taxi"]
    assert entities.enter(1, 2, "b") == ["b/taxi"]
    assert entities.enter(2, 1, "a", 100.0) == []  # known; b has not come in again
    assert entities.next_timer() == 100.0 + RESOLVE_S
    assert entities.handle_timer(99.9 + RESOLVE_S, 7) == NOTHING
    [(name, [left])] = entities.handle_timer(100.0 + RESOLVE_S, 7).gone
    assert (name, left.publication, left.event_type) == ("taxi", "b/taxi", EventType.EXIT)
    assert (left.reason, left.time_us) == (EventReason.EXPIRED, 7)
    assert list(entities.pairs["taxi"].inside) == ["a/taxi"]
    assert entities.next_timer() is None
    assert entities.handle_timer(1000.0, 7) == NOTHING


def test_another_beginning_gives_the_full_time_again() -> None:
    entities = Entities()
    entities.enter(1, 1, "a")
    entities.enter(1, 2, "b")
    entities.enter(2, 1, "a", 100.0)
    entities.enter(3, 1, "a", 104.0)
    assert entities.next_timer() == 104.0 + RESOLVE_S


def test_an_adapter_that_says_nothing_of_a_new_beginning_leaves_nothing_inside() -> None:
    entities = Entities()
    entities.enter(1, 1, "a")
    entities.declared_anew("taxi", 0, 50.0)  # it has begun anew meanwhile, and said so
    assert entities.next_timer() is None
    entities.declared_anew("taxi", 1, 50.0)
    entities.declared_anew("gone", 1, 50.0)  # withdrawn in the meantime
    assert [name for name, _ in entities.handle_timer(50.0 + RESOLVE_S, 7).gone] == ["taxi"]
    assert not entities.pairs["taxi"].inside


def test_a_gap_that_lasts_means_that_something_is_lost() -> None:
    entities = Entities()
    entities.enter(1, 1, "a")
    assert entities.enter(1, 3, "c", 10.0) == []
    assert entities.enter(1, 4, "d", 20.0) == []  # the gap is as old as it was
    assert entities.next_timer() == 10.0 + GAP_S
    assert entities.handle_timer(9.9 + GAP_S, 0) == NOTHING
    assert entities.handle_timer(10.0 + GAP_S, 0) == DueActions(False, [], ["taxi"])
    assert entities.dropped["matches-lost"] == 1
    # If the adapter could not be asked, it is lost again after the same time.
    assert entities.next_timer() == 10.0 + 2 * GAP_S
    # What was missing closes the gap.
    assert entities.enter(1, 2, "b", 60.0) == ["b/taxi", "c/taxi", "d/taxi"]
    assert entities.next_timer() is None


def test_what_is_not_declared_any_more_is_not_heard_and_not_due() -> None:
    entities = Entities()
    entities.enter(1, 1, "a")
    entities.enter(1, 3, "c", 10.0)
    entities.requested("request", ("subscription", "taxi"))
    # A refusal that comes late finds what it is for, and not what has its name since.
    assert entities.declared_by("request") == ("subscription", "taxi")
    entities.remove("subscription", "taxi")
    assert entities.declared_by("request") is None
    assert entities.next_timer() is None
    assert entities.enter(1, 2, "b") == []


def test_only_the_latest_requests_are_remembered() -> None:
    entities = Entities()
    for number in range(2000):
        entities.requested(number, ("subscription", "taxi"))
    assert entities.declared_by(0) is None
    assert entities.declared_by(1999) == ("subscription", "taxi")
