"""Which client wants which content."""

from __future__ import annotations

import pytest

from mercury.adapter.interests import MAX_PER_CLIENT, Interests
from mercury.model.area import Position
from mercury.model.filter import compile_filter, interest_id
from mercury.model.message import Subscription
from mercury.session import Session, SessionTable

HERE, KILOMETRE_AWAY = Position(40.0, -111.0), Position(40.009, -111.0)


def interest(topic: str, text: str = "") -> bytes:
    return interest_id(topic, compile_filter(text))


def subscription(
    id: bytes, topic: str = "fuel", text: str = "", near_m: float | None = None
) -> Subscription:
    return Subscription(id, topic, text, near_m)


class Bench:
    def __init__(self) -> None:
        self.table = SessionTable()
        self.interests = Interests(self.table, max_subscriptions=300)

    def open(self, identity: str, at: Position | None = HERE) -> Session:
        token = len(identity).to_bytes(8, "big") + identity.encode()[-8:].ljust(8)
        session = self.table.add(identity, token, 1, bytes(16), 0.0)
        if at is not None:
            self.table.lat[session.slot], self.table.lon[session.slot] = at.lat, at.lon
        return session

    def recipients(self, *interests: bytes, at: Position | None = None) -> list[str]:
        slots = self.interests.recipients(interests, at)
        return sorted(self.table.at(int(slot)).identity for slot in slots)  # type: ignore[union-attr]


def test_holders_of_an_interest_are_found_each_once() -> None:
    bench = Bench()
    one, other = bench.open("one"), bench.open("other")
    bench.interests.add(one, subscription(b"1"))
    bench.interests.add(one, subscription(b"2"))
    bench.interests.add(one, subscription(b"3", text="price < 2"))
    bench.interests.add(other, subscription(b"1", "parking"))
    assert bench.recipients(interest("fuel")) == ["one"]
    assert bench.recipients(interest("fuel"), interest("fuel", "price < 2")) == ["one"]
    assert bench.recipients(interest("fuel"), interest("parking")) == ["one", "other"]
    assert bench.recipients(interest("news")) == []
    assert len(bench.interests) == 4
    assert len(bench.interests.wanted) == 3


def test_near_me_is_served_only_with_content_of_a_near_place() -> None:
    bench = Bench()
    near, anywhere = bench.open("near"), bench.open("anywhere")
    bench.interests.add(near, subscription(b"1", near_m=900.0))
    bench.interests.add(anywhere, subscription(b"1"))
    fuel = interest("fuel")
    assert bench.recipients(fuel, at=HERE) == ["anywhere", "near"]
    assert bench.recipients(fuel, at=KILOMETRE_AWAY) == ["anywhere"]
    assert bench.recipients(fuel, at=None) == ["anywhere"]
    bench.table.lat[near.slot] = KILOMETRE_AWAY.lat
    assert bench.recipients(fuel, at=KILOMETRE_AWAY) == ["anywhere", "near"]


def test_the_widest_of_a_clients_subscriptions_counts() -> None:
    bench = Bench()
    car = bench.open("car")
    bench.interests.add(car, subscription(b"1", near_m=10.0))
    bench.interests.add(car, subscription(b"2", near_m=2000.0))
    assert bench.recipients(interest("fuel"), at=KILOMETRE_AWAY) == ["car"]
    bench.interests.remove(car, b"2")
    assert bench.recipients(interest("fuel"), at=KILOMETRE_AWAY) == []


def test_a_client_without_a_position_is_near_nothing() -> None:
    bench = Bench()
    bench.interests.add(bench.open("lost", at=None), subscription(b"1", near_m=1e6))
    assert bench.recipients(interest("fuel"), at=HERE) == []


def test_the_same_subscription_again_replaces_the_first() -> None:
    bench = Bench()
    car = bench.open("car")
    bench.interests.add(car, subscription(b"1", text="price < 1"))
    bench.interests.add(car, subscription(b"1", text="price < 2"))
    assert len(bench.interests) == 1
    assert bench.recipients(interest("fuel", "price < 1")) == []
    assert bench.recipients(interest("fuel", "price < 2")) == ["car"]


def test_what_nobody_holds_is_forgotten() -> None:
    bench = Bench()
    one, other = bench.open("one"), bench.open("other")
    for session in (one, other):
        bench.interests.add(session, subscription(b"1"))
    bench.interests.remove(one, b"1")
    bench.interests.remove(one, b"no such subscription")
    assert bench.recipients(interest("fuel")) == ["other"]
    bench.interests.closed(other)
    bench.interests.closed(other)
    assert bench.interests.wanted == {}
    assert len(bench.interests) == 0


def test_a_slot_that_changes_hands_holds_nothing() -> None:
    bench = Bench()
    first = bench.open("first")
    bench.interests.add(first, subscription(b"1"))
    bench.table.remove(first)
    bench.interests.closed(first)
    assert bench.open("second").slot == first.slot
    assert bench.recipients(interest("fuel")) == []


@pytest.mark.parametrize(
    "senseless",
    [
        subscription(b"1", near_m=0.0),
        subscription(b"1", near_m=-1.0),
        subscription(b"1", near_m=float("nan")),
        subscription(b"1", text="price <"),
        subscription(b"1", topic="no topic"),
        subscription(b"1", topic=""),
    ],
)
def test_senseless_subscriptions_are_not_kept(senseless: Subscription) -> None:
    bench = Bench()
    assert not bench.interests.add(bench.open("car"), senseless)
    assert len(bench.interests) == 0
    assert bench.interests.wanted == {}


def test_a_client_holds_a_bounded_number_and_may_still_change_one() -> None:
    bench = Bench()
    car = bench.open("car")
    for number in range(MAX_PER_CLIENT):
        assert bench.interests.add(car, subscription(b"%d" % number))
    assert not bench.interests.add(car, subscription(b"more"))
    assert bench.interests.add(car, subscription(b"7", "parking"))
    assert bench.recipients(interest("parking")) == ["car"]
    assert len(bench.interests) == MAX_PER_CLIENT


def test_an_interest_carries_a_filter_that_its_broker_can_read() -> None:
    bench = Bench()
    text = 'price < 1.6 and (brand == "X" or brand == "Y")'
    bench.interests.add(bench.open("car"), subscription(b"1", text=text))
    [(id, (topic, shown))] = bench.interests.wanted.items()
    assert topic == "fuel"
    assert id == interest_id(topic, compile_filter(shown)) == interest("fuel", text)


def test_above_the_limit_of_all_a_further_subscription_is_refused_in_words() -> None:
    bench = Bench()
    many, other = bench.open("many"), bench.open("other")
    for number in range(256):
        assert bench.interests.add(many, subscription(b"%d" % number))
    for number in range(44):
        assert bench.interests.add(other, subscription(b"%d" % number))
    assert not bench.interests.add(other, subscription(b"more"))
    assert bench.interests.why_full(other, b"more").startswith("300 subscriptions of all")
    assert bench.interests.why_full(many, b"more").startswith("256 subscriptions are")
    assert bench.interests.add(other, subscription(b"7", "parking"))
    assert len(bench.interests) == 300
    bench.interests.closed(many)
    assert len(bench.interests) == 44
