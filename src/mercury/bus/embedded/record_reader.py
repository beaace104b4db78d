"""Reads ranges of the embedded bus's records, for jobs that keep their own offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mercury.bus.embedded.catalogue import BusFile, explained
from mercury.bus.embedded.record_columns import RecordColumns
from mercury.bus.grouping import Registry, Topic


class RecordReader:
    """A view of a bus file that is no consumer: nobody wakes it, and it commits nothing."""

    def __init__(self, path: str | Path) -> None:
        self._file = BusFile(Path(path).absolute())
        self._registry = Registry(version=-1)

    def begins(self, patterns: Sequence[str]) -> dict[str, int]:
        """The oldest offset kept of each topic."""
        return {one.name: self._file.log(one).state().oldest for one in self._topics(patterns)}

    def ends(self, patterns: Sequence[str]) -> dict[str, int]:
        """The offset to come of each topic."""
        return {one.name: self._file.log(one).state().next for one in self._topics(patterns)}

    def read(self, topic: str, begin: int, end: int) -> Iterator[RecordColumns]:
        """The records from one offset up to another, in batches; none, if they are gone."""
        known = self._known().by_name.get(topic)
        if known is not None:
            yield from self._file.log(known).columns(begin, end)

    def close(self) -> None:
        self._file.close()

    def _topics(self, patterns: Sequence[str]) -> list[Topic]:
        return self._known().matching(tuple(patterns))

    def _known(self) -> Registry:
        with explained(self._file.path):
            self._registry = self._file.registry(self._registry)
        return self._registry
