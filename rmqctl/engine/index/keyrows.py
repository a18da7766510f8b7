"""Rows of messages that are looked up by key: what the kernel makes of their records.

A row is what a command prints of a message. The kernel makes those of plain records; where one is
not plain, who asks looks them all up by himself.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol

from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.log.commitlog import CommitLog

_PLACE = itemgetter("physical_offset")


class RowMaker(Protocol):
    """The kernel's ``Rows``."""

    def of_key(
        self,
        buffer: object,
        position: int,
        readable: int,
        file_from_offset: int,
        topic: str,
        key: str,
    ) -> dict[str, Any] | Literal[False] | None: ...


class KeyRows(NamedTuple):
    """Rows of a key, in log order, and how many items of its hash have records of other keys."""

    rows: list[dict[str, Any]]
    collisions: int


def rows_of_key(
    index: IndexService, log: CommitLog, maker: RowMaker, topic: str, key: str, most: int
) -> KeyRows | None:
    """The newest ``most`` messages of a key, which, as the topic, has no lone surrogates.

    None where the kernel does not make all rows: there is no record somewhere, or it is not plain,
    or there are so many that nobody should wait for them all.
    """
    # An item knows whole seconds.
    offsets = index.few_offsets(topic, key, -999)
    if offsets is None:
        return None
    files = log.files
    rows: list[dict[str, Any]] = []
    collisions = 0
    for offset in offsets:
        mapped = files.find(offset)
        if mapped is None:
            return None
        start = mapped.file_from_offset
        mapped.load_entry(offset - start)
        # Only where the file is known to have no hole (:mod:`rmqctl.engine.files.holes`).
        low, high = mapped.whole
        if offset - start < low:
            return None
        row = maker.of_key(mapped.buffer, offset - start, min(high, mapped.size), start, topic, key)
        if row is None:
            return None
        if row is False:
            collisions += 1
        else:
            rows.append(row)
        if len(rows) == most:
            break
    if len(rows) > 1:
        rows.sort(key=_PLACE)
    return KeyRows(rows, collisions)
