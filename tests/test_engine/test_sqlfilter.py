"""SQL92 filters: RocketMQ's own answers, a model of three-valued logic, and hostile expressions."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.engine.filters.sql import MAX_DEPTH, SqlFilter, parse
from rmqctl.engine.filters.sqltokens import MAX_LENGTH
from rmqctl.engine.filters.sqlvalues import EvaluationError
from rmqctl.errors import FilterSyntaxError
from tests.golden_data import GOLDEN
from tests.seeds import times

Tree = Any
_ANSWERS = {True: "true", False: "false", None: "null"}
NAMES = ("a", "b", "$c_1")


def answer(expression: str, properties: dict[str, str]) -> str:
    """What a filter says, in the words of the golden table."""
    try:
        return _ANSWERS[parse(expression)(properties)]  # type: ignore[index]
    except EvaluationError:
        return "throws"
    except FilterSyntaxError:
        return "syntax"


def test_answers_are_those_of_the_engines_own_filter() -> None:
    """``sqlfilter.expected.ndjson`` holds what ``SelectorParser`` of RocketMQ 4.9.3 answered."""
    counts: dict[str, int] = {}
    for line in (GOLDEN / "sqlfilter.expected.ndjson").read_text("utf-8").splitlines():
        row = json.loads(line)
        assert answer(row["filter"], row["properties"]) == row["answer"], line
        counts[row["answer"]] = counts.get(row["answer"], 0) + 1
    assert set(counts) == {"true", "false", "null", "throws", "syntax"}
    assert min(counts.values()) > 50


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        # Strings become what they meet, and what cannot spoils the whole expression.
        ("a > 5", {"a": "6"}, "true"),
        ("a > 5", {"a": "6.0"}, "throws"),
        ("a > 5.0", {"a": "6"}, "true"),
        ("a > 5 OR b = 'x'", {"a": "no number", "b": "x"}, "throws"),
        ("b = 'x' OR a > 5", {"a": "no number", "b": "x"}, "true"),
        ("a > 5", {"a": "3000000000"}, "throws"),
        ("a > 3000000000", {"a": "3000000001"}, "true"),
        ("a > b", {"a": "10", "b": "9"}, "true"),
        ("a = b", {"a": "10", "b": "10.0"}, "false"),
        # Unknown on one side only.
        ("a = b", {}, "true"),
        ("a = 5", {}, "null"),
        ("5 = a", {}, "false"),
        ("5 <> a", {}, "true"),
        ("a <> 5", {}, "null"),
        ("NOT a IS NULL", {}, "true"),
        # A property is a string: never true, and not false when it is absent.
        ("a", {"a": "true"}, "false"),
        ("NOT a", {"a": "true"}, "true"),
        ("a = TRUE", {"a": "tRuE"}, "true"),
        ("TRUE = a", {"a": "true"}, "throws"),
        ("a IN ('x', 'it''s')", {"a": "it's"}, "true"),
        ("a NOT IN ('x')", {}, "null"),
        ("a BETWEEN 2 AND 4 AND b BETWEEN -1 AND 1", {"a": "2", "b": "0"}, "true"),
        ("a NOT BETWEEN 4 AND 2", {"a": "3"}, "true"),
        # Of 5.x. What is absent is neither with nor without the text.
        ("a CONTAINS 'it''s'", {"a": "what it's"}, "true"),
        ("a not contains 'x'", {"a": "b"}, "true"),
        ("a NOT CONTAINS 'x'", {}, "false"),
        ("a CONTAINS ''", {"a": "b"}, "false"),
        ("a NOT STARTSWITH ''", {"a": "b"}, "false"),
        # What the text is looked for in is not evaluated if the text is empty.
        ("a > 5 CONTAINS ''", {"a": "no number"}, "false"),
        ("a > 5 NOT ENDSWITH ''", {"a": "no number"}, "false"),
        ("a > 5 CONTAINS 'x'", {"a": "no number"}, "throws"),
        ("a STARTSWITH 'b' AND a NOT ENDSWITH 'b'", {"a": "bc"}, "true"),
        ("NOT a ENDSWITH 'b'", {"a": "c"}, "false"),
        ("5 CONTAINS '5'", {}, "false"),
        ("CONTAINS CONTAINS 'x'", {"CONTAINS": "x"}, "true"),
        ("A IS NULL", {"a": "names have case"}, "true"),
        ("/* a */ a -- to the end of the line\n IS NOT NULL", {"a": ""}, "true"),
    ],
)
def test_cases_that_surprise(expression: str, properties: dict[str, str], wanted: str) -> None:
    assert answer(expression, properties) == wanted


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("", 1, "expected a property, a number, a string, NOT or '(', found the end"),
        ("a >", 4, "found the end"),
        ("a > 'x'", 3, "> compares numbers and properties only"),
        ("a = NULL", 3, "write IS NULL"),
        ("a = 5 b = 6", 7, "expected AND, OR or the end, found 'b'"),
        ("a = 'x", 5, "a string that does not end"),
        ("a = 5 ; b", 7, "';' has no meaning"),
        ("a + 5 > 3", 3, "expected AND, OR or the end"),
        ("5", 1, "compare it"),
        ("a AND 5", 7, "compare it"),
        ("a IN (5)", 7, "a string in single quotes"),
        ("5 IN ('5')", 3, "IN takes a property"),
        ("a BETWEEN 5 AND 3", 3, "swap them"),
        ("a BETWEEN 5", 12, "AND and the upper end"),
        ("a IS 5", 6, "expected NULL or NOT NULL"),
        ("a NOT 5", 7, "expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"),
        ("(a = 5", 7, "')'"),
        ("a LIKE 'x%'", 3, "RocketMQ has no LIKE: there are CONTAINS, STARTSWITH, ENDSWITH"),
        ("a NOT like 'x%'", 7, "RocketMQ has no LIKE"),
        ("a CONTAINS 5", 12, "expected a string in single quotes"),
        ("a STARTSWITH", 13, "expected a string in single quotes"),
        ("a NOT ENDSWITH b", 16, "expected a string in single quotes"),
        ("a > 9223372036854775808", 5, "exceeds 64 bits"),
        ("a > 0.0", 5, "use 0"),
        ("(" * 5000 + "a" + ")" * 5000, MAX_DEPTH + 1, "deep"),
        ("NOT " * 1000 + "a", 4 * MAX_DEPTH + 1, "deep"),
        ("a" + " IS NULL" * 500, None, "deep"),
        ("a = 5 OR " * 2000 + "a", MAX_LENGTH + 1, "characters"),
    ],
)
def test_errors_tell_the_place(expression: str, position: int | None, reason: str) -> None:
    with pytest.raises(FilterSyntaxError, match=re.escape(reason)) as caught:
        parse(expression)
    assert caught.value.exit_code == 2
    if position is not None:
        assert caught.value.position == position


def test_many_terms_are_not_deep() -> None:
    many = " OR ".join(["a = 5"] * 1500)
    assert answer(many, {"a": "5"}) == "true"
    assert answer(many, {"a": "6"}) == "false"


@settings(max_examples=times(300), deadline=None)
@given(st.text(max_size=200), st.dictionaries(st.sampled_from(NAMES), st.text(max_size=20)))
def test_no_text_raises_anything_else(text: str, properties: dict[str, str]) -> None:
    answer(text, properties)


_PIECES = st.sampled_from(
    [
        "a",
        "b",
        "$c_1",
        "5",
        "5.5",
        "-1",
        "'x'",
        "'5'",
        "TRUE",
        "FALSE",
        "NULL",
        "(",
        ")",
        "(",
        ")",
        "=",
        "<>",
        ">",
        "<",
        "<=",
        ">=",
        "AND",
        "OR",
        "NOT",
        "IS",
        "IN",
        "BETWEEN",
        ",",
        "+",
    ]
)


@settings(max_examples=times(500), deadline=None)
@given(
    st.lists(_PIECES, max_size=25),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["5", "x", "true", "1e3", "NaN", ""])),
)
def test_no_tokens_raise_anything_else(pieces: list[str], properties: dict[str, str]) -> None:
    answer(" ".join(pieces), properties)


# --- a model: three-valued logic over whole numbers -------------------------------------------

_NUMBERS = st.integers(-5, 5)
_LEAVES: st.SearchStrategy[Tree] = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from(NAMES), _NUMBERS),
    st.tuples(st.sampled_from(["IS NULL", "IS NOT NULL"]), st.sampled_from(NAMES)),
    st.tuples(
        st.sampled_from(["BETWEEN", "NOT BETWEEN"]),
        st.sampled_from(NAMES),
        st.tuples(_NUMBERS, _NUMBERS).map(sorted),
    ),
    st.tuples(
        st.sampled_from(["IN", "NOT IN"]),
        st.sampled_from(NAMES),
        st.lists(_NUMBERS, min_size=1, max_size=6),
    ),
    st.tuples(st.sampled_from(["TRUE", "FALSE"])),
)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("NOT"), inner),
        st.tuples(st.sampled_from(["AND", "OR"]), inner, inner),
    ),
    max_leaves=8,
)


def text_of(tree: Tree) -> str:
    kind, *parts = tree
    if kind in ("TRUE", "FALSE"):
        return str(kind)
    if kind == "NOT":
        return f"NOT ({text_of(parts[0])})"
    if kind in ("AND", "OR"):
        return f"({text_of(parts[0])}) {kind} ({text_of(parts[1])})"
    if "BETWEEN" in kind:
        return f"{parts[0]} {kind} {parts[1][0]} AND {parts[1][1]}"
    if kind in ("IN", "NOT IN"):
        return f"{parts[0]} {kind} ({', '.join(repr(str(number)) for number in parts[1])})"
    return " ".join(map(str, [parts[0], kind, *parts[1:]]))


def model(tree: Tree, values: dict[str, int]) -> bool | None:
    """Kleene's logic, written down as plainly as it can be."""
    kind, *parts = tree
    if kind in ("TRUE", "FALSE"):
        return bool(kind == "TRUE")
    if kind in ("AND", "OR"):
        both = [model(part, values) for part in parts]
        decisive = kind == "OR"
        return decisive if decisive in both else None if None in both else not decisive
    if kind == "NOT":
        inner = model(parts[0], values)
        return None if inner is None else not inner
    value = values.get(parts[0])
    if "NULL" in kind:
        return (value is None) is (kind == "IS NULL")
    if value is None:
        return None
    if "BETWEEN" in kind:
        return (parts[1][0] <= value <= parts[1][1]) is (kind == "BETWEEN")
    if "IN" in kind:
        return (value in parts[1]) is (kind == "IN")
    number = parts[1]
    answers: dict[str, bool] = {
        "=": value == number,
        "<>": value != number,
        "<": value < number,
        "<=": value <= number,
        ">": value > number,
        ">=": value >= number,
    }
    return answers[kind]


@settings(max_examples=times(400), deadline=None)
@given(_TREES, st.dictionaries(st.sampled_from(NAMES), st.integers(-6, 6)))
def test_logic_is_that_of_the_model(tree: Tree, values: dict[str, int]) -> None:
    properties = {name: str(value) for name, value in values.items()}
    wanted = model(tree, values)
    assert answer(text_of(tree), properties) == _ANSWERS[wanted]
    assert SqlFilter(text_of(tree)).matches_properties(properties) is (wanted is True)


def test_failures_are_counted() -> None:
    sql = SqlFilter("a > 5")
    assert [sql.matches_properties({"a": a}) for a in ("6", "x", "5", "")] == [
        True,
        False,
        False,
        False,
    ]
    assert sql.errors == 2
