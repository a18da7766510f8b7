"""``DefaultMessageStore#getMessage``: what a master broker answers to a pull, status by status."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats.constants import PROPERTY_TAGS
from formats.text import tags_code
from rmqctl.engine.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.record import Record
from rmqctl.engine.status import GetMessageStatus

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore

_SCANNED_BYTES = 16000


@dataclass(slots=True)
class GetMessageResult:
    """Answer of a pull; offsets are queue offsets."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: list[Record] = field(default_factory=list)


class TagFilter:
    """``A || B``, or ``*`` for everything: by hash in the queue as the broker does, then in full
    as the client does (``SubscriptionData``)."""

    def __init__(self, expression: str) -> None:
        tags = [tag.strip() for tag in expression.split("||")]
        self.tags = frozenset(tag for tag in tags if tag)
        if "*" in self.tags:
            self.tags = frozenset()
        self._codes = frozenset(tags_code(tag) for tag in self.tags)

    def matches_code(self, code: int | None) -> bool:
        """``isMatchedByConsumeQueue``; a code that cannot be told matches."""
        return not self.tags or code is None or code in self._codes

    def matches(self, record: Record) -> bool:
        return not self.tags or record.properties.get(PROPERTY_TAGS) in self.tags


def get_message(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    max_msg_nums: int,
    tag_filter: TagFilter | None = None,
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
    file_units = queue.files.file_size // UNIT_SIZE
    end_of_file = offset + file_units - offset % file_units
    if queue.unit(offset) is None:
        return answer(GetMessageStatus.OFFSET_FOUND_NULL, end_of_file)
    return _collect(store, queue, offset, min(end_of_file, high), max_msg_nums, tag_filter)


def _collect(
    store: MessageStore,
    queue: ConsumeQueue,
    offset: int,
    end: int,
    max_msg_nums: int,
    tag_filter: TagFilter | None,
) -> GetMessageResult:
    """Goes over the queue from ``offset``, never beyond its file, as the engine does."""
    config = store.config
    result = GetMessageResult(
        GetMessageStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset
    )
    total = 0
    skip_below = -1
    end = min(end, offset + max(_SCANNED_BYTES, max_msg_nums * UNIT_SIZE) // UNIT_SIZE)
    result.next_begin_offset = end
    for queue_offset, unit in queue.units(offset, end):
        if unit.physical_offset < skip_below:
            continue
        if result.records and (
            len(result.records) >= max_msg_nums
            or total + unit.size > config.max_transfer_bytes_on_message_in_memory
            or len(result.records) >= config.max_transfer_count_on_message_in_memory
        ):
            result.next_begin_offset = queue_offset
            break
        if tag_filter is not None and not tag_filter.matches_code(queue.tags_code(unit)):
            continue
        record = store.commit_log.find_record(unit.physical_offset)
        if record is None or record.total_size != unit.size:
            if not result.records:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            size = store.commit_log.file_size
            skip_below = unit.physical_offset + size - unit.physical_offset % size
            continue
        if tag_filter is not None and not tag_filter.matches(record):
            continue
        result.records.append(record)
        result.status = GetMessageStatus.FOUND
        total += unit.size
        skip_below = -1
    return result
