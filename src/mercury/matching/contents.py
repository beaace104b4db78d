"""Numbers for filters and for sets of values: whether one passes the other is looked up once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from mercury.model.filter import Filter, Value, compile_filter
from mercury.model.matching import NearSubscription, Publication

Thing = TypeVar("Thing")


class Numbered(Generic[Thing]):
    """Things that are kept as long as somebody holds them; a number is never given again."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self._things: dict[int, tuple[Hashable, Thing]] = {}
        self._holders: dict[int, int] = {}
        self._next = 1

    def __getitem__(self, number: int) -> Thing:
        return self._things[number][1]

    def hold(self, name: Hashable, thing: Thing) -> int:
        """The number of what is called so, held once more."""
        number = self._number.get(name)
        if number is None:
            number = self._next
            self._next += 1
            self._number[name] = number
            self._things[number] = (name, thing)
        self._holders[number] = self._holders.get(number, 0) + 1
        return number

    def release(self, number: int) -> None:
        """Hold it once less."""
        if number not in self._holders:
            return
        self._holders[number] -= 1
        if not self._holders[number]:
            del self._holders[number]
            name, _ = self._things.pop(number)
            del self._number[name]


class Contents:
    """The filters of subscriptions and the values of publications."""

    def __init__(self) -> None:
        self._filters: Numbered[Filter] = Numbered()
        self._values: Numbered[Mapping[str, Value]] = Numbered()

    def hold(self, thing: Publication | NearSubscription) -> int:
        """The number of its values or its filter; 0 is the filter that everything passes."""
        if isinstance(thing, Publication):
            values = thing.values.items()
            name = tuple(sorted((key, type(value).__name__, value) for key, value in values))
            return self._values.hold(name, dict(values))
        wanted = compile_filter(thing.where)
        return self._filters.hold(wanted.canonical, wanted) if wanted.canonical else 0

    def release(self, thing: Publication | NearSubscription, number: int) -> None:
        """Hold once less what was held for such a thing."""
        held = self._values if isinstance(thing, Publication) else self._filters
        held.release(number)

    def passes(self, wanted: int, values: int) -> bool:
        """The verdict, by the broker's own filter."""
        return self._filters[wanted].matches(self._values[values])
