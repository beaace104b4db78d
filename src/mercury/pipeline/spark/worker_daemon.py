"""Spark's Python workers, without a word when Spark's Java leaves before them."""

from __future__ import annotations

import sys
import traceback

from pyspark import daemon

_print = traceback.print_exc


def _print_unless_left(*arguments: object, **options: object) -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        _print(*arguments, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    traceback.print_exc = _print_unless_left
    daemon.manager()
