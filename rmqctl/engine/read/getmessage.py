"""``DefaultMessageStore#getMessage``: what a master broker answers to a pull, status by status.

A broker holds back less from memory than from disk. What lies further behind the log's end than
``accessMessageInMemoryMaxRatio`` per cent of the machine's physical memory counts as on disk
(``checkInDiskByCommitOffset``): nobody asks the page cache.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

from formats.constants import INT_MIN
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
    """What a pull needs of a store: the opened one, or one that is followed."""

    config: MessageStoreConfig
    commit_log: CommitLog

    @property
    def max_offset(self) -> int: ...

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


@dataclass(slots=True)
class GetMessageResult:
    """Answer of a pull; offsets are queue offsets.

    ``suggest_pulling_from_slave`` says that the last unit looked at lies so far behind the end of
    the log that it counts as on disk; ``fall_behind_size`` is how many bytes behind it lies (what
    ``diskFallRecorded`` makes a broker count), 0 when no unit was looked at. ``passed_over`` counts
    messages whose unit is in no file, whose record cannot be read, or lies before the end of a log
    file of which one was gone.
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
    """Bytes of memory of this machine; asked for once, as a broker does
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
        #: Bytes and messages that an answer holds of what counts as in memory, and of the rest.
        self.memory = (
            config.max_transfer_bytes_on_message_in_memory,
            config.max_transfer_count_on_message_in_memory,
        )
        self.disk = (
            config.max_transfer_bytes_on_message_in_disk,
            config.max_transfer_count_on_message_in_disk,
        )
        #: How many units one answer looks at; a product that runs over asks for no more.
        self.units = max(_SCANNED_BYTES, java_int_value(max_msg_nums * UNIT_SIZE)) // UNIT_SIZE

    def told(self, log_end: int) -> tuple[int, int, int, tuple[int, int], tuple[int, int], int]:
        """These limits, and where the log ends, as the kernel takes them."""
        return (
            self.max_msg_nums,
            self.units,
            self.in_memory,
            self.memory,
            self.disk,
            log_end,
        )

    def is_full(self, size: int, total: int, count: int, behind: int) -> bool:
        """Whether a message of ``size`` bytes that lies ``behind`` bytes before the log's end goes
        into no answer of ``count`` messages of ``total`` bytes. The first one always goes."""
        if count == 0:
            return False
        max_bytes, max_count = self.disk if behind > self.in_memory else self.memory
        # A Java int: with a unit that fills a gap, of the largest size, the sum turns negative.
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
    """:func:`_collect` without a filter, by the kernel where the log has it; None where something
    is odd: a unit without its record, one that lies in a hole, or several files of the log."""
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
    """What the kernel makes an answer of: units as they are stored, the queue offset before which
    they end, and the log's file that the first one points into; None where that is not for it."""
    log = store.commit_log
    counts = limits.max_msg_nums, limits.memory[1], limits.disk[1]
    if log.compiled is None or min(counts) < 1:
        return None
    end = min(end, offset + limits.units)
    most = end - offset
    if not is_filtered:
        # With one more any answer is full.
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
    """Goes over the queue from ``offset``, never beyond its file, as the engine does."""
    result = GetMessageResult(
        GetMessageStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset
    )
    log_end = store.max_offset
    total = pulling = 0
    skip_below = -1
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
            if not store.commit_log.holds(unit.physical_offset, unit.size):
                size = store.commit_log.file_size
                skip_below = unit.physical_offset + size - unit.physical_offset % size
            continue
        if message_filter is not None and not message_filter.matches(record):
            if not result.records:
                result.status = GetMessageStatus.NO_MATCHED_MESSAGE
            continue
        result.records.append(record)
        result.status = GetMessageStatus.FOUND
        total += unit.size
        skip_below = -1
    result.passed_over += max(result.next_begin_offset - place, 0)
    result.fall_behind_size = log_end - pulling
    result.suggest_pulling_from_slave = result.fall_behind_size > limits.in_memory
    return result
