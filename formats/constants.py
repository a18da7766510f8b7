"""The fixed numbers and names of the store format.

They are RocketMQ's own, under RocketMQ's names, from `CommitLog`, `MessageDecoder`,
`MessageSysFlag`, `MessageConst`, `ConsumeQueue`, `ConsumeQueueExt`, `IndexFile`, `IndexHeader`,
`TopicValidator` and `MessageStoreConfig`. What differs from Java: magic codes are unsigned here,
because that is how they look in a hex dump and how `formats.layouts` reads them.
"""

from typing import Final

# Java's Integer and Long
INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1

# Magic codes: the second word of everything that stands in a commit log file.
MESSAGE_MAGIC_CODE: Final = 0xDAA320A7
"""A record (Java: -626843481)."""
MESSAGE_MAGIC_CODE_V2: Final = 0xDAA320AB
"""A record whose topic length takes two bytes; written by 5.1.0 and later, never by 4.9.3."""
BLANK_MAGIC_CODE: Final = 0xCBD43194
"""The blank that closes a file (Java: -875286124)."""

# MessageSysFlag
COMPRESSED_FLAG: Final = 1
MULTI_TAGS_FLAG: Final = 2
COMPRESSION_TYPE_MASK: Final = 7 << 8
TRANSACTION_TYPE_MASK: Final = 12
TRANSACTION_NOT_TYPE: Final = 0
TRANSACTION_PREPARED_TYPE: Final = 4
TRANSACTION_COMMIT_TYPE: Final = 8
TRANSACTION_ROLLBACK_TYPE: Final = 12
BORNHOST_V6_FLAG: Final = 16
STOREHOSTADDRESS_V6_FLAG: Final = 32
HOST_V6_MASK: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
"""The only sys flags that change where the fields of a record lie."""

EARLIEST_STORE_TIME: Final = 1_325_376_000_000
"""A store time (ms) before which no clock of a broker was: RocketMQ is of 2012."""
END_OF_STORE_TIMES: Final = 4_102_444_800_000
"""The one from which on none will be: the first of 2100."""

IPV4_SIZE: Final = 4
IPV6_SIZE: Final = 16
"""What the address of a host takes, by those two flags."""

# Property text
NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
INDEX_TAG_TYPE: Final = "T"
"""5.4 and later index a message's tags as the key `T#tags` (`IndexService#buildIndex`)."""
MULTI_DISPATCH_QUEUE_SPLITTER: Final = ","
LMQ_PREFIX: Final = "%LMQ%"

# MessageConst: the properties that the store itself reads or writes
PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
# MessageConst: a message with a time of delivery (5.x)
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_CRC32: Final = "__CRC32#"
"""The record's own checksum, which 5.2.0 and later keep as its last property."""

# TopicValidator: the topics that the store itself writes to
RMQ_SYS_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
RMQ_SYS_TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

# Commit log limits
MIN_RECORD_SIZE: Final = 91
"""A record with IPv4 hosts and no body, topic or properties."""
END_FILE_MIN_BLANK_LENGTH: Final = 8
"""What a blank takes; every append leaves at least that much of its file."""
MAX_TOPIC_LENGTH: Final = 127
MAX_TOPIC_LENGTH_V2: Final = 255
"""Of a retry topic in 5.1.0 and later (`HookUtils#checkBeforePutMessage`)."""
MAX_PROPERTIES_LENGTH: Final = 32767

# Consume queue
CQ_STORE_UNIT_SIZE: Final = 20
PRE_BLANK_UNIT: Final = (0, INT_MAX, 0)
"""The unit that fills the space before the first unit of a queue that starts late."""

# Consume queue extension
MAX_ADDR: Final = INT_MIN - 1
"""A tags code up to this one is the address of an extension unit (`ConsumeQueueExt#isExtAddr`)."""
END_BLANK_DATA_LENGTH: Final = 4
MIN_EXT_UNIT_SIZE: Final = 20
MAX_EXT_UNIT_SIZE: Final = 32767

# Index file
INDEX_HEADER_SIZE: Final = 40
HASH_SLOT_SIZE: Final = 4
INDEX_SIZE: Final = 20

# DLedger (`DLedgerEntryCoder`, `MmapFileList`)
DLEDGER_MAGIC_CODE: Final = 1
"""An entry of a DLedger log."""
DLEDGER_BLANK_MAGIC_CODE: Final = -1
"""The blank that closes a file of it."""

CHECKPOINT_FILE_SIZE: Final = 4096

# Timer of 5.x (TimerMessageStore)
TIMER_SLOTS: Final = 2 * 7 * 86400
"""In the wheel, whatever their precision."""
TIMER_BLANK_SLOTS: Final = 60
TIMER_UNIT_SIZE: Final = 52
TIMER_MIN_BLANK_LENGTH: Final = 16
TIMER_MAGIC_DEFAULT: Final = 1
TIMER_MAGIC_ROLL: Final = 2
TIMER_MAGIC_DELETE: Final = 4

# Tiered storage of 5.x (`MessageFormatUtil`, `IndexStoreFile`)
TIERED_CODA_SIZE: Final = 16
TIERED_INDEX_BEGIN_MAGIC_CODE: Final = 0xCCDDEEFF ^ 1880681586 + 4
"""A file of the index that takes items."""
TIERED_INDEX_END_MAGIC_CODE: Final = 0xCCDDEEFF ^ 1880681586 + 8
"""One that is full, or compacted."""
TIERED_INDEX_TOPIC: Final = "rmq_sys_INDEX"

# MessageStoreConfig defaults
DEFAULT_MAPPED_FILE_SIZE_COMMIT_LOG: Final = 1 << 30
DEFAULT_MAPPED_FILE_SIZE_CONSUME_QUEUE: Final = 6_000_000
DEFAULT_MAPPED_FILE_SIZE_CONSUME_QUEUE_EXT: Final = 48 * 1024 * 1024
DEFAULT_MAPPED_FILE_SIZE_DLEDGER_INDEX: Final = 32 * 5 * 1024 * 1024
DEFAULT_BATCH_QUEUE_FILE_SIZE: Final = 300_000 * 46
DEFAULT_COMPACTION_LOG_FILE_SIZE: Final = 104_857_460
DEFAULT_COMPACTION_CQ_FILE_SIZE: Final = 10 * 1024 * 1024
DEFAULT_MAX_HASH_SLOT_NUM: Final = 5_000_000
DEFAULT_MAX_INDEX_NUM: Final = 20_000_000
DEFAULT_MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024
DEFAULT_MAPPED_FILE_SIZE_TIMER_LOG: Final = 100 * 1024 * 1024
DEFAULT_TIMER_PRECISION_MS: Final = 1000
DEFAULT_TIMER_ROLL_WINDOW_SLOT: Final = 2 * 86400
DEFAULT_TIMER_MAX_DELAY_SEC: Final = 3 * 86400
DEFAULT_MESSAGE_DELAY_LEVEL: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
