"""MappedFile and MappedFileQueue: holes, lengths, names, and what the disk refuses."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise, takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.engine.files.extents import holes
from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.files.mappedfile import PAGE, MappedFile, reserved_chunk
from rmqctl.engine.files.pagelock import mlock, munlock
from rmqctl.engine.files.paths import FileGone
from rmqctl.engine.files.writing import Forced
from rmqctl.errors import CannotRead, CannotWrite, SymbolicLinkRefused

BLOCK = 4096
FILE = 64 * BLOCK


@given(
    written=st.dictionaries(st.integers(0, FILE - 1), st.integers(0, 255), max_size=6),
    start=st.integers(0, FILE),
    end=st.integers(0, FILE),
)
def test_extents_leave_out_nothing_but_zeros(
    tmp_path_factory: pytest.TempPathFactory, written: dict[int, int], start: int, end: int
) -> None:
    path = tmp_path_factory.mktemp("sparse") / "file"
    path.touch()
    os.truncate(path, FILE)
    with path.open("r+b") as file:
        for position, value in written.items():
            file.seek(position)
            file.write(bytes((value,)))
    mapped = MappedFile.open(path)
    try:
        extents = list(mapped.extents(start, end))
        assert all(start <= low < high <= end for low, high in extents)
        assert extents == sorted(extents)
        inside = [p for p, value in written.items() if value and start <= p < end]
        assert all(any(low <= p < high for low, high in extents) for p in inside)
        assert mapped.first_nonzero(start, max(start, end)) == min(inside, default=max(start, end))
    finally:
        mapped.close()


def test_holes_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 1 << 40)
    with path.open("r+b") as file:
        file.seek(1 << 39)
        file.write(b"\0\0x")
    mapped = MappedFile.open(path)
    (extent,) = mapped.extents(0, mapped.size)
    assert extent[0] <= 1 << 39 < extent[1] <= (1 << 39) + (1 << 20)
    assert mapped.first_nonzero(0, mapped.size) == (1 << 39) + 2
    assert mapped.first_nonzero((1 << 39) + 3, mapped.size) == mapped.size
    mapped.close()


def test_what_stands_among_zeros_occurs(tmp_path: Path) -> None:
    piece, path = 1 << 20, tmp_path / "file"
    places = [0, piece - 1, piece + 3, 3 * piece - 2, 5 * piece - 3]
    data = bytearray(5 * piece)
    for at in places:
        data[at : at + 3] = b"\x01\x00\x02"
    path.write_bytes(data)
    mapped = MappedFile.open(path)
    assert list(mapped.occurrences(b"\x01\x00\x02", 0, len(data))) == places
    assert list(mapped.occurrences(b"\x01\x00\x02", 1, len(data) - 1)) == places[1:-1]
    # One that begins with zeros stands where a piece that is all zeros ends, too.
    assert list(mapped.occurrences(b"\x00\x00\x01", piece, len(data))) == [
        at - 2 for at in places if at > 2 * piece
    ]
    assert len(list(mapped.occurrences(b"\x00" * 3, piece, 3 * piece))) > piece
    mapped.close()


def test_a_new_file_is_whole_sparse_and_not_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "dir" / "file"
    mapped = MappedFile.create(tmp_path, path, 1 << 30)
    mapped.reserve(100, 5)
    mapped.write(100, b"hello")
    before = mapped._dirty.end > 0
    mapped.flush()
    assert (before, mapped._dirty.end > 0) == (True, False)
    mapped.close()
    status = path.stat()
    assert (status.st_size, status.st_nlink) == (1 << 30, 1)
    assert status.st_blocks * 512 <= 1 << 20
    assert path.open("rb").read(105).endswith(b"hello")
    with pytest.raises(CannotWrite):
        MappedFile.create(tmp_path, path, 100)


def test_a_full_disk_is_an_error_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = MappedFile.create(tmp_path, tmp_path / "file", BLOCK * 4 + 100)
    asked = []

    def full(descriptor: int, start: int, length: int) -> None:
        asked.append((start, length))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    # When the whole chunk does not fit, what is needed still may: whole pages, in the file.
    page = mmap.PAGESIZE
    for place, needed in {
        (10, 20): (0, page),
        (page - 1, 2): (0, 2 * page),
        (page, page): (page, page),
        (BLOCK * 4 + 90, 10): (BLOCK * 4, 100),
    }.items():
        with pytest.raises(OSError, match="No space"):
            mapped.reserve(*place)
        assert asked[-1] == needed
    mapped.close()


def test_files_are_found_by_offset_and_foreign_names_kept_apart(tmp_path: Path) -> None:
    for name in ("00000000000000000100", "00000000000000000200", "00000000000000000500"):
        (tmp_path / name).write_bytes(bytes(100))
    for name in ("notes.txt", "123", "0000000000000000010x", "9" * 20):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f"{700:020d}").mkdir()
    queue = MappedFileQueue(tmp_path, 100, keep=2)
    assert [entry.file_from_offset for entry in queue.entries] == [100, 200, 500]
    assert sorted(path.name for path in queue.foreign) == sorted(
        ["notes.txt", "123", "0000000000000000010x", "9" * 20, f"{700:020d}"]
    )
    assert [queue.index_of(offset) for offset in (99, 100, 199, 200, 299, 300, 500, 600)] == [
        -1, 0, 0, 1, 1, -1, 2, -1,
    ]  # fmt: skip
    assert (queue.min_offset, queue.end_offset) == (100, 600)
    for offset in (100, 250, 510, 100):
        mapped = queue.find(offset)
        assert mapped is not None
        assert mapped.file_from_offset <= offset < mapped.file_from_offset + 100
    queue.close()


def test_a_file_that_retention_deletes_amid_a_command_is_told_as_that(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number * 100:020d}").write_bytes(bytes(100))
    files = MappedFileQueue(tmp_path, 100, keep=4)
    assert len(files.entries) == 2
    (tmp_path / f"{0:020d}").unlink()
    with pytest.raises(FileGone, match="Run the command again"):
        files.file(0)


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "real").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(bytes(10))
    (root / "linked").symlink_to(tmp_path / "outside")
    (root / "real" / "file").symlink_to(tmp_path / "outside" / "file")
    for path in (root / "linked" / "file", root / "real" / "file"):
        with pytest.raises(SymbolicLinkRefused):
            MappedFile.open_writable(root, path)
    with pytest.raises(SymbolicLinkRefused):
        MappedFile.create(root, root / "linked" / "new", 10)
    assert sorted(p.name for p in (tmp_path / "outside").iterdir()) == ["file"]
    os.mkfifo(root / "pipe")
    with pytest.raises(CannotRead, match="regular"):
        MappedFile.open(root / "pipe")


def test_what_is_allocated_ahead_grows_with_the_file(tmp_path: Path) -> None:
    """A queue of one unit takes a page, and chunks meet without a gap, each reserved once."""
    assert reserved_chunk(0) == (0, 4096) and reserved_chunk(4095) == (0, 4096)
    ends = [end for _, end in takewhile(lambda chunk: chunk[0] < 2 << 20, chunks())]
    assert ends[:7] == [4096 << at for at in range(7)]
    assert {after - end for end, after in pairwise(ends[6:])} == {256 << 10}
    mapped = MappedFile.create(tmp_path, tmp_path / "f", 6_000_000)
    mapped.reserve(0, 20)
    assert 0 < os.stat(tmp_path / "f").st_blocks * 512 <= 8192
    mapped.reserve(4090, 20)  # Over the end of a chunk.
    mapped.reserve(5_999_990, 10)
    assert os.stat(tmp_path / "f").st_blocks * 512 <= 8192 + (256 << 10)
    mapped.close()


def chunks() -> Iterator[tuple[int, int]]:
    at = 0
    while True:
        start, end = reserved_chunk(at)
        assert start == at and reserved_chunk(end - 1) == (start, end)
        yield start, end
        at = end


def test_a_write_that_is_interrupted_is_flushed(tmp_path: Path) -> None:
    """Also when nothing is known of how far it came."""

    class Interrupted:
        def __setitem__(self, place: slice, data: bytes) -> None:
            raise KeyboardInterrupt

    mapped = MappedFile.create(tmp_path, tmp_path / "file", FILE)
    whole, mapped.buffer = mapped.buffer, Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        mapped.write(BLOCK, b"unit")
    assert (mapped.dirty.start, mapped.dirty.end) == (BLOCK, BLOCK + 4)
    mapped.buffer = whole
    mapped.close()


def test_what_lies_behind_is_forgotten_unless_it_is_locked(tmp_path: Path) -> None:
    size = 4 << 20
    mapped = MappedFile.create(tmp_path, tmp_path / "file", size)
    mapped.reserve(0, size)
    is_locked = mlock(mapped.buffer)  # type: ignore[arg-type]
    mapped.write(0, b"x" * size)
    mapped.forget_behind(size)
    if is_locked:
        assert munlock(mapped.buffer)  # type: ignore[arg-type]
    assert mapped.read(0, size) == b"x" * size
    mapped.close()


def is_read_ahead(mapped: MappedFile) -> bool:
    """Whether the system reads ahead of what is looked at through a map (``rr`` of VmFlags: it does
    not)."""
    assert isinstance(mapped.buffer, mmap.mmap)
    # By its address: the number of a file is another one there, where file systems lie on others.
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped.buffer))
    is_here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            low, high = (int(place, 16) for place in first.split("-"))
            is_here = low <= address < high
        elif is_here and first == "VmFlags:":
            return "rr" not in rest
    raise AssertionError(mapped.path)


def test_nothing_is_read_ahead_in_a_new_file(tmp_path: Path) -> None:
    """A disk that reads megabytes ahead had each new queue wait for that many zeros."""
    path = tmp_path / "file"
    mapped = MappedFile.create(tmp_path, path, FILE)
    assert not is_read_ahead(mapped)
    mapped.reserve(0, FILE)
    mapped.touch(0, FILE)
    assert is_read_ahead(mapped)
    mapped.close()
    mapped = MappedFile.open_writable(tmp_path, path)
    assert is_read_ahead(mapped)
    mapped.close()
    unnamed = MappedFile.create_unnamed(tmp_path, tmp_path / "other", FILE, 0, Forced.NOTHING)
    if unnamed is not None:
        unnamed.give_name(tmp_path, b"", Forced.NOTHING)
        assert not is_read_ahead(unnamed)
        unnamed.close()


@pytest.mark.parametrize("is_on_a_device", [True, False])
def test_what_is_touched_stays_what_it_is(
    is_on_a_device: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.major", lambda number: int(is_on_a_device))
    size = 64 * PAGE
    mapped = MappedFile.create(tmp_path, tmp_path / "file", size)
    mapped.reserve(0, size)
    # Through the map, not yet on disk: it is known to nobody but the system's cache.
    for at in (3 * PAGE + 5, 20 * PAGE - 1, 40 * PAGE):
        mapped.write(at, b"unit")
    before = bytes(mapped.buffer)
    mapped.touch(PAGE + 1, 50 * PAGE + 1)
    assert mapped.read(0, size) == bytes(mapped.buffer) == before
    if is_on_a_device:
        assert not list(holes(mapped.descriptor, PAGE, 51 * PAGE))
    mapped.write(10 * PAGE, b"unit")
    mapped.flush()
    mapped.close()
    assert (tmp_path / "file").read_bytes()[10 * PAGE :][:4] == b"unit"


def test_a_disk_that_refuses_pages_refuses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, data: object, position: int) -> int:
        raise OSError(errno.EIO, "no")

    mapped = MappedFile.create(tmp_path, tmp_path / "file", FILE)
    mapped.reserve(0, FILE)
    monkeypatch.setattr("os.major", lambda number: 1)
    monkeypatch.setattr("os.pwrite", refuse)
    mapped.touch(0, FILE)
    mapped.write(0, b"unit")
    assert mapped.read(0, 5) == b"unit\0"
    mapped.close()


def test_a_file_that_is_followed_by_another_is_read_ahead(tmp_path: Path) -> None:
    """A server has it mapped for long, and consumers come to it when memory has let go of it."""
    files = MappedFileQueueWriter(tmp_path, FILE, tmp_path)
    maps = [files.append_file(start) for start in (0, FILE, 2 * FILE)]
    assert [is_read_ahead(mapped) for mapped in maps] == [True, True, False]
    files.close()


def test_pages_of_a_range_come_at_once(tmp_path: Path) -> None:
    """What is stored stays, and blocks that are not reserved are none afterwards either."""
    mapped = MappedFile.create(tmp_path, tmp_path / "file", FILE)
    mapped.reserve(0, FILE)
    mapped.write(0, b"x" * FILE)
    mapped.touch(BLOCK + 1, FILE)
    assert mapped.read(0, FILE) == b"x" * FILE
    mapped.touch(FILE, FILE)
    mapped.close()
    MappedFile.open(tmp_path / "file").touch(0, FILE)  # It may not be stored into.


def test_room_that_was_made_piece_by_piece_is_named_without_a_head(tmp_path: Path) -> None:
    files = MappedFileQueueWriter(tmp_path / "queue", 16 * PAGE, tmp_path)
    files.append_file(0)
    start = 16 * PAGE
    for position in (0, PAGE):
        files.reserve_ahead(start + position, 100)
    assert len(files.entries) == 1
    mapped = files.append_file(start)
    assert [one.file_from_offset for one in files.entries] == [0, start]
    assert mapped.path.stat().st_size == 16 * PAGE and not mapped._dirty.end
    files.close()


def test_to_reserve_nothing_is_nothing(tmp_path: Path) -> None:
    mapped = MappedFile.create(tmp_path, tmp_path / "file", 4 * PAGE)
    mapped.reserve(2 * PAGE, 100)
    blocks = mapped.path.stat().st_blocks
    mapped.reserve(PAGE, 0)
    assert mapped.path.stat().st_blocks == blocks
    mapped.close()


@pytest.mark.parametrize("is_full", [False, True])
def test_nothing_is_read_ahead_while_blocks_are_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """It would join the range with the hole behind it in one folio, which needs blocks as a whole:
    on a full ext2 a store into the range ended the process by SIGBUS."""
    done: list[object] = []

    def allocated(*_: int) -> None:
        done.append("allocated")
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    mapped = MappedFile.create(tmp_path, tmp_path / "file", 1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fadvise", lambda *arguments: done.append(arguments[-1]))
        patch.setattr(os, "posix_fallocate", allocated)
        with pytest.raises(OSError, match="No space") if is_full else nullcontext():
            mapped.reserve(0, 9)
    mapped.close()
    one = [os.POSIX_FADV_RANDOM, "allocated", os.POSIX_FADV_NORMAL]
    assert done == one * (1 + is_full)
