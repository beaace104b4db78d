"""Machine code for what is done once for every position or street."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def compiled(function: AnyFunction) -> AnyFunction:
    """Made at the first call and kept on disk."""
    return cast(AnyFunction, njit(cache=True, nogil=True, error_model="numpy")(function))
