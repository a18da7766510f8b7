"""Walks: every record, queue unit or index item in order, damage included."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from formats.constants import LONG_MAX
from rmqctl.engine.dispatch.rules import message_keys
from rmqctl.engine.index.header import item_store_time
from rmqctl.engine.log.onward import onward
from rmqctl.engine.log.times import may_hold, stretches
from rmqctl.engine.read.lines import Lines, LinesOfLog, line_maker
from rmqctl.engine.record.record import Blank, Damage, End, Entry, Record
from rmqctl.operations.look.lines import wanted_lines
from rmqctl.operations.look.places import require_walk_start
from rmqctl.operations.look.ranges import check_range
from rmqctl.operations.look.rows import (
    BodySource,
    blank_row,
    bodies_counted,
    damage_row,
    index_item_row,
    message_row_with_body,
)

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.structures import (
        BlankRow,
        DamageRow,
        IndexItemRow,
        MessageRow,
    )
    from rmqctl.rows.summaries import WalkCommitlogSummary, WalkIndexSummary


@dataclass(frozen=True, slots=True)
class Selection:
    """What a walk shows; None is no limit. ``start`` and ``end`` are physical offsets, the end
    exclusive. ``since`` and ``until`` are store times, both inclusive. ``key`` is one of KEYS, or
    the UNIQ_KEY. ``limit`` is the most rows."""

    start: int | None = None
    end: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    since: int | None = None
    until: int | None = None
    key: str | None = None
    limit: int | None = None
    #: Whether some messages in the range are not shown. Every row asks for it.
    filters: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """:raises UsageError: a range ends before it begins."""
        check_range("start", self.start, "end", self.end)
        check_range("since", self.since, "until", self.until)
        asked = (self.topic, self.queue_id, self.since, self.until, self.key)
        object.__setattr__(self, "filters", any(one is not None for one in asked))

    def shows_time(self, timestamp: int) -> bool:
        return (self.since is None or timestamp >= self.since) and (
            self.until is None or timestamp <= self.until
        )

    def shows_offset(self, physical_offset: int) -> bool:
        return (self.start is None or physical_offset >= self.start) and (
            self.end is None or physical_offset < self.end
        )


@bodies_counted
def walk_commit_log(
    store: MessageStore,
    what: Selection,
    body: str = "none",
    *,
    decompress_limit: int | None = None,
    message_filter: MessageFilter | None = None,
) -> Iterator[MessageRow | BlankRow | DamageRow | WalkCommitlogSummary]:
    """Rows ``message``, ``blank``, ``damage``, then ``summary``. With ``message_filter``, blanks
    and messages that do not match are left out. Files that clearly hold no message of the chosen
    times are not read, so damage in them is not told.

    The summary's ``next_offset`` is where the walk stopped; files that are not read, being too old,
    lie behind it, also where no file is left to read. ``residue`` counts the bytes behind the
    end of the log that are not zero (of a crashed append, or left by a truncation); it is 0 where
    the walk stopped before the end.

    :raises NoRecordAt: no record starts at ``what.start``.
    """
    rows = functools.partial(
        log_row,
        store,
        what=what,
        body=body,
        decompress_limit=decompress_limit,
        message_filter=message_filter,
    )
    return _walked(store, what, rows, None)


@bodies_counted
def commit_log_lines(
    store: MessageStore,
    what: Selection,
    body: str,
    form: str,
    *,
    decompress_limit: int | None = None,
) -> Iterator[Lines | MessageRow | BlankRow | DamageRow | WalkCommitlogSummary]:
    """:func:`walk_commit_log`, with lines of ``form`` (``ndjson``, ``csv``) in place of most rows
    ``message`` where the kernel makes them. The errors are the same."""
    wanted = wanted_lines(form, body, decompress_limit, what)
    # The kernel compares a topic's bytes, and other bytes may be read as the same U+FFFD.
    is_bytes = what.topic is None or "\ufffd" not in what.topic
    maker = line_maker(wanted) if what.key is None and is_bytes else None
    rows = functools.partial(
        log_row,
        store,
        what=what,
        body=body,
        decompress_limit=decompress_limit,
        message_filter=None,
    )
    return _walked(store, what, rows, None if maker is None else LinesOfLog(maker, wanted))


def _walked(
    store: MessageStore,
    what: Selection,
    row_of: Callable[[Record | Blank | Damage], MessageRow | BlankRow | DamageRow | None],
    lines: LinesOfLog | None,
) -> Iterator[Any]:
    """The entries of the log as rows or lines, and the summary."""
    if what.start is not None:
        require_walk_start(store, what.start)
    counts = {"message": 0, "blank": 0, "damage": 0}
    next_offset, residue = what.start or store.min_offset, 0
    rows_left = what.limit if what.limit is not None else LONG_MAX
    log = store.commit_log
    walk: Callable[[int | None, int | None], Iterator[Entry | Lines]] = log.walk
    if lines is not None:
        lines.most = rows_left
        walk = functools.partial(log.walk_stretches, lines)
    parts = list(stretches(log, what.since, what.until, what.end, start=what.start))
    ends = {end for _, end in parts}
    if not parts:
        next_offset = _passed_to(store, what, next_offset)
    for entry in chain.from_iterable(onward(log, walk, *part) for part in parts):
        if rows_left == 0:
            break
        if isinstance(entry, End):
            next_offset, residue = entry.physical_offset, entry.residue
            if next_offset not in ends:
                break  # The log itself ends here.
            continue
        if isinstance(entry, Lines):
            counts["message"] += entry.messages
            rows_left -= entry.messages
            next_offset = entry.end_offset
            yield entry
        else:
            row = row_of(entry)
            if row is not None:
                counts[row["type"]] += 1
                rows_left -= 1
                yield row
            length = entry.length if isinstance(entry, Damage) else entry.total_size
            next_offset = entry.physical_offset + length
        if lines is not None:
            lines.most = rows_left
    yield {
        "type": "summary",
        "messages": counts["message"],
        "blanks": counts["blank"],
        "damages": counts["damage"],
        "next_offset": next_offset,
        "residue": residue,
    }


def _passed_to(store: MessageStore, what: Selection, start: int) -> int:
    """Where a walk from ``start`` has come that reads no file: before the first one that is too
    new, else to the end."""
    log, end = store.commit_log, store.max_offset
    end = end if what.end is None else max(start, min(end, what.end))
    for number, entry in enumerate(log.files.entries):
        at = max(entry.file_from_offset, start)
        is_asked = start < entry.file_from_offset + entry.size and at < end
        if is_asked and not may_hold(log, number, None, what.until):
            return at
    return end


def log_row(
    store: BodySource,
    entry: Record | Blank | Damage,
    what: Selection,
    body: str,
    decompress_limit: int | None,
    message_filter: MessageFilter | None,
) -> MessageRow | BlankRow | DamageRow | None:
    """The row of an entry; None where it is not selected."""
    if isinstance(entry, Damage):
        return damage_row(entry)
    if isinstance(entry, Blank):
        return None if what.filters or message_filter is not None else blank_row(entry)
    if what.filters and not _is_shown(entry, what):
        return None
    if message_filter is not None and not message_filter.matches(entry):
        return None
    return message_row_with_body(store, entry, body, decompress_limit)


def _is_shown(record: Record, what: Selection) -> bool:
    return (
        (what.queue_id is None or record.queue_id == what.queue_id)
        and (what.topic is None or record.topic == what.topic)
        and what.shows_time(record.store_timestamp)
        and (what.key is None or what.key in message_keys(record.properties))
    )


def walk_index(store: MessageStore, what: Selection) -> Iterator[IndexItemRow | WalkIndexSummary]:
    """Rows ``index_item`` of every file in the order of their numbers, then ``summary``."""
    items = files = 0
    for file in store.index.files():
        files += 1
        begin = file.header.begin_timestamp
        for index_no in range(1, file.item_count + 1):
            item = file.item(index_no)
            timestamp = item_store_time(begin, index_no, item.time_diff_seconds)
            # The item knows whole seconds only: it is shown when its second meets the range.
            near = what.since is None or timestamp + 999 >= what.since
            if (
                near
                and what.shows_offset(item.physical_offset)
                and (what.until is None or timestamp <= what.until)
            ):
                yield index_item_row(file.path.name, index_no, item, timestamp)
                items += 1
                if items == what.limit:
                    break
        if items == what.limit:
            break
    yield {"type": "summary", "index_files": files, "items": items}
