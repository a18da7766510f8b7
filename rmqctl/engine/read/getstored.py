"""The answer to a pull as bytes for a client: stored records, one behind the other.

The compiled kernel answers most pulls that find something this way, without making records of bytes
that are only passed on. All other pulls go to :mod:`rmqctl.engine.read.getmessage`.
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
    """The ``messages`` messages that were found, as stored bytes. Offsets are queue offsets."""

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
    """What :func:`~rmqctl.engine.read.getmessage.get_message` finds. None: it finds nothing, or the
    kernel cannot tell.

    :param codes: the wanted tags codes, which are compared with the units'; None: all.
    :param before: physical offset. No found record may end behind it.
    :param most_bytes: the most bytes of an answer; None is returned for a larger one.
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
