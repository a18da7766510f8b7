"""The parts of a log, scanned one by one, give what a scan of the whole log gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.ranges import PartBounds, PartScan, numbered, plan_parts, unmet
from rmqctl.engine.scan.scanner import ScanEntry, Scanner

SIZE = 65536


def places(entries: Iterable[ScanEntry]) -> list[object]:
    """Where each record is, and what else the scan gives."""
    found: list[object] = []
    for entry in entries:
        found += entry.physical_offset.tolist() if isinstance(entry, Batch) else [entry]
    return found


def in_parts(log: CommitLog, part_bytes: int) -> list[object]:
    """The same of all parts, planned again until they meet."""
    parts = plan_parts(log, part_bytes)
    while True:
        found: list[object] = []
        bounds: list[PartBounds] = []
        for part in parts:
            scan = PartScan(Scanner(log), part)
            found += places(scan)
            bounds.append(scan.bounds)
        wrong = unmet(bounds, log.files.end_offset)
        if not wrong:
            return found
        parts = numbered(part.start for part in parts if part.number not in wrong)


@pytest.mark.parametrize("part_bytes", [0, 20_000, SIZE])
@pytest.mark.parametrize("empty", [[], [0], [2], [6], [7], [0, 1], [2, 3], [6, 7]], ids=str)
def test_files_without_a_byte(
    copy_store: Callable[[str], Path], empty: list[int], part_bytes: int
) -> None:
    """The log goes on behind such a file, also for the part that begins with it."""
    root = copy_store("basic")
    for number in empty:
        path = root / "commitlog" / f"{number * SIZE:020d}"
        path.touch()
        os.truncate(path, 0)
    log = CommitLog(root / "commitlog", SIZE)
    assert in_parts(log, part_bytes) == places(Scanner(log).scan())
    log.close()
