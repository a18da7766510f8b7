"""What conditions say about where rows can be.

Bounds only ever leave out what cannot match; Spark checks every row again. They are options of
one read, not Spark's own pushed filters: Spark 4.3 keeps those in the table that a DataFrame and
all that is made of it share, so ``f.where(a).union(f.where(b))`` would have read only what ``b``
admits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from formats.constants import LONG_MAX, LONG_MIN

if TYPE_CHECKING:
    from pyspark.sql import Column

#: A column, ``=``, ``<``, ``<=``, ``>``, ``>=`` or ``in``, and a value (a list of them for ``in``).
Condition = tuple[str, str, Any]
_FILTERS: dict[str, type[Filter]] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "in": In,
}
_LOW, _HIGH = LONG_MIN, LONG_MAX
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


@dataclass
class Bounds:
    """Inclusive ranges of numeric columns, and the only values of others."""

    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)
    only: dict[str, frozenset[object]] = field(default_factory=dict)

    def add(self, pushed: Filter) -> None:
        """Narrows the bounds by a filter; one that says nothing here is passed over."""
        attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
        if len(attribute) != 1:
            return
        name = attribute[0]
        if isinstance(pushed, In):
            self._only(name, frozenset(pushed.value))
            return
        value = getattr(pushed, "value", None)
        if isinstance(pushed, EqualTo | EqualNullSafe) and value is not None:
            self._only(name, frozenset([value]))
        between = _numbers(name, value)
        if between is None:
            return
        if name.endswith("_time"):
            name += "stamp"
        if isinstance(pushed, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
            self.low[name] = max(self.low.get(name, _LOW), between[0])
        if isinstance(pushed, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual):
            self.high[name] = min(self.high.get(name, _HIGH), between[1])

    def _only(self, name: str, values: frozenset[object]) -> None:
        self.only[name] = self.only[name] & values if name in self.only else values

    def admits(self, name: str, value: object) -> bool:
        """Whether a row with this value can match."""
        if name in self.only and value not in self.only[name]:
            return False
        if isinstance(value, int):
            return self.low.get(name, _LOW) <= value <= self.high.get(name, _HIGH)
        return True

    def overlaps(self, name: str, low: int, high: int) -> bool:
        """Whether any value of an inclusive range can match."""
        return self.low.get(name, _LOW) <= high and low <= self.high.get(name, _HIGH)


def _numbers(name: str, value: object) -> tuple[int, int] | None:
    """The numbers of the store next to a value, below and above: timestamps in milliseconds."""
    if isinstance(value, datetime) and name.endswith("_time"):
        moment = value if value.tzinfo is not None else value.astimezone(UTC)
        since = moment - _EPOCH
        return since // _MILLISECOND, -(-since // _MILLISECOND)
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    return None


def encode(conditions: Iterable[Condition]) -> str:
    """Conditions as text; times are ISO 8601, without a zone UTC.

    :raises ValueError: there is no such comparison.
    """
    for _, comparison, _ in conditions:
        if comparison not in _FILTERS:
            raise ValueError(f"{comparison!r} is none of {', '.join(_FILTERS)}")
    return json.dumps(list(conditions), default=_time_text)


def parse(text: str) -> list[Condition]:
    """Encoded conditions as they were. :raises ValueError: they are none."""
    conditions: list[Condition] = []
    for name, comparison, value in json.loads(text):
        if comparison not in _FILTERS:
            raise ValueError(f"{comparison!r} is none of {', '.join(_FILTERS)}")
        if name.endswith("_time"):
            value = [_aware(v) for v in value] if comparison == "in" else _aware(value)
        conditions.append((name, comparison, value))
    return conditions


def decode(text: str) -> Bounds:
    """The bounds of encoded conditions. :raises ValueError: they are none."""
    bounds = Bounds()
    for name, comparison, value in parse(text):
        kind: Any = _FILTERS[comparison]
        bounds.add(kind((name,), tuple(value) if comparison == "in" else value))
    return bounds


def judge(column: Column, comparison: str, value: Any) -> Column:
    """A condition as Spark checks it."""
    if comparison == "in":
        return column.isin([_aware(v) if isinstance(v, datetime) else v for v in value])
    other = _aware(value) if isinstance(value, datetime) else value
    if comparison == "=":
        return column == other
    if comparison in ("<", "<="):
        return column < other if comparison == "<" else column <= other
    return column > other if comparison == ">" else column >= other


def _time_text(value: object) -> str:
    if isinstance(value, datetime):
        return _aware(value).isoformat()
    raise ValueError(f"{value!r} is no value of a column")


def _aware(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
