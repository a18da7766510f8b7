"""``CompactionStore#getMessage`` (5.x): a master broker's answer to a pull from a compacted topic.
It uses no filter, and gives the copies that compaction keeps."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from formats.constants import LONG_MIN
from rmqctl.engine.read.getmessage import GetMessageResult, TransferLimits
from rmqctl.engine.record.status import GetMessageStatus

if TYPE_CHECKING:
    from rmqctl.engine.queue.compactedqueue import CompactedQueue
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


def get_compacted_message(
    config: MessageStoreConfig,
    queue: CompactedQueue,
    offset: int,
    max_msg_nums: int,
    *,
    physical_memory: int | None = None,
) -> GetMessageResult:
    """One pull of at most ``max_msg_nums`` messages within the broker's limits and within one file
    of units (``travelCqFileNumWhenGetMessage``).

    It begins at the queue offset ``offset``, or at the next one that was kept. The records'
    physical offsets are those in ``queue.log``.
    """
    low, high, log_end = queue.ends()
    status, following = _status_of(offset, low, high)
    result = GetMessageResult(status, following, low, high)
    if status is not GetMessageStatus.NO_MATCHED_MESSAGE:
        return result
    limits = TransferLimits(config, max_msg_nums, physical_memory)
    total = pulling = 0
    skip_below = LONG_MIN
    units = queue.file_of(offset)
    start = bisect_left(units, offset, key=lambda one: one.unit.base_offset)
    for _, unit, _ in units[start:]:
        count, behind = len(result.records), log_end - unit.physical_offset
        if limits.is_full(unit.size, total, count, behind):
            break
        pulling = unit.physical_offset
        result.next_begin_offset = unit.end_offset
        if unit.physical_offset < skip_below:
            result.passed_over += 1
            continue
        record = queue.log.find_record(unit.physical_offset)
        if record is None or record.total_size != unit.size:
            result.passed_over += 1
            if not result.records:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            end = queue.log.files.end_offset
            removed = queue.log.removed_until(unit.physical_offset, unit.size, end)
            if removed is not None:
                skip_below = removed
            continue
        result.records.append(record)
        result.status = GetMessageStatus.FOUND
        total += unit.size
        skip_below = LONG_MIN
    result.fall_behind_size = log_end - pulling
    result.suggest_pulling_from_slave = result.fall_behind_size > limits.in_memory
    return result


def _status_of(offset: int, low: int, high: int) -> tuple[GetMessageStatus, int]:
    """The status for an offset outside the queue, and the next offset. NO_MATCHED_MESSAGE: it lies
    before the queue's end, and the units decide."""
    if high == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset == high:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, low if low == 0 else high
    return GetMessageStatus.NO_MATCHED_MESSAGE, offset
