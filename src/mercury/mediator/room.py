"""Who makes room in a full table: the least urgent, and among those whoever takes the most of it.

A core: it holds keys and says which of them have to go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from mercury.model.message import Priority

_CLIENT = "client:"
_RANKS = 2 * (Priority.EMERGENCY + 1)


class Room:
    """The room of a table, shared by all who take some of it.

    A client that has more entries than it may loses its own least urgent one. Above the limit of
    all, the least urgent of all goes: of clients before services, of whoever has the most of these,
    the oldest. Emergencies stay, whatever comes; clients cannot send any.
    """

    def __init__(self, max_entries: int, max_per_client: int) -> None:
        self._max_entries = max_entries
        self._max_per_client = max_per_client
        self._entries: dict[Hashable, tuple[int, str]] = {}  # rank and source
        self._ranks = [_Rank() for _ in range(_RANKS)]
        self._held: dict[str, int] = {}  # entries of a client

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: Hashable, source: str, priority: int) -> list[Hashable]:
        """Take an entry; returns those that must go, which may be this one."""
        is_client = source.startswith(_CLIENT)
        rank = 2 * min(max(priority, 0), Priority.EMERGENCY) + (not is_client)
        self._entries[key] = (rank, source)
        self._ranks[rank].add(key, source)
        gone: list[Hashable] = []
        if is_client:
            self._held[source] = self._held.get(source, 0) + 1
            if self._held[source] > self._max_per_client:
                self._let_go(self._least_of(source), gone)
        while len(self._entries) > self._max_entries:
            least = next(self.least_urgent(), None)
            if least is None:  # emergencies alone
                break
            self._let_go(least, gone)
        return gone

    def remove(self, key: Hashable) -> None:
        """An entry is gone; nothing happens if it is known to be."""
        found = self._entries.pop(key, None)
        if found is None:
            return
        rank, source = found
        self._ranks[rank].remove(key, source)
        if source in self._held:
            self._held[source] -= 1
            if not self._held[source]:
                del self._held[source]

    def least_urgent(self) -> Iterator[Hashable]:
        """The entries that may have to go, those that go first first."""
        for rank in self._ranks[: 2 * Priority.EMERGENCY]:
            yield from rank.of_most()

    def _least_of(self, source: str) -> Hashable:
        return next(next(iter(rank.of[source])) for rank in self._ranks if source in rank.of)

    def _let_go(self, key: Hashable, gone: list[Hashable]) -> None:
        self.remove(key)
        gone.append(key)


class _Rank:
    """Entries of one urgency, by source, and the sources by how many they have."""

    def __init__(self) -> None:
        self.of: dict[str, dict[Hashable, None]] = {}  # the oldest first
        self._with: dict[int, dict[str, None]] = {}  # sources by number of entries
        self._most = 0

    def add(self, key: Hashable, source: str) -> None:
        keys = self.of.setdefault(source, {})
        self._recount(source, len(keys), len(keys) + 1)
        keys[key] = None

    def remove(self, key: Hashable, source: str) -> None:
        keys = self.of[source]
        self._recount(source, len(keys), len(keys) - 1)
        del keys[key]
        if not keys:
            del self.of[source]

    def of_most(self) -> Iterator[Hashable]:
        """The entries of the source that has the most of them."""
        for source in self._with.get(self._most, ()):
            yield from self.of[source]

    def _recount(self, source: str, before: int, after: int) -> None:
        if before:
            del self._with[before][source]
            if not self._with[before]:
                del self._with[before]
        if after:
            self._with.setdefault(after, {})[source] = None
            self._most = max(self._most, after)
        while self._most and self._most not in self._with:
            self._most -= 1
