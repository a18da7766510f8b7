"""What stays mapped behind a scan."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.files.keptpages import KeptPages
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.scan.backend import backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.compiled import CompiledReader
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from tests.conftest import Golden

Forgotten = list[tuple[str, int, int]]


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Forgotten:
    """Ranges of files that were forgotten, by the files' names."""
    told: Forgotten = []
    monkeypatch.setattr(
        MappedFile, "forget", lambda self, start, end: told.append((self.path.name, start, end))
    )
    return told


def opened(directory: Path, name: str) -> MappedFile:
    path = directory / name
    path.write_bytes(bytes(1000))
    return MappedFile.open(path)


def test_what_is_looked_at_once_is_forgotten(tmp_path: Path, forgotten: Forgotten) -> None:
    kept, file = KeptPages(500), opened(tmp_path, "a")
    for start in range(0, 1000, 100):
        kept.pass_over(file, start, start + 100)
    assert forgotten == [("a", start, start + 100) for start in range(0, 1000, 100)]


def test_what_is_looked_at_again_stays_while_there_is_room(
    tmp_path: Path, forgotten: Forgotten
) -> None:
    kept, file, other = KeptPages(500), opened(tmp_path, "a"), opened(tmp_path, "b")
    kept.pass_over(file, 0, 1000)
    kept.pass_over(other, 0, 1000)
    forgotten.clear()
    for _ in range(3):
        for start in range(0, 1000, 200):  # Other ranges than before.
            kept.pass_over(file, start, start + 200)
        kept.pass_over(other, 0, 100)
        kept.pass_over(other, 100, 300)
    # 400 bytes of the first, for the next 200 have no room, and 100 of the second.
    one = [("a", 400, 600), ("a", 600, 800), ("a", 800, 1000), ("b", 100, 300)]
    assert forgotten == 3 * one


def test_a_scan_of_another_place_begins_anew(tmp_path: Path, forgotten: Forgotten) -> None:
    kept, file = KeptPages(1000), opened(tmp_path, "a")
    kept.pass_over(file, 0, 100)
    kept.pass_over(file, 500, 600)
    kept.pass_over(file, 0, 100)
    assert len(forgotten) == 3
    kept.pass_over(file, 0, 100)
    kept.pass_over(file, 0, 200)  # Behind 100 it was not looked at.
    assert forgotten[3:] == [("a", 0, 200)]


def test_a_file_that_is_closed_gives_its_room_back(tmp_path: Path, forgotten: Forgotten) -> None:
    kept, file = KeptPages(500), opened(tmp_path, "a")
    kept.pass_over(file, 0, 500)
    kept.pass_over(file, 0, 500)
    del file
    gc.collect()
    other = opened(tmp_path, "b")
    kept.pass_over(other, 0, 500)
    kept.pass_over(other, 0, 500)
    assert forgotten == [("a", 0, 500), ("b", 0, 500)]


def test_a_log_that_is_scanned_again_stays_mapped(golden: Golden, forgotten: Forgotten) -> None:
    directory = golden("basic") / "commitlog"
    log = CommitLog(directory, 0, files=MappedFileQueue(directory, 0, keep=1000))
    once = list(Scanner(log, check=True).scan_plain(PlainWanted()))
    assert forgotten
    forgotten.clear()
    assert len(list(Scanner(log, check=True).scan_plain(PlainWanted()))) == len(once)
    assert not forgotten


def test_what_stays_mapped_is_told(tmp_path: Path) -> None:
    kept, file = KeptPages(500), opened(tmp_path, "a")
    assert kept.kept_until(file, 0) == 0
    for _ in range(2):
        kept.pass_over(file, 100, 400)
    assert [kept.kept_until(file, at) for at in (99, 100, 399, 401)] == [99, 400, 400, 401]


@pytest.mark.parametrize("wanted", [PlainWanted(), PlainWanted(units=True, keys=True)])
def test_pages_that_stay_mapped_are_looked_at_together(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, wanted: PlainWanted
) -> None:
    """Unless what is noted of them takes memory; what is found is the same."""
    backend = backends().get("compiled")
    if backend is None:
        pytest.skip("there is no compiled kernel")
    windows: list[int] = []
    read = CompiledReader._passed

    def passed(
        self: CompiledReader, mapped: MappedFile, position: int, limit: int, *others: Any
    ) -> Iterator[Plain]:
        windows.append(limit - position)
        return read(self, mapped, position, limit, *others)

    monkeypatch.setattr(CompiledReader, "_passed", passed)
    directory = golden("basic") / "commitlog"
    log = CommitLog(directory, 0, files=MappedFileQueue(directory, 0, keep=1000))
    tuning = ScanTuning(window_bytes=(1 << 10, 1 << 10), kept_bytes=1 << 14)
    found = []
    for _ in range(3):
        windows.clear()
        scanner = Scanner(log, check=True, tuning=tuning, backend=backend)
        records = 0
        for entry in scanner.scan_plain(wanted):
            if isinstance(entry, Plain):
                records += entry.records
            elif isinstance(entry, Batch):
                records += len(entry)
        found.append(records)
    assert found[0] > 0
    assert found == found[:1] * 3
    is_together = max(windows) > 1 << 10
    assert is_together == (not any(wanted))
    assert max(windows) <= 1 << 14
