"""timer ls: messages with a time of delivery that a broker of 5.x has not delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats import constants
from rmqctl.engine.files import paths
from rmqctl.engine.services import timer as rules
from rmqctl.engine.services.timer import Timed, Timer
from rmqctl.engine.settings.filesizes import timer_log_file_size
from rmqctl.engine.timer.timerlog import TimerLog
from rmqctl.engine.timer.wheel import WHEEL_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.rows.timers import TimerLsSummary, TimerMessageRow


def irregular_files(root: Path, config: MessageStoreConfig) -> list[str]:
    """Timer files of a wrong length, with that length. No broker starts with them."""
    path = root / paths.TIMER_WHEEL
    length = path.stat().st_size if path.is_file() else 0
    found = [f"{path.name} ({length} bytes)"] if length not in (0, WHEEL_SIZE) else []
    log = TimerLog(root / paths.TIMER_LOG, timer_log_file_size(root, config))
    wrong = [entry for entry in log.files.irregular if entry != log.files.empty_last]
    log.close()
    return found + [f"{paths.TIMER_LOG}/{one.path.name} ({one.size} bytes)" for one in wrong]


def timer_messages(
    store: MessageStore, now: int, topic: str | None = None, limit: int | None = None
) -> Iterator[TimerMessageRow | TimerLsSummary]:
    """Rows ``timer_message``, of one topic or all, ``limit`` at most, and a ``summary`` of all
    messages of the topic. They come slot by slot in the order of their times, then those that are
    not in the wheel.

    :raises CannotRead: the system refuses to read a file.
    :raises ConfigurationContradiction: a ``broker.conf`` contradicts the files.
    """
    timer = Timer(store)
    try:
        yield from _rows(store, timer, now, topic, limit)
    finally:
        timer.close()


def _rows(
    store: MessageStore, timer: Timer, now: int, topic: str | None, limit: int | None
) -> Iterator[TimerMessageRow | TimerLsSummary]:
    summary: TimerLsSummary = {
        "type": "summary",
        "pending": 0,
        "due": 0,
        "overdue": 0,
        "rolled": 0,
        "recalled": 0,
        "gone": 0,
        "not_in_wheel": 0,
        "delivered_before": 0,
        "read_timestamp": timer.checkpoint.read_timestamp if timer.has_checkpoint else None,
        "queue_offset": timer.enqueue_offset(),
    }
    printed = 0
    for timed in timer.timed(now):
        row = _row(store, timed)
        if topic is not None and row["topic"] != topic:
            continue
        summary[timed.state] += 1  # type: ignore[literal-required]
        summary["not_in_wheel"] += timed.unit is None
        summary["delivered_before"] += row["copy_offset"] is not None
        if limit is None or printed < limit:
            printed += 1
            yield row
    yield summary


def _row(store: MessageStore, timed: Timed) -> TimerMessageRow:
    record, unit, properties = timed.record, timed.unit, timed.properties
    rolls = rules.number_of(properties, constants.PROPERTY_TIMER_ROLL_TIMES)
    copy = None
    if record is not None and timed.state in (rules.DUE, rules.OVERDUE):
        copy = rules.copy_of(store, record, properties)
    return {
        "type": "timer_message",
        "state": timed.state,
        "deliver_timestamp": rules.out_timestamp(properties),
        "slot_timestamp": None if unit is None else unit.slot_timestamp,
        "topic": properties.get(constants.PROPERTY_REAL_TOPIC),
        "queue_id": properties.get(constants.PROPERTY_REAL_QUEUE_ID),
        "unique_key": properties.get(constants.PROPERTY_UNIQ_KEY),
        "keys": properties.get(constants.PROPERTY_KEYS),
        "rolls": rolls or 0,
        "physical_offset": timed.physical_offset,
        "total_size": timed.total_size,
        "queue_offset": None if record is None else record.queue_offset,
        "timer_log_position": None if unit is None else unit.position,
        "copy_offset": None if copy is None else copy.physical_offset,
    }
