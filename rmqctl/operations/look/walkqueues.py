"""Walks over consume queues: every unit as it is stored, and stretches without units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from formats.constants import LONG_MAX
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit
from rmqctl.engine.read.lines import Lines, LinesOfUnits
from rmqctl.operations.look.lines import lines_of_units
from rmqctl.operations.look.rows import unit_row

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.operations.look.walk import Selection
    from rmqctl.rows.structures import BatchUnitRow, QueueDamageRow, UnitRow
    from rmqctl.rows.summaries import WalkQueueSummary


def walk_queues(
    store: MessageStore, what: Selection, offset: int = 0, end_offset: int | None = None
) -> Iterator[UnitRow | BatchUnitRow | QueueDamageRow | WalkQueueSummary]:
    """Rows ``unit``, as they are stored, and ``damage`` where units were never written though later
    ones were. The damage of a queue whose files are cut or missing comes first. Then come rows
    ``batch_unit`` of the batch queues and kept queues of 5.x, and ``summary``.

    :param offset: the queue offset to start at.
    :param end_offset: the queue offset to stop before. Damage that reaches into the range is told.
    """
    return _walked_queues(store, what, offset, end_offset, "")


def queue_lines(
    store: MessageStore,
    what: Selection,
    offset: int = 0,
    end_offset: int | None = None,
    *,
    form: str,
) -> Iterator[Lines | UnitRow | BatchUnitRow | QueueDamageRow | WalkQueueSummary]:
    """:func:`walk_queues`, with lines of ``form`` (``ndjson``, ``csv``) in place of most rows
    ``unit`` where the kernel makes them."""
    return _walked_queues(store, what, offset, end_offset, form)


def _walked_queues(
    store: MessageStore, what: Selection, offset: int, end_offset: int | None, form: str
) -> Iterator[Any]:
    """All queues: those of ``consumequeue/``, then batch queues, then kept queues of compacted
    topics."""
    end_offset = LONG_MAX if end_offset is None else end_offset
    offsets = (offset, end_offset)
    rows = _walked_files(store, what, offset, end_offset, form)
    if store.dispatcher.batch_topics:
        from rmqctl.operations.look.batchqueues import walk_batch_queues

        rows = _with_more(rows, lambda summary: walk_batch_queues(store, what, offsets, summary))
    if store.compacted_topics:
        from rmqctl.operations.look.compactedqueues import walk_compacted_queues

        rows = _with_more(
            rows, lambda summary: walk_compacted_queues(store, what, offsets, summary)
        )
    return rows


def _with_more(
    rows: Iterator[Any], more: Callable[[WalkQueueSummary], Iterator[Any]]
) -> Iterator[Any]:
    """Yields rows, and in place of their summary the rows that continue from it."""
    for row in rows:
        if isinstance(row, dict) and row["type"] == "summary":
            yield from more(cast("WalkQueueSummary", row))
        else:
            yield row


def _walked_files(
    store: MessageStore, what: Selection, offset: int, end_offset: int, form: str
) -> Iterator[Any]:
    units = damages = queues = 0
    rows_left = what.limit if what.limit is not None else LONG_MAX
    table, topic = store.queues, what.topic
    for where in table.directories() if topic is None else table.directories_of(topic):
        if rows_left == 0:
            break
        if what.queue_id not in (None, where.queue_id):
            continue
        queues += 1
        queue = store.queues.as_stored(where)
        if queue is None:
            continue
        lines = None
        if form:
            lines = lines_of_units(form, where.topic, where.queue_id, what, end_offset)
        if lines is not None:
            lines.most = rows_left
        try:
            entries = chain(file_holes(queue), written_units(queue, offset, lines))
            for queue_offset, unit in entries:
                row: UnitRow | QueueDamageRow
                if isinstance(unit, Lines):
                    units += unit.messages
                    rows_left -= unit.messages
                    yield unit
                    if rows_left == 0:
                        break
                    assert lines is not None
                    lines.most = rows_left
                    continue
                if isinstance(unit, Hole):
                    # What files lack comes first, and may lie elsewhere.
                    is_before = queue_offset < offset and queue_offset + unit.length <= offset
                    if is_before or queue_offset >= end_offset:
                        continue
                elif queue_offset >= end_offset:
                    break
                if isinstance(unit, int):
                    row = _hole_row(queue, queue_offset, Hole(unit))
                elif isinstance(unit, Hole):
                    row = _hole_row(queue, queue_offset, unit)
                elif what.shows_offset(unit.physical_offset):
                    row = unit_row(where.topic, where.queue_id, queue_offset, unit)
                else:
                    continue
                units += row["type"] == "unit"
                damages += row["type"] == "damage"
                yield row
                rows_left -= 1
                if rows_left == 0:
                    break
                if lines is not None:
                    lines.most = rows_left
        finally:
            queue.close()
    yield {"type": "summary", "queues": queues, "units": units, "damages": damages}


def written_units(
    queue: ConsumeQueue, offset: int = 0, lines: LinesOfUnits | None = None
) -> Iterator[tuple[int, Unit | int | Lines]]:
    """``(queue offset, unit)`` from a queue offset up to the last written unit. A stretch that was
    never written is one ``(queue offset, number of units)``; a stretch of which ``lines`` can be
    made is given as these."""
    pending: tuple[int, int] | None = None
    for entry in queue.files.entries:
        start = entry.file_from_offset // UNIT_SIZE
        end = start + queue.units_from(start, entry)
        start = max(start, offset)
        while start < end:
            found = None if lines is None else lines(queue, start, end)
            if found is not None:
                if pending is None:
                    yield start, found
                    start = found.end_offset
                else:  # Then fewer lines may be wanted.
                    yield pending[0], start - pending[0]
                    pending = None
                continue
            for queue_offset, unit in queue.units(start, end):
                start = queue_offset
                if unit == (0, 0, 0):
                    break
                if pending is not None:
                    yield pending[0], queue_offset - pending[0]
                    pending = None
                yield queue_offset, unit
            else:
                break
            # Holes are skipped without being read: a queue file is mostly empty.
            mapped = queue.files.find(entry.file_from_offset)
            assert mapped is not None
            pending = pending or (start, 0)
            position = mapped.first_nonzero(start * UNIT_SIZE - entry.file_from_offset, mapped.size)
            start = (entry.file_from_offset + position) // UNIT_SIZE


class Hole(NamedTuple):
    """A stretch of ``length`` units that are missing, in front of later ones or in a cut file."""

    length: int
    reason: str = "units-never-written"
    expected: str = "units"
    found: str = "zeros"


def file_holes(queue: ConsumeQueue) -> Iterator[tuple[int, Hole]]:
    """``(queue offset, hole)`` for what files of a wrong length lack, and for missing files."""
    file_size = queue.files.file_size
    end = None
    if not queue.in_files:
        return
    for entry in queue.files.entries:
        start = entry.file_from_offset // UNIT_SIZE
        if end is not None and start > end:
            missing = f"{end * UNIT_SIZE:020d}"
            yield end, Hole(start - end, "consumequeue-file-missing", missing, "no file")
        held, end = start + queue.units_from(start, entry), start + file_size // UNIT_SIZE
        if entry.size != file_size:
            reason = "file-length-mismatch"
            yield held, Hole(end - held, reason, f"{file_size} bytes", f"{entry.size} bytes")


def _hole_row(queue: ConsumeQueue, queue_offset: int, hole: Hole) -> QueueDamageRow:
    return {
        "type": "damage",
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "queue_offset": queue_offset,
        "length": hole.length,
        "reason": hole.reason,
        "expected": hole.expected,
        "found": hole.found,
    }
