"""Derives from conditions where matching rows can be, so that other parts are not read.

Bounds exclude only rows that cannot match, and Spark checks every row again. They are options of
one read, and do not use Spark's filter pushdown. Spark 4.3 stores pushed filters in the table that
a DataFrame shares with all that are derived from it. So ``f.where(a).union(f.where(b))`` would read
only what ``b`` admits.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator
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
from rmqctl.rows.columns import STRUCTURES

if TYPE_CHECKING:
    from pyspark.sql import Column

#: A column, ``=``, ``<``, ``<=``, ``>``, ``>=`` or ``in``, and a value (a list of them for ``in``).
Condition = tuple[str, str, Any]
#: Queue offsets by topic and queue id.
QueueOffsets = dict[tuple[str, int], int]
_FILTERS: dict[str, type[Filter]] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "in": In,
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.isin(values),
}
#: The columns that are text.
_TEXTS = {one.name for columns in STRUCTURES.values() for one in columns if one.type == "string"}
_LOW, _HIGH = LONG_MIN, LONG_MAX
#: A message id: the host has 4 or 16 bytes, the port 4, and the physical offset 8.
_MSG_ID = re.compile(r"(?:[0-9A-F]{32}|[0-9A-F]{56})")
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


@dataclass
class Bounds:
    """Inclusive ranges for numeric columns, and sets of values for others. ``topics_like`` is a
    pattern that the whole topic must match. ``first_offsets`` and ``last_offsets`` (inclusive) are
    for the queues that they name."""

    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)
    only: dict[str, frozenset[object]] = field(default_factory=dict)
    topics_like: re.Pattern[str] | None = None
    first_offsets: QueueOffsets = field(default_factory=dict)
    last_offsets: QueueOffsets = field(default_factory=dict)

    def add(self, pushed: Filter) -> None:
        """Narrows the bounds by a filter. Filters that cannot be used here are ignored."""
        attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
        if len(attribute) != 1:
            return
        name, value = attribute[0], getattr(pushed, "value", None)
        values = pushed.value if isinstance(pushed, In) else (value,)
        if not all(_is_own(name, one) for one in values):
            return
        if isinstance(pushed, In):
            self.only_these(name, pushed.value)
            return
        if isinstance(pushed, EqualTo | EqualNullSafe) and value is not None:
            self.only_these(name, [value])
            if name == "msg_id":
                self._at_message(value)
        between = _numbers(name, value)
        if between is None:
            return
        if name.endswith("_time"):
            name += "stamp"
        if isinstance(pushed, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
            self.at_least(name, between[0])
        if isinstance(pushed, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual):
            self.at_most(name, between[1])

    def at_least(self, name: str, value: int) -> None:
        self.low[name] = max(self.low.get(name, _LOW), value)

    def at_most(self, name: str, value: int) -> None:
        self.high[name] = min(self.high.get(name, _HIGH), value)

    def only_these(self, name: str, values: Iterable[object]) -> None:
        wanted = frozenset(values)
        self.only[name] = self.only[name] & wanted if name in self.only else wanted

    def start_queues(self, offsets: QueueOffsets) -> None:
        """Excludes what these queues have before an offset."""
        self.first_offsets |= offsets

    def end_queues(self, offsets: QueueOffsets) -> None:
        """Excludes what these queues have from an offset on."""
        self.last_offsets |= {queue: offset - 1 for queue, offset in offsets.items()}

    def queue_ranges(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, first and last queue offset of each queue that is not read
        completely."""
        for queue in self.first_offsets.keys() | self.last_offsets.keys():
            low, high = self.first_offsets.get(queue, _LOW), self.last_offsets.get(queue, _HIGH)
            yield (*queue, low, high)

    def _at_message(self, msg_id: object) -> None:
        """Narrows the bounds to one message. Its offset message id ends with its physical offset,
        in upper-case hexadecimal digits (``MessageDecoder#createMessageId``). No message has
        another text as its id."""
        if isinstance(msg_id, str) and _MSG_ID.fullmatch(msg_id):
            place = int(msg_id[-16:], 16)
            if place <= _HIGH:
                self.at_least("physical_offset", place)
                self.at_most("physical_offset", place)

    def admits(self, name: str, value: object) -> bool:
        """Whether a row with this value can match."""
        if name in self.only and value not in self.only[name]:
            return False
        if name == "topic" and self.topics_like is not None and isinstance(value, str):
            return self.topics_like.fullmatch(value) is not None
        if isinstance(value, int):
            return self.low.get(name, _LOW) <= value <= self.high.get(name, _HIGH)
        return True

    def overlaps(self, name: str, low: int, high: int) -> bool:
        """Whether any value of an inclusive range can match."""
        return self.low.get(name, _LOW) <= high and low <= self.high.get(name, _HIGH)


def _is_own(name: str, value: object) -> bool:
    """Whether a value has the type of a column, or is null, which equals nothing. Spark casts
    others before it compares them: the queue id 1 equals 1.0 and ``"1"``."""
    if value is None:
        return True
    if name.endswith("_time"):
        return isinstance(value, datetime)
    return type(value) is (str if name in _TEXTS else int)


def _numbers(name: str, value: object) -> tuple[int, int] | None:
    """The nearest integers as stored, below and above a value. Times are in epoch milliseconds."""
    if isinstance(value, datetime) and name.endswith("_time"):
        moment = value if value.tzinfo is not None else value.astimezone(UTC)
        since = moment - _EPOCH
        return since // _MILLISECOND, -(-since // _MILLISECOND)
    return (value, value) if isinstance(value, int) else None


def encode(conditions: Iterable[Condition]) -> str:
    """Conditions as text. Times are ISO 8601; without a zone they are in UTC.

    :raises ValueError: there is no such comparison.
    """
    for _, comparison, _ in conditions:
        if comparison not in _FILTERS:
            raise ValueError(f"{comparison!r} is none of {', '.join(_FILTERS)}")
    return json.dumps(list(conditions), default=_time_text)


def parse(text: str) -> list[Condition]:
    """Decodes conditions; times have their zone. :raises ValueError: the text is invalid."""
    conditions: list[Condition] = []
    for name, comparison, value in json.loads(text):
        if comparison not in _FILTERS:
            raise ValueError(f"{comparison!r} is none of {', '.join(_FILTERS)}")
        if name.endswith("_time"):
            value = [_moment(v) for v in value] if comparison == "in" else _moment(value)
        conditions.append((name, comparison, value))
    return conditions


def decode(text: str) -> Bounds:
    """The bounds of encoded conditions. :raises ValueError: the text is invalid."""
    bounds = Bounds()
    for name, comparison, value in parse(text):
        kind: Any = _FILTERS[comparison]
        bounds.add(kind((name,), tuple(value) if comparison == "in" else value))
    return bounds


def judge(column: Column, comparison: str, value: Any) -> Column:
    """A condition, as :func:`parse` gives it, as an expression of Spark."""
    judged: Column = _OPERATORS[comparison](column, value)
    return judged


def _time_text(value: object) -> str:
    if isinstance(value, datetime):
        return _aware(value).isoformat()
    raise ValueError(f"{value!r} is no value of a column")


def _moment(text: object) -> datetime | None:
    """A time as :func:`encode` writes it. :raises ValueError: it is none."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no time: give a datetime, or ISO 8601")
    return _aware(datetime.fromisoformat(text))


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
