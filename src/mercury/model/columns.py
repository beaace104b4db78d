"""Columns that grow with what they hold."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


def grown(column: NDArray[Scalar], size: int, fill: Any = 0) -> NDArray[Scalar]:
    """The column itself if it has `size` rows, or else a copy with twice as many and enough."""
    if len(column) >= size:
        return column
    missing = max(size, 2 * len(column)) - len(column)
    more = np.full((missing, *column.shape[1:]), fill, column.dtype)
    return np.concatenate([column, more])
