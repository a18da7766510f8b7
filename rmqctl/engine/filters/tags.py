"""The interface of a pull's filters, and the filter by tags."""

from __future__ import annotations

from typing import Protocol

from formats.constants import PROPERTY_TAGS
from formats.text import java_int_value, java_trim, tags_code
from rmqctl.engine.record.record import Record
from rmqctl.errors import UsageError


class MessageFilter(Protocol):
    """``MessageFilter``: first tests a unit's tags code (None: it is not known), then the record.
    ``errors`` counts records for which it failed."""

    @property
    def errors(self) -> int: ...

    def matches_code(self, code: int | None) -> bool: ...

    def matches(self, record: Record) -> bool: ...


class BothFilters:
    """Matches what both filters match; ``first`` is tested first."""

    def __init__(self, first: MessageFilter, second: MessageFilter) -> None:
        self._first, self._second = first, second

    @property
    def errors(self) -> int:
        return self._first.errors + self._second.errors

    def matches_code(self, code: int | None) -> bool:
        return self._first.matches_code(code) and self._second.matches_code(code)

    def matches(self, record: Record) -> bool:
        return self._first.matches(record) and self._second.matches(record)


def tags_of(expression: str) -> list[str]:
    """The tags of ``A || B`` (``FilterAPI#buildSubscriptionData``)."""
    return [tag for part in expression.split("||") if (tag := java_trim(part))]


class TagFilter:
    """``A || B``, or ``*`` for everything (``FilterAPI#buildSubscriptionData``). It compares hashes
    in the queue, as the broker does, and then the tags, as the client does. A ``*`` among tags is
    a tag.

    :raises UsageError: the expression names no tag, so nothing could ever match.
    """

    errors = 0

    def __init__(self, expression: str) -> None:
        self._is_all = expression in ("", "*")
        self.tags = frozenset(tags_of(expression))
        if not (self._is_all or self.tags):
            raise UsageError(reason=f"the tag expression {expression!r} names no tag; * is all")
        self._codes = frozenset(tags_code(tag) for tag in self.tags)

    @property
    def codes(self) -> frozenset[int] | None:
        """Hashes of the tags; None: everything matches."""
        return None if self._is_all else self._codes

    def matches_code(self, code: int | None) -> bool:
        """``isMatchedByConsumeQueue``; an unknown code matches."""
        return self._is_all or code is None or java_int_value(code) in self._codes

    def matches(self, record: Record) -> bool:
        return self._is_all or record.properties.get(PROPERTY_TAGS) in self.tags
