"""Tiered storage, of anybody's bytes: read as far as it goes, and no error but rmqctl's own."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import tracemalloc
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats import layouts
from formats.constants import (
    DEFAULT_MAX_HASH_SLOT_NUM,
    DEFAULT_MAX_INDEX_NUM,
    TIERED_INDEX_BEGIN_MAGIC_CODE,
    TIERED_INDEX_END_MAGIC_CODE,
)
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.tiered.files import base_of, cluster_of, hash_of
from rmqctl.engine.tiered.index import CompactedIndexFile, TieredIndexFile
from rmqctl.engine.tiered.metadata import FILE, LOCAL_INDEX, read_metadata
from rmqctl.engine.tiered.store import TieredStore
from rmqctl.errors import ConfigFileUnreadable, RmqctlError
from rmqctl.operations.look.tiered import query_tiered, tiered_rows, walk_tiered
from rmqctl.operations.look.walk import Selection
from rmqctl.operations.verify.tiered import verify_tiered
from tests import golden_data
from tests.seeds import times

HEADER = struct.Struct(layouts.TIERED_INDEX_HEADER.format)
MAGIC_CODES = (TIERED_INDEX_BEGIN_MAGIC_CODE, TIERED_INDEX_END_MAGIC_CODE)
SMALL = settings(
    max_examples=times(60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def test_names_are_those_of_rocketmq() -> None:
    assert (hash_of("DefaultCluster"), hash_of("0")) == ("212d6b50", "cfcd2084")
    assert cluster_of("212d6b50_DefaultCluster") == "DefaultCluster"
    assert cluster_of("212d6b51_DefaultCluster") is None
    assert base_of("cfcd2084" + "0" * 20) == 0
    assert base_of("cfcd2084" + "0" * 19 + "1") is None
    assert base_of(hash_of(str(1 << 64)) + f"{1 << 64:020d}") is None


def everything(file: TieredIndexFile) -> None:
    """Whatever can be asked of a file of the index."""
    size = file.mapped.size
    file.problem()
    items = list(file.items())
    assert len(items) * 28 <= size
    assert len(list(file.unreachable())) <= 1
    for key_hash in (0, 1, -1, 2**31 - 1, -(2**31)):
        assert all(one.key_hash == key_hash for one in file.find(key_hash))


@SMALL
@given(
    st.sampled_from(MAGIC_CODES),
    st.integers(0, 40),
    st.integers(-3, 40),
    st.binary(max_size=1500),
    st.integers(-4, 4),
)
def test_an_index_of_any_bytes(
    tmp_path: Path, magic_code: int, slots: int, items: int, rest: bytes, more: int
) -> None:
    """Headers that fit, or nearly, and anything behind them."""
    path = tmp_path / "index"
    head = HEADER.pack(magic_code, 1, 2, 3, items)
    for item_size in (28, 32):
        size = max(HEADER.size + slots * 8 + max(items, 0) * item_size + more, 0)
        path.write_bytes((head + rest).ljust(size, b"\0")[:size])
        everything(CompactedIndexFile(MappedFile.open(path)))
        everything(TieredIndexFile(MappedFile.open(path), [slots, 20]))


def test_an_index_of_default_size_costs_what_is_in_it(tmp_path: Path) -> None:
    """700 MB of holes, with a header that counts items in all of them."""
    path = tmp_path / "index"
    slots, most = DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
    with path.open("wb") as file:
        file.write(HEADER.pack(TIERED_INDEX_BEGIN_MAGIC_CODE, 1, 2, 1, most - 1))
        file.seek(HEADER.size + 7 * 8)
        file.write(struct.pack(">i", 1))
        file.seek(HEADER.size + slots * 8 + 32)
        file.write(struct.pack(">iiiqiii", 7, 0, 0, 0, 100, 0, 0))
        file.truncate(HEADER.size + slots * 8 + most * 32)
    tracemalloc.start()
    try:
        index = TieredIndexFile(MappedFile.open(path), [slots])
        assert index.problem() is None
        assert [one.size for one in index.find(7)] == [100]
        assert sum(one.size for one in index.items()) == 100
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        (missing,) = index.unreachable()
        assert missing.position == HEADER.size + slots * 8 + 2 * 32
    finally:
        tracemalloc.stop()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 9, 2**63 - 1, -1, "0", "a/b/0", "interop/orders/0", "../../x/y/1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["0", "9", "a/b/0", "interop/orders/0", "size", "baseOffset", "path"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
TABLES = (
    "commitLogFileSegmentTable",
    "consumeQueueFileSegmentTable",
    "indexFileSegmentTable",
    "queueMetadataTable",
    "topicMetadataTable",
)


@SMALL
@given(st.dictionaries(st.sampled_from(TABLES), JSON) | JSON)
def test_metadata_of_any_value(tmp_path: Path, value: object) -> None:
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / FILE).write_text(json.dumps(value))
    (tmp_path / "files").mkdir(exist_ok=True)
    try:
        read_metadata(tmp_path)
    except ConfigFileUnreadable:
        return
    with suppress(RmqctlError):
        store = TieredStore(tmp_path, MessageStoreConfig(), tmp_path / "files")
        assert list(tiered_rows(store))[-1]["type"] == "summary"
        list(verify_tiered(store))


@pytest.fixture(scope="module")
def golden_parts(
    golden_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Path]]:
    """A copy of what tiered storage has of a store, and its files."""
    store = golden_data.unpacked("tiered-killed", golden_directory, golden_data.LATER)
    root = tmp_path_factory.mktemp("tiered")
    for name in ("tiered", LOCAL_INDEX):
        shutil.copytree(store / name, root / name)
    (root / "config").mkdir()
    shutil.copy(store / "config" / FILE, root / "config")
    return root, sorted(path for path in root.rglob("*") if path.is_file())


def test_any_bytes_in_any_file(
    golden_parts: tuple[Path, list[Path]], chance: random.Random
) -> None:
    """Flips, stretches of anything, and cuts; every command comes to its end."""
    root, files = golden_parts
    for _ in range(times(40)):
        path = chance.choice(files)
        whole = path.read_bytes()
        path.write_bytes(damaged(whole, chance))
        with suppress(RmqctlError):
            store = TieredStore(root, MessageStoreConfig())
            for rows in (
                tiered_rows(store),
                walk_tiered(store, Selection(), "base64"),
                query_tiered(store, "orders", "fourth", Selection()),
                verify_tiered(store),
            ):
                assert sum(1 for _ in rows) < 400
        path.write_bytes(whole)


def damaged(whole: bytes, chance: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data)) if data else 0
        kind = chance.randrange(4)
        if kind == 0 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at : at + chance.randint(1, 9)] = chance.randbytes(chance.randint(0, 9))
        elif kind == 2:
            words = (b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(8), b"\x80" + bytes(7))
            word = chance.choice(words)
            data[at : at + len(word)] = word
        else:
            del data[at:]
    return bytes(data)


def test_nothing_that_is_no_file_is_opened(golden_parts: tuple[Path, list[Path]]) -> None:
    """A pipe in place of a segment would let a reader wait for ever."""
    root, files = golden_parts
    log = next(path for path in files if path.parent.name == "COMMIT_LOG")
    local = root / LOCAL_INDEX / "1"
    saved = log.read_bytes()
    log.unlink()
    os.mkfifo(log)
    os.mkfifo(local)
    try:
        found = {
            one.code
            for one in verify_tiered(TieredStore(root, MessageStoreConfig()))
            if hasattr(one, "code")
        }
        assert {"tiered-segment-missing", "tiered-foreign-file", "unreadable-file"} <= found
    finally:
        log.unlink()
        local.unlink()
        log.write_bytes(saved)


def test_units_that_were_never_written_cost_nothing(golden_directory: Path, tmp_path: Path) -> None:
    """A file with a hole that a disk has no room for; of the hole one unit is told."""
    golden = golden_data.unpacked("tiered", golden_directory, golden_data.LATER)
    root = golden_data.copy_tree(golden, tmp_path / "store")
    (path,) = root.glob(f"tiered/*/*/orders/0/CONSUME_QUEUE/*{400:020d}")
    stored = path.read_bytes()
    # Behind the hole one unit more, with its end cut off.
    hole = 1 << 26
    os.truncate(path, hole // 20 * 20)
    with path.open("ab") as file:
        file.write(stored[:30])
    (queue,) = TieredStore(root, MessageStoreConfig()).queues("orders", 0)
    with closing(queue):
        found = list(islice(queue.units(), 1000))
    assert len(found) < 1000
    offsets = [unit.queue_offset for unit in found]
    assert offsets == sorted(set(offsets)) and offsets[:31] == [*range(31)]
    assert offsets[-1] == 20 + hole // 20
    assert found[-1][1:] == found[20][1:] and found[30][1:] == (0, 0, 0)
    errors = list(verify_tiered(TieredStore(root, MessageStoreConfig())))
    assert "tiered-unit-mismatch" in {getattr(one, "code", None) for one in errors}
