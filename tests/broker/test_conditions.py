"""What holds where, until when."""

from __future__ import annotations

import json

from geo.strategies import shapes
from hypothesis import given
from hypothesis import strategies as st

from mercury.broker.conditions import Condition, Conditions
from mercury.geo import overlaps
from mercury.model.area import Area, Circle, Position, Shape
from mercury.model.message import Event

HERE = Area(Circle(Position(40.0, -111.0), 500.0))
OVERLAPPING = Area(Circle(Position(40.008, -111.0), 500.0))
ELSEWHERE = Area(Circle(Position(41.0, -111.0), 500.0))


def condition(text: str, area: Area = HERE, since_us: int = 1, until_us: int = 100) -> Condition:
    return Condition(Event("obstacle", text=text, values={"size": 2}), area, since_us, until_us)


def texts(found: list[Condition]) -> list[str]:
    return [one.event.text for one in found]


def test_what_overlaps_the_area_is_found_newest_first() -> None:
    conditions = Conditions()
    conditions.put(b"1", condition("old", since_us=1))
    conditions.put(b"2", condition("new", OVERLAPPING, since_us=2))
    conditions.put(b"3", condition("far", ELSEWHERE, since_us=3))
    assert texts(conditions.inside(HERE, 10)) == ["new", "old"]
    assert texts(conditions.inside(ELSEWHERE, 10)) == ["far"]


def test_what_is_over_is_not_found_and_then_forgotten() -> None:
    conditions = Conditions()
    conditions.put(b"1", condition("x", until_us=100))
    assert texts(conditions.inside(HERE, 99)) == ["x"]
    assert conditions.inside(HERE, 100) == []
    conditions.expire(99)
    assert len(conditions) == 1
    conditions.expire(100)
    assert len(conditions) == 0


def test_the_same_id_again_replaces() -> None:
    conditions = Conditions()
    conditions.put(b"1", condition("first"))
    conditions.put(b"1", condition("second"))
    assert texts(conditions.inside(HERE, 10)) == ["second"]


def test_above_the_limit_the_oldest_goes() -> None:
    conditions = Conditions(max_conditions=2)
    for number in range(3):
        conditions.put(b"%d" % number, condition(str(number), since_us=number))
    assert texts(conditions.inside(HERE, 10)) == ["2", "1"]


def test_an_answer_is_json_without_bytes() -> None:
    event = Event("obstacle", text="x", values={"size": 2, "photo": b"\xff"})
    shown = json.loads(json.dumps(Condition(event, HERE, 1, 100).to_json()))
    assert shown["kind"] == "obstacle"
    assert shown["values"] == {"size": 2}
    assert shown["area"]["geometry"]["coordinates"] == [-111.0, 40.0]


def test_above_the_limit_the_least_urgent_of_who_has_most_goes() -> None:
    conditions = Conditions(max_conditions=100, max_per_client=50)
    conditions.put(b"e", condition("emergency"), "broker:one", 9)
    for number in range(200):
        conditions.put(b"m%d" % number, condition("many"), "client:many", 7)
    for number in range(60):
        conditions.put(b"o%d" % number, condition("other"), f"client:{number}", 7)
    found = texts(conditions.inside(HERE, 10))
    assert {text: found.count(text) for text in found} == {"emergency": 1, "many": 39, "other": 60}
    assert conditions.shed == 161
    conditions.expire(100)
    assert len(conditions) == len(conditions._room) == 0


@given(st.lists(shapes, min_size=1, max_size=8), shapes, st.data())
def test_the_same_is_found_as_by_looking_at_each(
    places: list[Shape], asked: Shape, data: st.DataObject
) -> None:
    conditions = Conditions()
    for number, shape in enumerate(places):
        until_us = data.draw(st.sampled_from([5, 100]))
        conditions.put(
            b"%d" % number, condition(str(number), Area(shape), since_us=number, until_us=until_us)
        )
    conditions.expire(5)
    for number, shape in enumerate(places[:3]):
        conditions.put(b"new %d" % number, condition("new", Area(shape), since_us=100 + number))
    every = list(conditions._by_id.values())
    expected = [one for one in every if overlaps(one.area, Area(asked))]
    expected.sort(key=lambda one: -one.since_us)
    assert conditions.inside(Area(asked), 5) == expected
