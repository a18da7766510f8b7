"""The timer of 5.x: a slot of its wheel, a unit of its log, its check point.

A message that is to be delivered at a time waits as a record of `rmq_sys_wheel_timer`. The log has
a unit for each; the wheel has a slot for each time, which leads to the newest unit of that time,
and each unit to the one before it (`TimerMessageStore`).
"""

from construct import Int32sb, Int64sb, Struct

from formats.declare import field

SLOT = Struct(
    field(
        "time",
        Int64sb,
        "when the slot's messages are delivered, in units of timerPrecisionMs since the epoch; 0 in"
        " a slot never used",
        "timeMs",
    ),
    field(
        "first_position",
        Int64sb,
        "where the timer log has the first unit of this time; not exact after a start",
        "firstPos",
    ),
    field(
        "last_position",
        Int64sb,
        "where the timer log has the newest unit of this time, from which the others follow",
        "lastPos",
    ),
    field(
        "count",
        Int32sb,
        "how many messages were put in, less those that recall one; not exact after a start",
        "num",
    ),
    field("magic", Int32sb, "not used", "magic"),
)
"""One slot of 32 bytes; its number is `time` modulo the number of slots."""

UNIT = Struct(
    field("size", Int32sb, "size of the unit: 52", "size"),
    field(
        "prev_position",
        Int64sb,
        "where the log has the unit before it of the same slot; -1 at the first",
        "prevPos",
        "prev pos",
    ),
    field(
        "magic",
        Int32sb,
        "1, more 2 when the message is to be put into the wheel again at that time, more 4 when it"
        " recalls another",
        "magic",
    ),
    field(
        "write_timestamp",
        Int64sb,
        "when it was put into the wheel, in epoch milliseconds, a multiple of timerPrecisionMs",
        "currWriteTime",
    ),
    field(
        "delay_milliseconds",
        Int32sb,
        "from then to the slot's time, in milliseconds",
        "delayedTime",
    ),
    field(
        "physical_offset",
        Int64sb,
        "where the record starts in the commit log",
        "offsetPy",
    ),
    field("total_size", Int32sb, "size of the record", "sizePy"),
    field("topic_hash", Int32sb, "hash code of the real topic", "hashcode of real topic"),
    field("reserved", Int64sb, "0", "reserved value"),
)
"""One unit of 52 bytes."""

BLANK = Struct(
    field("size", Int32sb, "bytes from here to the end of the file", "size"),
    field("prev_position", Int64sb, "0", "prevPos"),
    field("magic", Int32sb, "-875286124", "magic"),
)
"""What stands at the end of a file, where a unit and such a blank do not fit any more: a unit's
first three fields."""

CHECKPOINT = Struct(
    field(
        "read_timestamp",
        Int64sb,
        "the next slot to deliver, in epoch milliseconds: all before it are done",
        "lastReadTimeMs",
    ),
    field(
        "flushed_position",
        Int64sb,
        "up to where the timer log was on disk a round ago",
        "lastTimerLogFlushPos",
    ),
    field(
        "queue_offset",
        Int64sb,
        "the next message of `rmq_sys_wheel_timer` to put into the wheel",
        "lastTimerQueueOffset",
    ),
    field(
        "master_queue_offset",
        Int64sb,
        "the same of the master; no start begins behind it",
        "masterTimerQueueOffset",
    ),
    field("state_version", Int64sb, "version of the state", "dataVersion.stateVersion"),
    field(
        "version_timestamp",
        Int64sb,
        "when that began, in epoch milliseconds",
        "dataVersion.timestamp",
    ),
    field("version_counter", Int64sb, "changes since then", "dataVersion.counter"),
)
"""The first 56 bytes."""
