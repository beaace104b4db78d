"""Numbers for filters and for sets of values: whether one passes the other is looked up once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from mercury.model.filter import Filter, Value, compile_filter
from mercury.model.matching import NearSubscription, Publication

Item = TypeVar("Item")


class Numbered(Generic[Item]):
    """Numbered values with reference counts; a number is never reused."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self._items: dict[int, tuple[Hashable, Item]] = {}
        self._holders: Counter[int] = Counter()
        self._numbers = itertools.count(1)

    def __getitem__(self, number: int) -> Item:
        return self._items[number][1]

    def hold(self, name: Hashable, item: Item) -> int:
        """The number under a name, with its count increased."""
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = next(self._numbers)
            self._items[number] = (name, item)
        self._holders[number] += 1
        return number

    def release(self, number: int) -> None:
        """Decrease its count; drop it at zero."""
        if number not in self._holders:
            return
        self._holders[number] -= 1
        if not self._holders[number]:
            del self._holders[number]
            name, _ = self._items.pop(number)
            del self._number[name]


class Contents:
    """The filters of subscriptions and the values of publications."""

    def __init__(self) -> None:
        self._filters: Numbered[Filter] = Numbered()
        self._values: Numbered[Mapping[str, Value]] = Numbered()

    def hold(self, entity: Publication | NearSubscription) -> int:
        """The number of its values or its filter; 0 is the filter that everything passes."""
        if isinstance(entity, Publication):
            values = entity.values.items()
            name = tuple(sorted((key, type(value).__name__, value) for key, value in values))
            return self._values.hold(name, dict(values))
        wanted = compile_filter(entity.where)
        return self._filters.hold(wanted.canonical, wanted) if wanted.canonical else 0

    def release(self, entity: Publication | NearSubscription, number: int) -> None:
        """Release what was held for such an entity."""
        held = self._values if isinstance(entity, Publication) else self._filters
        held.release(number)

    def passes(self, wanted: int, values: int) -> bool:
        """Whether the values pass the filter, by the broker's own implementation."""
        return self._filters[wanted].matches(self._values[values])
