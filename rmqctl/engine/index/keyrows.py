"""Rows of messages that are looked up by key: what the kernel makes of their records.

A row is what a command prints of a message. The kernel makes those of plain records; where one is
not plain, who asks looks them all up by himself.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Literal, Protocol

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


#: Rows of a key, in log order, and how many items of its hash have records of other keys.
KeyRows = tuple[list[Any], int]


def rows_of_key(
    index: IndexService, log: CommitLog, maker: RowMaker, topic: str, key: str, most: int
) -> KeyRows | None:
    """The newest ``most`` messages of a key.

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
        position, size = offset - start, mapped.size
        mapped.load_entry(position)
        # Only where the file is known to have no hole (:mod:`rmqctl.engine.files.holes`).
        low, high = mapped.whole
        if position < low:
            return None
        readable = high if high < size else size
        row = maker.of_key(mapped.buffer, position, readable, start, topic, key)
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
    return rows, collisions
