"""What a content filter means: nodes with their canonical text and the predicate they stand for.

Build nodes with the functions below: they keep the tree in the one shape that the canonical text
stands for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Value = str | int | float | bool | bytes
Literal = str | int | float | bool
Predicate = Callable[[Mapping[str, Value]], bool]

KEYWORDS = frozenset({"and", "or", "not", "in", "exists", "true", "false"})
BARE_KEY = r"[^\W\d]\w*(?:[.-]\w+)*"

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Node:
    """A filter, or a part of one."""

    canonical: str
    predicate: Predicate
    word: str = ""  # that joins its operands: `and`, `or` or `not`; none for a single test
    operands: tuple[Node, ...] = ()


def comparison(key: str, symbol: str, literal: Literal) -> Node:
    canonical = f"{_write_key(key)} {symbol} {_write_literal(literal)}"
    compare = _COMPARE[symbol]
    if isinstance(literal, (str, bool)):
        like = type(literal)
        return Node(
            canonical,
            lambda values: isinstance(value := values.get(key), like) and compare(value, literal),
        )
    return Node(
        canonical,
        lambda values: (
            isinstance(value := values.get(key), (int, float))
            and not isinstance(value, bool)
            and compare(value, literal)
        ),
    )


def one_of(key: str, literals: Iterable[Literal]) -> Node:
    different = {_write_literal(literal): literal for literal in literals}
    if len(different) == 1:
        return comparison(key, "==", *different.values())
    # Python holds True == 1, so a literal is looked up together with its type.
    wanted = frozenset((_comparable_type(literal), literal) for literal in different.values())
    return Node(
        f"{_write_key(key)} in ({', '.join(sorted(different))})",
        lambda values: (
            (like := _comparable_type(value := values.get(key))) is not None
            and (like, value) in wanted
        ),
    )


def exists(key: str) -> Node:
    return Node(f"{_write_key(key)} exists", lambda values: key in values)


def negate(node: Node) -> Node:
    if node.word == "not":
        return node.operands[0]
    inner = node.predicate
    text = f"({node.canonical})" if node.word else node.canonical
    return Node(f"not {text}", lambda values: not inner(values), "not", (node,))


def join(word: str, operands: Iterable[Node]) -> Node:
    """Join by `and` or `or`, without repeats and without an `and` directly inside an `and`."""
    different: dict[str, Node] = {}
    for operand in operands:
        parts = operand.operands if operand.word == word else (operand,)
        different |= {part.canonical: part for part in parts}
    nodes = tuple(different.values())
    if len(nodes) == 1:
        return nodes[0]
    # The order of the operands does not change what matches, so it must not change the text.
    texts = sorted(
        f"({node.canonical})" if word == "and" and node.word == "or" else node.canonical
        for node in nodes
    )
    predicate = _joined([node.predicate for node in nodes], settling=word == "or")
    return Node(f" {word} ".join(texts), predicate, word, nodes)


def _joined(tests: Sequence[Predicate], *, settling: bool) -> Predicate:
    """A predicate whose answer is settled by the first test that answers so."""
    if len(tests) == 2:  # the common case, without a loop
        first, second = tests
        if settling:
            return lambda values: first(values) or second(values)
        return lambda values: first(values) and second(values)

    def junction(values: Mapping[str, Value]) -> bool:
        for test in tests:
            if test(values) is settling:
                return settling
        return not settling

    return junction


def _comparable_type(value: object) -> type | None:
    if isinstance(value, bool):  # before int, which it is too for Python
        return bool
    if isinstance(value, str):
        return str
    return float if isinstance(value, (int, float)) else None


def _write_key(key: str) -> str:
    if re.fullmatch(BARE_KEY, key) and key.lower() not in KEYWORDS:
        return key
    return _quote(key, "`")


def _write_literal(literal: Literal) -> str:
    if isinstance(literal, bool):
        return "true" if literal else "false"
    return _quote(literal, '"') if isinstance(literal, str) else repr(literal)


def _quote(text: str, mark: str) -> str:
    text = text.replace("\\", "\\\\").replace(mark, "\\" + mark)
    return mark + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\u{ord(c[0]):04x}", text) + mark
