"""What happened to pairs, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class EventColumns:
    """Rows as arrays of the same length, one for each field."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Self:
        """A selection of rows."""
        return type(self)(*(getattr(self, column.name)[rows] for column in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of several, concatenated; at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            *(
                np.concatenate([getattr(part, column.name) for part in parts])
                for column in fields(cls)
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class Events(EventColumns):
    """One row for each event, in order.

    Entities are given as references, as `Engine.publish` and `Engine.subscribe` return them.
    """

    event_type: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    publication: NDArray[np.int64]
    subscription: NDArray[np.int64]
    time_us: NDArray[np.int64]
    distance_m: NDArray[np.float32]
    lat: NDArray[np.float64]  # of the publication, then
    lon: NDArray[np.float64]
    update: NDArray[np.int64]  # which of those that were applied with it it follows from
