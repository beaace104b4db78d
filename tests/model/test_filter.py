from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercury.model.errors import FilterError, MercuryError
from mercury.model.filter import MAX_LENGTH, MAX_NESTING, Filter, compile_filter

STATION: dict[str, str | int | float | bool | bytes] = {
    "fuel_price": 1.55,
    "brand": "X",
    "pumps": 8,
    "open": True,
    "station.opening-hours": "always",
    "picture": b"\x89PNG",
}

KEYWORDS = ["and", "or", "not", "in", "exists", "true", "false"]


# A second, slow reading of the language: trees as nested tuples, written out and evaluated by
# rules that share nothing with the parser.

# Small pools come first, so that a filter often meets a key, a type or a value that it names.

keys = st.one_of(
    st.sampled_from(["a", "b"]),
    st.sampled_from(["station.brand", "opening-hours", "größe", "", "a b", "`", "\\", *KEYWORDS]),
    st.text(max_size=4),
)
strings = st.one_of(st.sampled_from(["", "1", "X", "Y"]), st.text(max_size=5))
numbers = st.one_of(
    st.sampled_from([0, 1, 1.0, 2, 1.6]),
    st.sampled_from([-0.0, 1e15, 1e16, 1e300, 10**30, 2**53 + 1]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
literals = st.one_of(numbers, strings, st.booleans())
comparisons = st.tuples(
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), keys, literals, st.booleans()
)
leaves = st.one_of(
    comparisons,
    st.tuples(st.just("in"), keys, st.lists(literals, min_size=1, max_size=4)),
    st.tuples(st.just("exists"), keys),
)
trees = st.recursive(
    leaves,
    lambda children: st.one_of(
        st.tuples(st.just("not"), children),
        st.tuples(st.sampled_from(["and", "or"]), children, children),
    ),
    max_leaves=12,
)
values_of_all_types = st.one_of(
    literals, st.binary(max_size=3), st.sampled_from([float("nan"), float("inf")])
)
value_maps = st.builds(
    lambda some, more: {**more, **some},
    st.fixed_dictionaries({"a": values_of_all_types}, optional={"b": values_of_all_types}),
    st.dictionaries(keys, values_of_all_types, max_size=6),
)


def escape(text: str, mark: str) -> str:
    return mark + text.replace("\\", "\\\\").replace(mark, "\\" + mark) + mark


def write_literal(literal: object) -> str:
    if isinstance(literal, bool):
        return str(literal)  # True, False: keywords in any case
    return escape(literal, "'") if isinstance(literal, str) else repr(literal)


def write(tree: tuple[Any, ...]) -> str:
    match tree:
        case ("not", operand):
            return f"NOT ({write(operand)})"
        case ("and" | "or" as word, left, right):
            return f"({write(left)}) {word.title()} ({write(right)})"
        case ("in", key, options):
            return f"{escape(key, '`')} in({','.join(map(write_literal, options))})"
        case ("exists", key):
            return f"{escape(key, '`')} EXISTS"
        case (symbol, key, literal, False):
            return f"{escape(key, '`')}{symbol}{write_literal(literal)}"
        case (symbol, key, literal, True):
            turned = symbol.translate(str.maketrans("<>", "><"))
            return f"{write_literal(literal)} {turned} {escape(key, '`')}"
    raise AssertionError(tree)


def kind_of(value: object) -> str:
    names = {str: "text", bool: "truth", int: "number", float: "number", bytes: "bytes"}
    return names[type(value)]


def holds(tree: tuple[Any, ...], values: Mapping[str, Any]) -> bool:
    match tree:
        case ("not", operand):
            return not holds(operand, values)
        case ("and", left, right):
            return holds(left, values) and holds(right, values)
        case ("or", left, right):
            return holds(left, values) or holds(right, values)
        case ("exists", key):
            return key in values
        case ("in", key, options):
            return any(holds(("==", key, option, False), values) for option in options)
        case (symbol, key, literal, _):
            if key not in values or kind_of(values[key]) != kind_of(literal):
                return False
            value = values[key]
            answers: dict[str, bool] = {
                "==": value == literal,
                "!=": value != literal,
                "<": value < literal,
                "<=": value <= literal,
                ">": value > literal,
                ">=": value >= literal,
            }
            return answers[symbol]
    raise AssertionError(tree)


@settings(deadline=None, max_examples=400)
@given(trees, value_maps)
def test_agrees_with_the_slow_reading(tree: tuple[Any, ...], values: dict[str, Any]) -> None:
    assert compile_filter(write(tree)).matches(values) is holds(tree, values)


@settings(deadline=None, max_examples=300)
@given(trees, value_maps)
def test_canonical_text_is_the_same_filter(tree: tuple[Any, ...], values: dict[str, Any]) -> None:
    written = compile_filter(write(tree))
    again = compile_filter(written.canonical)
    assert again.canonical == written.canonical
    assert again == written
    assert hash(again) == hash(written)
    assert again.matches(values) is holds(tree, values)


SYMBOLS = ["(", ")", ",", "==", "=", "!=", "<", "<=", "`", '"', "'", "\\", "\\u12", " ", "\n"]
WORDS = ["a", "`a", "1", "1.", ".5", "-", "1e", "1e999", "9" * 400, "\x00", "é", "²", "٣", "\ud800"]
fragments = st.sampled_from([*KEYWORDS, *SYMBOLS, *WORDS])


@settings(deadline=None, max_examples=1000)
@given(st.one_of(st.text(), st.lists(fragments, max_size=15).map("".join)))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    refusal = None
    try:
        compiled = compile_filter(text)
    except FilterError as error:
        refusal = error
    if refusal is None:
        assert compiled.text == text
        assert compile_filter(compiled.canonical) == compiled
    else:
        assert 1 <= refusal.column <= len(text) + 1
        assert f"column {refusal.column}" in str(refusal)


@pytest.mark.parametrize(
    "text",
    [
        'fuel_price < 1.6 and brand == "X"',
        '1.6 > fuel_price AND "X" == brand and 1.5 < fuel_price',
        "8 <= pumps and 8 >= pumps and 9 != pumps",
        "fuel_price<1.6 or brand!='Y'",
        "pumps == 8.0 and pumps >= 8 and pumps <= +8",
        "open == true and not open == FALSE",
        "brand in ('W', 'X') and pumps in (7, 8.0)",
        "station.opening-hours == 'always' and `station.opening-hours` exists",
        "picture exists",
        "not missing exists and not missing == 1 and not missing != 1",
        'brand == \'\\u0058\' and brand != "\\"\\n"',
        "missing == 1 and missing == 2 or brand == 'X'",
        "not (brand == 'Y' and pumps == 8)",
        "pumps < " + "9" * 400,
        "pumps > -" + "9" * 400,
        "",
        " \t\n",
    ],
)
def test_filters_that_match_the_station(text: str) -> None:
    assert compile_filter(text).matches(STATION) is True


@pytest.mark.parametrize(
    "text",
    [
        "fuel_price < 1.5",
        "missing == 1",
        "missing != 1",
        "missing in (1, 'X', true)",
        "brand == 8 or brand != 8 or brand < 8",
        "pumps == '8' or pumps != '8' or pumps >= ''",
        "open == 1 or open != 0 or open in (1, 2)",
        "pumps in (true, false) or fuel_price in ('1.55', true)",
        "pumps == true or pumps != true or pumps > false",
        "picture == 'PNG' or picture != 'PNG' or picture in ('PNG', 1)",
        "brand == 'X' and (missing == 1 or pumps == 9)",
        "not open exists",
    ],
)
def test_filters_that_do_not_match_the_station(text: str) -> None:
    assert compile_filter(text).matches(STATION) is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fuel_price <", "expected a value after '<' at column 13"),
        ("fuel_price < and", "expected a value after '<' at column 14"),
        ("a < b", "expected a value after '<' at column 5"),
        ("1 < 2", "expected a key after '<' at column 5"),
        ("1", "expected an operator such as '==' after '1' at column 2"),
        ("a", "expected an operator such as '==', 'in' or 'exists' after 'a' at column 2"),
        ("a (", "expected an operator such as '==', 'in' or 'exists' after 'a' at column 3"),
        ("and", "expected a comparison at column 1"),
        ("a == 1 or", "expected a comparison after 'or' at column 10"),
        ("()", "expected a comparison after '(' at column 2"),
        ("(a == 1", "expected 'and', 'or' or ')' after '1' at column 8"),
        ("a == 1)", "expected 'and', 'or' or the end after '1' at column 7"),
        ("a in 1", "expected '(' after 'in' at column 6"),
        ("a in ()", "expected a value after '(' at column 7"),
        ("a in (1,)", "expected a value after ',' at column 9"),
        ("a in (1 2)", "expected ',' or ')' after '1' at column 9"),
        ("a = 1", "unexpected '=' at column 3, equality is written '=='"),
        ("a == nan", "expected a value after '==' at column 6"),
        ("a == 1e999", "the number at column 6 is too large"),
        ("a == 1.2.3", "malformed number at column 6"),
        ("a == 0x10", "malformed number at column 6"),
        ("a == 'x", "the ' at column 6 is not closed"),
        ("a == 'x\\'", "the ' at column 6 is not closed"),
        ("a == '\\q'", "unknown escape '\\\\q' at column 7"),
        ("a == '\\ud800'", "unknown escape '\\\\ud800' at column 7"),
        ("a == '\ud800'", "half a character at column 7"),
        ("a & b", "unexpected '&' at column 3"),
    ],
)
def test_says_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(text)
    assert str(caught.value) == message
    assert isinstance(caught.value, MercuryError)


def test_length_is_bounded() -> None:
    longest = "a == '" + "x" * (MAX_LENGTH - 7) + "'"
    assert compile_filter(longest).matches({"a": "x" * (MAX_LENGTH - 7)})
    with pytest.raises(FilterError, match="4097 characters, at most 4096"):
        compile_filter(longest + " ")


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("not (", ")")])
def test_nesting_is_bounded(opening: str, closing: str) -> None:
    deepest = MAX_NESTING // len(opening.split())
    compiled = compile_filter(opening * deepest + "a == 1" + closing * deepest)
    assert compiled.matches({"a": 1}) is not (deepest % 2 == 1 and "not" in opening)
    with pytest.raises(FilterError, match="nested more than 50 deep at column"):
        compile_filter(opening * (deepest + 1) + "a == 1" + closing * (deepest + 1))


def test_siblings_do_not_add_to_the_nesting() -> None:
    assert compile_filter(" or ".join(["(not a == 1)"] * 200)).matches({})


def test_refuses_what_is_not_text() -> None:
    with pytest.raises(FilterError, match="expected a filter as text, not NoneType"):
        compile_filter(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a<1", "1 > `a`"),
        ("a == 1 and b == 2", "(b == 2.0) AND (a == 1e0) and a == 1"),
        ("a == 1 or (b == 2 or c == 3)", "(c==3 or a==1) or b==2"),
        ("a in (2, 1, 1.0)", "a in (1, 2)"),
        ("a in ('x')", 'a == "x"'),
        ("not not a exists", "a exists"),
        ("", "  "),
        ("a == 'it\\'s'", 'a == "it\'s"'),
        ("(a == 1 and b == 2 or a == 1 and b == 2) and c == 3", "a == 1 and b == 2 and c == 3"),
    ],
)
def test_equal_filters_share_an_identity(one: str, other: str) -> None:
    assert compile_filter(one) == compile_filter(other)
    assert len({compile_filter(one), compile_filter(other)}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a == 1", "a == '1'"),
        ("a == 1", "a == true"),
        ("a in (1, 2)", "a in (true, 2)"),
        ("a == 1 and b == 2 or c == 3", "a == 1 and (b == 2 or c == 3)"),
        ("not a == 1", "a != 1"),
        ("not (a == 1 and b == 2)", "not a == 1 and b == 2"),
    ],
)
def test_different_filters_differ(one: str, other: str) -> None:
    assert compile_filter(one) != compile_filter(other)


def test_is_not_equal_to_its_text() -> None:
    assert compile_filter("a == 1") != "a == 1"


def test_canonical_text_reads_well() -> None:
    canonical = compile_filter("'X'==brand and fuel_price<1.60").canonical
    assert canonical == 'brand == "X" and fuel_price < 1.6'


def test_travels_to_another_process() -> None:
    arrived = pickle.loads(pickle.dumps(compile_filter("a==1")))
    assert isinstance(arrived, Filter)
    assert arrived.text == "a==1"
    assert arrived.matches({"a": 1})
    assert repr(arrived) == "compile_filter('a==1')"


def test_a_filter_says_what_it_asks_for() -> None:
    text = "a < 1 and (not b exists or 2 < `c d`) and a in (1, 2)"
    assert compile_filter(text).keys == {"a", "b", "c d"}
    assert compile_filter("").keys == set()
