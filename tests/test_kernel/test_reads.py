"""Single records, lookups by key and their rows: the kernel says what the pure engine says."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.geometry import Geometry
from formats.text import index_key_hash
from rmqctl import kernel
from rmqctl.engine.dispatch.rules import message_keys
from rmqctl.engine.files.holes import is_whole
from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.index import indexservice
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.index.lookup import CompiledLookup, FileLookup
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read import getmessage
from rmqctl.engine.read.getmessage import get_message
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record, read_entry_of
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotRead
from rmqctl.operations.look.index import query
from tests.conftest import Golden
from tests.descriptors import open_descriptors
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

pytestmark = pytest.mark.usefixtures("compiled", "kernel_is_soon_asked")

LATE = 2**63 - 1
#: Cases in which the index is damaged, or the log, and a store opens.
INDEX_CASES = [name for name in DAMAGE_CASES if "index" in name or "record" in name]
QUEUE_CASES = [name for name in DAMAGE_CASES if "queue" in name or "unit" in name]
SMALL = Geometry(3, 8)


@pytest.fixture(autouse=True, scope="module")
def asked_for() -> Iterator[None]:
    """Also where the suite runs with the pure engine, there is something to compare it with."""
    with pytest.MonkeyPatch.context() as patch:
        if kernel.usable().module is not None:
            patch.setenv(kernel.VARIABLE, "compiled")
        yield


def keys_of(store: MessageStore) -> Iterator[tuple[str, str]]:
    for entry in store.commit_log.walk():
        if isinstance(entry, Record):
            for key in message_keys(entry.properties):
                yield entry.topic, key


def answers(root: Path, name: str, asked: list[tuple[str, str]]) -> list[Any]:
    """What a store that stays open says of every key, and of one that nobody has."""
    said: list[Any] = []
    with MessageStore(root, broker_conf(name)) as store:
        for topic, key in [*asked, ("nobody", "nothing"), *asked[:9]]:
            try:
                said.append(list(query(store, topic, key, max_messages=1 + len(said) % 3)))
            except CannotRead as error:
                said.append(str(error))
    return said


def assert_keys_equal(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore(root, broker_conf(name)) as store:
        asked = list(dict.fromkeys(keys_of(store)))[:60]
    compiled = answers(root, name, asked)
    monkeypatch.setenv(kernel.VARIABLE, "pure")
    assert answers(root, name, asked) == compiled


@pytest.mark.parametrize("name", STORES)
def test_keys_of_golden_stores(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_keys_equal(golden(name), name, monkeypatch)


@pytest.mark.parametrize("name", INDEX_CASES)
def test_keys_of_damaged_stores(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    assert_keys_equal(root, case["base"], monkeypatch)


numbers = st.integers(-2, 10) | st.integers(-(2**31), 2**31 - 1)
stamps = st.integers(-3000, 9000) | st.integers(-(2**63), LATE)
item = st.builds(
    struct.Struct(">iqii").pack, st.integers(0, 4), stamps, st.integers(-3, 9) | numbers, numbers
)


@settings(logs.quick, max_examples=times(60))
@given(
    st.tuples(stamps, stamps, stamps, stamps, numbers, numbers),
    st.lists(numbers, min_size=SMALL.hash_slot_num, max_size=SMALL.hash_slot_num),
    st.lists(item, min_size=SMALL.index_num, max_size=SMALL.index_num),
    st.integers(0, 4),
    st.tuples(stamps, stamps),
    st.booleans(),
)
def test_any_index_file(
    header: tuple[int, ...],
    slots: list[int],
    items: list[bytes],
    key_hash: int,
    asked: tuple[int, int],
    is_growing: bool,
) -> None:
    data = struct.pack(">4q2i", *header) + struct.pack(f">{len(slots)}i", *slots) + b"".join(items)
    module = kernel.module()
    assert module is not None
    with TemporaryDirectory() as place:
        path = Path(place) / "20260101000000000"
        path.write_bytes(data)
        by_reading = FileLookup(path, SMALL)
        lookup = CompiledLookup(module, by_reading)
        begin, end = asked
        found = lookup(key_hash, begin, end, is_growing=is_growing)
        wanted = by_reading(key_hash, begin, end, is_growing=is_growing)
        assert found.begin_timestamp == wanted.begin_timestamp
        items_found = list(wanted.items)
        assert list(found.items) == items_found
        by_reading.mapped.close()


@pytest.mark.parametrize("count", [2, 60, 300])
def test_many_items_of_a_key(count: int, compiled: ModuleType, tmp_path: Path) -> None:
    """More than the kernel gives at once are given one call after the other."""
    geometry, key_hash = Geometry(2, count), index_key_hash("topic", "key")
    slots = [0, 0]
    slots[key_hash % 2] = count - 1
    items = [struct.pack(">iqii", key_hash, 100 * n, 0, n - 1) for n in range(count)]
    header = struct.pack(">4q2i", 1000, 2000, 0, 0, 1, count)
    (tmp_path / "20260101000000000").write_bytes(
        header + struct.pack(">2i", *slots) + b"".join(items)
    )
    service = IndexService(tmp_path, geometry)
    newest_first = list(range(count - 1, 0, -1))
    for _ in range(3):
        found = service.query(key_hash, 0, LATE)
        assert [hit.index_no for hit in found] == newest_first
    assert service.compiled is compiled
    asked: list[int] = []
    other = record_of("other")
    files: dict[int, Any] = {n: FileOf(other, n, asked) for n in range(0, 100 * count, 100)}
    wanted = partial(service.rows_of_key, compiled.Rows([]), files.__getitem__, "topic", "key")
    assert wanted(0, 9) == (([], count - 1) if count <= 64 else None)
    assert asked == ([100 * n for n in newest_first] if count <= 64 else [])
    assert wanted(3000, 9) == ([], 0)
    service.close()


class FileOf:
    """A file of the log that begins at an offset with a record, as a ``MappedFile`` tells it."""

    def __init__(self, record: bytes, offset: int, asked: list[int]) -> None:
        self.buffer = record[:20] + struct.pack(">q", offset).rjust(16, b"\0") + record[36:]
        self.file_from_offset, self.size, self.whole = offset, len(record), (0, len(record))
        self._asked = asked

    def load_entry(self, position: int) -> None:
        self._asked.append(self.file_from_offset + position)


def record_of(key: str) -> bytes:
    """A record with a key."""
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 16)
    where = partial(MessageStore, writable=True, create=True)
    with TemporaryDirectory() as place, where(place, config) as store:
        store.put_message(MessageExtBrokerInner("topic", b"", 0, properties={"KEYS": key}))
        data = next((Path(place) / "commitlog").iterdir()).read_bytes()
    return data[: int.from_bytes(data[:4], "big")]


def test_rows_are_those_of_the_asked_number(tmp_path: Path, compiled: ModuleType) -> None:
    """The newest ones, in log order; every row's properties are its own."""
    messages = [
        MessageExtBrokerInner("t", b"", 0, properties={"KEYS": f"key {n}", "n": str(n)})
        for n in range(30)
    ]
    with MessageStore(tmp_path, writable=True, create=True) as store:
        store.put_messages(messages)
    said = []
    for choice in ("pure", "compiled"):
        with pytest.MonkeyPatch.context() as patch, MessageStore(tmp_path) as store:
            patch.setenv(kernel.VARIABLE, choice)
            answers = []
            for _ in range(indexservice._MANY_QUERIES):
                for most in (-1, 0, 1, 7, 30, 64, 1 << 70):
                    answers.append([*query(store, "t", "key", max_messages=most)])
                    changed = [*query(store, "t", "key", max_messages=3)]
                    changed[0]["properties"].clear()  # type: ignore[typeddict-item]
            said.append(answers)
            assert store.index.compiled is (compiled if choice == "compiled" else None)
    assert said[0] == said[1]
    assert [row.get("queue_offset") for row in said[0][3]] == [*range(23, 30), None]


def test_what_is_no_utf8_is_asked_for(golden: Golden, compiled: ModuleType) -> None:
    """Lone surrogates are what an argument has of other bytes; the kernel has no such text."""
    with MessageStore(golden("basic"), broker_conf("basic")) as store:
        for topic, key in 3 * [("\udcff", "key"), ("topic", "\udcff")]:
            (summary,) = query(store, topic, key)
            assert summary["type"] == "summary"
        assert store.index.compiled is compiled
        rows = compiled.Rows([])
        assert (
            store.index.rows_of_key(rows, store.commit_log.files.find, "\udcff", "key", 0, 9)
            is None
        )


@pytest.fixture
def kernel_is_soon_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second lookup on, where it is loaded after many."""
    monkeypatch.setattr(indexservice, "_MANY_QUERIES", 2)


def one_index(golden: Golden, tmp_path: Path) -> tuple[Path, str, tuple[str, str]]:
    """A copy of a store with an index, the name of its original, and a key of it."""
    for name in STORES:
        with MessageStore(golden(name), broker_conf(name)) as store:
            asked = next(keys_of(store), None)
            if asked is not None and store.index.paths:
                return copy_tree(golden(name), tmp_path / "store"), name, asked
    raise AssertionError("no golden store has an index")


@pytest.mark.parametrize("choice", ["pure", "compiled"])
def test_a_file_that_shrinks_is_told(
    choice: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files stay open between lookups: one that somebody cuts ends none of them by a signal."""
    monkeypatch.setenv(kernel.VARIABLE, choice)
    root, name, (topic, key) = one_index(golden, tmp_path)
    with MessageStore(root, broker_conf(name)) as store:
        whole = [list(query(store, topic, key)) for _ in range(3)]
        assert whole[0] == whole[2]
        assert whole[0][0]["type"] == "message"
        for size in (60, 10, 0):
            for path in store.index.paths:
                os.truncate(path, size)
            with pytest.raises(CannotRead, match="shorter"):
                list(query(store, topic, key))


@pytest.mark.parametrize("choice", ["pure", "compiled"])
def test_a_file_stays_open(
    choice: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention that removes a file between two lookups takes it from nobody who has it."""
    monkeypatch.setenv(kernel.VARIABLE, choice)
    root, name, (topic, key) = one_index(golden, tmp_path)
    with MessageStore(root, broker_conf(name)) as store:
        before = [list(query(store, topic, key)) for _ in range(2)]
        for path in store.index.paths:
            path.unlink()
        assert list(query(store, topic, key)) == before[0]
        store.close()
        with pytest.raises(ValueError, match="closed"):
            list(query(store, topic, key))


def test_no_more_files_are_open_than_are_kept(tmp_path: Path) -> None:
    header = struct.pack(">4q2i", 1000, 2000, 0, 0, 1, 1)
    for number in range(40):
        path = tmp_path / f"{20260101000000000 + number}"
        path.write_bytes(header.ljust(SMALL.file_size, b"\0"))
    service = IndexService(tmp_path, SMALL)
    before = open_descriptors()
    for _ in range(3):
        assert list(service.query(5, 0, LATE)) == []
    assert len(os.listdir("/proc/self/fd")) - before <= 16
    service.close()
    assert len(os.listdir("/proc/self/fd")) == before


def assert_records_equal(log: CommitLog, module: ModuleType) -> int:
    """How many records the kernel has read, at places where one is and beside them."""
    read = 0
    for number in range(len(log.files.entries)):
        mapped = log.files.file(number)
        for position in (at + beside for at in walked(log, number) for beside in (0, 1, 4)):
            is_whole(mapped, position, position + 1)
            low, high = mapped.whole
            if not low <= position < high:
                continue
            readable, start = min(high, mapped.size), mapped.file_from_offset
            record = module.record_at(Record, mapped.buffer, position, readable, start)
            if record is not None:
                read += 1
                assert type(record) is Record
                assert record == read_entry_of(mapped, position)
    return read


def walked(log: CommitLog, number: int) -> Iterator[int]:
    entry = log.files.entries[number]
    end = entry.file_from_offset + entry.size
    for one in log.walk(entry.file_from_offset, end):
        yield one.physical_offset - entry.file_from_offset


@pytest.mark.parametrize("name", STORES)
def test_records_of_golden_stores(name: str, golden: Golden, compiled: ModuleType) -> None:
    with MessageStore(golden(name), broker_conf(name)) as store:
        log = store.commit_log
        count = sum(isinstance(entry, Record) for entry in log.walk())
        assert assert_records_equal(log, compiled) == count


@settings(logs.quick, max_examples=times(40))
@given(logs.logs, st.lists(logs.harm, max_size=4))
def test_records_of_any_log(records: list[Any], harms: list[Any]) -> None:
    module = kernel.module()
    assert module is not None
    size = 1024
    files = logs.build_log(records, size)
    with TemporaryDirectory() as directory:
        log = logs.write(Path(directory), logs.damage(files, harms), size)
        assert_records_equal(log, module)


def test_many_single_records_are_read_by_the_kernel(golden: Golden) -> None:
    """``find_record`` loads it when it is worth it, and says the same before and after."""
    name = STORES[0]
    with MessageStore(golden(name), broker_conf(name)) as store:
        log = store.commit_log
        places = [one.physical_offset for one in log.walk() if isinstance(one, Record)][:5]
        before = [log.find_record(place) for place in places]
        assert not vars(log)["compiled"]
        for _ in range(100):
            assert [log.find_record(place) for place in places] == before
        assert vars(log)["compiled"]
        assert log.find_record(-1) is None
        assert log.find_record(places[0] + 1) is None
        assert log.find_record(log.files.end_offset) is None


#: Messages, bytes of the broker's memory.
PULLS = [(32, None), (1, 0), (5, 1 << 40), (1000, 0), (0, None), (-3, None), (1 << 40, 0)]


def assert_answers_equal(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of every queue answer by answer; how many records the kernel gave."""
    monkeypatch.setattr(store.commit_log, "compiled", kernel.module())
    given = 0
    for where in list(store.queues.directories()):
        queue = store.consume_queue(where.topic, where.queue_id)
        assert queue is not None
        for most, memory in PULLS:
            offset = queue.min_offset
            for _ in range(40):
                ask = partial(
                    get_message, store, where.topic, where.queue_id, offset, most,
                    physical_memory=memory,
                )  # fmt: skip
                answer = ask()
                given += len(answer.records)
                # What filters nothing is answered by the pure engine.
                assert answer == ask(message_filter=TagFilter("*"))
                if answer.next_begin_offset <= offset:
                    break
                offset = answer.next_begin_offset
    return given


@pytest.mark.parametrize("name", STORES)
def test_answers_of_golden_stores(
    name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore(golden(name), broker_conf(name)) as store:
        assert_answers_equal(store, monkeypatch)


@pytest.mark.parametrize("name", QUEUE_CASES)
def test_answers_of_damaged_stores(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    with MessageStore(root, broker_conf(case["base"])) as store:
        assert_answers_equal(store, monkeypatch)


def test_the_kernel_gives_answers(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is odd nobody else is asked."""
    name = STORES[0]
    with MessageStore(golden(name), broker_conf(name)) as store:
        monkeypatch.setattr(store.commit_log, "compiled", kernel.module())
        monkeypatch.setattr(getmessage, "_collect", None)
        where = next(iter(store.queues.directories()))
        queue = store.consume_queue(where.topic, where.queue_id)
        assert queue is not None
        answer = get_message(store, where.topic, where.queue_id, queue.min_offset, 1)
        assert answer.records
        assert all(type(record) is Record for record in answer.records)


@pytest.mark.parametrize(
    ("topic", "key"),
    [("TopicTest", "Key"), ("", ""), ("тема", "клю́ч"), ("%RETRY%a", "\U0001f600"), ("a", "b" * 99)],
)
def test_hashes_of_keys(topic: str, key: str, compiled: ModuleType) -> None:
    assert compiled.index_key_hash(topic, key) == index_key_hash(topic, key)
