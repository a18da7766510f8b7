"""``CommitLog``: the files of ``commitlog/`` as one log, read at a place and walked.

A walk yields records, blanks and damage in order of place and closes with :class:`End`; it never
raises on bytes and never just stops. Where the log ends is found by
:mod:`rmqctl.engine.start.logend`; its writing half is :mod:`rmqctl.engine.log.logwriter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from formats import layouts
from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.files.keptpages import KeptPages
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.record import (
    Blank,
    Damage,
    End,
    Entry,
    Record,
    find_next,
    read_entry_of,
    read_plain_entry_of,
)
from rmqctl.errors import NoRecordAt

if TYPE_CHECKING:
    from types import ModuleType

_WINDOW = 16 << 20
#: Single records after which the kernel is worth its loading.
_MANY_FOUND = 64
#: Looks at a place that changes under them, before what the last one saw is told.
_LOOKS = 16
#: Size and magic code: what makes bytes a record.
RECORD_HEAD = layouts.RECORD_MAGIC_CODE.offset + layouts.RECORD_MAGIC_CODE.size


class Step(NamedTuple):
    """One step of a walk: what stands at a place, and the place after it."""

    entry: Entry
    number: int
    position: int


class Stretch(Protocol):
    """Several entries as one; a walk goes on behind ``end_offset``."""

    @property
    def end_offset(self) -> int: ...


S_co = TypeVar("S_co", bound=Stretch, covariant=True)
S = TypeVar("S", bound=Stretch)


class StretchReader(Protocol[S_co]):
    """Reads many records of a file at once: those that stand behind each other from ``position`` on
    and begin before ``limit``; None where none does."""

    def __call__(self, mapped: MappedFile, position: int, limit: int) -> S_co | None: ...


def without_file(before: FileEntry, end: int, file_size: int) -> Damage:
    """What no file holds between ``before`` and ``end``, where the next one begins: the rest of a
    file that was cut, and files that are missing."""
    start, boundary = before.file_from_offset + before.size, before.file_from_offset + file_size
    expected, found = f"{start:020d}", "no file"
    if start < boundary:
        expected = f"{file_size} bytes of {before.file_from_offset:020d}"
        found = f"{before.size} bytes" + f", and no file {boundary:020d}" * (boundary < end)
    return Damage(start, end - start, "commitlog-file-missing", expected, found)


class CommitLog:
    """The log below ``directory``; ``file_size`` is the size of a new file."""

    #: Of one that is written to: whether nobody has read what stands before its end, which is
    #: looked at before the first append.
    is_unread = False

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        files: MappedFileQueue | None = None,
    ) -> None:
        """``files`` are the log's files where they do not lie in ``directory``."""
        if files is None:
            files = MappedFileQueue(directory, file_size, keep=4)
        self.files = files
        self.file_size = file_size
        #: Told of what a scan has looked at.
        self.kept_pages = KeptPages()
        self._found = 0
        #: What reads single records when they are many; None: too few were asked for, or it is not
        #: there.
        self.compiled: ModuleType | None = None

    @property
    def min_offset(self) -> int:
        """First offset of the log; 0 without files."""
        return max(self.files.min_offset, 0)

    def check_lengths(self, *, drops_empty: bool = False) -> None:
        """What ``MappedFileQueue#load`` refuses a writer must refuse too; ``drops_empty`` as of
        :meth:`MappedFileQueue.check_lengths`.

        :raises FileLengthContradiction: a file has another length than its neighbours.
        """
        self.files.check_lengths("commit log", drops_empty=drops_empty)

    # --- reading -------------------------------------------------------------------------

    def locate(self, physical_offset: int) -> tuple[MappedFile, int]:
        """File and position of an offset; :raises NoRecordAt: it lies in no file."""
        mapped = self.files.find(physical_offset)
        if mapped is None:
            raise NoRecordAt(
                physical_offset=physical_offset,
                reason=f"the log has {self.min_offset} to {self.files.end_offset}",
            )
        return mapped, physical_offset - mapped.file_from_offset

    def entry_at(self, physical_offset: int) -> Entry:
        """What stands at an offset; :raises NoRecordAt: the offset lies in no file."""
        return read_entry_of(*self.locate(physical_offset))

    def record_at(self, physical_offset: int) -> Record:
        """The record that starts at an offset; :raises NoRecordAt: none does."""
        entry = read_plain_entry_of(*self.locate(physical_offset))
        if isinstance(entry, Record):
            return entry
        if isinstance(entry, Damage):
            reason = f"{entry.reason} (expected {entry.expected}, found {entry.found})"
        else:
            reason = "a blank stands there" if isinstance(entry, Blank) else "nothing was written"
        raise NoRecordAt(physical_offset=physical_offset, reason=reason)

    def find_record(self, physical_offset: int) -> Record | None:
        """The record that starts at an offset, or None."""
        mapped = self.files.find(physical_offset)
        if mapped is None:
            return None
        position = physical_offset - mapped.file_from_offset
        self._found += 1
        if self._found == _MANY_FOUND:
            self._load()
        if self.compiled is not None:
            mapped.load_entry(position)
            low, high = mapped.whole
            if low <= position < high:
                readable, start = min(high, mapped.size), mapped.file_from_offset
                record = self.compiled.record_at(Record, mapped.buffer, position, readable, start)
                if record is not None:
                    return cast(Record, record)
        entry = read_plain_entry_of(mapped, position)
        return entry if isinstance(entry, Record) else None

    def _load(self) -> None:
        from rmqctl import kernel

        self.compiled = kernel.module()

    def holds(self, physical_offset: int, size: int) -> bool:
        """Whether a range lies in one file, so that a broker gives out its bytes, whatever they are
        (``CommitLog#getMessage``)."""
        number = self.files.index_of(physical_offset)
        if number < 0:
            return False
        entry = self.files.entries[number]
        return physical_offset + size <= entry.file_from_offset + entry.size

    def body(self, record: Record) -> bytes:
        """A copy of the stored body."""
        mapped, _ = self.locate(record.physical_offset)
        return mapped.read(record.body_position, record.body_length)

    def walk(self, start: int | None = None, end: int | None = None) -> Iterator[Entry]:
        """Every entry that starts in ``[start, end)``, in order, closed by :class:`End`.

        ``start`` must be a record's start; None is the log's first. With ``end`` given the walk
        closes with ``End(end)`` at the first entry at or after it.
        """
        return self._walk(start, end, None)

    def walk_stretches(
        self, read: StretchReader[S], start: int | None = None, end: int | None = None
    ) -> Iterator[Entry | S]:
        """:meth:`walk`, with what ``read`` gives in place of the records that it has read."""
        return self._walk(start, end, read)

    def _walk(
        self, start: int | None, end: int | None, read: StretchReader[S] | None
    ) -> Iterator[Any]:
        number = 0 if start is None else self.files.index_of(start)
        entries = self.files.entries
        if number < 0 or not entries:
            yield End(max(start or 0, self.min_offset))
            return
        position = 0 if start is None else start - entries[number].file_from_offset
        forgotten = position
        while True:
            if end is not None and position >= 0 and self.offset_of(number, position) >= end:
                yield End(end)
                return
            if read is not None and position >= 0 and number < len(entries):
                mapped = self.files.file(number)
                limit = mapped.size if end is None else end - mapped.file_from_offset
                stretch = read(mapped, position, limit)
                if stretch is not None:
                    yield stretch
                    position = stretch.end_offset - mapped.file_from_offset
                    if position - forgotten > _WINDOW:
                        mapped.forget(forgotten, position)
                        forgotten = position
                    continue
            step = self.step(number, position)
            if end is not None and step.entry.physical_offset >= end:
                yield End(end)
                return
            yield step.entry
            if isinstance(step.entry, End):
                return
            if step.number == number and step.position - forgotten > _WINDOW:
                self.files.file(number).forget(forgotten, step.position)
                forgotten = step.position
            elif step.number != number:
                if forgotten < position:  # Of each file that stays open as much would stay mapped.
                    self.files.file(number).forget(forgotten, position)
                forgotten = 0
            number, position = step.number, step.position

    def step(self, number: int, position: int) -> Step:
        """Reads one entry and finds the place after it; damage gets its true length here."""
        entries = self.files.entries
        if number == len(entries):
            return Step(End(self.files.end_offset), number, 0)
        if position < 0:
            # A file is missing before this one: step() was sent here to say so.
            following = entries[number].file_from_offset
            return Step(without_file(entries[number - 1], following, self.file_size), number, 0)
        for _ in range(_LOOKS):
            mapped = self.files.file(number)
            read = read_entry_of if mapped.framed else read_plain_entry_of
            entry = read(mapped, position)
            if isinstance(entry, Record):
                # Behind the record, which in a log of DLedger does not begin where its entry does.
                start = entry.physical_offset - self.files.entries[number].file_from_offset
                return Step(entry, number, start + entry.total_size)
            if isinstance(entry, Blank):
                return Step(entry, *self._next_file(number))
            step = self._irregular(entry, number, position)
            if read_entry_of(self.files.file(number), position) == entry:
                break
            # A broker has appended here while what follows was looked for: look again.
        return step

    def _irregular(self, entry: Damage | End, number: int, position: int) -> Step:
        mapped = self.files.file(number)
        offset = mapped.file_from_offset + position
        if isinstance(entry, End):
            entry = Damage(offset, 0, "zeroed-records", "a record", "zeros")
        takes_rest = entry.reason == "blank-size-mismatch"
        following = mapped.size if takes_rest else find_next(mapped, position + 1)
        if following < mapped.size:
            return Step(entry._replace(length=following - position), number, following)
        if takes_rest or self._holds_data(number + 1):
            rest = entry._replace(length=mapped.size - position)
            return Step(rest, *self._next_file(number))
        residue = mapped.size - mapped.first_nonzero(position, mapped.size)
        if residue == 0:
            return Step(End(offset), number, position)
        return Step(
            End(offset, residue, entry.reason, entry.expected, entry.found), number, position
        )

    def _next_file(self, number: int) -> tuple[int, int]:
        """The place after a file: the next one's start, or -1 there when it is not adjacent."""
        entries = self.files.entries
        adjacent = number + 1 == len(entries) or (
            entries[number].file_from_offset + entries[number].size
            == entries[number + 1].file_from_offset
        )
        return number + 1, 0 if adjacent else -1

    def _holds_data(self, number: int) -> bool:
        """Whether anything is written in a file from ``number`` on: an append that a crash cut off
        leaves nothing there."""
        for later in range(number, len(self.files.entries)):
            mapped = self.files.file(later)
            if mapped.first_nonzero(0, mapped.size) < mapped.size:
                return True
        return False

    def offset_of(self, number: int, position: int) -> int:
        """Physical offset of a place of :meth:`step`."""
        if number == len(self.files.entries):
            return self.files.end_offset
        return self.files.entries[number].file_from_offset + position

    def close(self) -> None:
        self.files.close()
