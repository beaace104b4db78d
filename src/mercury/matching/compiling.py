"""Compiling the kernel's functions, and asking for memory before it is needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_CONFIG: Any = numba.config
_FOLDER = Path(__file__).parent


def _cache_folder() -> str:
    """Where machine code is kept: a folder for each state of the sources, all of which count."""
    digest = hashlib.sha256()
    for source in sorted(_FOLDER.glob("*.py")):
        digest.update(source.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / "mercury" / f"kernel-{digest.hexdigest()[:16]}")


# Without counting who holds an array, or each call would do that for all of the kernel's.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_CACHE = _cache_folder()


def compiled(function: AnyFunction, **options: Any) -> AnyFunction:
    """Machine code, made at the first call and kept on disk."""
    before = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = _CACHE  # asked for while a function is decorated
    try:
        made: AnyFunction = njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # nowhere to write
        made = njit(**_OPTIONS, **options)(function)
    finally:
        _CONFIG.CACHE_DIR = before
    return made


def inlined(function: AnyFunction) -> AnyFunction:
    """The same for a part of another, which is then not called at all."""
    return compiled(function, forceinline=True)


def called(function: AnyFunction) -> AnyFunction:
    """The same for a rare part of another, which is called after all: it would be large."""
    return compiled(function, inline="never")


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        structure = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
            context, builder, array_type, structure, [arguments[1]], wraparound=False
        )
        address = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [ir.IntType(8).as_pointer()],
            ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), flag, flag, flag]),
        )
        builder.call(function, [address, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


# Begins to load an element of a flat array; without it a random update waits for memory.
prefetch: Any = intrinsic(_prefetch)
