"""The pieces that take the place of a gap. They leave no byte between them.

Records of another copy of the log come first, then records whose headers are put right, then, if
they are wanted, placeholders of lost messages. Fillers, and blanks at the ends of files, take the
rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from formats.constants import (
    END_FILE_MIN_BLANK_LENGTH,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from rmqctl.engine.record.filler import LEAST_FILLER, MOST_FILLER, blank, filler, placeholder
from rmqctl.operations.mend.salvageheader import (
    LONGEST_MENDED,
    Patch,
    mended_between,
    mended_by_unit,
)

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.rules import Dispatcher
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.operations.mend.salvagelog import Gap, Run
    from rmqctl.operations.mend.salvageunits import LostUnit

#: A ``blank`` is one that was there, or that has a place with room for no record; an ``end`` is one
#: behind fillers, where something else may have been.
Kind = Literal["kept", "other", "header", "placeholder", "filler", "blank", "end"]
#: Topics whose messages the broker itself reads and understands. It would stop at a placeholder.
_NO_PLACEHOLDERS = (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)


class Piece(NamedTuple):
    """A stretch of the new log within one file: the bytes that a log (the store's, or the other
    one) has at the same offsets, or zeros, with ``patches`` stored over them."""

    start: int
    end: int
    kind: Kind
    patches: tuple[Patch, ...] = ()
    unit: LostUnit | None = None

    @property
    def length(self) -> int:
        return self.end - self.start


class Filling:
    """Fills the gaps of one log.

    :param placeholders: whether lost messages get a placeholder.
    """

    def __init__(self, log: CommitLog, dispatcher: Dispatcher, *, placeholders: bool) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._placeholders = placeholders

    def pieces(
        self, gap: Gap, others: list[Run], units: list[LostUnit], *, is_last: bool
    ) -> Iterator[Piece]:
        """The pieces of a gap, in order, none of them over the border of a file.

        :param others: the runs of the other log in the gap, in the order of the log.
        :param units: the units of the messages in the gap, in the order of the log.
        :param is_last: no record follows the gap, so that no filler is needed at its end.
        """
        at = gap.start
        made: list[Piece] = []
        for run in others:
            if run.start >= at:
                made += self._own(gap, at, run.start, units)
                made += self._by_file(run)
                at = run.end
        made += self._own(gap, at, gap.end, units)
        if is_last:
            while made and made[-1].kind in ("filler", "end"):
                made.pop()
        yield from made

    def _by_file(self, run: Run) -> Iterator[Piece]:
        size, at = self._log.file_size, run.start
        while at < run.end:
            end = min(run.end, (at // size + 1) * size)
            yield Piece(at, end, "other")
            at = end

    def _own(self, gap: Gap, start: int, end: int, units: list[LostUnit]) -> Iterator[Piece]:
        """The pieces of the part ``[start, end)`` of a gap, file by file, without the other log."""
        size = self._log.file_size
        while start < end:
            border = (start // size + 1) * size
            part_end = min(end, border)
            inside = [unit for unit in units if start <= unit.physical_offset < part_end]
            yield from self._part(gap, start, part_end, inside, is_rest=part_end == border)
            start = part_end

    def _part(
        self, gap: Gap, start: int, end: int, units: list[LostUnit], *, is_rest: bool
    ) -> Iterator[Piece]:
        """The pieces of a stretch of one file; with ``is_rest`` it goes up to the file's end."""
        time, at = gap.store_timestamp, start
        room = END_FILE_MIN_BLANK_LENGTH if is_rest else 0
        for unit in units:
            before = unit.physical_offset - at
            left = end - unit.end
            if before < 0 or 0 < before < LEAST_FILLER or left < room:
                continue
            if not is_rest and 0 < left < LEAST_FILLER:
                continue
            piece = self._of_unit(unit, time)
            if piece is not None:
                yield from self._filled(at, unit.physical_offset, time, is_rest=False)
                yield piece
                at = unit.end
        if at == start and not units and not is_rest and (piece := self._between(at, end)):
            yield piece
            at = end
        if is_rest and at == gap.blank_at:
            yield Piece(at, end, "blank", (Patch(0, blank(end - at)),))
        else:
            yield from self._filled(at, end, time, is_rest=is_rest)

    def is_put_right(self, unit: LostUnit) -> bool:
        """Whether the record of a unit is there, even with a damaged header."""
        return self._patches(unit) is not None

    def _patches(self, unit: LostUnit) -> list[Patch] | None:
        data = self.stored(unit.physical_offset, unit.size)
        return None if data is None else mended_by_unit(data, unit, self._dispatcher)

    def _of_unit(self, unit: LostUnit, time: int) -> Piece | None:
        """The record of a unit, put right, or its placeholder; None where neither is possible."""
        patches = self._patches(unit)
        if patches is not None:
            return Piece(unit.physical_offset, unit.end, "header", tuple(patches), unit)
        if not self._placeholders or unit.topic in _NO_PLACEHOLDERS or unit.size > MOST_FILLER:
            return None
        topic = unit.topic.encode("utf-8", "surrogateescape")
        made = placeholder(
            unit.physical_offset, unit.size, time, (topic, unit.queue_id, unit.queue_offset)
        )
        if made is None:
            return None
        patches = [Patch(0, made.head), Patch(made.size - len(made.tail), made.tail)]
        return Piece(unit.physical_offset, unit.end, "placeholder", tuple(patches), unit)

    def _between(self, start: int, end: int) -> Piece | None:
        """The one record that fills a gap without a unit, put right."""
        data = self.stored(start, end - start)
        patches = None if data is None else mended_between(data, start)
        return None if patches is None else Piece(start, end, "header", tuple(patches))

    def stored(self, physical_offset: int, size: int) -> bytes | None:
        """Bytes of the log, all of them in one file."""
        if size > LONGEST_MENDED or not self._log.holds(physical_offset, size):
            return None
        mapped, position = self._log.locate(physical_offset)
        return mapped.read(position, size)

    def _filled(self, start: int, end: int, time: int, *, is_rest: bool) -> Iterator[Piece]:
        """Fillers, and the blank that ends a file. For a broker the blank alone would do. But a
        filler tells a later rebuild that messages are lost there."""
        border, first = end, start
        if is_rest:
            end -= END_FILE_MIN_BLANK_LENGTH
            end = start if end - start < LEAST_FILLER else end
        while start < end:
            size = min(end - start, MOST_FILLER)
            if 0 < end - start - size < LEAST_FILLER:
                size -= LEAST_FILLER
            made = filler(start, size, time)
            patches = (Patch(0, made.head), Patch(size - len(made.tail), made.tail))
            yield Piece(start, start + size, "filler", patches)
            start += size
        if is_rest:
            kind: Kind = "blank" if start == first else "end"
            yield Piece(start, border, kind, (Patch(0, blank(border - start)),))
