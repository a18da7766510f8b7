"""``SubscriptionData``: what a group wants of a topic, and the filter that follows."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.text import java_int_value, tags_code
from rmqctl.engine.filters.tags import tags_of
from rmqctl.errors import FilterSyntaxError
from rmqctl.serve.wire.bodies import text_in, whole_in
from rmqctl.serve.wire.fields import BadRequest, checked_topic

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.record.record import Record

ALL = "*"
TAG, SQL92 = "TAG", "SQL92"
#: Characters of an expression: one is evaluated for every message that a pull passes by.
MAX_EXPRESSION = 16 << 10
_INT = re.compile(r"-?[0-9]{1,10}", re.ASCII)


class CodeFilter:
    """A filter by tags codes, as a broker applies it: the unit decides, and the client compares the
    text (``DefaultMessageFilter``). None: all codes."""

    errors = 0

    def __init__(self, codes: frozenset[int] | None) -> None:
        self.codes = codes

    def matches_code(self, code: int | None) -> bool:
        if self.codes is None or code is None:
            return True
        return java_int_value(code) in self.codes

    def matches(self, record: Record) -> bool:
        return True


_ALL_CODES = CodeFilter(None)


class Subscription(NamedTuple):
    """One topic of a group. ``codes`` are those of its tags; None: all messages."""

    topic: str
    text: str
    version: int
    expression_type: str
    codes: frozenset[int] | None

    @property
    def is_by_tags(self) -> bool:
        """``ExpressionType#isTagType``."""
        return self.expression_type in ("", TAG)

    def as_json(self) -> dict[str, Any]:
        """``SubscriptionData``, its keys sorted."""
        has_tags = self.is_by_tags and self.codes is not None
        return {
            "classFilterMode": False,
            "codeSet": sorted(self.codes or ()),
            "expressionType": self.expression_type,
            "subString": self.text,
            "subVersion": self.version,
            "tagsSet": tags_of(self.text) if has_tags else [],
            "topic": self.topic,
        }

    def message_filter(self) -> MessageFilter:
        """:raises FilterSyntaxError: the SQL92 expression is none."""
        if self.is_by_tags:
            return CodeFilter(self.codes) if self.codes is not None else _ALL_CODES
        if self.expression_type != SQL92:
            raise FilterSyntaxError(position=1, reason="only TAG and SQL92 are known")
        if len(self.text) > MAX_EXPRESSION:
            raise FilterSyntaxError(position=MAX_EXPRESSION + 1, reason="it is too long")
        from rmqctl.engine.filters.sql import SqlFilter

        return SqlFilter(self.text)


def parse_subscription(
    topic: str, text: str | None, version: int, kind: str | None
) -> Subscription:
    """What a pull says of itself (``FilterAPI#build``, ``#buildSubscriptionData``).

    :raises BadRequest: the expression names no tag, or there is no SQL92 expression.
    """
    expression = text or ""
    if kind not in (None, TAG):
        if not expression:
            raise BadRequest("the expression is empty")
        # An empty type is one of tags, whose codes nobody has computed.
        codes = None if kind or expression == ALL else frozenset[int]()
        return Subscription(topic, expression, version, kind, codes)
    if expression in ("", ALL):
        return Subscription(topic, ALL, version, TAG, None)
    # Of spaces alone it names no tag, and matches nothing.
    if not any(expression.split("||")):
        raise BadRequest(f"the expression {expression[:40]!r} names no tag")
    return Subscription(
        topic, expression, version, TAG, frozenset(map(tags_code, tags_of(expression)))
    )


def decode_subscription(value: dict[str, Any], known: Container[str] = ()) -> Subscription:
    """One that a heartbeat brings; the client has computed the codes of its tags.

    :param known: as of :func:`~rmqctl.serve.wire.fields.checked_topic`.
    :raises BadRequest: it is none.
    """
    topic = checked_topic("topic", text_in(value, "topic"), known)
    text = text_in(value, "subString") if value.get("subString") is not None else ALL
    kind = value.get("expressionType")
    codes = _codes(value.get("codeSet"))
    is_all = text == ALL or bool(value.get("classFilterMode"))
    return Subscription(
        topic,
        text,
        whole_in(value, "subVersion", 0),
        kind if isinstance(kind, str) else TAG,
        None if is_all else codes,
    )


def _codes(value: object) -> frozenset[int]:
    """Java's client writes numbers, the one for Go their texts; fastjson takes either for a number.

    :raises BadRequest: it is neither.
    """
    if value is None:
        return frozenset()
    if isinstance(value, list):
        codes = [int(c) if isinstance(c, str) and _INT.fullmatch(c) else c for c in value]
        if all(type(code) is int for code in codes):
            return frozenset(codes)
    raise BadRequest("codeSet of the body is no array of whole numbers")
