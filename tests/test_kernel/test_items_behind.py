"""Index items that the kernel stores beside whatever comes next: nobody sees the index without
them, and nothing ends before they are there."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from formats.constants import INT_MAX
from formats.geometry import Geometry
from rmqctl import kernel
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.header import HEADER
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from tests.test_kernel.alike import assert_alike, files_of
from tests.test_kernel.test_single import NOW

pytestmark = pytest.mark.usefixtures("compiled")

_SIZES = "mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=100\nmaxIndexNum="
#: One index file has the items of all bulks, and one has a part of a bulk's.
LARGE, SMALL = (parse_broker_conf(f"{_SIZES}{number}") for number in (200_000, 12_000))
BULK = 1 << 15
#: Two full bulks, and one that is not.
COUNT = 2 * BULK + 6_000


def sent(count: int = COUNT) -> Iterator[MessageExtBrokerInner]:
    for number in range(count):
        properties = {"KEYS": f"k{number} all", "TAGS": f"g{number % 3}"}
        yield MessageExtBrokerInner("t", b"body", number % 3, properties=properties)


def created(path: Path, config: MessageStoreConfig = LARGE) -> WritableStore:
    return MessageStore(path, config, writable=True, create=True, clock=lambda: NOW)


def found(store: MessageStore, number: int) -> int:
    return len(list(store.query_message("t", f"k{number}")))


@pytest.mark.parametrize("config", [LARGE, SMALL], ids=["one file", "several files"])
def test_both_engines_store_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: MessageStoreConfig
) -> None:
    def run(choice: str) -> Any:
        monkeypatch.setenv(kernel.VARIABLE, choice)
        root = tmp_path / choice
        with created(root, config) as store:
            results = [result for bulk in store.put_stream(sent(), flush=False) for result in bulk]
            assert len(results) == COUNT
        return [], files_of(root)

    assert_alike(run)


def test_a_bulk_that_was_answered_is_found(tmp_path: Path) -> None:
    """By the store itself at once, also where single puts come between; by others when the source
    has no more."""
    count = 0
    with created(tmp_path / "store") as store:
        for bulk in store.put_stream(sent(), flush=False):
            count += len(bulk)
            assert found(store, count - 1) == 1 and found(store, count) == 0
            properties = {"KEYS": f"between{count}"}
            between = MessageExtBrokerInner("t", b"", 0, properties=properties)
            assert store.put_message(between, flush=False).is_ok
            assert len(list(store.query_message("t", f"between{count}"))) == 1
        assert count == COUNT
        with MessageStore(tmp_path / "store", LARGE) as other:
            assert [found(other, number) for number in (0, BULK, count - 1)] == [1, 1, 1]


def test_what_is_flushed_is_all_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file is forced to disk when it has the items, and the header that counts them."""
    counts = []
    flush = MappedFile.flush

    def noted(mapped: MappedFile) -> None:
        if mapped.path.parent.name == "index":
            counts.append(int.from_bytes(mapped.read(HEADER.size - 4, 4), "big"))
        flush(mapped)

    monkeypatch.setattr(MappedFile, "flush", noted)
    with created(tmp_path / "store") as store:
        messages = 0
        for bulk in store.put_stream(sent(), flush=False):
            messages += len(bulk)
            store.flush_structures(["index"])
            # The number of the next item; each message has two.
            assert counts[-1] == 2 * messages + 1


def test_a_large_batch_is_found_by_others_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its answer does not come before its items are there."""
    said = []
    for name in ("put_key_run", "settle"):
        was = getattr(IndexFileWriter, name)

        def noted(file: IndexFileWriter, *given: Any, name: str = name, was: Any = was) -> Any:
            said.append(name)
            return was(file, *given)

        monkeypatch.setattr(IndexFileWriter, name, noted)
    root, keys = tmp_path / "store", " ".join(f"k{number}" for number in range(3_000))
    with created(root) as store:
        for number in range(100):  # The kernel has batches from some puts on.
            assert store.put_batch([message_with(f"few{number}")], flush=False).is_ok
        for batches in range(1, 9):
            said.clear()
            assert store.put_batch([message_with(keys)] * 4, flush=False).is_ok
            assert said[0] == "put_key_run" and said[-1] == "settle"
            with MessageStore(root, LARGE) as other:
                assert len(list(other.query_message("t", "k2999"))) == 4 * batches


def message_with(keys: str) -> MessageExtBrokerInner:
    return MessageExtBrokerInner("t", b"body", properties={"KEYS": keys})


def test_a_count_of_slots_that_runs_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody checks that field of a file: it is another number then, as Java's is."""

    def run(choice: str) -> Any:
        monkeypatch.setenv(kernel.VARIABLE, choice)
        root = tmp_path / choice
        with created(root) as store:
            assert store.put_message(message_with("first"), flush=False).is_ok
        (path,) = root.glob("index/*")
        count = HEADER.size - 8
        with path.open("r+b") as file:
            file.seek(count)
            file.write(INT_MAX.to_bytes(4, "big"))
        with created(root) as store:
            for number in range(200):
                assert store.put_message(message_with(f"few{number}"), flush=False).is_ok
            assert sum(len(bulk) for bulk in store.put_stream(sent(), flush=False)) == COUNT
            assert found(store, COUNT - 1) == 1
        assert int.from_bytes(path.read_bytes()[count : count + 4], "big", signed=True) < 0
        return [], files_of(root)

    assert_alike(run)


def test_a_fork_has_no_part_in_it(tmp_path: Path) -> None:
    """A child that is made while items are stored has nobody who does it, and waits for nobody; the
    parent's are stored."""
    children: list[int] = []

    def forking() -> Iterator[MessageExtBrokerInner]:
        for number, message in enumerate(sent()):
            if number == BULK + 100:
                child = os.fork()
                if not child:
                    store.close()
                    os._exit(0)
                children.append(child)
            yield message

    with created(tmp_path / "store") as store:
        stored = sum(len(bulk) for bulk in store.put_stream(forking(), flush=False))
        assert stored == COUNT and found(store, COUNT - 1) == 1
        end = time.monotonic() + 60
        while (ended := os.waitpid(children[0], os.WNOHANG)) == (0, 0):
            if time.monotonic() > end:
                os.kill(children[0], 9)
                pytest.fail("the child waits for a thread that it has not")
            time.sleep(0.01)
        assert ended[1] == 0


# --- the class itself --------------------------------------------------------------------------

GEOMETRY = Geometry(1000, 10_000)
KEYS = 9_000
BEFORE, BEHIND = (0, 0, 0, 0, 0, 1), (NOW, NOW, 0, KEYS, 0, KEYS + 1)


def run_of(module: ModuleType, memory: bytearray, keys: int = KEYS) -> Any:
    hashes, offsets = array("i", range(keys)), array("q", range(keys))
    columns = tuple(
        bytearray(column.tobytes()) for column in (hashes, offsets, array("q", [NOW]) * keys)
    )
    slots, items = GEOMETRY.slot_position(0), GEOMETRY.item_position(0)
    where = memory, slots, GEOMETRY.hash_slot_num, items, 1
    return module.ItemRun(*where, columns, 0, keys, 0, BEFORE, BEHIND)


def test_the_memory_is_held_until_it_ends(compiled: ModuleType) -> None:
    memory = bytearray(GEOMETRY.file_size)
    run = run_of(compiled, memory)
    assert run.fields == run.fields == (NOW, NOW, 0, KEYS, 1000, KEYS + 1)
    whole = bytes(memory)
    memory.append(0)  # It is let go.
    dropped = bytearray(GEOMETRY.file_size)
    del run
    run_of(compiled, dropped)  # Who drops it waits, too.
    dropped.append(0)
    assert bytes(dropped[:-1]) == whole


def test_a_bug_in_it_is_told_whoever_asks(compiled: ModuleType, tmp_path: Path) -> None:
    """Nobody goes on behind items of which nobody knows whether they are there; the file is closed
    all the same, and ``abort`` stays for the next start."""
    run = run_of(compiled, bytearray(GEOMETRY.item_position(0) + 100))
    store = created(tmp_path / "store")
    assert store.put_message(message_with("first"), flush=False).is_ok
    file = store.index.last()
    assert file is not None
    file.live = run
    for _ in range(2):
        with pytest.raises(compiled.KernelPanic):
            store.put_message(message_with("second"), flush=False)
    with pytest.raises(compiled.KernelPanic):
        store.close()
    assert file.mapped.descriptor < 0 and (tmp_path / "store" / "abort").exists()
    with created(tmp_path / "store") as again:
        queue = again.queues.find("t", 0)
        assert queue is not None
        matches = list(again.query_message("t", "second"))
        assert len(matches) == queue.max_offset - 1 > 0


def test_who_waits_changes_nothing(tmp_path: Path) -> None:
    """A thread that asks for keys while another one puts must not bring an older header back."""
    with created(tmp_path / "store") as store:
        assert store.put_message(next(sent()), flush=False).is_ok
        newest = store.index.last()
        assert newest is not None
        file: IndexFileWriter = newest
        older, newer = file.header, file.header._replace(index_count=7)

        class Live:
            """What the other thread has meanwhile replaced."""

            @property
            def fields(self) -> tuple[int, ...]:
                file.store_header(newer)
                return older

        file.live = Live()
        file.settle()
        assert file.header == newer
        file.store_header(older)
