"""What one client declared: its publications and subscriptions, by id and by handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mercury.matcher.backend import MatchingBackend
from mercury.matcher.gateway import requests
from mercury.matcher.gateway.numbering import NO_REFERENCE, HandleTable
from mercury.model.errors import MatchingError
from mercury.model.matching import Side

PURGE_US = 10_000_000  # interval at which a client at its limit has what expired looked for

_SIDES: tuple[Side, Side] = ("publication", "subscription")


class Declared(NamedTuple):
    """Something that the client declared."""

    ref: int
    engine_id: str
    handle: int | None


class Declarations:
    """A client's things; what expired in the engine is let go when it is next spoken of."""

    def __init__(self, hub: MatchingBackend, limit: int) -> None:
        self.handles = HandleTable()
        self.names: dict[int, str] = {}  # of subscriptions, by reference
        self._hub = hub
        self._limit = limit
        self._things: dict[Side, dict[str, Declared]] = {side: {} for side in _SIDES}
        self._named: dict[int, tuple[Side, str]] = {}  # what a handle stands for
        self._by_ref: dict[int, tuple[Side, str]] = {}
        self._purged_us = 0

    def __len__(self) -> int:
        return sum(map(len, self._things.values()))

    def named(self, ref: int) -> tuple[Side, str] | None:
        """What the client calls what has this reference."""
        return self._by_ref.get(ref)

    def publications(self) -> list[int]:
        """References of all publications."""
        return [one.ref for one in self._things["publication"].values()]

    def admit(self, fields: Mapping[str, Any], side: Side, name: str) -> int | None:
        """The handle wanted for something, if the client may have it and declare one more."""
        handle = requests.read_handle(fields)
        holder = None if handle is None else self._named.get(handle)
        if holder is not None and holder != (side, name):
            if self._lives(*holder):
                taken = " ".join(holder)
                raise MatchingError(f"handle {handle} stands for the {taken} already", "handle")
            self.let_go(*holder)
        if len(self) >= self._limit and name not in self._things[side]:
            self._purge()
            if len(self) >= self._limit:
                raise MatchingError(f"a connection declares at most {self._limit} things", "count")
        return handle

    def put(self, side: Side, name: str, declared: Declared) -> None:
        """Something is declared, or declared anew."""
        if name in self._things[side]:
            self.let_go(side, name)
        self._things[side][name] = declared
        self._by_ref[declared.ref] = (side, name)
        if side == "subscription":
            self.names[declared.ref] = name
        if declared.handle is not None:
            self.handles[declared.handle] = declared.ref
            self._named[declared.handle] = (side, name)

    def let_go(self, side: Side, name: str) -> None:
        """It is no more the client's."""
        declared = self._things[side].pop(name)
        self.names.pop(declared.ref, None)
        self._by_ref.pop(declared.ref, None)
        if declared.handle is not None:
            self.handles[declared.handle] = NO_REFERENCE
            self._named.pop(declared.handle, None)

    def find(self, fields: Mapping[str, Any]) -> tuple[Side, str, Declared]:
        """What the client speaks of, by handle or by id."""
        handle = requests.read_handle(fields)
        if handle is None:
            side, name = self._find_by_id(requests.read_id(fields), fields.get("side"))
        elif handle in self._named:
            side, name = self._named[handle]
        else:
            raise MatchingError(f"handle {handle} stands for nothing", "handle")
        declared = self._things[side][name]
        if not self._lives(side, name):
            self.let_go(side, name)
            raise MatchingError(f"the {side} {name!r} has expired: declare it again", "expired")
        return side, name, declared

    def _find_by_id(self, name: str, wanted: object) -> tuple[Side, str]:
        if wanted not in (None, *_SIDES):
            raise MatchingError("side must be publication or subscription", "side")
        sides = [side for side in _SIDES if name in self._things[side] and wanted in (None, side)]
        if not sides:
            raise MatchingError(f"{name!r} was not declared on this connection", "id")
        if len(sides) > 1:
            raise MatchingError(f"{name!r} is a publication and a subscription: say side", "side")
        return sides[0], name

    def _lives(self, side: Side, name: str) -> bool:
        declared = self._things[side][name]
        return self._hub.find(side, declared.engine_id) == declared.ref

    def _purge(self) -> None:
        now = self._hub.clock()
        if now - self._purged_us < PURGE_US:
            return
        self._purged_us = now
        for side, things in self._things.items():
            for name in [name for name in things if not self._lives(side, name)]:
                self.let_go(side, name)
