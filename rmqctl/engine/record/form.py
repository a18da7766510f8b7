"""``RecordForm``: how records end, by the version of RocketMQ that writes the store."""

from __future__ import annotations

from typing import NamedTuple

from formats import constants

SEPARATOR = constants.PROPERTY_SEPARATOR.encode()
CRC_HEAD = (constants.PROPERTY_CRC32 + constants.NAME_VALUE_SEPARATOR).encode()
CRC_DIGITS = 10
#: ``CommitLog#CRC32_RESERVED_LEN``.
CRC32_RESERVED_LENGTH = len(CRC_HEAD) + CRC_DIGITS + len(SEPARATOR)


class RecordForm(NamedTuple):
    """How records end. The defaults are the form of 4.9.3.

    ``property_separator``: a separator stands behind the last property (5.2.0 and later).
    ``property_crc``: the last property is a checksum of the record
    (``enabledAppendPropCRC``). ``long_topics``: retry topics may be longer than a byte can say
    (5.1.0 and later; ``autoMessageVersionOnTopicLen``).
    """

    property_separator: bool = False
    property_crc: bool = False
    long_topics: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is the form of 4.9.3, apart from long topics."""
        return self == RecordForm(long_topics=self.long_topics)

    def magic_code(self, topic: str) -> int:
        """The magic code of a topic's records; it says how they end
        (:data:`~rmqctl.engine.record.record.TAILS`)."""
        is_long = self.long_topics and len(topic) > constants.MAX_TOPIC_LENGTH
        if is_long and topic.startswith(constants.RETRY_GROUP_TOPIC_PREFIX):
            return constants.MESSAGE_MAGIC_CODE_V2
        return constants.MESSAGE_MAGIC_CODE

    def properties(self, data: bytes) -> bytes:
        """Stored properties, with room for the checksum that an append fills in."""
        if (self.property_separator or self.property_crc) and data and data[-1:] != SEPARATOR:
            data += SEPARATOR
        return data + bytes(CRC32_RESERVED_LENGTH) if self.property_crc else data


FORM_OF_4_9_3 = RecordForm()


def room_of(file_size: int) -> int:
    """Bytes of the longest record or batch that a log file can hold: a blank must fit behind it."""
    return file_size - constants.END_FILE_MIN_BLANK_LENGTH
