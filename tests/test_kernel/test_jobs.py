"""Which engine scans, and by how many threads, changes nothing that is said or built."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from formats.layouts import RECORD_PREFIX
from rmqctl import kernel
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.scan import compiled as backend
from rmqctl.engine.scan import tuning
from rmqctl.engine.scan.backend import backends
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.scanner import Batch, Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from rmqctl.operations.verify import run, verify
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    apply_damage,
    broker_conf,
    copy_tree,
    damage_case,
    index_contents,
    tree_content,
)
from tests.test_cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("compiled")
#: Who scans: the variable's value, and the threads.
ENGINES = [("pure", 1), ("compiled", 3)]
SMALL = partial(ScanTuning, batch_bytes=8000)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of some records, so that a golden store has many of them."""
    for module in (run, tuning):
        monkeypatch.setattr(module, "ScanTuning", SMALL)
    monkeypatch.setattr(backend, "_PART_BYTES", 8000)
    monkeypatch.setattr(backend, "_PASSED_BYTES", 3000)
    monkeypatch.setattr(backend, "_CLOSELY", 700)


def said(root: Path, config: MessageStoreConfig, patch: pytest.MonkeyPatch) -> list[list[Any]]:
    """What verify says, by each engine."""
    answers = []
    for choice, jobs in ENGINES:
        patch.setenv(kernel.VARIABLE, choice)
        answers.append(list(verify(root, config, jobs=jobs)))
    return answers


@pytest.mark.parametrize("name", DAMAGE_CASES)
def test_findings_of_damaged_stores(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    first, *others = said(root, broker_conf(case["base"]), monkeypatch)
    assert all(other == first for other in others)


@contextmanager
def fault(root: Path, chance: random.Random) -> Iterator[str]:
    """One file of a store is damaged meanwhile; a description of it."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    path = chance.choice(files)
    before = path.read_bytes()
    # Where bytes stand, and not in the zeros behind them.
    place = chance.randrange(len(before.rstrip(b"\0")) + 1)
    size = chance.choice([1, 1, 2, 4, 8, 60, 500])
    data = chance.choice([bytes(size), b"\xff" * size, chance.randbytes(size), before[:size]])
    after = before[:place] + data + before[place + len(data) :]
    try:
        path.write_bytes(after[: len(before)])
        yield f"{path.relative_to(root)}: {data[:8].hex()}… ({size}) at {place}"
    finally:
        path.write_bytes(before)


def test_findings_of_seeded_faults(
    golden: Golden,
    tmp_path: Path,
    chance: random.Random,
    is_deep: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = copy_tree(golden("basic"), tmp_path / "store")
    for _ in range(10_000 if is_deep else 60):
        with fault(root, chance) as what:
            first, *others = said(root, broker_conf("basic"), monkeypatch)
            assert all(other == first for other in others), what


#: A time from which all items count, an item's offset, and a record's size: of each the index says
#: more than one thing.
INDEX_FAULTS = [("index", -1, 5, b"\0"), ("index", 0, 20_188, b"\x25\x5a" * 30),
                ("commitlog", 1, 4310, b"\xff" * 4)]  # fmt: skip


@pytest.mark.parametrize("number", range(len(INDEX_FAULTS)))
def test_what_a_finding_of_the_index_spans(
    number: int, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many records come at once."""
    directory, file, place, data = INDEX_FAULTS[number]
    root = copy_tree(golden("basic"), tmp_path / "store")
    with sorted((root / directory).iterdir())[file].open("r+b") as harmed:
        harmed.seek(place)
        harmed.write(data)
    first, *others = said(root, broker_conf("basic"), monkeypatch)
    assert len(first) > 1 and all(other == first for other in others)


@pytest.mark.parametrize("time", [0, -1, 1 << 62])
def test_a_store_time_that_no_clock_shows(
    time: int, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a record of which there is nothing else to say, and which the kernel would pass over."""
    root = copy_tree(golden("basic"), tmp_path / "store")
    config = broker_conf("basic")
    log = CommitLog(root / "commitlog", config.mapped_file_size_commit_log)
    scan = Scanner(log, backend=backends()["compiled"])
    plain = next(part for part in scan.scan_plain(PlainWanted()) if isinstance(part, Plain))
    first = min((root / "commitlog").iterdir())
    field = next(one for one in RECORD_PREFIX[0].fields if one.name == "store_timestamp")
    with first.open("r+b") as harmed:
        harmed.seek(plain.last_offset + field.offset)
        harmed.write(time.to_bytes(8, "big", signed=True))
    log.close()
    expected, *others = said(root, config, monkeypatch)
    codes = [(row.code, row.physical_offset) for row in expected[:-1]]
    assert ("store-time-implausible", plain.last_offset) in codes
    assert all(other == expected for other in others)


def test_queues_and_index_by_many_threads(golden: Golden, tmp_path: Path) -> None:
    root, config = golden("basic"), broker_conf("basic")
    built = []
    for jobs in (1, 3):
        output = tmp_path / str(jobs)
        summary = rebuild_to(plan_rebuild(root, config, "all"), output, jobs=jobs)
        built.append(
            (summary, tree_content(output / "consumequeue"), index_contents(output / "index"))
        )
    assert built[0] == built[1]


def test_parts_are_the_same_for_any_number_of_threads(golden: Golden) -> None:
    sizes = []
    for threads in (1, 2, 5, 8):
        with MessageStore(golden("basic"), broker_conf("basic")) as store:
            scan = Scanner(store.commit_log, tuning=SMALL(threads=threads))
            batches = [entry for entry in scan.scan() if isinstance(entry, Batch)]
            assert all(a.end_offset <= int(b.physical_offset[0]) for a, b in pairwise(batches))
            sizes.append([len(batch) for batch in batches])
    assert len(sizes[0]) > 20 and all(one == sizes[0] for one in sizes)


def test_the_option(cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    original = Scanner.__init__

    def init(self: Scanner, *args: Any, tuning: ScanTuning, **kwargs: Any) -> None:
        asked.append(tuning.threads)
        original(self, *args, tuning=tuning, **kwargs)

    monkeypatch.setattr(Scanner, "__init__", init)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    where = ("--store", str(store))
    for options in ((), ("--jobs", "1"), ("--jobs", "3"), ("--jobs", "900")):
        cli("verify", *where, "-q", *options)
    assert asked == [4, 1, 3, 4]
    done = cli("verify", *where, "--jobs", "2", "--master", "local[1]")
    assert done.code == 2 and "--jobs and --master exclude each other" in done.err
    asked.clear()
    done = cli("rebuild", "queues", *where, "--missing", "--dry-run", "--jobs", "2")
    assert not done.code and asked == [2]
