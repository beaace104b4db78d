"""What a subscription is told, whatever the link and the adapters do."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mercury.client.moving_entities import Pairs
from mercury.model.declarations import NumberedMatch
from mercury.model.matching import EventReason, EventType, Match

ENTER, INSIDE, EXIT, DWELL = EventType.ENTER, EventType.INSIDE, EventType.EXIT, EventType.DWELL


def match(event_type: EventType, publication: str = "a", time_us: int = 0) -> Match:
    return Match(
        event_type, EventReason.MOVED, "me", publication, "taxi", {}, 0.0, 0.0, 1.0, time_us
    )


class World:
    """Pairs, and what they made known."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.pairs = Pairs(self.dropped)
        self.events: list[tuple[EventType, str]] = []

    def take(self, incarnation: int, number: int, event_type: EventType, *rest: object) -> None:
        row = NumberedMatch(incarnation, number, match(event_type, *rest))  # type: ignore[arg-type]
        self.events += [(one.event_type, one.publication) for one in self.pairs.take(row)]

    def resolve(self) -> None:
        self.events += [(one.event_type, one.publication) for one in self.pairs.resolve(9)]


def test_what_comes_early_waits_for_what_is_missing() -> None:
    world = World()
    world.take(1, 3, ENTER)
    world.take(1, 2, EXIT)
    assert world.events == []
    assert world.pairs.has_gap
    world.take(1, 1, ENTER)
    assert world.events == [(ENTER, "a"), (EXIT, "a"), (ENTER, "a")]
    assert not world.pairs.has_gap
    world.take(1, 2, EXIT)
    assert world.dropped == {"match-repeated": 1}
    assert len(world.events) == 3


def test_inside_is_told_only_between_coming_and_going_and_in_order() -> None:
    world = World()
    world.take(1, 1, INSIDE, "a", 5)  # its coming in is still on the way
    world.take(1, 1, ENTER, "a", 4)
    world.take(1, 1, INSIDE, "a", 7)
    world.take(1, 1, INSIDE, "a", 6)  # overtaken
    world.take(1, 2, INSIDE, "a", 8)  # after something that has not come yet
    world.take(1, 2, EXIT, "a", 9)
    world.take(1, 1, INSIDE, "a", 8)
    assert world.events == [(ENTER, "a"), (INSIDE, "a"), (EXIT, "a")]
    assert world.dropped == {"match-out-of-order": 4}


def test_a_new_incarnation_repeats_nothing_known_and_ends_what_is_gone() -> None:
    world = World()
    for number, name in enumerate("abc", 1):
        world.take(1, number, ENTER, name)
    world.take(1, 4, DWELL, "a")
    # Its beginning withdraws what another adapter had declared; c has gone meanwhile, d come.
    for number, (event_type, name) in enumerate(
        [(EXIT, "a"), (EXIT, "b"), (EXIT, "c"), (ENTER, "a"), (ENTER, "b"), (ENTER, "d")], 1
    ):
        world.take(2, number, event_type, name)
    world.take(2, 7, DWELL, "a")
    world.take(1, 5, EXIT, "a")  # late, of the earlier incarnation
    assert world.events[3:] == [(DWELL, "a"), (ENTER, "d")]
    assert world.pairs.is_unsure
    world.resolve()
    assert world.events[5:] == [(EXIT, "c")]
    world.take(2, 8, EXIT, "b")
    assert world.events[6:] == [(EXIT, "b")]
    assert sorted(world.pairs.inside) == ["a", "d"]


def test_a_new_life_in_which_nothing_is_inside() -> None:
    world = World()
    world.take(1, 1, ENTER)
    world.pairs.doubt()
    world.resolve()
    assert world.events == [(ENTER, "a"), (EXIT, "a")]
    assert world.pairs.inside == {}


@given(st.data())
def test_in_whatever_order_and_however_often_they_come(data: st.DataObject) -> None:
    truth: list[tuple[EventType, str]] = []
    inside: set[str] = set()
    for name in data.draw(st.lists(st.sampled_from("abc"), max_size=15)):
        truth.append((EXIT if name in inside else ENTER, name))
        inside ^= {name}
    numbered = list(enumerate(truth, 1))
    again = data.draw(st.lists(st.sampled_from(numbered), max_size=10)) if numbered else []
    world = World()
    for number, (event_type, name) in data.draw(st.permutations(numbered + again)):
        world.take(1, number, event_type, name)
    assert world.events == truth
    assert set(world.pairs.inside) == inside
    assert not world.pairs.has_gap
    assert world.dropped["match-repeated"] == len(again)
