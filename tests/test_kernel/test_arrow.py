"""The kernel makes the Arrow columns that numpy makes: all of them, of golden, damaged and any
bytes."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl import kernel
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.scan.backend import backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning
from rmqctl.rows.columns import STRUCTURES, Source
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
from tests.test_kernel.test_equal import pieces

pytest.importorskip("pyarrow", reason="pip install '.[arrow]'")

import pyarrow as pa

from rmqctl.arrow.arrays import _PREFIX, ARROW_TYPES, arrow_schema, message_batch

pytestmark = pytest.mark.usefixtures("compiled")

NAMES = [column.name for column in STRUCTURES["commitlog"]]
SOURCE = Source("/data/store", "broker-a")
#: Fields that say nothing of where others lie.
FREE = ["flag", "born_timestamp", "born_address", "born_port", "store_timestamp", "store_address",
        "store_port", "reconsume_times", "prepared_transaction_offset"]  # fmt: skip


def made(batch: Batch, names: list[str], choice: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        rows = message_batch(batch, arrow_schema("commitlog", names), SOURCE)
    rows.validate(full=True)
    return rows


def values(column: Any) -> list[Any]:
    """What a column has, maps in any order; that of times too which Python has not."""
    if pa.types.is_map(column.type):
        return [(len(value), dict(value)) for value in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def batches_of(log: CommitLog, tuning: ScanTuning = DEFAULT) -> list[Batch]:
    scan = Scanner(log, check=True, properties=False, tuning=tuning, backend=backends()["pure"])
    return [entry for entry in scan.scan() if isinstance(entry, Batch)]


def assert_equal(log: CommitLog, tuning: ScanTuning = DEFAULT) -> None:
    for batch in batches_of(log, tuning):
        chosen = batch.where(np.arange(len(batch)) % 3 != 1)
        for records, names in ((batch, NAMES), (chosen, NAMES[::-1]), (batch, ["tags_code"])):
            found, expected = (made(records, names, choice) for choice in ("compiled", "pure"))
            for name in names:
                assert values(found[name]) == values(expected[name]), name


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


def with_fields(file: bytes, start: int, size: int, drawn: random.Random) -> bytes:
    """A file of a log, with bytes of anybody in the fields of some of its records that may have
    any."""
    data = bytearray(file)
    with TemporaryDirectory() as directory:
        for batch in batches_of(logs.write(Path(directory), {0: file}, size)):
            for position, flags in zip(batch.position, batch.sys_flag, strict=True):
                for name in drawn.sample(FREE, drawn.choice((0, 1, len(FREE)))):
                    fields = _PREFIX[int(flags) & 48].fields
                    assert fields is not None
                    kind, at = fields[name][:2]
                    few = drawn.choice((b"\0", b"\xff", drawn.randbytes(1)))
                    value = drawn.choice((drawn.randbytes(kind.itemsize), few * kind.itemsize))
                    data[position + at : position + at + kind.itemsize] = value
    return bytes(data)


@settings(logs.quick, max_examples=times(120))
@given(
    logs.logs, st.lists(st.tuples(st.integers(0, 4095), pieces), max_size=4), st.integers(0, 2**32)
)
def test_any_bytes(records: list[Any], writes: list[tuple[int, bytes]], seed: int) -> None:
    size = 4096
    file = with_fields(bytes(logs.build_log(records, size)[0]), 0, size, random.Random(seed))
    data = bytearray(file)
    for at, piece in writes:
        data[at : at + len(piece)] = piece
    with TemporaryDirectory() as directory:
        assert_equal(logs.write(Path(directory), {0: bytes(data[:size])}, size), logs.SMALL_STEPS)


def test_every_column_is_made_where_nothing_is_odd(golden: Golden, compiled: ModuleType) -> None:
    """And where something is, that column alone is left."""
    from rmqctl.engine.scan.buffers import column_buffers

    assert set(compiled.ARROW_COLUMNS) <= set(NAMES)
    with MessageStore(golden("basic"), broker_conf("basic")) as store:
        for batch in batches_of(store.commit_log):
            data = np.frombuffer(batch.mapped.buffer, np.uint8)
            found = column_buffers(batch, data, NAMES)
            assert set(found) == set(compiled.ARROW_COLUMNS)
            batch.store_timestamp = batch.store_timestamp.copy()
            batch.store_timestamp[-1] = 2**62
            assert set(found) - set(column_buffers(batch, data, NAMES)) == {"store_time"}
            batch.position = batch.position + len(data)
            assert column_buffers(batch, data, NAMES) == {}


def test_columns_keep_their_memory(golden: Golden) -> None:
    """Memory of batches that are gone is used again, and never that of one that is there."""
    with MessageStore(golden("basic"), broker_conf("basic")) as store:
        (batch, *_) = batches_of(store.commit_log)
        kept = [made(batch, NAMES, "compiled") for _ in range(3)]
        view, expected = kept[0]["body"].buffers()[2], kept[0].to_pylist()
        said = view.to_pybytes()
        del kept[1:]
        gc.collect()
        others = [made(batch.where(batch.position > 0), NAMES, "compiled") for _ in range(5)]
        assert kept[0].to_pylist() == expected == made(batch, NAMES, "pure").to_pylist()
        del kept, others
        gc.collect()
        made(batch.where(batch.position > 0), NAMES, "compiled")
        assert view.to_pybytes() == said and not view.is_mutable


def test_the_types_are_those_of_the_columns() -> None:
    assert {column.type for column in STRUCTURES["commitlog"]} == set(ARROW_TYPES)
