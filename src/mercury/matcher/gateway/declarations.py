"""What one client declared: its publications and subscriptions, by id and by handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mercury.matcher.backend import MatchingBackend
from mercury.matcher.gateway import requests
from mercury.matcher.gateway.numbering import NO_REFERENCE, LookupTable
from mercury.model.errors import MatchingError
from mercury.model.matching import Side

PURGE_US = 10_000_000  # interval of the search for expired ones, for a client at its limit

_SIDES: tuple[Side, Side] = ("publication", "subscription")


class GatewayEntity(NamedTuple):
    """A declaration of the client."""

    ref: int
    engine_id: str
    handle: int | None


class Declarations:
    """A client's declarations; those that expired in the engine are removed at their next use."""

    def __init__(self, hub: MatchingBackend, limit: int) -> None:
        self.handles = LookupTable(NO_REFERENCE, np.int64)  # references by handle
        self.named: dict[int, tuple[Side, str]] = {}  # the client's name for it, by reference
        self._hub = hub
        self._limit = limit
        self._entities: dict[Side, dict[str, GatewayEntity]] = {side: {} for side in _SIDES}
        self._purged_us = 0

    def __len__(self) -> int:
        return sum(map(len, self._entities.values()))

    def name_of(self, ref: int) -> str | None:
        """The id that the client gave it."""
        named = self.named.get(ref)
        return None if named is None else named[1]

    def publications(self) -> list[int]:
        """References of all publications."""
        return [one.ref for one in self._entities["publication"].values()]

    def admit(self, fields: Mapping[str, Any], side: Side, name: str) -> int | None:
        """Check that the client may use this handle and declare one more; returns the handle."""
        handle = requests.read_handle(fields)
        holder = None if handle is None else self._holder(handle)
        if holder is not None and holder != (side, name):
            if self._is_current(*holder):
                taken = " ".join(holder)
                raise MatchingError(f"handle {handle} is used for the {taken} already", "handle")
            self.remove(*holder)
        if len(self) >= self._limit and name not in self._entities[side]:
            self._purge()
            if len(self) >= self._limit:
                raise MatchingError(f"a connection declares at most {self._limit} things", "count")
        return handle

    def put(self, side: Side, name: str, declared: GatewayEntity) -> None:
        """Add or replace a declaration."""
        if name in self._entities[side]:
            self.remove(side, name)
        self._entities[side][name] = declared
        self.named[declared.ref] = (side, name)
        if declared.handle is not None:
            self.handles.put(declared.handle, declared.ref)

    def remove(self, side: Side, name: str) -> None:
        """Remove it from the client."""
        declared = self._entities[side].pop(name)
        self.named.pop(declared.ref, None)
        if declared.handle is not None:
            self.handles.put(declared.handle, NO_REFERENCE)

    def find(self, fields: Mapping[str, Any]) -> tuple[Side, str, GatewayEntity]:
        """The declaration that the client refers to, by handle or by id."""
        handle = requests.read_handle(fields)
        if handle is None:
            side, name = self._find_by_id(requests.read_text(fields, "id"), fields.get("side"))
        elif (holder := self._holder(handle)) is not None:
            side, name = holder
        else:
            raise MatchingError(f"handle {handle} is not in use", "handle")
        declared = self._entities[side][name]
        if not self._is_current(side, name):
            self.remove(side, name)
            raise MatchingError(f"the {side} {name!r} has expired: declare it again", "expired")
        return side, name, declared

    def _holder(self, handle: int) -> tuple[Side, str] | None:
        """The declaration that has a handle."""
        return self.named.get(int(self.handles.look_up(handle)))

    def _find_by_id(self, name: str, wanted: object) -> tuple[Side, str]:
        if wanted not in (None, *_SIDES):
            raise MatchingError("side must be publication or subscription", "side")
        sides = [side for side in _SIDES if name in self._entities[side] and wanted in (None, side)]
        if not sides:
            raise MatchingError(f"{name!r} was not declared on this connection", "id")
        if len(sides) > 1:
            raise MatchingError(f"{name!r} is a publication and a subscription: say side", "side")
        return sides[0], name

    def _is_current(self, side: Side, name: str) -> bool:
        declared = self._entities[side][name]
        return self._hub.find(side, declared.engine_id) == declared.ref

    def _purge(self) -> None:
        now = self._hub.clock()
        if now - self._purged_us < PURGE_US:
            return
        self._purged_us = now
        for side, entities in self._entities.items():
            for name in [name for name in entities if not self._is_current(side, name)]:
                self.remove(side, name)
