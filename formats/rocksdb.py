"""The keys and values in the RocksDB of 5.x's queues.

A key begins with the length of a topic, 0x01, the topic, 0x01. In the column family ``default``
queue id, 0x01, queue offset follow (``RocksDBConsumeQueueTable``), in ``offset`` ``max`` or
``min``, 0x01, queue id (``RocksDBConsumeQueueOffsetTable``). All numbers are big-endian.
"""

import struct
from typing import Final

#: ``AbstractRocksDBStorage.CTRL_1``, between the parts of a key.
MARK: Final = b"\x01"
TOPIC_LENGTH: Final = struct.Struct(">i")
QUEUE_ID: Final = struct.Struct(">i")
QUEUE_OFFSET: Final = struct.Struct(">q")
MAX: Final = b"max"
MIN: Final = b"min"
#: ``RocksDBConsumeQueueOffsetTable.MAX_PHYSICAL_OFFSET_CHECKPOINT``: the "topic" whose end says how
#: far queues are built.
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
#: Value of a unit: commit log offset, size, tags code, store time (ms).
UNIT: Final = struct.Struct(">qiqq")
#: Value of the checkpoint: the commit log offset up to which queues are built.
BUILT_TO: Final = struct.Struct(">q")
#: Value of a queue's last or first unit: its commit log offset and queue offset.
END: Final = struct.Struct(">qq")


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """The key of a unit."""
    name = topic.encode()
    numbers = MARK + QUEUE_ID.pack(queue_id) + MARK + QUEUE_OFFSET.pack(queue_offset)
    return TOPIC_LENGTH.pack(len(name)) + MARK + name + numbers


def end_key(topic: str, queue_id: int, which: bytes = MAX) -> bytes:
    """The key of a queue's last unit (:data:`MAX`), or of its first one (:data:`MIN`)."""
    name = topic.encode()
    numbers = MARK + which + MARK + QUEUE_ID.pack(queue_id)
    return TOPIC_LENGTH.pack(len(name)) + MARK + name + numbers


def topic_and_rest(key: bytes) -> tuple[str, bytes] | None:
    """The topic of a key, and the rest behind it; None if it is no such key."""
    if len(key) < TOPIC_LENGTH.size + 2:
        return None
    (length,) = TOPIC_LENGTH.unpack_from(key)
    start = TOPIC_LENGTH.size + 1
    if not 0 < length <= len(key) - start - 1:
        return None
    if key[start - 1 : start] != MARK or key[start + length : start + length + 1] != MARK:
        return None
    try:
        return key[start : start + length].decode(), key[start + length + 1 :]
    except UnicodeDecodeError:
        return None
