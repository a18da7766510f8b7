"""The rows of a salvage: the gaps, what was restored, what is lost, and a summary."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats.constants import PRE_BLANK_UNIT
from rmqctl.engine.files import paths
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.operations.mend.salvageunits import windows

if TYPE_CHECKING:
    from rmqctl.operations.mend.rebuild import RebuildSummary
    from rmqctl.operations.mend.salvage import SalvagePlan
    from rmqctl.operations.mend.salvagepieces import Piece
    from rmqctl.operations.mend.salvageunits import LostUnit
    from rmqctl.rows.salvaged import GapRow, LostRow, RestoredRow

_RESTORED = ("other", "header")


class _Stretch(NamedTuple):
    """Neighbouring messages of a queue of which the same became."""

    unit: LostUnit
    messages: int
    has_placeholder: bool

    def goes_on(self, unit: LostUnit, has_placeholder: bool) -> bool:
        first = self.unit
        return (
            (unit.topic, unit.queue_id) == (first.topic, first.queue_id)
            and unit.queue_offset == first.queue_offset + self.messages
            and has_placeholder == self.has_placeholder
        )


class Report:
    """The rows of one salvage. They are counted as they are asked for: first :meth:`planned`, then,
    if the salvage was done, :meth:`numbering`."""

    def __init__(self, plan: SalvagePlan) -> None:
        self.lost = 0
        self.restored = 0
        self._plan = plan
        self._known: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._passed_over = 0

    @property
    def is_complete(self) -> bool:
        """Whether nothing is known to be lost."""
        gaps = self._plan.gaps
        return not self.lost and all(one.restored_bytes == one.gap.length for one in gaps)

    def planned(self) -> Iterator[GapRow | RestoredRow | LostRow]:
        """Rows ``gap``, then ``restored``, both in log order, then ``lost``, queue by queue."""
        plan = self._plan
        for filled in plan.gaps:
            gap = filled.gap
            yield {
                "type": "gap",
                "physical_offset": gap.start,
                "length": gap.length,
                "reason": gap.reason,
                "restored_bytes": filled.restored_bytes,
            }
        yield from self._restored()
        last: _Stretch | None = None
        for unit, has_placeholder in self._lost_units():
            if last is not None and last.goes_on(unit, has_placeholder):
                last = last._replace(messages=last.messages + 1)
                continue
            if last is not None:
                yield self._lost(last)
            last = _Stretch(unit, 1, has_placeholder)
        if last is not None:
            yield self._lost(last)

    def _restored(self) -> Iterator[RestoredRow]:
        """The restored messages: from the other log, and by headers that were put right."""
        plan = self._plan
        headers: list[RestoredRow] = []
        for piece in plan.pieces:
            if piece.kind == "header":
                headers.append(_restored(piece.start, piece.length, 1, piece.unit, None))
        others = (
            _restored(one.gap.start, one.gap.length, one.from_other, None, plan.other.root)
            for one in plan.gaps
            if one.from_other and plan.other is not None
        )
        for row in heapq.merge(others, headers, key=itemgetter("physical_offset")):
            self.restored += row["messages"]
            yield row

    def _lost_units(self) -> Iterator[tuple[LostUnit, bool]]:
        """The units whose messages are lost, each with whether a placeholder holds its place."""
        for unit in self._plan.lost_units():
            piece = self._plan.filled(unit.physical_offset)
            if piece is None or piece.kind not in _RESTORED:
                yield unit, piece is not None and _holds(piece, unit)

    def _lost(self, stretch: _Stretch) -> LostRow:
        unit = stretch.unit
        self.lost += stretch.messages
        known = self._known.setdefault((unit.topic, unit.queue_id), [])
        known.append((unit.queue_offset, unit.queue_offset + stretch.messages))
        return {
            "type": "lost",
            "topic": unit.topic,
            "queue_id": unit.queue_id,
            "queue_offset": unit.queue_offset,
            "messages": stretch.messages,
            "physical_offset": unit.physical_offset,
            "has_placeholder": stretch.has_placeholder,
        }

    def numbering(self) -> Iterator[LostRow]:
        """Rows ``lost`` of messages without a unit, of which only a gap in the queue offsets of the
        new queues tells. Reads all new queues."""
        file_size = self._plan.config.mapped_file_size_consume_queue
        for where in paths.queue_directories(self._plan.wanted.output / paths.CONSUME_QUEUE):
            queue = ConsumeQueue(where.path, where.topic, where.queue_id, file_size)
            try:
                yield from self._holes(queue)
            finally:
                queue.close()

    def _holes(self, queue: ConsumeQueue) -> Iterator[LostRow]:
        begun = in_first_file = False
        is_whole = self._plan.log.min_offset == 0
        for start, window in windows(queue):
            offset, size = window["physical_offset"], window["size"]
            blank = (offset == PRE_BLANK_UNIT[0]) & (size == PRE_BLANK_UNIT[1])
            written = (size > 0) & ~blank
            in_first_file |= bool(blank.any())
            if in_first_file and is_whole:
                # A broker that meets a unit without its message goes on in the next file.
                behind = np.cumsum(blank) > 0 if blank.any() else np.ones(len(blank), bool)
                self._passed_over += int(
                    (written & behind & (offset < self._plan.log.file_size)).sum()
                )
            for row in np.flatnonzero(blank).tolist():
                if begun or written[:row].any():
                    yield from self._hole(queue, start + row)
            begun |= bool(written.any())

    def _hole(self, queue: ConsumeQueue, queue_offset: int) -> Iterator[LostRow]:
        known = self._known.get((queue.topic, queue.queue_id), [])
        if any(start <= queue_offset < end for start, end in known):
            return
        self.lost += 1
        yield {
            "type": "lost",
            "topic": queue.topic,
            "queue_id": queue.queue_id,
            "queue_offset": queue_offset,
            "messages": 1,
            "physical_offset": None,
            "has_placeholder": False,
        }

    def summary(self, done: RebuildSummary | None) -> dict[str, object]:
        """The summary's fields; ``done`` is None for a dry run."""
        plan = self._plan
        kinds = [piece.kind for piece in plan.pieces]
        return {
            "output": str(plan.wanted.output),
            "dry_run": done is None,
            "records": plan.reading.records,
            "gaps": len(plan.gaps),
            "gap_bytes": sum(one.gap.length for one in plan.gaps),
            "restored": self.restored,
            "lost": self.lost,
            "placeholders": kinds.count("placeholder"),
            "fillers": kinds.count("filler"),
            "passed_over": None if done is None else self._passed_over,
            "queues": None if done is None else done.queues,
            "units": None if done is None else done.units,
            "index_items": None if done is None else done.index_items,
        }


def _holds(piece: Piece, unit: LostUnit) -> bool:
    """Whether a piece is the placeholder of this unit's message."""
    held = piece.unit
    return piece.kind == "placeholder" and held is not None and held[:4] == unit[:4]


def _restored(
    start: int, length: int, messages: int, unit: LostUnit | None, other: Path | None
) -> RestoredRow:
    return {
        "type": "restored",
        "physical_offset": start,
        "length": length,
        "messages": messages,
        "topic": None if unit is None else unit.topic,
        "queue_id": None if unit is None else unit.queue_id,
        "queue_offset": None if unit is None else unit.queue_offset,
        "source": "header" if other is None else str(other),
    }
