"""The reference page of the timer's files, for `formats.pages`."""

from collections.abc import Callable, Mapping
from typing import Any

from construct import Struct

from formats import timer
from formats.constants import TIMER_SLOTS
from formats.text import string_hash_code

_DELIVERY = 1_746_000_000_000
_WRITE = _DELIVERY - 60_000
_SLOT = {
    "time": _DELIVERY // 1000,
    "first_position": 0,
    "last_position": timer.UNIT.sizeof(),
    "count": 2,
    "magic": 0,
}
_UNIT = {
    "size": timer.UNIT.sizeof(),
    "prev_position": -1,
    "magic": 1,
    "write_timestamp": _WRITE,
    "delay_milliseconds": _DELIVERY - _WRITE,
    "physical_offset": 1024,
    "total_size": 300,
    "topic_hash": string_hash_code("Orders"),
    "reserved": 0,
}
_CHECKPOINT = {
    "read_timestamp": _WRITE + 1000,
    "flushed_position": 0,
    "queue_offset": 2,
    "master_queue_offset": 2,
    "state_version": 0,
    "version_timestamp": _WRITE,
    "version_counter": 1,
}


def timer_page(
    table: Callable[[Struct], str], example: Callable[[Struct, Mapping[str, Any]], str]
) -> str:
    """Return the page; `table` and `example` make the parts of it that follow from a schema."""
    slot_size = timer.SLOT.sizeof()
    return (
        "# Timer of 5.x\n\n"
        "A message with a time of delivery waits as a record of `rmq_sys_wheel_timer`, queue 0, and"
        " says in its property TIMER_OUT_MS when it is delivered, in REAL_TOPIC and REAL_QID where."
        " The timer puts it into its wheel, and at that time a copy of it into its queue. The files"
        " have no checksum, and nothing says of a message that it was delivered but the check"
        " point's `read_timestamp`.\n\n"
        f"## Slot of `timerwheel`\n\nThe file has {TIMER_SLOTS:,} slots,"
        f" {TIMER_SLOTS * slot_size:,} bytes, most of them a hole; with any other"
        " length a broker does not start. A time's slot has the number `time` modulo"
        " the number of slots, and is that time's only when it holds"
        " just it. Slots are never cleared. Written by `TimerWheel#putSlot`.\n\n"
        + table(timer.SLOT)
        + "\n## Unit of `timerlog/`\n\nFiles of mappedFileSizeTimerLog bytes, named by their first"
        " positions. The log ends at the first unit of another size. Written by"
        " `TimerMessageStore#doEnqueue`.\n\n"
        + table(timer.UNIT)
        + f"\n## Blank of `timerlog/`\n\nA file ends with one where a unit and"
        f" {timer.BLANK.sizeof()} bytes more would not fit. Written by `TimerLog#append`.\n\n"
        + table(timer.BLANK)
        + "\n## Check point `config/timercheck`\n\n4096 bytes. Written by `TimerCheckpoint#flush`,"
        " each second, after log and wheel: these may be ahead of it.\n\n"
        + table(timer.CHECKPOINT)
        + f"\n## Example\n\nSlot {_DELIVERY // 1000 % TIMER_SLOTS}, with two messages:\n\n"
        + example(timer.SLOT, _SLOT)
        + "\nThe first unit of it:\n\n"
        + example(timer.UNIT, _UNIT)
        + "\nA check point a second after that:\n\n"
        + example(timer.CHECKPOINT, _CHECKPOINT)
    )
