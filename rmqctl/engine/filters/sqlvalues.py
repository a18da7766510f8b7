"""Values of a SQL92 filter and how two of them compare (``ComparisonExpression#__compare``).

RocketMQ's filter knows Java's ``Boolean``, ``Integer``, ``Long``, ``Double`` and ``String``; a
property is always a string and is converted to the type of the other value. Here they are ``bool``,
``int``, :class:`Long`, ``float`` and ``str``; None is SQL's unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from formats.constants import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
)
_NAMED = re.compile(r"[+-]?(?:NaN|Infinity)")
#: The characters that Java's ``String#trim`` removes.
_TRIMMED = "".join(map(chr, range(0x21)))


class EvaluationError(Exception):
    """Java would throw during the evaluation; for the broker the message does not match."""


class Long(int):
    """A Java ``Long``: strings are compared with it in 64 bits."""


#: The text operators of 5.x (``ComparisonExpression#createContains`` and its like).
TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


Value = bool | int | float | str | None


def to_whole(text: str, low: int = INT_MIN, high: int = INT_MAX) -> int:
    """``Integer#valueOf``; :raises EvaluationError: not a whole number in the range."""
    # Java reads UTF-16 units, so digits beyond the BMP are no digits.
    if _WHOLE.fullmatch(text) and max(text) <= "\uffff":
        try:
            value = int(text)
        except ValueError:  # thousands of digits
            value = LONG_MAX + 1
        if low <= value <= high:
            return value
    raise EvaluationError(f"{text!r} is no whole number from {low} to {high}")


def to_long(text: str) -> Long:
    """``Long#valueOf``; raises what :func:`to_whole` raises."""
    return Long(to_whole(text, LONG_MIN, LONG_MAX))


def to_double(text: str) -> float:
    """``Double#valueOf``; :raises EvaluationError: not a number in Java's spelling."""
    trimmed = text.strip(_TRIMMED)
    if found := _DECIMAL.fullmatch(trimmed):
        return float(found[1])
    if _NAMED.fullmatch(trimmed):
        return float(trimmed)
    if found := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if trimmed[0] == "-" else "inf")
    raise EvaluationError(f"{text!r} is no number")


def to_boolean(text: str) -> bool:
    """``Boolean#valueOf``: true for ``true`` in any case."""
    return len(text) == 4 and text.isascii() and text.lower() == "true"


def compare(left: Value, right: Value) -> int:
    """Negative, 0 or positive, as ``__compare`` for two values that are not null; also -1 for two
    that cannot be compared.

    :raises EvaluationError: a string cannot be converted to the other's type.
    """
    if isinstance(left, str) and not isinstance(right, str):
        if isinstance(right, bool):
            left = to_boolean(left)
        else:
            left = _like(right, left)
    elif isinstance(right, str) and not isinstance(left, str):
        if isinstance(left, bool):
            # The engine casts the wrong one of the two.
            raise EvaluationError("a truth value on the left of a string")
        right = _like(left, right)
    elif isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _compare_doubles(float(left), float(right))  # type: ignore[arg-type]
    return (left > right) - (left < right)  # type: ignore[operator]


def equals(left: Value, right: Value) -> bool:
    """Equality of two values that are not null, by type first and then by :func:`compare`."""
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return compare(left, right) == 0


def order(left: Value, right: Value) -> int:
    """:func:`compare` for ``<`` and its like: two strings are compared as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return compare(to_double(left), to_double(right))
    return compare(left, right)


def _like(sample: Value, text: str) -> Value:
    """A string converted to the type of the number ``sample``."""
    if isinstance(sample, float):
        return to_double(text)
    return to_long(text) if isinstance(sample, Long) else to_whole(text)


def _compare_doubles(left: float, right: float) -> int:
    """``Double#compare``: NaN is the largest, and -0.0 lies below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    a, b = _rank(left), _rank(right)
    return (a > b) - (a < b)


def _rank(value: float) -> int:
    """The order of two values for which neither ``<`` nor ``>`` holds."""
    if value != value:
        return 2
    return 0 if value == 0 and str(value)[0] == "-" else 1


def negate(value: Value) -> Value:
    """``UnaryExpression#negate``; None for anything but a number."""
    if value is None or isinstance(value, bool | str):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def decimal_literal(text: str) -> int | None:
    """``ConstantExpression#createFromDecimal``; None beyond 64 bits."""
    digits = text.rstrip("lL")
    value = int(digits) if len(digits) < 20 else LONG_MAX + 1
    if value > LONG_MAX:
        return None
    return value if value <= INT_MAX else Long(value)


def float_literal(text: str) -> float | None:
    """``ConstantExpression#createFloat``; None unless the number is positive and finite."""
    value = float(text)
    return value if 0 < value < float("inf") else None
