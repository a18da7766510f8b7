"""Index items of tags: since 5.4 brokers make one for each message with tags, before they made
none. The index of a store that was upgraded begins without them, so no message must have one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.dispatch.batches import KeyBatch


class ExpectedKeys(NamedTuple):
    """The keys that must have the next items.

    ``marked`` are all keys (:func:`~rmqctl.engine.dispatch.batches.marked_key_batch`) from row
    ``first`` on. ``keys`` are those that are expected, with the hashes of their items: with or
    without those of tags. ``rows`` (int64, ascending, parallel to ``keys``) are their rows in
    ``marked``.
    """

    marked: KeyBatch
    first: int
    has_tags: bool
    keys: KeyBatch
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, marked: KeyBatch, first: int, *, has_tags: bool) -> ExpectedKeys:
        """The keys from row ``first`` on, those of tags only with ``has_tags``."""
        count = len(marked.key_hash)
        if has_tags:
            keys = marked.part(first, count).unmarked()
            return cls(marked, first, True, keys, np.arange(first, count))
        rows = first + np.flatnonzero(marked.key_hash[first:] >= 0)
        keys = marked.part(first, count) if len(rows) == count - first else marked.of_rows(rows)
        return cls(marked, first, False, keys, rows)

    def row(self, number: int) -> int:
        """The row in ``marked`` of an expected key by its number; behind the last one the end."""
        return int(self.rows[number]) if number < len(self.rows) else len(self.marked.key_hash)

    @property
    def passes_over_last(self) -> bool:
        """Whether keys of tags that are not expected stand behind the last expected one."""
        last = int(self.rows[-1]) if len(self.rows) else self.first - 1
        return last + 1 < len(self.marked.key_hash)

    def turn(self, number: int, items: NDArray[np.void]) -> int | None:
        """Where items of tags begin or end, if the first of ``items``, the next items, is not that
        of the expected key ``number`` for this reason: the row to go on from. Else None."""
        if self.has_tags:
            row = self.row(number)
            is_tags = row < len(self.marked.key_hash) and self.marked.key_hash[row] < 0
            return row if is_tags else None
        begin = self.row(number - 1) + 1 if number else self.first
        passed = self.marked.part(begin, self.row(number)).unmarked()
        if not len(items) or not len(passed.key_hash):
            return None
        found = np.flatnonzero(
            (passed.key_hash == items["key_hash"][0])
            & (passed.physical_offset == items["physical_offset"][0])
        )
        return begin + int(found[0]) if len(found) else None
