"""Compiling the kernel's functions, and asking for memory before it is needed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercury.geo import machine_code
from mercury.geo.machine_code import AnyFunction


def compiled(function: AnyFunction, **options: Any) -> AnyFunction:
    """Compile without reference counting of arrays, which would cost at each call."""
    return machine_code.compiled(function, _nrt=False, **options)


def inlined(function: AnyFunction) -> AnyFunction:
    """Compile a function to be inlined into its callers."""
    return compiled(function, forceinline=True)


def called(function: AnyFunction) -> AnyFunction:
    """Compile a rare part of a function, called rather than inlined because it is large."""
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
