"""The kernel scans what the pure engine scans: every column, on golden, damaged and any bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import constants
from rmqctl import kernel
from rmqctl.engine.derive.writer import group_by_queue
from rmqctl.engine.index.links import _links_by_sorting, link_items
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.scan.backend import backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.compiled import _NAMES
from rmqctl.engine.scan.recordcrc import rows_with_property_crc
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning
from rmqctl.operations.verify.decodable import not_decodable
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

#: Columns of a row each, of keys, and of rows that something is said of.
BY_ROW = ["position", "physical_offset", "total_size", "body_crc", "queue_id", "queue_offset",
          "sys_flag", "store_timestamp", "body_position", "body_length", "topic_id",
          "properties_position", "properties_length", "tags_code", "crc_matches"]  # fmt: skip

#: Whether a scan checks, and whether it wants properties.
MODES = [(True, True), (False, True), (True, False), (False, False)]


def scanned(scan: Scanner) -> list[Any]:
    """All that a scan says: a list for each stretch of records, and what stands between them."""
    said: list[Any] = []
    for entry in scan.scan():
        if not isinstance(entry, Batch):
            said.append(entry)
            continue
        if not said or not isinstance(said[-1], list):
            said.append([])
        for row in range(len(entry)):
            said[-1].append(row_of(entry, row))
    return [*said, scan.topics.names, scan.topics.key_prefix_array().tolist()]


def row_of(batch: Batch, row: int) -> tuple[Any, ...]:
    assert all(getattr(batch, name).dtype == np.int64 for name in BY_ROW[:-1])
    values = tuple(getattr(batch, name)[row].item() for name in BY_ROW)
    keys = batch.key_hash[batch.key_row == row].tolist()
    marks = [row in batch.malformed, row in batch.multi_dispatch_rows]
    return *values, keys, marks, batch.delay_levels.get(row)


def assert_looked_at(log: CommitLog) -> None:
    """What a check has looked at already is what the others would look at."""
    for entry in Scanner(log, check=True, backend=backends()["compiled"]).scan():
        if isinstance(entry, Batch):
            unseen = replace(entry, odd_port_rows=None, property_crc_rows=None)
            assert list(not_decodable(entry)) == list(not_decodable(unseen))
            rows = [rows_with_property_crc(batch).tolist() for batch in (entry, unseen)]
            assert rows[0] == rows[1]


def assert_equal(log: CommitLog, tuning: ScanTuning = DEFAULT) -> None:
    pure, compiled = backends()["pure"], backends()["compiled"]
    for check, properties in MODES:
        scans = (
            Scanner(log, check=check, properties=properties, tuning=tuning, backend=backend)
            for backend in (compiled, pure)
        )
        assert scanned(next(scans)) == scanned(next(scans))
    assert_looked_at(log)


@pytest.mark.parametrize("name", STORES)
def test_golden_stores(name: str, golden: Golden) -> None:
    with MessageStore(golden(name), broker_conf(name)) as store:
        assert_equal(store.commit_log)


@pytest.mark.parametrize("name", DAMAGE_CASES)
def test_damaged_stores(name: str, golden: Golden, tmp_path: Path) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    size = broker_conf(case["base"]).mapped_file_size_commit_log
    assert_equal(CommitLog(root / "commitlog", size))


def record(data: bytes) -> bytes:
    """A sound record with these properties at the start of a log."""
    spec = {"topic": b"t", "body": b"b", "properties": data, "sys_flag": 0, "v2": False,
            "queue_id": 0, "queue_offset": 0, "store_timestamp": 1, "crc_error": 0}  # fmt: skip
    return logs.encode(0, spec)


heads = [code.to_bytes(4, "big") for code in (constants.MESSAGE_MAGIC_CODE,
         constants.MESSAGE_MAGIC_CODE_V2, constants.BLANK_MAGIC_CODE)]  # fmt: skip
pieces = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([*heads, bytes(8), b"\0\0\0\x5b", b"\0\0\0\xff", b"\x7f\xff\xff\xff"]),
    st.integers(0, 2000).map(lambda place: place.to_bytes(8, "big")),
)


@settings(logs.quick, max_examples=times(200))
@given(logs.logs, st.lists(st.tuples(st.integers(0, 4095), pieces), max_size=12), st.binary())
def test_any_bytes(records: list[Any], writes: list[tuple[int, bytes]], rest: bytes) -> None:
    size = 4096
    files = [bytearray(rest.ljust(size, b"\0")), *logs.build_log(records, size)]
    for number, (at, piece) in enumerate(writes):
        files[number % len(files)][at : at + len(piece)] = piece
    with TemporaryDirectory() as directory:
        data = {number: bytes(file[:size]) for number, file in enumerate(files)}
        assert_equal(logs.write(Path(directory), data, size), logs.SMALL_STEPS)


texts = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(
        st.sampled_from([b"\xed", b"\xa0", b"\x80", b"\xf0\x9f", b"\xc3", b"\xe2\x82", b"a", b" "])
    ).map(b"".join),
)


@settings(logs.quick, max_examples=times(300))
@given(st.lists(st.tuples(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY"]), texts)))
def test_texts_of_any_bytes(pairs: list[tuple[bytes, bytes]]) -> None:
    """Malformed UTF-8 becomes what Java makes of it, in hashes too."""
    data = b"\x02".join(name + b"\x01" + value for name, value in pairs)
    with TemporaryDirectory() as directory:
        log = logs.write(Path(directory), {0: record(data[:32767])}, 1 << 16)
        assert_equal(log)


def test_a_record_larger_than_its_window(tmp_path: Path) -> None:
    """The window asks for the rest of it; small ones follow in the next."""
    spec = logs.random_spec(random.Random(5)) | {"sys_flag": 0, "v2": False}
    records = [spec, spec | {"body": bytes(300_000)}, *[spec] * 20, spec | {"body": b"x" * 90_000}]
    size = 1 << 20
    log = logs.write(tmp_path, logs.damage(logs.build_log(records, size), []), size)
    assert_equal(log, ScanTuning(window_bytes=(1000, 3000)))


def test_the_columns_are_those_of_a_batch(compiled: ModuleType) -> None:
    assert compiled.INT_COLUMNS == _NAMES


slots = st.lists(st.integers(0, 6) | st.integers(0, 99), min_size=1, max_size=300)


@settings(logs.quick)
@given(slots, st.lists(st.integers(-2, 400), min_size=100, max_size=100), st.integers(1, 300))
def test_links_of_index_items(slot: list[int], newest: list[int], count: int) -> None:
    number = np.arange(count, count + len(slot), dtype=np.int32)
    for dtype in (np.dtype("=i4"), np.dtype(">i4")):
        asked = np.array(slot, np.int64), number, np.array(newest, dtype), count
        found, expected = link_items(*asked), _links_by_sorting(*asked)
        order = np.argsort(found.slot)
        assert found.previous.tolist() == expected.previous.tolist()
        assert found.slot[order].tolist() == expected.slot.tolist()
        assert found.newest[order].tolist() == expected.newest.tolist()
        assert found.fresh_slots == expected.fresh_slots


@settings(logs.quick)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**31 - 1) | st.integers(0, 4))))
def test_rows_by_queue(queues: list[tuple[int, int]]) -> None:
    columns = np.array(queues, np.int64).reshape(-1, 2)
    groups = []
    for choice in ("compiled", "pure"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(kernel.VARIABLE, choice)
            found = group_by_queue(columns[:, 0], columns[:, 1])
            groups.append([(topic, queue, rows.tolist()) for topic, queue, rows in found])
    assert groups[0] == groups[1]
