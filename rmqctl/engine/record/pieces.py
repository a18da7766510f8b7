"""Cuts a log that comes in bits from another store into pieces of whole entries.

Nothing is stored before it is whole. A piece holds records, each of which names its own place, or
one blank with everything behind its head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from formats.constants import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_LENGTH,
    MESSAGE_MAGIC_CODE,
    MIN_RECORD_SIZE,
)
from rmqctl.engine.record.record import (
    BLANK,
    TAILS,
    Blank,
    Damage,
    Record,
    crc_matches,
    read_entry,
)


class LogPiece(NamedTuple):
    """Entries of one file, one behind the other: records, or one blank.

    ``heads`` are the positions in ``data`` at which entries begin, ascending. ``mismatches`` are
    the physical offsets of records whose body does not match its CRC. ``first_timestamp`` and
    ``store_timestamp`` are the store times (ms) of the first and the last record; 0 for a blank.
    """

    physical_offset: int
    data: bytes
    heads: tuple[int, ...]
    is_blank: bool
    first_timestamp: int = 0
    store_timestamp: int = 0
    mismatches: tuple[int, ...] = ()

    @property
    def end_offset(self) -> int:
        return self.physical_offset + len(self.data)

    @property
    def records(self) -> int:
        """How many records the piece has."""
        return 0 if self.is_blank else len(self.heads)


class BadEntry(Exception):
    """The received bytes are no entry of a log; ``damage`` says where and why."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"{damage.reason}: expected {damage.expected}, found {damage.found}")
        self.damage = damage


class PieceReader:
    """Cuts a log that comes in bits into pieces.

    It holds one unfinished entry at most, and allocates nothing by what a size field claims.

    :param physical_offset: place of the first byte, at which an entry begins.
    :param file_size: bytes of a file of the log.
    :param longest: bytes of the longest entry that is accepted.
    """

    def __init__(self, physical_offset: int, file_size: int, longest: int) -> None:
        #: Where the next piece begins: behind the last whole entry.
        self.end = physical_offset
        self._file_size = file_size
        self._longest = longest
        self._buffer = bytearray()
        #: How many bytes the buffer must have before the next entry can be whole.
        self._needed = BLANK.size

    @property
    def received(self) -> int:
        """Physical offset of the next byte."""
        return self.end + len(self._buffer)

    def feed(self, data: bytes | memoryview) -> Iterator[LogPiece]:
        """Yields the pieces that these bytes complete, in order. Read it to its end.

        :raises BadEntry: no entry begins where one should; all pieces before were yielded.
        """
        self._buffer += data
        while len(self._buffer) >= self._needed:
            piece = self._cut()
            if piece is not None:
                del self._buffer[: len(piece.data)]
                self.end = piece.end_offset
                self._needed = max(self._needed - len(piece.data), BLANK.size)
                yield piece

    def _cut(self) -> LogPiece | None:
        """The first piece in the buffer; None while no entry is whole.

        :raises BadEntry: the bytes at the front can never become an entry.
        """
        start, at, first, timestamp = self.end, 0, 0, 0
        heads: list[int] = []
        mismatches: list[int] = []
        room = self._file_size - start % self._file_size
        window = bytes(memoryview(self._buffer)[:room])
        self._needed = BLANK.size
        if room < BLANK.size:
            # No entry of a log can begin so near to the end of a file.
            least = f"{BLANK.size} bytes or more to the end of the file"
            raise BadEntry(Damage(start, 0, "blank-size-mismatch", least, str(room)))
        while len(window) - at >= BLANK.size:
            size, magic_code = BLANK.unpack_from(window, at)
            problem = self._problem(size, magic_code, start + at, room - at)
            if problem is None and len(window) - at < size:
                self._needed = at + size
                break
            entry = problem or read_entry(window, at, at + size, start + at)
            if isinstance(entry, Blank) and not heads:
                return LogPiece(start, window[:size], (0,), is_blank=True)
            if not isinstance(entry, Record):
                # A blank is a piece of its own, and damage is reported once it is at the front.
                if isinstance(entry, Damage) and not heads:
                    raise BadEntry(entry)
                break
            if not crc_matches(window, entry):
                mismatches.append(start + at)
            first = first if heads else entry.store_timestamp
            heads.append(at)
            timestamp = entry.store_timestamp
            at += size
            self._needed = at + BLANK.size
        if not heads:
            return None
        data, times = window[:at], (first, timestamp)
        return LogPiece(start, data, tuple(heads), False, *times, tuple(mismatches))

    def _problem(self, size: int, magic_code: int, offset: int, room: int) -> Damage | None:
        """Why no entry can have this head, ``room`` bytes before the end of its file; None if one
        can."""
        if magic_code == BLANK_MAGIC_CODE:
            # No writer makes a file that holds only a blank.
            if size == room < self._file_size and size <= self._longest:
                return None
            return Damage(offset, 0, "blank-size-mismatch", str(room), str(size))
        if magic_code not in TAILS:
            known = f"{MESSAGE_MAGIC_CODE:#010x}"
            return Damage(offset, 0, "bad-magic", known, f"{magic_code:#010x}")
        # Behind a record its writer leaves room for a blank.
        most = min(room - END_FILE_MIN_BLANK_LENGTH, self._longest)
        if MIN_RECORD_SIZE <= size <= most:
            return None
        expected = f"{MIN_RECORD_SIZE} to {most}"
        return Damage(offset, 0, "total-size-out-of-range", expected, str(size))
