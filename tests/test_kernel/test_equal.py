"""The kernel scans what the pure engine scans: every column, on golden, damaged and any bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import constants, consumequeue
from rmqctl import kernel
from rmqctl.engine.derive.writer import group_by_queue
from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch
from rmqctl.engine.dispatch.byqueue import UnitsOfQueue, units_by_queue
from rmqctl.engine.index.links import item_dtype, link_items, links_by_sorting
from rmqctl.engine.index.newslots import CompiledSlots, NewSlots, PureSlots, wrong_slots
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
    threaded = replace(tuning, threads=3)
    for check, properties in MODES:
        one, several, expected = (
            scanned(Scanner(log, check=check, properties=properties, tuning=steps, backend=backend))
            for backend, steps in ((compiled, tuning), (compiled, threaded), (pure, tuning))
        )
        assert one == several == expected
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


@settings(logs.quick, max_examples=times(120))
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


@settings(logs.quick, max_examples=times(150))
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
        found, expected = link_items(*asked), links_by_sorting(*asked)
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


longs = st.integers(-(2**63), 2**63 - 1)
keys = st.tuples(st.integers(0, 2**31 - 1) | st.integers(0, 9), longs, longs | st.integers(0, 9**9))


@settings(logs.quick)
@given(
    st.lists(st.lists(keys, max_size=40), max_size=4),
    st.integers(-1, 2000),
    st.none() | st.integers(0, 2**31 - 1),
)
def test_items_of_new_index_files(
    batches: list[list[tuple[int, int, int]]], begin: int, first_diff: int | None
) -> None:
    said = []
    for slots in (PureSlots(17), CompiledSlots(compiled_module().Slots(17))):
        packed, first = [], 1
        for batch in batches:
            hashes, places, times_of = np.array(batch, np.int64).reshape(-1, 3).T.copy()
            keys = KeyBatch(hashes.astype(np.int32), places, times_of)
            packed.append(bytes(slots.pack(keys, first, begin, first_diff)))
            first += len(batch)
        said.append((packed, *seen_slots(slots, 17)))
    assert said[0] == said[1]


def seen_slots(slots: NewSlots, count: int) -> tuple[Any, ...]:
    """All that is said of slots, with what they say of others."""
    stored = slots.stored(0, count)
    array = np.frombuffer(stored or bytes(4 * count), ">i4")
    pieces = [slots.stored(slot, 1) for slot in range(count)]
    assert b"".join(piece or bytes(4) for piece in pieces) == array.tobytes()
    assert all(piece is None or any(piece) for piece in (stored, *pieces))
    assert not len(wrong_slots(slots, 0, array)[0])
    others = array.astype(np.int32)
    others[::3] += 1
    wrong, newest = wrong_slots(slots, 0, others)
    assert newest.tolist() == array[wrong].tolist()
    half = count // 2
    later, _ = wrong_slots(slots, half, others[half:])
    assert later.tolist() == [slot for slot in wrong.tolist() if slot >= half]
    return slots.used, array.tolist(), wrong.tolist()


def test_slots_do_not_change_while_somebody_looks_at_them() -> None:
    slots = CompiledSlots(compiled_module().Slots(5))
    keys = KeyBatch(np.array([3], np.int32), np.array([100]), np.array([1000]))
    slots.pack(keys, 1, 0, None)
    stored = slots.stored(0, 5)
    assert stored is not None and stored.readonly
    with pytest.raises(BufferError, match="somebody looks at the slots"):
        slots.pack(keys, 2, 0, None)
    assert bytes(stored) == bytes(3 * 4) + (1).to_bytes(4) + bytes(4)
    with pytest.raises(TypeError):
        stored[0] = 1
    del stored
    slots.pack(keys, 2, 0, None)
    assert bytes(slots.stored(3, 1) or b"") == (2).to_bytes(4)


@settings(logs.quick)
@given(
    st.lists(keys, max_size=60),
    st.integers(-1, 2000),
    st.none() | st.tuples(st.integers(0, 59), st.integers(0, 19), st.integers(1, 255)),
)
def test_proven_items(
    batch: list[tuple[int, int, int]], begin: int, harm: tuple[int, int, int] | None
) -> None:
    hashes, places, times_of = np.array(batch, np.int64).reshape(-1, 3).T.copy()
    keys = KeyBatch(hashes.astype(np.int32), places, times_of)
    packed = bytearray(PureSlots(17).pack(keys, 2, begin, None))
    sound = len(batch)
    if harm is not None and harm[0] < len(batch):
        sound = harm[0]
        packed[20 * sound + harm[1]] ^= harm[2]
    items = np.frombuffer(packed, item_dtype())
    slots = CompiledSlots(compiled_module().Slots(17))
    assert slots.prove(items, keys, 2, begin) == sound
    expected = PureSlots(17)
    expected.pack(keys.part(0, sound), 2, begin, None)
    assert seen_slots(slots, 17) == seen_slots(expected, 17)
    assert PureSlots(17).prove(items, keys, 2, begin) == 0


@settings(logs.quick)
@given(st.binary(max_size=2000), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_links_of_stored_items(data: bytes, links: list[tuple[int, int]]) -> None:
    size = item_dtype().itemsize
    items = np.frombuffer(data[: len(data) // size * size], item_dtype()).copy()
    for (row, previous), item in zip(links, items, strict=False):
        item["key_hash"], item["prev_index_no"] = row % 5, previous % 9
    said = []
    slots: NewSlots
    for slots in (PureSlots(7), CompiledSlots(compiled_module().Slots(7))):
        wrong: list[tuple[list[int], list[int]]] = []
        for part in (items[: len(items) // 2], items[len(items) // 2 :]):
            rows, before = slots.wrong_links(part, 1 if not wrong else 1 + len(items) // 2)
            wrong.append((rows.tolist(), before.tolist()))
        said.append((wrong, *seen_slots(slots, 7)))
    assert said[0] == said[1]


units = st.tuples(
    st.integers(0, 3),
    st.integers(0, 2**31 - 1) | st.integers(0, 2),
    st.integers(0, 9) | st.integers(0, 2**63 - 1),
    st.integers(0, 9) | st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    longs,
)


@settings(logs.quick)
@given(st.lists(st.lists(units, max_size=40), max_size=4), st.booleans())
def test_units_by_queue(batches: list[list[tuple[int, ...]]], in_order: bool) -> None:
    columns = [UnitBatch(*np.array(b, np.int64).reshape(-1, 6).T.copy()) for b in batches]
    if in_order:
        for number, one in enumerate(columns):
            one.queue_offset[:] = one.physical_offset[:] = 99 * number + np.arange(len(one.size))
    said = []
    for choice in ("compiled", "pure"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(kernel.VARIABLE, choice)
            queues = units_by_queue(columns)
            said.append([seen_units(one) for one in queues if isinstance(one, UnitsOfQueue)])
    assert said[0] == said[1]


def seen_units(queue: UnitsOfQueue) -> tuple[Any, ...]:
    """All that is said of a queue's units; the schema agrees with their bytes."""
    rows = [column.tolist() for column in queue.columns()]
    schema = [
        consumequeue.UNIT.build({"physical_offset": at, "size": size, "tags_code": code})
        for at, size, code in zip(*rows[3:], strict=True)
    ]
    assert b"".join(schema) == bytes(queue.stored)
    assert queue.first == (rows[2][0], rows[3][0])
    steps = list(zip(pairwise(rows[2]), pairwise(rows[3]), strict=True))
    assert queue.is_run == all(b == a + 1 and d > c for (a, b), (c, d) in steps)
    return queue.topic_id, queue.queue_id, rows, queue.rows.tolist(), bytes(queue.stored)


def compiled_module() -> ModuleType:
    module = kernel.usable().module
    assert module is not None
    return module
