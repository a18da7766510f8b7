"""Statuses, which are returned and never raised: RocketMQ's answers, in Java's spelling, and what
became of a body."""

from __future__ import annotations

from enum import Enum

#: ``status`` of a message, in rows and in columns on Spark: whether the body matches its CRC.
OK, BODY_CRC_MISMATCH = "ok", "body-crc-mismatch"
#: ``status`` when the body was not checked.
UNCHECKED = "unchecked"
#: How the reason ends when a put failed, but the log has the message (or messages).
NOT_AGAIN = "do not put it again", "do not put them again"


def logged(start: int, count: int, one: str, many: str) -> str:
    """The end of a reason when a put failed, but the log has its ``count`` messages from physical
    offset ``start`` on. ``one`` or ``many`` is said about them, then not to put them again."""
    if count == 1:
        return f"The log has the message (from {start} on){one}; {NOT_AGAIN[0]}"
    return f"The log has the {count} messages from {start} on{many}; {NOT_AGAIN[1]}"


class PutMessageStatus(Enum):
    """``PutMessageStatus``: what became of a put."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"

    @property
    def is_of_store(self) -> bool:
        """Whether the reason lies in the store, and not in the message: any other message would
        fail, too."""
        return self in _OF_STORE


_OF_STORE = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.CREATE_MAPEDFILE_FAILED,
    PutMessageStatus.OS_PAGECACHE_BUSY,
}


class AppendMessageStatus(Enum):
    """``AppendMessageStatus``: what the append itself did.

    The two for sizes are never returned: 4.9.3 refuses such messages when it encodes them, before
    an append.
    """

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


class GetMessageStatus(Enum):
    """``GetMessageStatus``: what a pull found."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class BodyStatus(Enum):
    """What became of a stored body."""

    STORED = "stored"
    DECOMPRESSED = "decompressed"
    DAMAGED = "damaged"
    OVER_LIMIT = "over-limit"
    NO_CODEC = "no-codec"
