"""Plain records that the kernel reads from a file in pieces, and not through its map."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import End
from rmqctl.engine.scan.backend import ScanBackend, backends
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.scanner import ScanEntry, Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotRead

SIZE = 1 << 21


@pytest.fixture
def compiled() -> ScanBackend:
    backend = backends().get("compiled")
    if backend is None:
        pytest.skip("there is no compiled kernel")
    return backend


def records(tmp_path: Path, *body_sizes: int) -> tuple[CommitLog, bytes]:
    """A log of one file with plain records of such bodies, and what it holds up to their end."""
    config = MessageStoreConfig(mapped_file_size_commit_log=SIZE)
    with MessageStore(tmp_path, config, writable=True, create=True) as store:
        for size in body_sizes:
            properties = {"KEYS": "a"}
            message = MessageExtBrokerInner("T", b"x" * size, 0, properties=properties)
            assert store.put_message(message, flush=False).is_ok
        end = store.max_offset
    log = CommitLog(tmp_path / "commitlog", SIZE)
    return log, log.files.file(0).read(0, end)


def scanned(
    log: CommitLog, backend: ScanBackend, *, mapped: bool, threads: int = 1
) -> tuple[list[ScanEntry | Plain], int]:
    """What a scan finds, and how many records are plain."""
    log.kept_pages.will_stay = lambda *_: mapped  # type: ignore[method-assign]
    tuning = ScanTuning(threads=threads)
    scanner = Scanner(log, check=True, tuning=tuning, backend=backend)
    found = list(scanner.scan_plain(PlainWanted(units=True, keys=True)))
    return found, sum(one.records for one in found if isinstance(one, Plain))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "sizes",
    [(200,) * 5000, (1 << 18, 100, 300_000, 1, 600_000, 7), (260_000, 262_000) * 3, (100,)],
)
def test_pieces_and_the_map_say_the_same(
    sizes: tuple[int, ...], threads: int, compiled: ScanBackend, tmp_path: Path
) -> None:
    log, content = records(tmp_path, *sizes)
    ends = []
    for mapped in (True, False):
        found, plain = scanned(log, compiled, mapped=mapped, threads=threads)
        assert plain == len(sizes)
        ends.append(found[-1])
    assert ends[0] == ends[1]
    assert isinstance(ends[0], End) and ends[0].physical_offset >= len(content)


@pytest.mark.parametrize("mapped", [True, False])
def test_what_was_appended_behind_the_map_is_not_there(
    mapped: bool, compiled: ScanBackend, tmp_path: Path
) -> None:
    """A file that somebody cuts and lets grow again is as long as when it was mapped."""
    log, content = records(tmp_path, *(200,) * 10)
    path = log.files.entries[0].path
    path.write_bytes(content[:-50])
    log = CommitLog(path.parent, SIZE)
    assert log.files.file(0).size == len(content) - 50
    with path.open("ab") as file:
        file.write(content[-50:] + bytes(100))
    found, plain = scanned(log, compiled, mapped=mapped)
    assert plain == 9
    assert isinstance(found[-1], End) and found[-1].physical_offset < len(content) - 50


def test_a_file_that_cannot_be_read_is_said(
    compiled: ScanBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = records(tmp_path, *(200,) * 10)
    file = log.files.file(0)
    directory = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(
        "rmqctl.engine.scan.compiled.is_whole", lambda mapped, *_: mapped is not None
    )
    file.whole = (0, file.size)
    held, file.descriptor = file.descriptor, directory
    try:
        with pytest.raises(CannotRead, match="directory"):
            scanned(log, compiled, mapped=False)
    finally:
        file.descriptor = held
        os.close(directory)
    assert isinstance(file, MappedFile)
