"""``DefaultMessageStore#getMessage``: a master broker's answer to a pull, status by status.

An answer holds more of messages in memory than of those on disk. A message counts as on disk when
it lies further behind the log's end than ``accessMessageInMemoryMaxRatio`` per cent of the
machine's physical memory (``checkInDiskByCommitOffset``); the page cache is not asked.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

from formats.constants import INT_MIN, LONG_MIN
from formats.text import java_int_value
from rmqctl.engine.files.holes import is_whole
from rmqctl.engine.filters.tags import MessageFilter
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE, ConsumeQueue
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import GetMessageStatus

if TYPE_CHECKING:
    from rmqctl.engine.files.mappedfile import MappedFile
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

_SCANNED_BYTES = 16000


class ReadableStore(Protocol):
    """What a pull needs of a store."""

    config: MessageStoreConfig
    commit_log: CommitLog

    @property
    def max_offset(self) -> int: ...

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


@dataclass(slots=True)
class GetMessageResult:
    """Answer of a pull; offsets are queue offsets.

    ``fall_behind_size`` is how many bytes before the log's end the record of the last unit lies
    that the pull looked at (a broker counts it if ``diskFallRecorded``); 0 if it looked at none.
    ``suggest_pulling_from_slave`` says that this record counts as on disk. ``passed_over`` counts
    messages whose unit is missing, whose record cannot be read, or whose record lies in the rest
    of a log file in which one was already gone.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: list[Record] = field(default_factory=list)
    suggest_pulling_from_slave: bool = False
    fall_behind_size: int = 0
    passed_over: int = 0


@cache
def total_physical_memory_size() -> int:
    """Bytes of memory of this machine, read once, as a broker does
    (``StoreUtil.TOTAL_PHYSICAL_MEMORY_SIZE``)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class TransferLimits:
    """How much one answer may hold (``isTheBatchFull``).

    :param physical_memory: bytes of the broker's memory; None: this machine's.
    """

    def __init__(
        self, config: MessageStoreConfig, max_msg_nums: int, physical_memory: int | None = None
    ) -> None:
        memory = total_physical_memory_size() if physical_memory is None else physical_memory
        #: Bytes behind the log's end that count as in memory.
        self.in_memory = int(memory * (config.access_message_in_memory_max_ratio / 100.0))
        self.max_msg_nums = max_msg_nums
        #: Most bytes and most messages of an answer, for messages in memory and for those on disk.
        self.memory = (
            config.max_transfer_bytes_on_message_in_memory,
            config.max_transfer_count_on_message_in_memory,
        )
        self.disk = (
            config.max_transfer_bytes_on_message_in_disk,
            config.max_transfer_count_on_message_in_disk,
        )
        #: How many units one answer looks at. The product is a Java int and may overflow.
        self.units = max(_SCANNED_BYTES, java_int_value(max_msg_nums * UNIT_SIZE)) // UNIT_SIZE

    def told(self, log_end: int) -> tuple[int, int, int, tuple[int, int], tuple[int, int], int]:
        """These limits and the log's end (physical offset), in the form that the kernel takes."""
        return (
            self.max_msg_nums,
            self.units,
            self.in_memory,
            self.memory,
            self.disk,
            log_end,
        )

    def is_full(self, size: int, total: int, count: int, behind: int) -> bool:
        """Whether an answer of ``count`` messages of ``total`` bytes has no room for another one of
        ``size`` bytes, ``behind`` bytes before the log's end. The first one always fits."""
        if count == 0:
            return False
        max_bytes, max_count = self.disk if behind > self.in_memory else self.memory
        # A Java int: a unit that fills a gap has the largest size, which turns the sum negative.
        size_sum = (total + size - INT_MIN) % (1 << 32) + INT_MIN
        return count >= self.max_msg_nums or size_sum > max_bytes or count >= max_count


def get_message(
    store: ReadableStore,
    topic: str,
    queue_id: int,
    offset: int,
    max_msg_nums: int,
    message_filter: MessageFilter | None = None,
    *,
    physical_memory: int | None = None,
) -> GetMessageResult:
    """One pull of at most ``max_msg_nums`` messages within the broker's limits."""
    queue = store.consume_queue(topic, queue_id)
    if queue is None:
        # A broker would make the queue in memory, and find it empty.
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)
    low, high = queue.min_offset, queue.max_offset

    def answer(status: GetMessageStatus, next_offset: int) -> GetMessageResult:
        return GetMessageResult(status, next_offset, low, high)

    if high == 0:
        return answer(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)
    if offset < low:
        return answer(GetMessageStatus.OFFSET_TOO_SMALL, low)
    if offset == high:
        return answer(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset)
    if offset > high:
        return answer(GetMessageStatus.OFFSET_OVERFLOW_BADLY, low if low == 0 else high)
    if queue.unit(offset) is None:
        following = queue.behind_hole(offset)
        nothing = answer(GetMessageStatus.OFFSET_FOUND_NULL, following)
        nothing.passed_over = min(following, high) - offset
        return nothing
    limits = TransferLimits(store.config, max_msg_nums, physical_memory)
    end = min(queue.end_of_file(offset), high)
    if message_filter is None:
        result = _collect_compiled(store, queue, offset, end, limits)
        if result is not None:
            return result
    return _collect(store, queue, offset, end, limits, message_filter)


def _collect_compiled(
    store: ReadableStore, queue: ConsumeQueue, offset: int, end: int, limits: TransferLimits
) -> GetMessageResult | None:
    """:func:`_collect` without a filter, by the kernel. None if the log has no kernel, or the
    kernel cannot: a unit lacks its record, a record lies in a hole, or several log files are
    needed."""
    log_end = store.max_offset
    held = held_units(store, queue, offset, end, limits)
    if held is None:
        return None
    units, end, mapped = held
    low, high = mapped.whole
    assert store.commit_log.compiled is not None
    made = store.commit_log.compiled.pull_records(
        Record,
        units,
        (offset, end),
        mapped.buffer,
        (low, min(high, mapped.size)),
        mapped.file_from_offset,
        limits.told(log_end),
    )
    if made is None:
        return None
    records, following = made
    # The last unit that was looked at: the one that did not go in, or the last of all.
    last = following - offset if following < end else following - offset - 1
    pulling, _, _ = UNIT.unpack_from(units, last * UNIT_SIZE)
    behind = log_end - pulling
    return GetMessageResult(
        GetMessageStatus.FOUND,
        following,
        queue.min_offset,
        queue.max_offset,
        records,
        suggest_pulling_from_slave=behind > limits.in_memory,
        fall_behind_size=behind,
    )


def held_units(
    store: ReadableStore,
    queue: ConsumeQueue,
    offset: int,
    end: int,
    limits: TransferLimits,
    *,
    is_filtered: bool = False,
) -> tuple[bytes, int, MappedFile] | None:
    """What the kernel needs for an answer: stored units, the queue offset before which they end,
    and the log file into which the first one points. None if the kernel cannot make it."""
    log = store.commit_log
    counts = limits.max_msg_nums, limits.memory[1], limits.disk[1]
    if log.compiled is None or min(counts) < 1:
        return None
    end = min(end, offset + limits.units)
    most = end - offset
    if not is_filtered:
        # One more than the most messages fills any answer.
        most = min(most, max(counts) + 1)
    units = queue.stored(offset, most)
    if len(units) < UNIT_SIZE:
        return None
    place, _, _ = UNIT.unpack_from(units)
    mapped = log.files.find(place)
    if mapped is None:
        return None
    position = place - mapped.file_from_offset
    if not is_whole(mapped, position, position + 1):
        return None
    return units, end, mapped


def _collect(
    store: ReadableStore,
    queue: ConsumeQueue,
    offset: int,
    end: int,
    limits: TransferLimits,
    message_filter: MessageFilter | None,
) -> GetMessageResult:
    """Goes over the queue from ``offset`` to ``end``, within one file of it, as the engine does."""
    result = GetMessageResult(
        GetMessageStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset
    )
    log_end = store.max_offset
    total = pulling = 0
    skip_below = LONG_MIN
    end = min(end, offset + limits.units)
    result.next_begin_offset = end
    place = offset
    for queue_offset, unit in queue.units(offset, end):
        result.passed_over += queue_offset - place
        place = queue_offset + 1
        pulling = unit.physical_offset
        if unit.physical_offset < skip_below:
            result.passed_over += 1
            continue
        if limits.is_full(unit.size, total, len(result.records), log_end - unit.physical_offset):
            result.next_begin_offset = queue_offset
            break
        if message_filter is not None and not message_filter.matches_code(queue.tags_code(unit)):
            if not result.records:
                result.status = GetMessageStatus.NO_MATCHED_MESSAGE
            continue
        record = store.commit_log.find_record(unit.physical_offset)
        if record is None or record.total_size != unit.size:
            result.passed_over += 1
            if not result.records:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            removed = store.commit_log.removed_until(unit.physical_offset, unit.size, log_end)
            if removed is not None:
                skip_below = removed
            continue
        if message_filter is not None and not message_filter.matches(record):
            if not result.records:
                result.status = GetMessageStatus.NO_MATCHED_MESSAGE
            continue
        result.records.append(record)
        result.status = GetMessageStatus.FOUND
        total += unit.size
        skip_below = LONG_MIN
    result.passed_over += max(result.next_begin_offset - place, 0)
    result.fall_behind_size = log_end - pulling
    result.suggest_pulling_from_slave = result.fall_behind_size > limits.in_memory
    return result
