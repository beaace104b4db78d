"""Compiles functions that loop over positions to machine code, with Numba."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import njit

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_CONFIG: Any = numba.config


@cache
def _folder_for(sources: Path) -> str:
    """Where machine code is kept: a folder for each state of the sources, all of which count."""
    digest = hashlib.sha256()
    for source in sorted(sources.glob("*.py")):
        digest.update(source.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / "mercury" / f"{sources.name}-{digest.hexdigest()[:16]}")


def compiled(function: AnyFunction, **options: Any) -> AnyFunction:
    """Machine code, made at the first call and kept on disk."""
    options = {"nogil": True, "error_model": "numpy", **options}
    before = _CONFIG.CACHE_DIR
    # Asked for while a function is decorated.
    _CONFIG.CACHE_DIR = _folder_for(Path(function.__code__.co_filename).parent)
    try:
        made: AnyFunction = njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write
        made = njit(**options)(function)
    finally:
        _CONFIG.CACHE_DIR = before
    return made
