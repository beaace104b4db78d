"""The content filter: which messages a subscriber wants, by their key/value pairs.

    fuel_price < 1.6 and brand == "X"
    station.brand in ("X", "Y") or not closed exists or `opening hours` == "always"

A key is compared with a number, a string, true or false. Where the key is missing, or its value
is of another type than the literal, the comparison is false, whatever the operator: `!=` finds
those that say something else, `not … == …` also those that say nothing.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, NoReturn

from mercury.model import filter_tree as tree
from mercury.model.errors import FilterError
from mercury.model.filter_tree import Literal, Predicate, Value

__all__ = ["MAX_LENGTH", "MAX_NESTING", "Filter", "Value", "compile_filter", "interest_id"]

INTEREST_BYTES = 8
MAX_LENGTH = 4096
MAX_NESTING = 50

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TOKEN = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<quoted>`(?:[^`\\]|\\.)*`)
    | (?P<word>{tree.BARE_KEY})
    | (?P<symbol>[=!<>]=|[<>(),])
    """,
    re.VERBOSE | re.DOTALL,
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"\\": "\\", '"': '"', "'": "'", "`": "`", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Filter:
    """A compiled filter; two filters are equal when their canonical text is.

    `canonical` is an identity, not a shorter way to write the filter: it can be longer than
    `text`, so it is `text` that travels and is stored.
    """

    text: str = field(compare=False)
    canonical: str
    predicate: Predicate = field(compare=False)
    # What it asks for, so that nothing else need be computed.
    keys: frozenset[str] = field(default=frozenset(), compare=False)

    def matches(self, values: Mapping[str, Value]) -> bool:
        return self.predicate(values)

    def __repr__(self) -> str:
        return f"compile_filter({self.text!r})"

    def __reduce__(self) -> tuple[Callable[[str], Filter], tuple[str]]:
        # Closures cannot be pickled; another process compiles the text again.
        return compile_filter, (self.text,)


def compile_filter(text: str) -> Filter:
    """Compile a filter, or raise FilterError; an empty text matches everything."""
    if not isinstance(text, str):
        raise FilterError(f"expected a filter as text, not {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        too_long = f"the filter has {len(text)} characters, at most {MAX_LENGTH} are allowed"
        raise FilterError(too_long, MAX_LENGTH + 1)
    return _compiled(text)


@lru_cache(maxsize=1024)  # many want the same, and each subscription is read more than once
def _compiled(text: str) -> Filter:
    if surrogate := _SURROGATE.search(text):  # no UTF-8, and so no message, can carry one
        column = surrogate.start() + 1
        raise FilterError(f"half a character at column {column}", column)
    tokens = _tokenize(text)
    if tokens[0].kind == "end":
        return Filter(text, "", lambda values: True)
    root = _Parser(tokens).parse()
    keys = frozenset(str(token.value) for token in tokens if token.kind == "key")
    return Filter(text, root.canonical, root.predicate, keys)


def interest_id(topic: str, content_filter: Filter) -> bytes:
    """The id of an interest: one topic and one filter, however many clients share it.

    The broker evaluates each interest once; adapters know which of their clients hold it. So
    neither has to know what the other knows, and a popular filter costs as much as a rare one.
    """
    text = f"{topic}\0{content_filter.canonical}"
    return hashlib.blake2b(text.encode(), digest_size=INTEREST_BYTES).digest()


class _Token(NamedTuple):
    kind: str  # literal, key, operator, syntax or end
    text: str  # as written; a keyword in lower case
    column: int
    value: Literal = ""  # of a literal or a key


def _tokenize(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text[position], position + 1)
        if match.lastgroup != "space":
            tokens.append(_token(match.lastgroup, match[0], position + 1))
        position = match.end()
    tokens.append(_Token("end", "", len(text) + 1))
    return tokens


def _token(kind: str | None, written: str, column: int) -> _Token:
    match kind:
        case "number":
            return _Token("literal", written, column, _number(written, column))
        case "string":
            return _Token("literal", written, column, _unescape(written, column))
        case "quoted":
            return _Token("key", written, column, _unescape(written, column))
        case "symbol":
            return _Token("operator" if written in _MIRRORED else "syntax", written, column)
    word = written.lower()
    if word in ("true", "false"):
        return _Token("literal", word, column, word == "true")
    if word in tree.KEYWORDS:
        return _Token("syntax", word, column)
    return _Token("key", written, column, written)


def _unreadable(character: str, column: int) -> FilterError:
    if character in "\"'`":
        return FilterError(f"the {character} at column {column} is not closed", column)
    if character in "0123456789.+-":
        return FilterError(f"malformed number at column {column}", column)
    hint = ", equality is written '=='" if character == "=" else ""
    return FilterError(f"unexpected {character!r} at column {column}{hint}", column)


def _number(written: str, column: int) -> int | float:
    if written.lstrip("+-").isdigit():
        try:
            return int(written)
        except ValueError as error:  # the interpreter may refuse many digits
            raise FilterError(f"the number at column {column} is too long", column) from error
    number = float(written)
    if math.isinf(number):
        raise FilterError(f"the number at column {column} is too large", column)
    # 1, 1.0 and 1e0 are one number, so they get one canonical text.
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _unescape(written: str, column: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        plain = chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code)
        if plain is None or _SURROGATE.match(plain):
            at = column + match.start()
            raise FilterError(f"unknown escape {match[0]!r} at column {at}", at)
        return plain

    return _ESCAPE.sub(replace, written)[1:-1]


class _Parser:
    """Recursive descent: `or` binds weakest, then `and`, then `not`."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._nesting = 0

    def parse(self) -> tree.Node:
        node = self._or()
        if self._peek().kind != "end":
            self._fail("'and', 'or' or the end")
        return node

    def _or(self) -> tree.Node:
        return self._joined("or", lambda: self._joined("and", self._not))

    def _joined(self, word: str, operand: Callable[[], tree.Node]) -> tree.Node:
        operands = [operand()]
        while self._take(word):
            operands.append(operand())
        return tree.join(word, operands)

    def _not(self) -> tree.Node:
        opening = self._peek()
        if not (self._take("not") or self._take("(")):
            return self._test()
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            too_deep = f"nested more than {MAX_NESTING} deep at column {opening.column}"
            raise FilterError(too_deep, opening.column)
        if opening.text == "not":
            node = tree.negate(self._not())
        else:
            node = self._or()
            if not self._take(")"):
                self._fail("'and', 'or' or ')'")
        self._nesting -= 1
        return node

    def _test(self) -> tree.Node:
        if self._peek().kind != "key":
            literal = self._expect("literal", "a comparison").value
            symbol = self._expect("operator", "an operator such as '=='").text
            return tree.comparison(self._key(), _MIRRORED[symbol], literal)
        key = self._key()
        if self._take("exists"):
            return tree.exists(key)
        if self._take("in"):
            return tree.one_of(key, self._literals())
        symbol = self._expect("operator", "an operator such as '==', 'in' or 'exists'").text
        return tree.comparison(key, symbol, self._literal())

    def _literals(self) -> list[Literal]:
        if not self._take("("):
            self._fail("'('")
        literals = [self._literal()]
        while self._take(","):
            literals.append(self._literal())
        if not self._take(")"):
            self._fail("',' or ')'")
        return literals

    def _key(self) -> str:
        return str(self._expect("key", "a key").value)

    def _literal(self) -> Literal:
        return self._expect("literal", "a value").value

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, text: str) -> bool:
        """Step over a word or sign of the language if it is what comes next."""
        token = self._peek()
        if token.kind != "syntax" or token.text != text:
            return False
        self._next += 1
        return True

    def _expect(self, kind: str, expected: str) -> _Token:
        token = self._peek()
        if token.kind != kind:
            self._fail(expected)
        self._next += 1
        return token

    def _fail(self, expected: str) -> NoReturn:
        column = self._peek().column
        after = ""
        if self._next:
            before = self._tokens[self._next - 1].text
            after = f" after '{before if len(before) <= 40 else before[:37] + '...'}'"
        raise FilterError(f"expected {expected}{after} at column {column}", column)
