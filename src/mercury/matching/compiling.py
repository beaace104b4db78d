"""Compiling the kernel's functions, and asking for memory before it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def compiled(function: AnyFunction) -> AnyFunction:
    """Machine code, made at the first call and kept on disk."""
    made: AnyFunction = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)
    return made


def inlined(function: AnyFunction) -> AnyFunction:
    """The same for a part of another: a call with all the kernel's arrays is dear."""
    made: AnyFunction = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=True)(
        function
    )
    return made


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:  # pragma: no cover
    """Begin to load an element of a flat array; without this a random update waits three times."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        structure = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(
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
