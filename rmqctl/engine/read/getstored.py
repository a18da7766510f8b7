"""The answer to a pull as a client gets it: records as they stand in the log, one behind the other.

Most pulls that find something are answered so, by the compiled kernel, and no record is made of
what only goes on to a client. Every other one is :mod:`rmqctl.engine.read.getmessage`'s.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.constants import INT_MAX, INT_MIN
from rmqctl.engine.read.getmessage import (
    ReadableStore,
    TransferLimits,
    held_units,
)


class StoredMessages(NamedTuple):
    """Messages that were found, ``messages`` of them; offsets are queue offsets."""

    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: int
    stored: bytes


def get_stored(
    store: ReadableStore,
    topic: str,
    queue_id: int,
    offset: int,
    max_msg_nums: int,
    codes: frozenset[int] | None,
    *,
    before: int,
    most_bytes: int,
) -> StoredMessages | None:
    """What :func:`~rmqctl.engine.read.getmessage.get_message` finds, where that is something; None:
    nothing, or something about it is odd.

    :param codes: tags codes that are wanted, of which the units decide; None: all.
    :param before: physical offset behind which no record may end that is found.
    :param most_bytes: with more nothing is found.
    """
    queue = store.consume_queue(topic, queue_id)
    if queue is None:
        return None
    low, high = queue.min_offset, queue.max_offset
    if not low <= offset < high:
        return None
    limits = TransferLimits(store.config, max_msg_nums)
    end = min(queue.end_of_file(offset), high)
    held = held_units(store, queue, offset, end, limits, is_filtered=codes is not None)
    compiled = store.commit_log.compiled
    if held is None or compiled is None:
        return None
    units, end, mapped = held
    start, readable = mapped.whole
    found = compiled.pull_stored(
        units,
        (offset, end),
        mapped.buffer,
        (start, min(readable, mapped.size)),
        mapped.file_from_offset,
        limits.told(store.max_offset),
        None if codes is None else [code for code in codes if INT_MIN <= code <= INT_MAX],
        (before, most_bytes),
    )
    if found is None or not found[1]:
        return None
    stored, count, following = found
    return StoredMessages(following, low, high, count, stored)
