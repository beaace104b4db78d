"""The publications and subscriptions that an adapter's clients declared, in columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import grown
from mercury.model.matching import Side
from mercury.session import Session
from mercury.wire import mercury_pb2 as pb

NONE = -1
_FIRST_CAPACITY = 256

Rows = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Entity:
    """One publication or subscription of a client."""

    row: int  # index into the columns
    session: Session
    side: Side
    id: str  # as the client named it; on the bus it is prefixed with the client's name
    key: int
    incarnation: int  # since when the client has had it, in microseconds
    declaration: pb.Declaration = field(default_factory=pb.Declaration)  # as matchers get it
    request: bytes = b""  # id of the message that declared it last, or asked the query


class Entities:
    """Entities by client and name, by key and by row."""

    def __init__(self) -> None:
        self.key: NDArray[np.uint64] = np.zeros(_FIRST_CAPACITY, np.uint64)
        self.slot: NDArray[np.int64] = np.full(_FIRST_CAPACITY, NONE, np.int64)  # of its session
        # Number of the last event of a subscription that was sent, but for `inside`.
        self.last_number: NDArray[np.uint32] = np.zeros(_FIRST_CAPACITY, np.uint32)
        # Entities that follow one client form a linked list: from its slot to a row, row to row.
        self._next: Rows = np.full(_FIRST_CAPACITY, NONE, np.int64)
        self._first: Rows = np.full(_FIRST_CAPACITY, NONE, np.int64)
        self._at: list[Entity | None] = []  # by row
        self._free: list[int] = []
        self._of: dict[int, dict[tuple[Side, str], Entity]] = {}  # by slot
        self._rows: dict[int, int] = {}  # by key

    def __len__(self) -> int:
        return len(self._at) - len(self._free)

    def at(self, row: int) -> Entity:
        """The entity of an occupied row."""
        entity = self._at[row]
        assert entity is not None
        return entity

    def of(self, session: Session) -> list[Entity]:
        return list(self._of.get(session.slot, {}).values())

    def get(self, session: Session, side: Side, id: str) -> Entity | None:
        return self._of.get(session.slot, {}).get((side, id))

    def moves(self, slot: int) -> bool:
        """Whether anything moves with the client in a slot."""
        return slot < len(self._first) and self._first[slot] != NONE

    def add(
        self, session: Session, side: Side, id: str, key: int, incarnation: int, *, moves: bool
    ) -> Entity:
        """Add a new entity; one that `moves` follows its client's position."""
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._at)
            self._at.append(None)
            self.key = grown(self.key, row)
            self.slot = grown(self.slot, row, NONE)
            self.last_number = grown(self.last_number, row)
            self._next = grown(self._next, row, NONE)
        entity = Entity(row, session, side, id, key, incarnation)
        self._at[row] = entity
        self._of.setdefault(session.slot, {})[side, id] = entity
        self.key[row] = key
        self.slot[row] = session.slot
        self.last_number[row] = 0
        self._rows[key] = row
        if moves:
            self._link(entity)
        return entity

    def remove(self, entity: Entity) -> None:
        slot, row = entity.session.slot, entity.row
        held = self._of[slot]
        del held[entity.side, entity.id]
        if not held:
            del self._of[slot]
        self._unlink(entity)
        self._at[row] = None
        if self._rows.get(entity.key) == row:
            del self._rows[entity.key]
        self.key[row] = 0
        self.slot[row] = NONE
        self._free.append(row)

    def set_moving(self, entity: Entity, moves: bool) -> None:
        """Set whether an entity follows its client's position."""
        self._unlink(entity)
        if moves:
            self._link(entity)

    def find(self, keys: NDArray[np.uint64]) -> Rows:
        """The rows of these keys; NONE for those of others."""
        row_of = self._rows.get
        return np.array([row_of(key, NONE) for key in keys.tolist()], np.int64)

    def moving(self, slots: Rows) -> tuple[Rows, Rows]:
        """The entities that follow the clients in these slots: index into `slots`, and row."""
        index = np.arange(len(slots))
        known = slots < len(self._first)
        index = index[known]
        rows = self._first[slots[known]]
        indices, found = [], []
        while True:
            there = rows != NONE
            index, rows = index[there], rows[there]
            if not len(rows):
                break
            indices.append(index)
            found.append(rows)
            rows = self._next[rows]
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(indices), np.concatenate(found)

    def _link(self, entity: Entity) -> None:
        slot = entity.session.slot
        self._first = grown(self._first, slot, NONE)
        self._next[entity.row] = self._first[slot]
        self._first[slot] = entity.row

    def _unlink(self, entity: Entity) -> None:
        slot = entity.session.slot
        if slot >= len(self._first):
            return
        before, row = NONE, int(self._first[slot])
        while row != NONE and row != entity.row:
            before, row = row, int(self._next[row])
        if row == NONE:
            return
        if before == NONE:
            self._first[slot] = self._next[row]
        else:
            self._next[before] = self._next[row]
        self._next[row] = NONE
