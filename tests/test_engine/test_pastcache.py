"""What goes to disk past the system's cache is what is read, whatever the range, the memory, and
the file system."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.pastcache import BLOCK, write_past_cache

SIZE = 10 * BLOCK + 100
DATA = os.urandom(SIZE)


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[MappedFile]:
    with closing(MappedFile.create(tmp_path, tmp_path / "file", SIZE)) as mapped:
        yield mapped


@pytest.fixture
def memory() -> Iterator[memoryview]:
    """``DATA``, of which each byte lies as far into a block of memory as it is in the file."""
    with mmap.mmap(-1, SIZE) as pages:
        pages[:] = DATA
        with memoryview(pages) as view:
            yield view


@pytest.mark.parametrize("moved", [0, 1, 512])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        *((0, SIZE), (40, SIZE), (40, 3 * BLOCK), (40, 3 * BLOCK + 8), (BLOCK, 2 * BLOCK)),
        *(
            (40, 80),
            (40, BLOCK + 1),
            (BLOCK, BLOCK),
            (BLOCK + 1, 2 * BLOCK - 1),
            (BLOCK - 1, BLOCK),
        ),
    ],
)
def test_a_range_is_stored_and_nothing_else(
    start: int, end: int, moved: int, mapped: MappedFile, memory: memoryview
) -> None:
    """Also from memory that no disk takes blocks from (``moved``)."""
    with memory[start - moved : end - moved] if start >= moved else memory[start:end] as data:
        expected = bytes(start) + bytes(data) + bytes(SIZE - end)
        write_past_cache(mapped, start, data)
    assert mapped.is_dirty
    mapped.flush()
    assert mapped.path.read_bytes() == expected == mapped.read(0, SIZE) == bytes(mapped.buffer)


@pytest.mark.parametrize("what", ["open", "pwrite", "pwrite short"])
def test_what_does_not_go_so_goes_by_way_of_the_cache(
    what: str, mapped: MappedFile, memory: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file, pwrite, direct = os.open, os.pwrite, set[int]()

    def opened(path: str, flags: int, *others: int) -> int:
        assert path == f"/proc/self/fd/{mapped.descriptor}" and flags & os.O_DIRECT
        if what == "open":
            raise OSError(errno.EINVAL, "no such thing here")
        direct.add(descriptor := open_file(mapped.path, os.O_WRONLY))
        return descriptor

    def written(descriptor: int, data: memoryview, position: int) -> int:
        if descriptor in direct:
            assert position % BLOCK == 0
            if what == "pwrite" or position > BLOCK:
                raise OSError(errno.EINVAL, "not from here")
            data = data[:BLOCK]
        return pwrite(descriptor, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        patch.setattr(os, "pwrite", written)
        write_past_cache(mapped, 40, memory[40:])
    assert mapped.path.read_bytes() == bytes(40) + DATA[40:]
    for descriptor in direct:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_is_full_or_fails_is_told(
    number: int, mapped: MappedFile, memory: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        write_past_cache(mapped, 0, memory)
    assert mapped.is_dirty
