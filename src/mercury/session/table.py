"""All sessions of an adapter: one object each, and their numbers in columns.

The columns (position, address, token, sequence, times) are NumPy arrays indexed by the session's
slot, so that "who is inside this area", "who needs a heartbeat" and "write these headers" are
single array operations over all sessions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import grown
from mercury.session.both_sides import ReplayWindow
from mercury.wire.packet import TOKEN_BYTES, headers
from mercury.wire.records import fix_header

ADDRESS_BYTES = 28  # a sockaddr_in6; a sockaddr_in needs 16

NOWHERE = (math.nan, math.nan, math.nan, math.nan)

_FIRST_CAPACITY = 1024


@dataclass(slots=True, eq=False)
class Session:
    """What an adapter keeps of one client (Mercury §4.5)."""

    slot: int  # index into the table's columns
    identity: str
    token: bytes
    incarnation: int  # of the client, as its INIT says
    address: bytes  # the raw sockaddr the client was last heard from
    last_message: float  # when that was
    fix: tuple[float, float, float, float] = NOWHERE  # lat, lon, heading, speed as last reported
    fix_header: tuple[str, bytes] = fix_header(*NOWHERE)  # the same, as a header
    replay: ReplayWindow = field(default_factory=ReplayWindow)
    flood_level: float = math.inf  # clipped to the burst at first use
    flood_time: float = field(init=False)
    key: bytes = field(init=False)  # of the client's records on the bus

    def __post_init__(self) -> None:
        self.flood_time = self.last_message
        self.key = self.identity.encode()


class SessionTable:
    """Sessions by token, by identity and by slot."""

    def __init__(self) -> None:
        self.by_token: dict[bytes, Session] = {}
        self.by_identity: dict[str, Session] = {}
        self._by_slot: list[Session | None] = []
        self._free: list[int] = []
        capacity = _FIRST_CAPACITY
        self.active: NDArray[np.bool_] = np.zeros(capacity, bool)
        # How often the slot was taken: distinguishes a client from earlier ones of the slot.
        self.generation: NDArray[np.uint32] = np.zeros(capacity, np.uint32)
        self.lat: NDArray[np.float64] = np.full(capacity, np.nan)
        self.lon: NDArray[np.float64] = np.full(capacity, np.nan)
        self.heading: NDArray[np.float64] = np.full(capacity, np.nan)
        self.speed: NDArray[np.float64] = np.full(capacity, np.nan)
        self.moved: NDArray[np.bool_] = np.zeros(capacity, bool)  # reported since last looked at
        self.last_report: NDArray[np.float64] = np.zeros(capacity)
        self.last_sent: NDArray[np.float64] = np.zeros(capacity)
        self.token: NDArray[np.uint8] = np.zeros((capacity, TOKEN_BYTES), np.uint8)
        self.sequence: NDArray[np.uint64] = np.zeros(capacity, np.uint64)
        self.address: NDArray[np.uint8] = np.zeros((capacity, ADDRESS_BYTES), np.uint8)
        self.address_length: NDArray[np.uint32] = np.zeros(capacity, np.uint32)
        # The client's number in the mediator.
        self.peer: NDArray[np.int32] = np.full(capacity, -1, np.int32)

    def __len__(self) -> int:
        return len(self.by_token)

    def __iter__(self) -> Iterator[Session]:
        return iter(self.by_token.values())

    def at(self, slot: int) -> Session | None:
        return self._by_slot[slot] if slot < len(self._by_slot) else None

    def add(
        self, identity: str, token: bytes, incarnation: int, address: bytes, now: float
    ) -> Session:
        """Open a session; the identity must not have one."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._by_slot)
            self._by_slot.append(None)
            if slot >= len(self.active):
                self._grow()
        session = Session(slot, identity, token, incarnation, address, now)
        self._by_slot[slot] = session
        self.by_token[token] = session
        self.by_identity[identity] = session
        self.active[slot] = True
        self.generation[slot] += np.uint32(1)
        self.lat[slot] = self.lon[slot] = self.heading[slot] = self.speed[slot] = math.nan
        self.moved[slot] = False
        self.last_report[slot] = self.last_sent[slot] = now
        self.token[slot] = np.frombuffer(token, np.uint8)
        self.sequence[slot] = 0
        self.peer[slot] = -1
        self.set_address(session, address)
        return session

    def remove(self, session: Session) -> None:
        """Close a session and free its slot."""
        del self.by_token[session.token]
        del self.by_identity[session.identity]
        self._by_slot[session.slot] = None
        self.active[session.slot] = False
        self.lat[session.slot] = math.nan  # NaN is inside no area
        self._free.append(session.slot)

    def set_address(self, session: Session, address: bytes) -> None:
        """Follow a client to its new network address."""
        session.address = address
        self.address[session.slot, : len(address)] = np.frombuffer(address, np.uint8)
        self.address_length[session.slot] = len(address)

    def stamp(
        self,
        slots: NDArray[np.intp],
        kind: int,
        priority: int,
        body_length: int,
        now: float,
        flags: int = 0,
    ) -> NDArray[np.void]:
        """Return the packet headers of one body for the sessions in `slots`, each once."""
        self.sequence[slots] += np.uint64(1)
        self.last_sent[slots] = now
        return headers(kind, priority, body_length, self.token[slots], self.sequence[slots], flags)

    def _grow(self) -> None:
        for name, column in list(vars(self).items()):
            if isinstance(column, np.ndarray):
                fill = np.nan if column.dtype == np.float64 else 0
                setattr(self, name, grown(column, len(column), fill))
