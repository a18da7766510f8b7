"""``CommitLog``: the files of ``commitlog/`` as one log, read at a place and walked.

A walk yields records, blanks and damage in order of offset and closes with :class:`End`. It never
raises on bytes and never just stops. :mod:`rmqctl.engine.start.logend` finds where the log ends;
the writing half is :mod:`rmqctl.engine.log.logwriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from formats import layouts
from formats.layouts import RecordPrefix
from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.files.keptpages import KeptPages
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.record import (
    LONGEST_PREFIX,
    TAILS,
    Blank,
    Damage,
    End,
    Entry,
    Record,
    find_next,
    prefix_at,
    read_entry_of,
    read_plain_entry_of,
)
from rmqctl.errors import NoRecordAt

if TYPE_CHECKING:
    from types import ModuleType

_WINDOW = 16 << 20
#: Number of single reads after which loading the compiled kernel pays.
_MANY_FOUND = 64
#: Times that a place is read again while a broker changes it; then the last result counts.
_LOOKS = 16
#: Size and magic code: what makes bytes a record.
RECORD_HEAD = layouts.RECORD_MAGIC_CODE.offset + layouts.RECORD_MAGIC_CODE.size


class Step(NamedTuple):
    """One step of a walk: the entry at a place, and the next place: file number and position."""

    entry: Entry
    number: int
    position: int


class Stretch(Protocol):
    """Several entries that a walk yields as one; it goes on at ``end_offset`` (physical)."""

    @property
    def end_offset(self) -> int: ...


S_co = TypeVar("S_co", bound=Stretch, covariant=True)
S = TypeVar("S", bound=Stretch)


class StretchReader(Protocol[S_co]):
    """Reads many records of a file at once: consecutive ones from ``position`` on that begin before
    ``limit``. None when no record begins at ``position``."""

    def __call__(self, mapped: MappedFile, position: int, limit: int) -> S_co | None: ...


def without_file(before: FileEntry, end: int, file_size: int) -> Damage:
    """The damage between the end of the file ``before`` and ``end``, where the next file begins:
    the rest of a file that was cut, missing files, or both."""
    start, boundary = before.file_from_offset + before.size, before.file_from_offset + file_size
    expected, found = f"{start:020d}", "no file"
    if start < boundary:
        expected = f"{file_size} bytes of {before.file_from_offset:020d}"
        found = f"{before.size} bytes" + f", and no file {boundary:020d}" * (boundary < end)
    return Damage(start, end - start, "commitlog-file-missing", expected, found)


class CommitLog:
    """The log below ``directory``; ``file_size`` is the size of a new file, in bytes."""

    #: For a log that is written to: the records before its end were not read when it was opened,
    #: and have to be before the first append (:func:`~rmqctl.engine.start.nearend.check_near_end`).
    is_unread = False

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        files: MappedFileQueue | None = None,
    ) -> None:
        """:param files: the log's files, when they do not all lie in ``directory``."""
        if files is None:
            files = MappedFileQueue(directory, file_size, keep=4)
        self.files = files
        self.file_size = file_size
        #: Decides which pages stay mapped after a scan.
        self.kept_pages = KeptPages()
        self._found = 0
        #: The compiled kernel, which reads single records once there were many; None: there were
        #: few so far, or there is no kernel.
        self.compiled: ModuleType | None = None
        #: Told where a reader goes on, if files before were deleted before it came to them
        #: (:mod:`~rmqctl.engine.log.onward`); the bytes that such readers passed over, and up
        #: to where.
        self.when_deleted: Callable[[int], None] = lambda begin: None
        self.deleted_bytes = 0
        self.deleted_to = 0

    @property
    def min_offset(self) -> int:
        """First offset of the log; 0 without files."""
        return max(self.files.min_offset, 0)

    def check_lengths(self, *, drops_empty: bool = False) -> None:
        """Refuses files on which a broker does not start (``MappedFileQueue#load``), for a writer.

        :param drops_empty: as in :meth:`MappedFileQueue.check_lengths`; so are the errors.
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
        """The entry at an offset; :raises NoRecordAt: the offset lies in no file."""
        return read_entry_of(*self.locate(physical_offset))

    def first_prefix(self, number: int) -> RecordPrefix | None:
        """The fixed fields of the record at the front of a file, whatever place it names; None: no
        record begins there, by its magic code."""
        mapped = self.files.file(number)
        mapped.load_entry(0)
        head = mapped.read_aside(0, LONGEST_PREFIX)
        found = prefix_at(head, 0, len(head))
        return found if found is not None and found.magic_code in TAILS else None

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
        """Whether a range lies in one file."""
        number = self.files.index_of(physical_offset)
        if number < 0:
            return False
        entry = self.files.entries[number]
        return physical_offset + size <= entry.file_from_offset + entry.size

    def removed_until(self, physical_offset: int, size: int, log_end: int) -> int | None:
        """Where the next file begins (physical offset), if a broker takes the rest of a file as
        removed because a unit points to this range. It does so for every range outside the log,
        and then passes over the units of that rest (``CommitLog#rollNextFile``). None for a range
        in one file and before ``log_end``: a broker gives out its bytes, whatever they are
        (``CommitLog#getMessage``)."""
        if physical_offset + size <= log_end and self.holds(physical_offset, size):
            return None
        # Java rounds towards zero, so behind a negative offset the file that begins at 0 is passed
        # over as well.
        rest = abs(physical_offset) % self.file_size
        return physical_offset + self.file_size + (rest if physical_offset < 0 else -rest)

    def body(self, record: Record) -> bytes:
        """A copy of the stored body."""
        mapped, _ = self.locate(record.physical_offset)
        return mapped.read(record.body_position, record.body_length)

    def walk(self, start: int | None = None, end: int | None = None) -> Iterator[Entry]:
        """Every entry that starts in ``[start, end)``, in order, closed by :class:`End`.

        :param start: physical offset of an entry; None: the first of the log.
        :param end: the walk closes with ``End(end)`` at the first entry at or behind it.
        """
        return self._walk(start, end, None)

    def walk_stretches(
        self, read: StretchReader[S], start: int | None = None, end: int | None = None
    ) -> Iterator[Entry | S]:
        """:meth:`walk`, but records that ``read`` takes come as its stretches."""
        return self._walk(start, end, read)

    def first_file(self, start: int | None) -> int:
        """Number of the file with which a walk from ``start`` begins; -1: no file has it.

        A file without a byte holds no offset, but a walk begins with it too: it goes on behind it.
        """
        entries = self.files.entries
        if start is None:
            return 0 if entries else -1
        number = self.files.index_of(start)
        if number < 0:
            places = (entry.file_from_offset for entry in entries)
            number = next((n for n, place in enumerate(places) if place == start), -1)
        return number

    def _walk(
        self, start: int | None, end: int | None, read: StretchReader[S] | None
    ) -> Iterator[Any]:
        entries = self.files.entries
        number = self.first_file(start)
        if number < 0:
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
                if forgotten < position:  # Else this much of each open file would stay mapped.
                    self.files.file(number).forget(forgotten, position)
                forgotten = 0
            number, position = step.number, step.position

    def step(self, number: int, position: int) -> Step:
        """Reads one entry and finds the next place. Damage gets its length here: up to the next
        record or blank that can be found.

        :param number: of the file; ``position`` in it, or -1 for the gap before it when a file is
            missing there.
        """
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
                # From the record's own offset: in a DLedger log the entry begins before it.
                start = entry.physical_offset - self.files.entries[number].file_from_offset
                return Step(entry, number, start + entry.total_size)
            if isinstance(entry, Blank):
                return Step(entry, *self._next_file(number))
            step = self._irregular(entry, number, position)
            if read_entry_of(self.files.file(number), position) == entry:
                break
            # A broker has appended here during the search for the next entry: read it again.
        return step

    def _irregular(self, entry: Damage | End, number: int, position: int) -> Step:
        mapped = self.files.file(number)
        offset = mapped.file_from_offset + position
        if isinstance(entry, End):
            entry = Damage(offset, 0, "zeroed-records", "a record", "zeros")
        takes_rest = entry.reason == "blank-size-mismatch"
        nonzero = mapped.first_nonzero(position, mapped.size)
        searches = nonzero < mapped.size and not takes_rest
        following = find_next(mapped, position + 1) if searches else mapped.size
        if following < mapped.size:
            return Step(entry._replace(length=following - position), number, following)
        if takes_rest or self.holds_data(number + 1):
            rest = entry._replace(length=mapped.size - position)
            return Step(rest, *self._next_file(number))
        residue = mapped.size - nonzero
        if residue == 0:
            return Step(End(offset), number, position)
        return Step(
            End(offset, residue, entry.reason, entry.expected, entry.found), number, position
        )

    def _next_file(self, number: int) -> tuple[int, int]:
        """The place behind a file: position 0 of the next one, or -1 when a file is missing between
        them."""
        entries = self.files.entries
        adjacent = number + 1 == len(entries) or (
            entries[number].file_from_offset + entries[number].size
            == entries[number + 1].file_from_offset
        )
        return number + 1, 0 if adjacent else -1

    def holds_data(self, number: int) -> bool:
        """Whether the file ``number``, or a later one, holds anything but zeros. A crashed append
        leaves nothing there, so bytes in front of such a file are damage, and not the end."""
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
        """Unmaps the files that nobody refers to."""
        self.files.close()
