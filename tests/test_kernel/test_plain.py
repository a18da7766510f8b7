"""Plain records, which the kernel passes over, are those of which nothing else is to be said; and
what it notes of them is what batches of them say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch, key_batch, unit_batch
from rmqctl.engine.dispatch.byqueue import units_by_queue
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.scan import compiled as backend
from rmqctl.engine.scan.backend import backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    STORES,
    apply_damage,
    broker_conf,
    copy_tree,
    damage_case,
)
from tests.seeds import times
from tests.test_engine import test_scanner as logs

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of some records, and few read in full behind one that is not plain."""
    monkeypatch.setattr(backend, "_PASSED_BYTES", 900)
    monkeypatch.setattr(backend, "_CLOSELY", 300)


def derived(scan: Scanner, wanted: PlainWanted | None) -> tuple[list[Any], int]:
    """What follows from a scan: numbers of records between other entries, the newest time, all
    units and keys, topics; and how many records came as plain ones."""
    dispatcher = Dispatcher(MessageStoreConfig())
    between: list[Any] = [[0]]
    units: list[UnitBatch | Plain] = []
    keys: list[tuple[int, ...]] = []
    newest = passed = end = 0
    for entry in scan.scan() if wanted is None else scan.scan_plain(wanted):
        if isinstance(entry, Plain):
            assert entry.physical_offset < entry.end_offset and entry.last_offset >= end
            passed += entry.records
            between[-1][0] += entry.records
            newest = max(newest, entry.newest_timestamp)
            units.append(entry)
        elif isinstance(entry, Batch):
            between[-1][0] += len(entry)
            newest = max(newest, int(entry.store_timestamp.max()))
            units.append(unit_batch(entry, dispatcher))
        else:
            between += [[entry], [0]]
            continue
        keys += rows_of(key_batch(entry))
        end = entry.end_offset
    by_queue: dict[tuple[str, int], list[Any]] = {}
    for queue in units_by_queue(units):
        rows = list(zip(*(column.tolist() for column in queue.columns()[2:]), strict=True))
        assert queue.first == rows[0][:2] and len(queue) == len(rows)
        assert len(queue.stored) == 20 * len(rows)
        where = scan.topics.names[queue.topic_id], queue.queue_id
        by_queue.setdefault(where, []).extend(rows)
    return [between, newest, by_queue, keys, set(scan.topics.names)], passed


def rows_of(keys: KeyBatch) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in keys), strict=True))


def assert_same(log: CommitLog, tuning: ScanTuning = DEFAULT) -> int:
    """Both engines say the same of a log, whatever the kernel passes over; how much that was."""
    most = 0
    for check in (True, False):
        expected, _ = derived(Scanner(log, check=check, backend=backends()["pure"]), None)
        # Records of this size, on average, are read through the map.
        for threads, mapped in ((1, 1), (3, 1 << 40)):
            steps = replace(tuning, first_records=5, threads=threads)
            scan = Scanner(log, check=check, tuning=steps, backend=backends()["compiled"])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(backend, "_MAPPED_RECORD", mapped)
                said, passed = derived(scan, PlainWanted(units=True, keys=True))
            assert said == expected
            most = max(most, passed)
    return most


@pytest.mark.parametrize("name", STORES)
def test_golden_stores(name: str, golden: Golden) -> None:
    with MessageStore(golden(name), broker_conf(name)) as store:
        assert_same(store.commit_log)


def test_most_records_are_plain(golden: Golden) -> None:
    with MessageStore(golden("basic"), broker_conf("basic")) as store:
        count = sum(len(one) for one in Scanner(store.commit_log).scan() if isinstance(one, Batch))
        assert assert_same(store.commit_log) > count // 2


@pytest.mark.parametrize("name", DAMAGE_CASES)
def test_damaged_stores(name: str, golden: Golden, tmp_path: Path) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    assert_same(
        CommitLog(root / "commitlog", broker_conf(case["base"]).mapped_file_size_commit_log)
    )


@settings(logs.quick, max_examples=times(30))
@given(logs.logs, st.lists(st.tuples(st.integers(0, 4095), st.binary(max_size=20)), max_size=6))
def test_any_logs(records: list[Any], writes: list[tuple[int, bytes]]) -> None:
    size = 4096
    files = [bytearray(file) for file in logs.build_log(records, size)]
    for number, (at, piece) in enumerate(writes):
        files[number % len(files)][at : at + len(piece)] = piece
    with TemporaryDirectory() as directory:
        data = {number: bytes(file[:size]) for number, file in enumerate(files)}
        assert_same(logs.write(Path(directory), data, size), logs.SMALL_STEPS)
