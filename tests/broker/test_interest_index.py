"""Which interests a content message matches."""

from __future__ import annotations

import pytest

from mercury.broker.interest_index import InterestIndex
from mercury.model.errors import FilterError, TooManyInterestsError
from mercury.model.filter import compile_filter, interest_id


def test_content_matches_by_topic_and_filter() -> None:
    index = InterestIndex()
    cheap = index.add("fuel", "price < 1.6", 0.0)
    any_fuel = index.add("fuel", "", 0.0)
    index.add("parking", "", 0.0)
    assert set(index.match("fuel", {"price": 1.5})) == {cheap, any_fuel}
    assert index.match("fuel", {"price": 1.7}) == [any_fuel]
    assert index.match("fuel", {"brand": "X"}) == [any_fuel]
    assert index.match("news", {"price": 1.5}) == []


def test_equal_interests_are_one() -> None:
    index = InterestIndex()
    assert index.add("fuel", "price < 1.6", 0.0) == index.add("fuel", "price<1.6", 0.0)
    assert len(index) == 1
    assert index.add("fuel", "price < 1.6", 0.0) == interest_id("fuel", compile_filter("price<1.6"))
    assert len(index.match("fuel", {"price": 1.0})) == 1


def test_the_same_filter_on_another_topic_is_another_interest() -> None:
    index = InterestIndex()
    assert index.add("fuel", "price < 1", 0.0) != index.add("parking", "price < 1", 0.0)


def test_an_interest_nobody_speaks_for_is_forgotten() -> None:
    index = InterestIndex(lifetime_s=30.0)
    index.add("fuel", "", 0.0)
    index.add("fuel", "price < 1", 20.0)
    index.expire(30.0)
    assert len(index) == 2
    index.expire(31.0)
    assert len(index) == 1
    index.add("fuel", "price < 1", 40.0)
    index.expire(69.0)
    assert len(index) == 1
    index.expire(71.0)
    assert len(index) == 0
    assert index.match("fuel", {"price": 0.5}) == []


def test_a_filter_that_does_not_parse_is_not_taken() -> None:
    index = InterestIndex()
    with pytest.raises(FilterError):
        index.add("fuel", "price <", 0.0)
    assert len(index) == 0


def test_above_the_limit_a_further_interest_is_refused_and_known_ones_are_renewed() -> None:
    index = InterestIndex(max_interests=1)
    index.add("fuel", "", 0.0)
    with pytest.raises(TooManyInterestsError, match="1 interests are the most"):
        index.add("parking", "", 0.0)
    index.add("fuel", "", 30.0)
    index.expire(60.0)
    assert len(index) == 1
    assert index.match("parking", {}) == []
