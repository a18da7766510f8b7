"""IndexFile and IndexService: messages one by one or in batches, rolls, and repair after a kill."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.geometry import Geometry
from formats.indexfile import HEADER
from rmqctl.engine.dispatch.batches import KeyBatch
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.header import time_diff_seconds
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.index.links import time_diff_array
from rmqctl.engine.index.mending import repair
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import DamagedStore, FileLengthContradiction
from tests.golden_data import index_contents

GEOMETRY = Geometry(7, 12)

#: One message: physical offset, store timestamp, hashes of its keys.
Message = tuple[int, int, list[int]]


@st.composite
def messages_in_log_order(draw: st.DrawFn) -> list[Message]:
    offset, time = draw(st.integers(0, 1000)), draw(st.integers(0, 2**41))
    found: list[Message] = []
    for _ in range(draw(st.integers(1, 15))):
        hashes = st.sampled_from([0, 1, 7, 14, 2**31 - 1, 12345, 99])
        found.append((offset, time, draw(st.lists(hashes, max_size=5))))
        offset += draw(st.integers(91, 300))
        # Clocks go back, and stand still.
        time = max(0, time + draw(st.integers(-5000, 40000)))
    return found


def service_at(root: Path) -> IndexServiceWriter:
    root.mkdir(exist_ok=True)
    return IndexServiceWriter(root / "index", GEOMETRY, root)


def batch_of(messages: list[Message]) -> KeyBatch:
    rows = [(key, offset, time) for offset, time, keys in messages for key in keys]
    key, offset, time = zip(*rows, strict=True) if rows else ((), (), ())
    return KeyBatch(np.array(key, np.int32), np.array(offset, np.int64), np.array(time, np.int64))


@pytest.mark.parametrize(
    ("stamp", "begin", "seconds"),
    [
        *((5999, 1000, 4), (0, 1000, 0), (5, 0, 0), (-(1 << 63), -1, 0)),
        *(((1 << 63) - 1, 1, (1 << 31) - 1), (-(1 << 63), 1, (1 << 31) - 1)),
    ],
)
def test_the_time_of_an_item_is_that_of_java(stamp: int, begin: int, seconds: int) -> None:
    """A difference that runs over is a large one (``IndexFile#putKey``)."""
    assert time_diff_seconds(stamp, begin) == seconds
    assert time_diff_array(np.array([stamp], np.int64), begin).tolist() == [seconds]


@given(messages_in_log_order(), st.integers(0, 15))
def test_a_batch_writes_what_single_messages_write(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], cut: int
) -> None:
    base = tmp_path_factory.mktemp("index")
    one, many = service_at(base / "one"), service_at(base / "many")
    filled_one, filled_many = [], []
    for offset, time, keys in messages:
        filled_one += one.put_message(keys, offset, time)
    for part in (messages[:cut], messages[cut:]):
        if part:
            filled_many += many.put_batch(batch_of(part), part[-1][0])
    one.close()
    many.close()
    assert index_contents(base / "many/index") == index_contents(base / "one/index")
    assert filled_many == filled_one
    total = sum(len(keys) for _, _, keys in messages)
    room = GEOMETRY.index_num - 1
    # A message without keys makes the next file too, when the one before is full.
    after_full = total > 0 and total % room == 0 and not messages[-1][2]
    assert len(one.paths) == max(1, -(-total // room)) + after_full


@given(messages_in_log_order())
def test_a_message_is_indexed_once_however_often_it_comes(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message]
) -> None:
    base = tmp_path_factory.mktemp("again")
    once, again = service_at(base / "once"), service_at(base / "again")
    for offset, time, keys in messages:
        once.put_message(keys, offset, time)
        again.put_message(keys, offset, time)
        again.put_message(keys, offset, time)
    again.put_batch(batch_of(messages[-1:]), messages[-1][0])
    once.close()
    again.close()
    found, wanted = index_contents(base / "again/index"), index_contents(base / "once/index")
    assert found[: len(wanted)] == wanted
    # When the last file is just full, coming again makes the next one, with its first header.
    assert [pages[0][36:] for _, pages in found[len(wanted) :]] in ([], [b"\0\0\0\1"])


@pytest.mark.parametrize("indexed", range(1, 26))
def test_a_log_that_comes_again_is_indexed_from_where_the_index_ends(
    tmp_path: Path, indexed: int
) -> None:
    """As after a kill: also where the newest file has the items of one message only."""
    messages: list[Message] = [(100 * n, 1000 * n, [n] * (1 + n % 2)) for n in range(26)]
    once, again = service_at(tmp_path / "once"), service_at(tmp_path / "again")
    for offset, time, keys in messages:
        once.put_message(keys, offset, time)
    for offset, time, keys in messages[:indexed]:
        again.put_message(keys, offset, time)
    again.put_batch(batch_of(messages), messages[-1][0])
    once.close()
    again.close()
    assert index_contents(tmp_path / "again/index") == index_contents(tmp_path / "once/index")


def test_a_full_file_is_on_disk_before_there_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a killed process has filled it: a start trusts all files but the newest."""
    killed = service_at(tmp_path)
    for number in range(GEOMETRY.index_num - 1):
        killed.put_message([number], 100 * number, 1000)
    (full,) = (tmp_path / "index").iterdir()
    inode, force, forced = full.stat().st_ino, os.fdatasync, []

    def noted(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == inode:
            forced.append(len(list((tmp_path / "index").iterdir())))
        force(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    service_at(tmp_path).put_message([7], 100_000, 1000)
    assert forced == [1]


@given(messages_in_log_order())
def test_every_key_is_found_newest_first(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message]
) -> None:
    service = service_at(tmp_path_factory.mktemp("query"))
    for offset, time, keys in messages:
        service.put_message(keys, offset, time)
    for wanted in {key for _, _, keys in messages for key in keys}:
        found = [hit.item.physical_offset for hit in service.query(wanted, 0, 2**63 - 1)]
        there = [offset for offset, _, keys in messages for key in keys if key == wanted]
        # An item whose time cannot be told from its seconds may be left out, as in the engine.
        assert found == sorted(found, reverse=True)
        assert set(found) <= set(there)
        if all(time >= messages[0][1] for _, time, _ in messages):
            assert sorted(found) == there
    service.close()


def write_with(messages: list[Message], root: Path) -> Path:
    service = service_at(root)
    for offset, time, keys in messages:
        service.put_message(keys, offset, time)
    service.close()
    return service.paths[-1]


SIX: list[Message] = [
    (0, 10_000, [3, 3]),
    (200, 12_500, [10, 4]),
    (400, 12_400, []),
    (600, 19_000, [3, 17, 5]),
]


@pytest.mark.parametrize("items_written", [0, 1, 3])
@pytest.mark.parametrize("slots_written", range(4))
@pytest.mark.parametrize("known", [0, 1, 2])
def test_repair_takes_back_what_a_kill_left(
    tmp_path: Path, items_written: int, slots_written: int, known: int
) -> None:
    """A writer stores items, then slots, then the header. ``known`` messages are counted when the
    next one's items, and perhaps some of its slots, are stored; only the header is not."""
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    counted, torn = SIX[:known], [SIX[1], SIX[0]][known] if known < 2 else SIX[3]
    if known == 0:
        torn = SIX[0]
    path = write_with(counted, tmp_path / "before") if known else None
    service = service_at(tmp_path / "before")
    if path is None:
        service.last_or_new()
        service.close()
        path = service.paths[-1]
    sound = path.read_bytes()
    after = write_with([*counted, torn], tmp_path / "after").read_bytes()

    killed = bytearray(sound)
    first = max(int.from_bytes(sound[36:40], "big"), 1)
    low = GEOMETRY.item_position(first)
    count = min(items_written, len(torn[2]))
    killed[low : low + 20 * count] = after[low : low + 20 * count]
    if count == len(torn[2]):
        changed = [s for s in range(7) if _slot(sound, s) != _slot(after, s)]
        for slot in changed[:slots_written]:
            at = GEOMETRY.slot_position(slot)
            killed[at : at + 4] = after[at : at + 4]
    path.write_bytes(killed)

    times = {offset: time for offset, time, _ in SIX}
    for _ in range(2):  # a second repair has nothing to do
        file = IndexFileWriter(MappedFile.open_writable(tmp_path / "before", path), GEOMETRY)
        repair(file, times.get)
        file.close()
        assert path.read_bytes() == sound


def _slot(data: bytes, slot: int) -> bytes:
    at = GEOMETRY.slot_position(slot)
    return data[at : at + 4]


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("keys", [[3], [3, 10]])
def test_repair_knows_a_slot_of_which_a_part_was_stored(
    tmp_path: Path, kept: int, keys: list[int]
) -> None:
    """Beyond 255 items a cut value is neither the former nor the new one: by the put, or by an
    earlier repair."""
    geometry = Geometry(7, 600)
    service = IndexServiceWriter(tmp_path / "index", geometry, tmp_path)
    service.put_message([3], 1, 1000)
    for number in range(2, 400):
        service.put_message([4], number, 1000)
    file = service.last_or_new()
    whole = file.mapped.read(0, file.mapped.size)
    service.put_message(keys, 400, 1000)
    position = geometry.slot_position(3)
    stored = file.mapped.read(position, 4)
    assert int.from_bytes(stored) == 399 + len(keys)
    for cut in (stored[:kept] + whole[position + kept : position + 4],
                whole[position : position + kept] + stored[kept:]):  # fmt: skip
        content = bytearray(file.mapped.read(0, file.mapped.size))
        content[:40], content[position : position + 4] = whole[:40], cut
        path = tmp_path / "cut"
        path.write_bytes(content)
        cut_file = IndexFileWriter(MappedFile.open_writable(tmp_path, path), geometry)
        repair(cut_file, lambda offset: 1000)
        assert cut_file.mapped.read(0, len(whole)) == whole
        cut_file.close()
    service.close()


def test_repair_refuses_a_header_that_counts_nothing_but_zeros(tmp_path: Path) -> None:
    path = write_with(SIX[:1], tmp_path / "s")
    with path.open("r+b") as raw:
        raw.seek(36)
        raw.write((9).to_bytes(4, "big"))
    file = IndexFileWriter(MappedFile.open_writable(tmp_path / "s", path), GEOMETRY)
    with pytest.raises(DamagedStore, match="never written"):
        repair(file, lambda _: 0)
    file.close()


def test_a_new_file_inherits_the_end_of_the_one_before(tmp_path: Path) -> None:
    messages = [(n * 100, 50_000 + n * 1000, [n]) for n in range(13)]
    last = write_with(messages, tmp_path / "s")
    first, second = sorted(last.parent.iterdir())
    full, fresh = HEADER.parse(first.read_bytes()), HEADER.parse(second.read_bytes())
    assert (full.index_count, full.end_phy_offset, full.end_timestamp) == (12, 1000, 60_000)
    assert (fresh.begin_phy_offset, fresh.begin_timestamp) == (1100, 61_000)
    # The first item counts its seconds from where the file before ended.
    item = second.read_bytes()[GEOMETRY.item_position(1) :][12:16]
    assert int.from_bytes(item, "big") == 1


def test_a_first_message_without_keys_makes_a_file(tmp_path: Path) -> None:
    path = write_with([(0, 5, [])], tmp_path / "s")
    assert path.stat().st_size == GEOMETRY.file_size
    assert path.read_bytes() == bytes(GEOMETRY.file_size)
    assert len(path.name) == 17


def test_a_count_without_items_is_not_stored(tmp_path: Path) -> None:
    """The engine stores it with the first item (``IndexHeader#incIndexCount``)."""
    full = (0, 5000, list(range(GEOMETRY.index_num - 1)))
    path = write_with([full, (100, 6000, [])], tmp_path / "s")
    head = HEADER.parse(path.read_bytes())
    assert (head.end_timestamp, head.hash_slot_count, head.index_count) == (5000, 0, 0)
    service = service_at(tmp_path / "s")
    service.recover(lambda offset: None)
    assert HEADER.parse(path.read_bytes()) == head
    service.put_message([7], 200, 7000)
    assert HEADER.parse(path.read_bytes()).index_count == 2
    service.close()


def test_another_geometry_is_refused(tmp_path: Path) -> None:
    path = write_with(SIX, tmp_path / "s")
    with pytest.raises(FileLengthContradiction, match="maxHashSlotNum"):
        IndexFile(MappedFile.open(path), Geometry(8, 12))


@pytest.mark.parametrize("batched", [False, True])
def test_a_message_told_again_makes_no_file(tmp_path: Path, batched: bool) -> None:
    """A prepared message has no unit, so every opening dispatches the last one again."""
    service = service_at(tmp_path)
    message: Message = (100, 1000, list(range(GEOMETRY.index_num - 1)))

    def put(message: Message) -> list[int]:
        offset, time, keys = message
        if batched:
            return service.put_batch(batch_of([message]), offset)
        return service.put_message(keys, offset, time)

    assert put(message) == [1000]  # The file is full.
    assert put(message) == []
    assert len(service.paths) == 1
    put((200, 1000, []))
    assert len(service.paths) == 2
    service.close()


@pytest.mark.parametrize(
    "steps",
    [(0, 300, 999, 1000, 1500, 1999, 2700), range(0, 480_000, 60_000)],
    ids=["within seconds", "minutes apart"],
)
def test_a_query_by_time_is_exact_on_store_times(tmp_path: Path, steps: Sequence[int]) -> None:
    """Items know whole seconds since the file's first message; records know milliseconds. The first
    item of a file counts from the end of the file before it."""
    times = [1_700_000_000_000 + step for step in steps]
    clock = iter(times)
    root = tmp_path / "store"
    config = MessageStoreConfig(max_hash_slot_num=7, max_index_num=4)
    with MessageStore(root, config, writable=True, create=True, clock=lambda: next(clock)) as store:
        for number in range(len(times)):
            body = str(number).encode()
            store.put_message(MessageExtBrokerInner("t", body, 0, properties={"KEYS": "k"}))
    with MessageStore(root, config) as store:
        for begin in (0, *(time + step for time in times for step in (0, 1))):
            for end in (1 << 62, *(time - step for time in times for step in (0, 1))):
                found = [
                    match.record.store_timestamp
                    for match in store.query_message("t", "k", begin, end)
                    if match.record is not None
                ]
                assert found == [time for time in reversed(times) if begin <= time <= end]
