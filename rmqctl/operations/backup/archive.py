"""A backup as one file: a tar of the store's files, compressed with Zstandard.

Files with holes are sparse members, as GNU tar writes them (PAX, version 1.0), so that any tar
unpacks the store. Two things are added to the tar:

- The manifest is the last member, in a Zstandard frame of its own.
- A skippable frame at the very end, which every decompressor passes over, says where the
  manifest's frame begins. So the manifest is read first, and a file that was cut off is known at
  once.

The reader accepts only what this writer writes: members that the manifest names, of the lengths
that it gives.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from struct import Struct
from tarfile import BLOCKSIZE, PAX_FORMAT, REGTYPE, XHDTYPE, HeaderError, TarInfo
from typing import IO, Any, NamedTuple

from rmqctl.operations.backup import place as places
from rmqctl.operations.backup.content import MOST_HOLE_BYTES, PIECE, Extent, Piece
from rmqctl.operations.backup.errors import BackupUnsound
from rmqctl.operations.backup.manifest import (
    FILES,
    MANIFEST,
    Entry,
    Manifest,
    holds,
    read_manifest,
    write_lines,
)

#: Magic of a skippable frame, length of the rest, our mark, position of the manifest's frame.
_FOOTER = Struct("<II8sQ")
_SKIPPABLE, _OURS = 0x184D2A5E, b"rmqctl-1"
#: Largest window of a frame, in bytes, that is accepted. Frames that are written here need 8 MiB.
_MOST_WINDOW = 1 << 27
#: Most bytes of a member's PAX header, and of its map of holes.
_LONGEST_HEADER, _LONGEST_MAP = 1 << 16, 1 << 20
_NO_BLOCK = bytes(BLOCKSIZE)


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise places.missing(
            "zstandard", f"a backup in one file ({places.ARCHIVE})", error
        ) from error
    return zstandard


class ArchiveWriter:
    """Writes an archive into a file, front to back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = _Counted(file)
        # A second thread compresses, while this one reads and hashes.
        self._compressor = _zstandard().ZstdCompressor(level=3, write_checksum=True, threads=1)
        self._frame = self._new_frame()

    def _new_frame(self) -> Any:
        return self._compressor.stream_writer(self._file, closefd=False)

    def add(self, entry: Entry, extents: list[Extent], pieces: Iterable[Piece]) -> None:
        """Adds a member: some extents of a file, and holes up to its size. The hashes of ``entry``
        are not needed yet."""
        name = f"{FILES}/{entry.path}"
        stored = sum(high - low for low, high in extents)
        info = TarInfo(name)
        info.mode, info.mtime = entry.mode, entry.modified_timestamp // 1000
        holes = b""
        if extents != [(0, entry.size)] and entry.size:
            holes = _map(extents, entry.size)
            directory, _, base = name.rpartition("/")
            info.name = f"{directory}/GNUSparseFile.0/{base}"
            info.pax_headers = {
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": name,
                "GNU.sparse.realsize": str(entry.size),
            }
        info.size = len(holes) + stored
        self._frame.write(info.tobuf(PAX_FORMAT, "utf-8", "surrogateescape"))
        self._frame.write(holes)
        for _, data in pieces:
            self._frame.write(data)
        self._frame.write(_padding(info.size))

    def finish(self, manifest: Manifest) -> None:
        """Adds the manifest, and completes the archive."""
        self._frame.close()
        position = self._file.written
        text = b"".join(write_lines(manifest))
        info = TarInfo(MANIFEST)
        info.mode, info.size = 0o644, len(text)
        self._frame = self._new_frame()
        self._frame.write(info.tobuf(PAX_FORMAT))
        self._frame.write(text)
        self._frame.write(_padding(len(text)) + 2 * _NO_BLOCK)
        self._frame.close()
        self._file.write(_FOOTER.pack(_SKIPPABLE, _FOOTER.size - 8, _OURS, position))


class _Counted:
    """Counts the bytes that are written to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.written = 0

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self.written += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()


def _map(extents: list[Extent], size: int) -> bytes:
    """The map of a sparse member: how many extents, place and length of each."""
    numbers = [(low, high - low) for low, high in extents]
    if not numbers or extents[-1][1] < size:
        numbers.append((size, 0))
    text = f"{len(numbers)}\n" + "".join(f"{at}\n{length}\n" for at, length in numbers)
    data = text.encode()
    return data + _padding(len(data))


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCKSIZE)


# --- reading ---------------------------------------------------------------------------------


class Archive:
    """A backup in one file."""

    def __init__(self, place: str) -> None:
        """Reads the manifest.

        :raises BackupNotFound: there is no such file.
        :raises BackupUnsound: it is no archive of rmqctl, or was cut off.
        """
        self.name = places.shown(place)
        self._place = place
        with places.opened(place) as file:
            self._check_ours(file)
            end = file.seek(0, io.SEEK_END) - _FOOTER.size
            position = self._manifest_position(file, end)
            file.seek(position)
            with self._reading(file) as stream:
                member = stream.member()
                if member is None or member.name != MANIFEST or member.extents is not None:
                    raise self._unsound("its manifest is not where it must be")
                self.manifest = read_manifest(stream.file(member.length), self.name)
                stream.end()

    def _check_ours(self, file: IO[bytes]) -> None:
        if file.seek(0, io.SEEK_END) < _FOOTER.size:
            raise self._unsound("it is no archive of rmqctl, or was cut off")

    def _manifest_position(self, file: IO[bytes], end: int) -> int:
        file.seek(end)
        magic, length, ours, position = _FOOTER.unpack(file.read(_FOOTER.size))
        if (magic, length, ours) != (_SKIPPABLE, _FOOTER.size - 8, _OURS) or position > end:
            raise self._unsound("it is no archive of rmqctl, or was cut off")
        return int(position)

    def _unsound(self, reason: str) -> BackupUnsound:
        return BackupUnsound(path=self.name, reason=reason)

    @contextmanager
    def _reading(self, file: IO[bytes]) -> Iterator[_Stream]:
        zstandard = _zstandard()
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
        with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as stream:
            yield _Stream(stream, self.name, zstandard.ZstdError)

    def parts(self) -> Iterator[tuple[Entry, Iterator[Piece]]]:
        """The files in the archive's order, each with the pieces that it holds of it. The pieces of
        a file have to be taken before the next one is asked for.

        :raises BackupUnsound: it holds something else than its manifest says.
        """
        seen: set[str] = set()
        with places.opened(self._place) as file, self._reading(file) as stream:
            while (member := stream.member()) is not None:
                if member.name == MANIFEST:
                    break
                path = member.name.removeprefix(f"{FILES}/")
                entry = self.manifest.files.get(path)
                if entry is None or path in seen or not holds(self.manifest, entry):
                    raise self._unsound("it holds a file that its manifest does not name")
                seen.add(path)
                extents = self._extents(member, entry)
                yield entry, stream.pieces(extents)
                stream.end_member()
        lost = {p for p, entry in self.manifest.files.items() if holds(self.manifest, entry)} - seen
        if lost:
            raise self._unsound(f"it holds nothing of {min(lost)!r}")

    def _extents(self, member: _Member, entry: Entry) -> list[Extent]:
        if member.extents is None:
            whole = member.length == entry.size
            extents = [(0, entry.size)] if entry.size else []
        else:
            extents = [one for one in member.extents if one[0] < one[1]]
            whole = member.size == entry.size
        at, holes = entry.stored_from, 0
        for low, high in extents:
            whole = whole and low >= at
            holes, at = holes + low - at, high
        held = sum(high - low for low, high in extents)
        whole = whole and holes <= MOST_HOLE_BYTES
        if not whole or (at, held) != (entry.data_end, entry.stored_bytes):
            raise self._unsound(f"{entry.path!r} is not as long as its manifest says")
        return extents


class _Member(NamedTuple):
    """A member: ``size`` is that of the file, ``length`` that of its data in the archive, without
    the map; ``extents`` is None where it has no map."""

    name: str
    size: int
    length: int
    extents: list[Extent] | None


class _Stream:
    """Reads a tar from front to back."""

    def __init__(self, file: IO[bytes], name: str, failed: type[Exception]) -> None:
        """:param failed: the exception of ``file`` for bytes that cannot be decompressed."""
        self._file, self._name, self._failed = file, name, failed
        self._left = self._padding = 0

    def _unsound(self, reason: str) -> BackupUnsound:
        return BackupUnsound(path=self._name, reason=reason)

    def _read(self, most: int) -> bytes:
        """Some bytes of the tar; none at its end."""
        try:
            data: bytes = self._file.read(most)
        except self._failed as error:
            raise self._unsound(f"it cannot be decompressed ({error})") from error
        return data

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            data = self._read(min(size, PIECE))
            if not data:
                raise self._unsound("it ends in the middle")
            parts.append(data)
            size -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def member(self) -> _Member | None:
        """The next member; None at the end."""
        block = self._exactly(BLOCKSIZE)
        if block == _NO_BLOCK:
            return None
        info, pax = self._header(block), {}
        if info.type == XHDTYPE:
            size = self._number(str(info.size))
            if size > _LONGEST_HEADER:
                raise self._unsound("a member has a header that is too long")
            pax = self._pax(self._exactly(size))
            self._exactly(-size % BLOCKSIZE)
            info = self._header(self._exactly(BLOCKSIZE))
        if info.type != REGTYPE:
            raise self._unsound("a member is no plain file")
        length = self._number(pax.get("size", str(info.size)))
        self._left, self._padding = length, -length % BLOCKSIZE
        if "GNU.sparse.realsize" not in pax:
            return _Member(pax.get("path", info.name), length, length, None)
        if (pax.get("GNU.sparse.major"), pax.get("GNU.sparse.minor")) != ("1", "0"):
            raise self._unsound("a member has holes of an unknown kind")
        size = self._number(pax["GNU.sparse.realsize"])
        extents = self._map(size)
        if sum(high - low for low, high in extents) != self._left:
            raise self._unsound("the holes of a member do not add up")
        return _Member(pax.get("GNU.sparse.name", info.name), size, self._left, extents)

    def _header(self, block: bytes) -> TarInfo:
        try:
            return TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except HeaderError as error:
            raise self._unsound(f"a member has no header ({error})") from error

    def _number(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 15:
            raise self._unsound("a member's size is no number")
        return int(text)

    def _pax(self, data: bytes) -> dict[str, str]:
        """The records of a PAX header: ``LENGTH KEY=VALUE`` and a newline each."""
        found, at = {}, 0
        while at < len(data):
            length, _, _ = data[at : at + 8].partition(b" ")
            size = self._number(length.decode("ascii", "replace"))
            key, equals, value = data[at + len(length) + 1 : at + size - 1].partition(b"=")
            if not equals or data[at + size - 1 : at + size] != b"\n":
                raise self._unsound("a member has a header that cannot be read")
            name, text = (part.decode("utf-8", "surrogateescape") for part in (key, value))
            found[name] = text
            at += size
        return found

    def _map(self, size: int) -> list[Extent]:
        """Reads the map at the begin of a sparse member."""
        text, wanted, taken = b"", 2, 0
        numbers: list[int] = []
        while len(numbers) < wanted:
            block = self._taken(BLOCKSIZE)
            text, taken = text + block, taken + len(block)
            if taken > _LONGEST_MAP:
                raise self._unsound("a member has too many holes")
            *lines, text = text.split(b"\n")
            numbers += [self._number(line.decode("ascii", "replace")) for line in lines if line]
            if numbers:
                wanted = 1 + 2 * numbers[0]
        extents: list[Extent] = []
        at = 0
        for low, length in zip(numbers[1:wanted:2], numbers[2:wanted:2], strict=True):
            if low < at or low + length > size:
                raise self._unsound("the holes of a member are in disorder")
            at = low + length
            extents.append((low, at))
        return extents

    def _taken(self, most: int) -> bytes:
        """Some bytes of the member."""
        data = self._exactly(min(most, self._left))
        if not data:
            raise self._unsound("a member is shorter than its map")
        self._left -= len(data)
        return data

    def pieces(self, extents: list[Extent]) -> Iterator[Piece]:
        """The member's data, at its places."""
        for low, high in extents:
            at = low
            while at < high:
                data = self._taken(min(PIECE, high - at))
                yield at, data
                at += len(data)

    def end_member(self) -> None:
        """Passes over the rest of the member, and its padding."""
        while self._left:
            self._taken(PIECE)
        self._exactly(self._padding)

    def end(self) -> None:
        """Passes over the end of the tar. The decompressor compares the checksum of the last frame
        only where somebody reads past it."""
        self.end_member()
        if self._exactly(2 * BLOCKSIZE) != 2 * _NO_BLOCK or self._read(1):
            raise self._unsound("it does not end behind its manifest")

    def file(self, length: int) -> IO[bytes]:
        """The member as a file."""
        return io.BufferedReader(_MemberFile(self, length), PIECE)


class _MemberFile(io.RawIOBase):
    def __init__(self, stream: _Stream, length: int) -> None:
        self._stream, self._length = stream, length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream._taken(min(len(buffer), self._length)) if self._length else b""
        buffer[: len(data)] = data
        self._length -= len(data)
        return len(data)
