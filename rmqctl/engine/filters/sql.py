"""``SqlFilter``: SQL92 filters on message properties, with the grammar and the logic of RocketMQ's
``SelectorParser``.

Numbers, strings (``''`` is a quote), TRUE, FALSE, NULL and property names; ``= <> > >= < <=``,
[NOT] BETWEEN, [NOT] IN, IS [NOT] NULL, AND, OR, NOT, parentheses and comments; in 5.x also [NOT]
CONTAINS, STARTSWITH and ENDSWITH. Logic has three values, and only TRUE matches. A property is a
string and is converted to the type of the other side: ``a > 5`` reads ``a`` as an ``Integer``. If
that fails for a message, it does not match, whatever the rest of the expression says
(``ExpressionMessageFilter#isMatchedByCommitLog``).

One thing is stricter: RocketMQ ignores everything behind a complete expression, but here
``a = 5 b = 6`` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from rmqctl.engine.filters.sqltokens import Token, fail, tokenize
from rmqctl.engine.filters.sqlvalues import (
    TEXT_TESTS,
    EvaluationError,
    Value,
    compare,
    decimal_literal,
    equals,
    float_literal,
    negate,
    order,
)

if TYPE_CHECKING:
    from rmqctl.engine.record.record import Record

#: A bound against hostile expressions: how deep their parts may be nested.
MAX_DEPTH = 60

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]

_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}


class SqlFilter:
    """A compiled filter. ``errors`` counts messages for which the evaluation failed, for example
    because a property is not a number. They do not match, and a broker logs them.

    :raises FilterSyntaxError: the expression is not valid.
    """

    def __init__(self, expression: str) -> None:
        self._evaluate = parse(expression)
        self.errors = 0

    def matches_code(self, code: int | None) -> bool:
        """Always true: the queue has no properties."""
        return True

    def matches(self, record: Record) -> bool:
        return self.matches_properties(record.properties)

    def matches_properties(self, properties: Properties) -> bool:
        try:
            return self._evaluate(properties) is True
        except EvaluationError:
            self.errors += 1
            return False


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of an expression. The parser checks what it may be combined with: ``is_boolean`` is a
    ``BooleanExpression``, ``is_constant`` a ``ConstantExpression``, and ``name`` the name of a
    ``PropertyExpression``."""

    evaluate: Evaluate
    depth: int = 1
    is_boolean: bool = False
    is_constant: bool = False
    value: Value = None
    name: str | None = None


def parse(expression: str) -> Evaluate:
    """Compiles an expression to a function of a message's properties.

    :raises FilterSyntaxError: it is not valid; the error tells the position.
    """
    return _Parser(expression).parse()


class _Parser:
    """Recursive descent over the tokens, with one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._at = 0
        self._open = 0

    def parse(self) -> Evaluate:
        start = self._next
        node = self._boolean(self._or(), start)
        if self._next.kind != "end":
            self._expected("AND, OR or the end")
        return node.evaluate

    # --- tokens --------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, *kinds: str) -> bool:
        """Takes the next tokens if they are of these kinds."""
        ahead = tuple(token.kind for token in self._tokens[self._at : self._at + len(kinds)])
        if ahead != kinds:
            return False
        self._at += len(kinds)
        return True

    def _require(self, kind: str, what: str) -> Token:
        token = self._next
        if token.kind != kind:
            self._expected(what)
        self._at += 1
        return token

    def _expected(self, what: str) -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else repr(token.text[:40])
        fail(token.position, f"expected {what}, found {found}")

    def _boolean(self, node: _Node, start: Token) -> _Node:
        """``SelectorParser#asBooleanExpression``."""
        if node.is_boolean:
            return node
        if node.name is None:
            fail(start.position, "neither true nor false can come of this; compare it")
        evaluate = node.evaluate
        # A property is a string, never a truth value.
        return _Node(
            lambda properties: None if evaluate(properties) is None else False,
            node.depth + 1,
            is_boolean=True,
        )

    def _depth(self, *nodes: _Node) -> int:
        depth = 1 + max(node.depth for node in nodes)
        if depth > MAX_DEPTH:
            fail(self._next.position, f"its parts lie more than {MAX_DEPTH} deep")
        return depth

    # --- rules ---------------------------------------------------------------------------

    def _or(self) -> _Node:
        return self._terms("OR", self._and, True)

    def _and(self) -> _Node:
        return self._terms("AND", self._equality, False)

    def _terms(self, word: str, rule: Callable[[], _Node], decisive: bool) -> _Node:
        """Terms joined by one word. The first that evaluates to ``decisive`` decides."""
        start = self._next
        node = rule()
        if self._next.kind != word:
            return node
        nodes = [self._boolean(node, start)]
        while self._take(word):
            start = self._next
            nodes.append(self._boolean(rule(), start))
        parts = [node.evaluate for node in nodes]

        def evaluate(properties: Properties) -> Value:
            answer: Value = not decisive
            for part in parts:
                value = part(properties)
                if value is decisive:
                    return decisive
                if value is None:
                    answer = None
            return answer

        return _Node(evaluate, self._depth(*nodes), is_boolean=True)

    def _equality(self) -> _Node:
        node = self._comparison()
        while True:
            start = self._next
            if self._take("="):
                node = self._equal(node, self._comparison(), start)
            elif self._take("<>"):
                node = self._not(self._equal(node, self._comparison(), start))
            elif self._take("IS", "NULL"):
                node = self._is_null(node)
            elif self._take("IS", "NOT", "NULL"):
                node = self._not(self._is_null(node))
            elif start.kind == "IS":
                self._at += 1
                self._expected("NULL or NOT NULL")
            else:
                return node

    def _equal(self, left: _Node, right: _Node, operator: Token) -> _Node:
        for node in (left, right):
            if node.is_constant and node.value is None:
                fail(operator.position, "nothing equals NULL: write IS NULL or IS NOT NULL")
        if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
            fail(operator.position, "a truth value cannot be compared with another constant")
        a, b = left.evaluate, right.evaluate

        def evaluate(properties: Properties) -> Value:
            x, y = a(properties), b(properties)
            if x is None:
                return True if y is None else None
            # As in the engine: an unknown value on the right gives false, and not unknown.
            return y is not None and equals(x, y)

        return _Node(evaluate, self._depth(left, right), is_boolean=True)

    def _is_null(self, node: _Node) -> _Node:
        inner = node.evaluate
        return _Node(lambda properties: inner(properties) is None, self._depth(node), True)

    def _not(self, node: _Node) -> _Node:
        inner = node.evaluate

        def evaluate(properties: Properties) -> Value:
            value = inner(properties)
            return None if value is None else not value

        return _Node(evaluate, self._depth(node), is_boolean=True)

    def _comparison(self) -> _Node:
        node = self._unary()
        while True:
            start = self._next
            if start.kind in _ORDERS:
                self._at += 1
                node = self._ordered(start.kind, node, self._unary(), start)
            elif self._take("BETWEEN"):
                node = self._between(node, start, True)
            elif self._take("NOT", "BETWEEN"):
                node = self._between(node, start, False)
            elif self._take("IN"):
                node = self._in(node, start, True)
            elif self._take("NOT", "IN"):
                node = self._in(node, start, False)
            elif (node_of_text := self._text_test(node)) is not None:
                node = node_of_text
            elif start.kind == "NOT":
                self._at += 1
                self._expected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            else:
                return node

    def _text_test(self, node: _Node) -> _Node | None:
        """``[NOT] CONTAINS 'text'``, STARTSWITH or ENDSWITH, if it comes next. A missing value, or
        one that is not a string, matches neither with NOT nor without; and so does an empty
        text."""
        inside = self._next.kind != "NOT"
        token = self._tokens[self._at if inside else self._at + 1]
        word = token.text.upper() if token.kind == "name" else ""
        if word == "LIKE":
            fail(token.position, "RocketMQ has no LIKE: there are CONTAINS, STARTSWITH, ENDSWITH")
        test = TEXT_TESTS.get(word)
        if test is None:
            return None
        self._at += 1 if inside else 2
        wanted, inner = self._string(), node.evaluate

        def evaluate(properties: Properties) -> Value:
            if not wanted:
                return False  # without a look at the value, which may be one that throws
            value = inner(properties)
            return isinstance(value, str) and test(value, wanted) is inside

        return _Node(evaluate, self._depth(node), is_boolean=True)

    def _ordered(self, kind: str, left: _Node, right: _Node, operator: Token) -> _Node:
        for node in (left, right):
            is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
            if (node.is_constant and not is_number) or (not node.is_constant and node.is_boolean):
                fail(operator.position, f"{kind} compares numbers and properties only")
        a, b, holds = left.evaluate, right.evaluate, _ORDERS[kind]

        def evaluate(properties: Properties) -> Value:
            x = a(properties)
            if x is None:
                return None
            y = b(properties)
            return None if y is None else holds(order(x, y))

        return _Node(evaluate, self._depth(left, right), is_boolean=True)

    def _between(self, node: _Node, start: Token, inside: bool) -> _Node:
        low = self._unary()
        self._require("AND", "AND and the upper end of BETWEEN")
        high = self._unary()
        kinds = (">=", "<=") if inside else ("<", ">")
        bounds = [
            self._ordered(kind, node, end, start)
            for kind, end in zip(kinds, (low, high), strict=True)
        ]
        if inside and low.is_constant and high.is_constant and compare(high.value, low.value) < 0:
            fail(start.position, "the lower end of BETWEEN lies above the upper: swap them")
        first, second = (bound.evaluate for bound in bounds)
        decisive = not inside

        def evaluate(properties: Properties) -> Value:
            x = first(properties)
            if x is decisive:
                return decisive
            y = second(properties)
            if y is decisive:
                return decisive
            return None if x is None or y is None else inside

        return _Node(evaluate, self._depth(*bounds), is_boolean=True)

    def _in(self, node: _Node, start: Token, inside: bool) -> _Node:
        self._require("(", "'(' and a list of strings")
        strings = [self._string()]
        while self._take(","):
            strings.append(self._string())
        self._require(")", "',' or ')'")
        if node.name is None:
            fail(start.position, "IN takes a property on its left")
        inner, wanted = node.evaluate, frozenset(strings)

        def evaluate(properties: Properties) -> Value:
            value = inner(properties)
            return None if value is None else (value in wanted) is inside

        return _Node(evaluate, self._depth(node), is_boolean=True)

    def _string(self) -> str:
        return _unquoted(self._require("string", "a string in single quotes").text)

    def _unary(self) -> _Node:
        start = self._next
        self._open += 1
        if self._open > MAX_DEPTH:
            fail(start.position, f"its parts lie more than {MAX_DEPTH} deep")
        try:
            if self._take("+"):
                return self._unary()
            if self._take("-"):
                node = self._unary()
                inner = node.evaluate
                return _Node(lambda properties: negate(inner(properties)), self._depth(node))
            if self._take("NOT"):
                operand = self._next
                return self._not(self._boolean(self._unary(), operand))
            return self._primary()
        finally:
            self._open -= 1

    def _primary(self) -> _Node:
        token = self._next
        if self._take("("):
            node = self._or()
            self._require(")", "an operator or ')'")
            return node
        if self._take("name"):
            name = token.text
            return _Node(lambda properties: properties.get(name), name=name)
        value: Value
        if self._take("string"):
            value = _unquoted(token.text)
        elif self._take("decimal"):
            value = decimal_literal(token.text)
            if value is None:
                fail(token.position, f"{token.text[:40]} exceeds 64 bits")
        elif self._take("float"):
            value = float_literal(token.text)
            if value is None:
                fail(token.position, f"{token.text[:40]} is not positive and finite; use 0")
        elif self._take("TRUE"):
            value = True
        elif self._take("FALSE"):
            value = False
        elif self._take("NULL"):
            value = None
        else:
            self._expected("a property, a number, a string, NOT or '('")
        is_boolean = value is None or isinstance(value, bool)
        return _Node(lambda _: value, is_boolean=is_boolean, is_constant=True, value=value)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
