"""The bytes of a file for backup and restore: pieces of data, with zeros between them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.operations.backup.errors import StoreChanging

#: Most bytes of a file that are in memory at a time.
PIECE = 1 << 20
_ZEROS = bytes(PIECE)
#: A hole counts as data if it is shorter than the first number of bytes, or than the file's size
#: divided by the second one: so the map of holes has a bound.
_LEAST_HOLE, _MOST_HOLES = 1 << 16, 1 << 14
#: Most bytes of holes before the last data of a file. An archive that claims more is refused, as
#: hashing zeros takes time; of a file that has more, the zeros are stored.
MOST_HOLE_BYTES = 1 << 32
_PAGE = 1 << 12

#: A place in a file, and what stands there.
Piece = tuple[int, bytes]
#: Start and end of what holds data.
Extent = tuple[int, int]


class Content:
    """The content of a file that is backed up: its bytes before ``end``, and zeros from there to
    its size."""

    def __init__(self, mapped: MappedFile, end: int | None = None) -> None:
        self._mapped = mapped
        self.size = mapped.size
        self.end = min(mapped.end_of_data(0), mapped.size if end is None else end)

    def extents(self, start: int, end: int) -> list[Extent]:
        """The extents of data in a range, in order and up to the range's end; between them are
        holes. A range that :meth:`has_large_holes` is one extent."""
        return [(start, end)] if self.has_large_holes(start, end) else self._extents(start, end)

    def has_large_holes(self, start: int, end: int) -> bool:
        """Whether there are more than :data:`MOST_HOLE_BYTES` of holes in a range."""
        if end - start <= MOST_HOLE_BYTES:
            return False
        held = sum(high - low for low, high in self._extents(start, end))
        return end - start - held > MOST_HOLE_BYTES

    def _extents(self, start: int, end: int) -> list[Extent]:
        found: list[Extent] = []
        least = max(_LEAST_HOLE, self.size // _MOST_HOLES)
        for low, high in self._mapped.extents(start, end):
            if found and low - found[-1][1] < least:
                found[-1] = found[-1][0], high
            else:
                found.append((low, high))
        if end > start and (not found or found[-1][1] < end):
            # The end may be set where there are zeros, or in a hole: the last extent reaches it.
            found.append((end - 1, end))
        return found

    def pieces(self, extents: Iterable[Extent]) -> Iterator[Piece]:
        """The bytes of some extents, in order.

        :raises StoreChanging: the file has become shorter. :raises CannotRead: the disk failed.
        """
        for low, high in extents:
            for at in range(low, high, PIECE):
                data = self._mapped.read_aside(at, min(PIECE, high - at))
                if len(data) < min(PIECE, high - at):
                    raise StoreChanging(path=str(self._mapped.path), reason="it was cut")
                yield at, data

    def close(self) -> None:
        self._mapped.close()


class Digest:
    """The SHA-256 of a range of a file, computed from its pieces in order, with zeros between."""

    def __init__(self, start: int = 0) -> None:
        self._digest = hashlib.sha256()
        self.at = start

    def add(self, piece: Piece) -> None:
        """Takes the next piece, which does not begin before the last one's end."""
        position, data = piece
        self.pass_to(position)
        self._digest.update(data)
        self.at += len(data)

    def pass_to(self, position: int) -> None:
        """Takes zeros up to a position."""
        while self.at < position:
            zeros = memoryview(_ZEROS)[: position - self.at]
            self._digest.update(zeros)
            self.at += len(zeros)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def runs_of_data(position: int, data: bytes) -> Iterator[Extent]:
    """The pages of a piece that are not all zeros; neighbours are joined."""
    end = position + len(data)
    low: int | None = None
    at = position
    while at < end:
        after = min((at // _PAGE + 1) * _PAGE, end)
        is_data = data[at - position : after - position] != _ZEROS[: after - at]
        if is_data and low is None:
            low = at
        elif not is_data and low is not None:
            yield low, at
            low = None
        at = after
    if low is not None:
        yield low, end
