"""What commands that put messages share: ``--stats``, and how they end when one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rmqctl.cli.settings import Settings
    from rmqctl.engine.messagestore import MessageStore, WritableStore
    from rmqctl.engine.record.message import MessageExtBrokerInner
    from rmqctl.engine.write.stats import StoreStats
    from rmqctl.operations.change.putstream import BulkPut
    from rmqctl.rows import Row

F = TypeVar("F", bound=Callable[..., Any])


def stats_option(function: F) -> F:
    """``--stats``, as an argument of that name."""
    return click.option("--stats", is_flag=True, help="Print statistics to stderr at the end.")(
        function
    )


def print_stats(store: MessageStore) -> None:
    """Prints the statistics of a store that was written, on stderr; it may be closed by now."""
    from rmqctl.cli.output import note
    from rmqctl.engine.messagestore import WritableStore

    if isinstance(store, WritableStore):
        for line in stats_lines(store.writer.stats):
            note(line)


def refused(
    settings: Settings,
    where: str,
    status: str,
    reason: str,
    *,
    is_alone: bool = False,
    next_line: int | None = None,
) -> int:
    """Prints on stderr which put was refused, and what to do about it; returns the exit code.

    :param where: names what was to be put, in front of the status; may be empty.
    :param is_alone: nothing was put before it.
    :param next_line: the line of the input behind the last message that is in the log.
    """
    from rmqctl.cli.output import note
    from rmqctl.engine.record.status import NOT_AGAIN, PutMessageStatus
    from rmqctl.limits import system_step

    # The system's words end the first sentence, perhaps behind what it was about.
    words = reason.partition(". ")[0].rpartition(": ")[2].rstrip(".")
    mend = system_step(words, "Check owner, mount and free space.").rstrip(".")
    of_put = PutMessageStatus(status)
    before = "" if is_alone else " What was put before it is stored"
    where_on = "there" if next_line is None else f"line {next_line}"
    then = "try again" if is_alone else f"go on from {where_on}"
    if reason.endswith(NOT_AGAIN):
        step = f" {mend}; `rmqctl flush` then brings the rest in order."
        step += "" if next_line is None else f" Go on from {where_on}."
    elif of_put is PutMessageStatus.CREATE_MAPEDFILE_FAILED:
        # Its reason is an error with the next step in it.
        step = f"{before}: {then}." if before else ""
    elif of_put.is_of_store:
        step = f"{before and before + '.'} {mend}, then {then}."
    else:
        mended = "Mend the message" if is_alone else "Mend the message or leave it out"
        step = f"{before and before + '.'} {mended}, then {then}."
    note(f"error: {settings.root}: {where}{status}: {reason.rstrip('.')}.{step}")
    return 5


def status(
    settings: Settings, row: Row | None, line: int | None = None, *, is_dry: bool = False
) -> int:
    """The exit code of a put, by its last row. On stderr it says what to do about a refused one.

    :param line: of the input, None where there is a single message. :param is_dry: nothing was put.
    """
    if row is None or row["status"] == "PUT_OK":
        return 0
    where = "" if line is None else f"line {line}: "
    reason = row.get("reason", "the message was not stored")
    next_line = None if line is None else row.get("next_line")
    # Before the only message nothing is stored, nor is anything by a dry run.
    alone = line is None or is_dry
    return refused(settings, where, row["status"], reason, is_alone=alone, next_line=next_line)


def timed(
    store: MessageStore, message: MessageExtBrokerInner, when: dict[str, int]
) -> MessageExtBrokerInner:
    """The message as it waits for its time of delivery; without one the message itself.

    :param when: ``deliver_at`` or ``delay``, in milliseconds.
    :raises click.UsageError: both are given. :raises UsageError: the store delivers at no time.
    """
    if not when:
        return message
    if len(when) == 2:
        raise click.UsageError("--deliver-at and --delay exclude each other.")
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.change.timed import timed_message

    return timed_message(store, message, system_clock(), **when)


def note_damages(settings: Settings, run: BulkPut) -> None:
    """Says how many damaged places the input tells of: their messages are not in it."""
    damages = run.passed_over["damage"]
    if damages:
        settings.note(
            f"note: {damages} rows of type damage were passed over: the store that they are of "
            "has lost what stood there."
        )


@contextmanager
def closed_at_the_end(
    opened: Callable[[], WritableStore], is_logged: Callable[[], bool]
) -> Iterator[WritableStore]:
    """Opens the store, and closes it at the end. If the close fails behind another error, both are
    printed.

    :raises StoredNotClosed: the close fails, and ``is_logged`` says that messages are in the log:
        the error must not have them put again.
    """
    from rmqctl.cli.output import note
    from rmqctl.errors import RmqctlError, SystemRefused
    from rmqctl.operations.change.put import StoredNotClosed

    is_open, before = False, None
    try:
        with opened() as store:
            is_open = True
            try:
                yield store
            except BaseException as error:
                before = error
                raise
    except SystemRefused as error:
        if error is before or not (is_open and is_logged()):
            raise
        if isinstance(before, RmqctlError):
            note(f"error: {before.for_command_line}")
        raise StoredNotClosed(path=str(store.root), reason=error.reason) from error


def stats_lines(stats: StoreStats) -> Iterator[str]:
    """The statistics of a store as lines for a reader."""
    from rmqctl.engine.write.stats import PUT_TIME_CLASSES

    for topic, count in sorted(stats.put_message_topic_times_total.items()):
        size = stats.put_message_topic_size_total[topic]
        yield f"stats: topic {topic}: {count} messages, {size} bytes"
    yield (
        f"stats: {stats.put_message_times_total} messages, {stats.put_message_size_total} bytes, "
        f"{stats.put_message_failed_times} failed, longest put "
        f"{stats.put_message_entire_time_max:.1f} ms"
    )
    puts = zip(PUT_TIME_CLASSES, stats.put_message_distribute_time, strict=True)
    yield "stats: puts by time: " + " ".join(f"[{name}]:{count}" for name, count in puts)
    yield (
        f"stats: {stats.flush_times} flushes of the log, {stats.flush_time_total:.1f} ms in all, "
        f"longest {stats.flush_time_max:.1f} ms"
    )
