"""``DefaultMessageStore#getMessage`` of 5.x for a batch queue, and the messages that a client takes
out of a record that holds several (``MessageDecoder#decodeMessage``).

An answer has whole records. So it may begin before the wanted offset, and it has more messages than
wanted if the first record has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from formats.constants import COMPRESSED_FLAG, LONG_MIN, PROPERTY_TAGS
from formats.text import decode_properties, java_int_value, tags_code
from rmqctl.engine.read.getmessage import GetMessageResult, TransferLimits
from rmqctl.engine.record.bodies import decompress
from rmqctl.engine.record.inbatch import BadBatch, in_batch
from rmqctl.engine.record.status import GetMessageStatus

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
    from rmqctl.engine.read.getmessage import ReadableStore
    from rmqctl.engine.record.record import Record

#: Both flags are set if the body holds several messages for a client to unwrap
#: (``MessageSysFlag``).
NEED_UNWRAP, INNER_BATCH = 0x40, 0x80
#: ``maxFilterMessageSize``: how many bytes of units one answer looks at, at least.
_SCANNED_BYTES = 16000


class InnerMessage(NamedTuple):
    """A message in a record's body; ``number`` counts from 0."""

    number: int
    flag: int
    body_crc: int
    body: bytes
    properties: dict[str, str]

    @property
    def tags_code(self) -> int:
        """Hash of the message's own tags; 0 without."""
        tags = self.properties.get(PROPERTY_TAGS)
        return tags_code(tags) if tags else 0


def get_batch_message(
    store: ReadableStore,
    queue: BatchConsumeQueue,
    offset: int,
    max_msg_nums: int,
    message_filter: MessageFilter | None = None,
    *,
    physical_memory: int | None = None,
) -> GetMessageResult:
    """One pull of at most ``max_msg_nums`` messages, or one record, within the broker's limits, and
    within one file of the queue."""
    low, high = queue.min_offset, queue.max_offset
    log, log_end = store.commit_log, store.max_offset
    status, following = _status_of(offset, low, high)
    result = GetMessageResult(status, following, low, high)
    if status is not GetMessageStatus.NO_MATCHED_MESSAGE:
        return result
    limits = TransferLimits(store.config, max_msg_nums, physical_memory)
    scanned = max(_SCANNED_BYTES, java_int_value(max_msg_nums * queue.unit_size))
    total = messages = pulling = 0
    skip_below = LONG_MIN
    for _, unit in queue.units_of_file(queue.find(offset)):
        if not unit.is_written:
            result.passed_over += 1
            continue
        if result.next_begin_offset >= high:
            break
        if (unit.base_offset - offset) * queue.unit_size >= scanned:
            break
        behind = log_end - unit.physical_offset
        is_full = messages + unit.batch_size > max_msg_nums
        if messages and (is_full or limits.is_full(unit.size, total, messages, behind)):
            break
        pulling = unit.physical_offset
        result.next_begin_offset = unit.end_offset
        if unit.physical_offset < skip_below:
            result.passed_over += unit.batch_size
            continue
        if message_filter is not None and not message_filter.matches_code(unit.tags_code):
            continue
        record = log.find_record(unit.physical_offset)
        if record is None or record.total_size != unit.size:
            result.passed_over += unit.batch_size
            if not result.records:
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            removed = log.removed_until(unit.physical_offset, unit.size, log_end)
            if removed is not None:
                skip_below = removed
            continue
        if message_filter is not None and not message_filter.matches(record):
            continue
        result.records.append(record)
        result.status = GetMessageStatus.FOUND
        messages += unit.batch_size
        total += unit.size
        skip_below = LONG_MIN
    result.fall_behind_size = log_end - pulling
    result.suggest_pulling_from_slave = result.fall_behind_size > limits.in_memory
    return result


def _status_of(offset: int, low: int, high: int) -> tuple[GetMessageStatus, int]:
    """The status for an offset outside the queue, and the next offset. NO_MATCHED_MESSAGE: it is
    inside, and its units decide."""
    if high == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetMessageStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, high
    return GetMessageStatus.NO_MATCHED_MESSAGE, offset


def inner_messages(record: Record, stored: bytes, limit: int) -> list[InnerMessage] | None:
    """The messages in a record's stored body; None if the record is one message, or its body cannot
    be taken apart.

    :param limit: the most bytes that the decompressed body may have.
    """
    flags = NEED_UNWRAP | INNER_BATCH
    if record.sys_flag & flags != flags:
        return None
    data: bytes | None = stored
    if record.sys_flag & COMPRESSED_FLAG:
        data = decompress(stored, record.sys_flag, limit).data
    if not data:
        return None
    try:
        return [
            InnerMessage(number, flag, body_crc, body, decode_properties(properties))
            for number, (body_crc, flag, body, properties) in enumerate(in_batch(data))
        ]
    except BadBatch:
        return None
