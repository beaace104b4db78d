"""The array types of the kernels, and columns that grow."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.intp]
GeometryArray: TypeAlias = NDArray[np.object_]  # of shapely geometries

_Item = TypeVar("_Item", bound=np.generic)


def grown(column: NDArray[_Item], row: int, fill: Any = 0) -> NDArray[_Item]:
    """The column, made at least twice as long if it has no such row yet; new rows are `fill`."""
    if row < len(column):
        return column
    size = max(2 * len(column), row + 1)
    more = np.full((size - len(column), *column.shape[1:]), fill, column.dtype)
    return np.concatenate([column, more])
