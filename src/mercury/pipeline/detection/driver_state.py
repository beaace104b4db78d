"""What a job remembers between batches: a snapshot after each, so that any can be done again.

Spark repeats the batch it had not finished when it was stopped. The job then goes on from the
snapshot before that batch, and comes to the same results.
"""

from __future__ import annotations

import os
from pathlib import Path

KEPT = 3


class DriverState:
    """Snapshots in a folder, one a batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def before(self, batch: int) -> bytes | None:
        """The newest snapshot of an earlier batch."""
        earlier = [one for one in self._batches() if one < batch]
        return self._path(earlier[-1]).read_bytes() if earlier else None

    def newest(self) -> tuple[int, bytes] | None:
        """The last batch there is a snapshot of, and that."""
        batches = self._batches()
        return (batches[-1], self._path(batches[-1]).read_bytes()) if batches else None

    def save(self, batch: int, snapshot: bytes) -> None:
        """Keep the snapshot of a batch; it is there whole, or not at all."""
        path = self._path(batch)
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(snapshot)
        os.replace(unfinished, path)
        for old in self._batches()[:-KEPT]:
            self._path(old).unlink(missing_ok=True)

    def _batches(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.state"))

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch}.state"
