"""Records that fill a gap of the log, where nothing can be read any more.

A broker ends the log at the first place without a record, and takes a blank for the end of its file
(``CommitLog#checkMessageAndReturnSize``, ``#recoverNormally``, ``ReputMessageService``). Only a
record leads it past a gap in the middle of a file. A filler is a record of a rolled back
transaction. Dispatch passes over it: in no version does it get a unit or an index key
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

#: Topics of fillers. The second is for gaps that are too short for the first.
FILLER_TOPICS = (b"rmqctl-filler", b"~")
#: Bytes of the shortest gap that can be filled.
LEAST_FILLER = MIN_RECORD_SIZE + len(FILLER_TOPICS[-1])
#: Bytes of the longest filler: the largest message that a broker takes by default. A longer gap
#: gets several fillers.
MOST_FILLER = constants.DEFAULT_MAX_MESSAGE_SIZE
#: The properties of a placeholder, which tell it from a real message.
_PLACEHOLDER = b"RMQCTL\x01lost"
_NO_HOST = bytes(constants.IPV4_SIZE)
_ZEROS = bytes(1 << 16)
_TAIL = TAILS[MESSAGE_MAGIC_CODE]
_HEADS: Struct = PREFIXES[0]
_NAMES = [field.name for field in layouts.RECORD_PREFIX[0].fields]


class MadeRecord(NamedTuple):
    """A record of ``size`` bytes with a body of zeros: its bytes before and behind the body."""

    head: bytes
    tail: bytes
    size: int


def filler(physical_offset: int, size: int, store_timestamp: int) -> MadeRecord:
    """A filler of exactly ``size`` bytes, at least :data:`LEAST_FILLER`."""
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
    """A message of exactly ``size`` bytes that takes the place of a lost one in its queue. A
    property marks it; None when ``size`` is too small for that.

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
    """The head of a blank over the rest of a file, ``size`` bytes."""
    return BLANK.pack(size, BLANK_MAGIC_CODE)
