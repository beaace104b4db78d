"""What a content filter means: each node writes itself canonically and compiles itself.

Build nodes with `join`, `negate` and `one_of`: they keep the tree in the one shape that the
canonical text stands for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class Comparison:
    key: str
    operator: str
    literal: Literal

    @cached_property
    def canonical(self) -> str:
        return f"{_write_key(self.key)} {self.operator} {_write_literal(self.literal)}"

    def predicate(self) -> Predicate:
        key, literal, compare = self.key, self.literal, _COMPARE[self.operator]
        if isinstance(literal, (str, bool)):
            like = type(literal)
            return lambda values: (
                isinstance(value := values.get(key), like) and compare(value, literal)
            )
        return lambda values: (
            isinstance(value := values.get(key), (int, float))
            and not isinstance(value, bool)
            and compare(value, literal)
        )


@dataclass(frozen=True)
class OneOf:
    key: str
    literals: tuple[Literal, ...]

    @cached_property
    def canonical(self) -> str:
        return f"{_write_key(self.key)} in ({', '.join(map(_write_literal, self.literals))})"

    def predicate(self) -> Predicate:
        key = self.key
        # Python holds True == 1, so a literal is looked up together with its type.
        wanted = frozenset((_comparable_type(literal), literal) for literal in self.literals)
        return lambda values: (
            (like := _comparable_type(value := values.get(key))) is not None
            and (like, value) in wanted
        )


@dataclass(frozen=True)
class Exists:
    key: str

    @cached_property
    def canonical(self) -> str:
        return f"{_write_key(self.key)} exists"

    def predicate(self) -> Predicate:
        key = self.key
        return lambda values: key in values


@dataclass(frozen=True)
class Not:
    operand: Node

    @cached_property
    def canonical(self) -> str:
        inner = self.operand.canonical
        return f"not ({inner})" if isinstance(self.operand, Junction) else f"not {inner}"

    def predicate(self) -> Predicate:
        inner = self.operand.predicate()
        return lambda values: not inner(values)


@dataclass(frozen=True)
class Junction:
    """Two or more different operands, joined by `and` or by `or`."""

    word: str
    operands: tuple[Node, ...]

    @cached_property
    def canonical(self) -> str:
        # The order of the operands does not change what matches, so it must not change the text.
        return f" {self.word} ".join(sorted(self._write_operand(o) for o in self.operands))

    def _write_operand(self, operand: Node) -> str:
        inner = operand.canonical
        binds_weaker = self.word == "and" and isinstance(operand, Junction)
        return f"({inner})" if binds_weaker else inner

    def predicate(self) -> Predicate:
        settling = self.word == "or"  # the answer of one operand that settles the whole
        tests = tuple(operand.predicate() for operand in self.operands)
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


Node = Comparison | OneOf | Exists | Not | Junction


def join(word: str, operands: Sequence[Node]) -> Node:
    """Join by `and` or `or`, without repeats and without an `and` directly inside an `and`."""
    if len(operands) == 1:
        return operands[0]
    different: dict[str, Node] = {}
    for operand in operands:
        if isinstance(operand, Junction) and operand.word == word:
            different |= {node.canonical: node for node in operand.operands}
        else:
            different[operand.canonical] = operand
    nodes = tuple(different.values())
    return nodes[0] if len(nodes) == 1 else Junction(word, nodes)


def negate(node: Node) -> Node:
    return node.operand if isinstance(node, Not) else Not(node)


def one_of(key: str, literals: Iterable[Literal]) -> Node:
    different = {_write_literal(literal): literal for literal in literals}
    if len(different) == 1:
        return Comparison(key, "==", *different.values())
    return OneOf(key, tuple(different[written] for written in sorted(different)))


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
