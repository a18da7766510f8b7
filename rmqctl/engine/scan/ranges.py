"""Splits a log into parts that can be scanned separately and put together again.

A part is planned by its place only. It really begins at the first record or blank from that place
on in its file. The plan is right if each part begins where the one before ended; :func:`unmet`
checks that afterwards. Else damage right at a border, or bytes in a body that look like a record of
that place, would be lost or read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.record.record import Blank, Damage, End, find_next

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner


class LogPart(NamedTuple):
    """The planned part ``[start, end)`` of a log; ``end`` is None for the last one."""

    number: int
    start: int
    end: int | None


class PartBounds(NamedTuple):
    """The real bounds of a part: where it began, where the next one must begin, and whether the log
    ended in it."""

    number: int
    began: int
    reached: int
    ended: bool


def plan_parts(log: CommitLog, part_bytes: int) -> list[LogPart]:
    """Plans parts of about ``part_bytes``, each within one file; at least one if the log has files.

    A file before a gap is one part, so that this part reports the gap.
    """
    starts: list[int] = []
    entries = log.files.entries
    for number, entry in enumerate(entries):
        first, end = entry.file_from_offset, entry.file_from_offset + entry.size
        is_adjacent = number + 1 == len(entries) or entries[number + 1].file_from_offset == end
        starts.append(first)
        if is_adjacent and 0 < part_bytes < entry.size:
            mapped = log.files.file(number)
            for start in range(first + part_bytes, end, part_bytes):
                low, high = start - first, min(start + part_bytes, end) - first
                # A hole belongs to the part before.
                if next(mapped.extents(low, high), None) is not None:
                    starts.append(start)
    return numbered(starts)


def numbered(starts: Iterable[int]) -> list[LogPart]:
    """Parts that begin at these physical offsets, in order."""
    places = list(starts)
    ends = [*places[1:], None]
    return [LogPart(n, start, ends[n]) for n, start in enumerate(places)]


class PartScan:
    """Scans one part. :attr:`bounds` is valid when the iteration is over.

    Only the part in which the log ends yields its :class:`End`.
    """

    def __init__(self, scanner: Scanner, part: LogPart) -> None:
        self._scanner = scanner
        self._part = part
        began = _first_place(scanner.log, part.start)
        self.bounds = PartBounds(part.number, began, began, False)

    def __iter__(self) -> Iterator[Batch | Blank | Damage | End]:
        part, began = self._part, self.bounds.began
        files = self._scanner.log.files
        if (part.end is not None and began >= part.end) or (
            # Nothing stands up to the end of the last file: the part before reports the end.
            began >= files.end_offset and part.start != began
        ):
            return
        reached = began
        for entry in self._scanner.scan(began, part.end):
            if isinstance(entry, End):
                ended = part.end is None or entry.physical_offset < part.end
                self.bounds = PartBounds(part.number, began, reached, ended)
                if ended:
                    yield entry
                return
            if isinstance(entry, Blank):
                reached = entry.physical_offset + entry.total_size
            elif isinstance(entry, Damage):
                reached = entry.physical_offset + entry.length
            else:
                reached = entry.end_offset
            yield entry


def _first_place(log: CommitLog, offset: int) -> int:
    """The first record or blank from an offset on in its file; the file's end without one. The
    start of a file counts whatever stands there, so that damage there is reported."""
    number = log.files.index_of(offset)
    if number < 0 or offset == log.files.entries[number].file_from_offset:
        return offset
    first = log.files.entries[number].file_from_offset
    return first + find_next(log.files.file(number), offset - first)


def unmet(bounds: Iterable[PartBounds], log_end: int) -> set[int]:
    """Numbers of parts that do not begin where the one before ended, and must be joined with it.

    ``log_end`` is the end of the last file.
    """
    wrong: set[int] = set()
    before: PartBounds | None = None
    ended = False
    for part in sorted(bounds):
        if ended:
            is_met = part.began >= log_end and not part.ended
        else:
            is_met = before is None or before.reached == part.began
            # The end must be reported exactly once, and only the last part may find it.
        if not is_met:
            wrong.add(part.number)
        ended = ended or part.ended
        before = part
    if before is not None and not ended and before.number:
        wrong.add(before.number)
    return wrong
