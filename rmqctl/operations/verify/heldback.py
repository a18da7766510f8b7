"""Spans of damage in one queue that are held back until it is known whether they are damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, Self, TypeVar

from rmqctl.operations.verify.findings import Finding

#: How many spans of one queue are held back at a time.
_MOST_SPANS = 8


class _Span(Protocol):
    """Neighbouring units with the same damage; ``count`` is how many they are."""

    count: int

    def goes_on(self, other: Self) -> bool:
        """Whether ``other`` has the same damage and begins where this span ends."""


SpanT = TypeVar("SpanT", bound=_Span)


class HoldsBack(Generic[SpanT]):
    """Holds spans back, in the order in which they came."""

    __slots__ = ()
    spans: list[SpanT]

    def finding_of(self, span: SpanT) -> Finding:
        """The finding that a span becomes."""
        raise NotImplementedError

    def hold_back(self, span: SpanT) -> Iterator[Finding]:
        """Holds a span back, joined to the last one if it follows that. Yields the finding of the
        oldest span when there are too many."""
        if self.spans and self.spans[-1].goes_on(span):
            self.spans[-1].count += span.count
            return
        self.spans.append(span)
        if len(self.spans) > _MOST_SPANS:
            yield self.finding_of(self.spans.pop(0))

    def release(self) -> Iterator[Finding]:
        """Yields the findings that were held back, and forgets them."""
        spans = self.spans.copy()
        self.spans.clear()
        return map(self.finding_of, spans)
