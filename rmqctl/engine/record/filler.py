"""Records that fill a gap of the log: what stands where nothing can be read any more.

A broker ends the log at the first place that is no record, and takes a blank for the end of its
file (``CommitLog#checkMessageAndReturnSize``, ``#recoverNormally``, ``ReputMessageService``). Only
a record leads it past a gap in the middle of a file. A filler is one of a rolled back transaction,
which dispatch passes over: it has neither unit nor index key, in any version
(``CommitLogDispatcherBuildConsumeQueue``, ``IndexService#buildIndex``).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from isal.isal_zlib import crc32

from formats import constants, layouts
from formats.constants import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE,
    MIN_RECORD_SIZE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rmqctl.engine.record.record import BLANK, PREFIXES, TAILS

#: Topics of fillers: the second is of gaps that have no room for the first.
FILLER_TOPICS = (b"rmqctl-filler", b"~")
#: A shorter gap cannot be filled.
LEAST_FILLER = MIN_RECORD_SIZE + len(FILLER_TOPICS[-1])
#: A longer gap gets several fillers: what a broker takes for a message by default.
MOST_FILLER = constants.DEFAULT_MAX_MESSAGE_SIZE
#: The properties of a placeholder, which tell it from the message that was lost.
_PLACEHOLDER = b"RMQCTL\x01lost"
_NO_HOST = bytes(constants.IPV4_SIZE)
_ZEROS = bytes(1 << 16)
_TAIL = TAILS[MESSAGE_MAGIC_CODE]
_HEADS: Struct = PREFIXES[0]
_NAMES = [field.name for field in layouts.RECORD_PREFIX[0].fields]


class MadeRecord(NamedTuple):
    """A record of ``size`` bytes whose body is zeros: what stands before the body, and behind."""

    head: bytes
    tail: bytes
    size: int


def filler(physical_offset: int, size: int, store_timestamp: int) -> MadeRecord:
    """A filler of exactly ``size`` bytes, from :data:`LEAST_FILLER` on."""
    topic = next(one for one in FILLER_TOPICS if MIN_RECORD_SIZE + len(one) <= size)
    fields = {
        "physical_offset": physical_offset,
        "sys_flag": TRANSACTION_ROLLBACK_TYPE,
        "store_timestamp": store_timestamp,
    }
    return _made(size, topic, b"", fields)


def placeholder(
    physical_offset: int,
    size: int,
    store_timestamp: int,
    queue: tuple[bytes, int, int],
) -> MadeRecord | None:
    """A message of exactly ``size`` bytes that takes a lost one's place in its queue, marked by a
    property; None where it has no room for that.

    :param queue: topic, queue id and queue offset.
    """
    topic, queue_id, queue_offset = queue
    if len(topic) > _TAIL.longest_topic or MIN_RECORD_SIZE + len(topic + _PLACEHOLDER) > size:
        return None
    fields = {
        "physical_offset": physical_offset,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "born_timestamp": store_timestamp,
        "store_timestamp": store_timestamp,
    }
    return _made(size, topic, _PLACEHOLDER, fields)


def _made(size: int, topic: bytes, properties: bytes, given: dict[str, int]) -> MadeRecord:
    tail = (
        _TAIL.topic_length.pack(len(topic))
        + topic
        + _TAIL.properties_length.pack(len(properties))
        + properties
    )
    body_length = size - _HEADS.size - len(tail)
    fields = dict.fromkeys(_NAMES, 0) | {"born_address": _NO_HOST, "store_address": _NO_HOST}
    fields |= given | {"total_size": size, "magic_code": MESSAGE_MAGIC_CODE}
    fields |= {"body_length": body_length, "body_crc": _crc_of_zeros(body_length)}
    return MadeRecord(_HEADS.pack(*(fields[name] for name in _NAMES)), tail, size)


@lru_cache(maxsize=8)
def _crc_of_zeros(length: int) -> int:
    code = 0
    for at in range(0, length, len(_ZEROS)):
        code = crc32(_ZEROS[: length - at], code)
    return code & 0x7FFFFFFF


def blank(size: int) -> bytes:
    """The head of a blank that takes the rest of a file, ``size`` bytes."""
    return BLANK.pack(size, BLANK_MAGIC_CODE)
