"""Extension files: written behind each other, rolled at their end, gone on with after a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from formats.constants import MAX_ADDR
from formats.text import tags_code
from rmqctl.engine.consumequeue_ext import ConsumeQueueExt, ext_offset
from rmqctl.engine.getmessage import TagFilter
from rmqctl.engine.message import MessageExtBrokerInner
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.rebuild import plan_rebuild, rebuild_to
from tests.golden_data import tree_content
from tests.test_engine.test_messagestore import SMALL, is_clean, small_store
from tests.test_engine.test_putmessage import full_disk

EXT = replace(
    SMALL,
    enable_consume_queue_ext=True,
    mapped_file_size_consume_queue_ext=96,
    enable_lmq=True,
    enable_multi_dispatch=True,
)


def message(number: int) -> MessageExtBrokerInner:
    return MessageExtBrokerInner("T", b"", properties={"TAGS": f"t{number}"})


def units(store: MessageStore) -> list[tuple[int, int]]:
    """(address in the extension, tags code there) of each unit of the queue."""
    queue = store.consume_queue("T", 0)
    assert queue is not None and queue.ext is not None
    found = []
    for _, unit in queue.units(0, queue.max_offset):
        code = queue.tags_code(unit)
        offset = ext_offset(unit.tags_code)
        assert code is not None and offset is not None
        found.append((offset, code))
    return found


@pytest.mark.parametrize("how", ["one by one", "stream", "reopened each time"])
def test_a_file_holds_four_units_and_its_end(tmp_path: Path, how: str) -> None:
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        messages = [message(number) for number in range(10)]
        if how == "stream":
            list(store.put_stream(messages))
        elif how == "one by one":
            store.put_messages(messages)
    if how == "reopened each time":
        for one in messages:
            with small_store(root, EXT) as store:
                assert store.put_message(one).is_ok
    places = [0, 20, 40, 60, 96, 116, 136, 156, 192, 212]
    with MessageStore(root, EXT) as store:
        assert units(store) == [(at, tags_code(f"t{n}")) for n, at in enumerate(places)]
        found = store.get_message("T", 0, 0, 32, TagFilter("t3 || t9"))
        assert [record.queue_offset for record in found.records] == [3, 9]
    files = sorted((root / "consumequeue_ext/T/0").iterdir())
    assert [file.name for file in files] == [f"{n * 96:020d}" for n in range(3)]
    assert files[0].read_bytes()[80:] == b"\xff\xff" + bytes(14)
    assert is_clean(root, EXT)


def test_only_the_messages_own_queue_has_an_extension(tmp_path: Path) -> None:
    root = tmp_path / "s"
    properties = {"TAGS": "a", "INNER_MULTI_DISPATCH": "%LMQ%x"}
    with small_store(root, EXT) as store:
        assert store.put_message(MessageExtBrokerInner("T", b"", properties=properties)).is_ok
        queue = store.consume_queue("%LMQ%x", 0)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None and unit.tags_code == tags_code("a") > MAX_ADDR
        assert len(units(store)) == 1
    assert [path.name for path in (root / "consumequeue_ext").iterdir()] == ["T"]
    assert is_clean(root, EXT)


def test_a_unit_that_no_queue_unit_names_is_written_over(tmp_path: Path) -> None:
    """What a kill between the two stores leaves."""
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        store.put_messages([message(number) for number in range(3)])
    before = tree_content(root / "consumequeue_ext")
    ext = ConsumeQueueExt(root / "consumequeue_ext/T/0", 96, writable_root=root)
    assert ext.put(77, 1, None) is not None
    ext.close()
    assert tree_content(root / "consumequeue_ext") != before
    with small_store(root, EXT) as store:
        assert store.put_message(message(3)).is_ok
        assert units(store)[-1] == (60, tags_code("t3"))
    assert is_clean(root, EXT)


def test_without_room_the_unit_has_the_plain_code(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        assert store.put_message(message(0)).is_ok
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.ext is not None
        with full_disk():
            for number in range(1, 4):
                assert queue.ext.put(number, 1, None) is not None or number > 0
            assert queue.ext.put(4, 1, None) is None, "the next file cannot be made"
    small = replace(EXT, mapped_file_size_consume_queue_ext=23)
    with small_store(tmp_path / "tiny", small) as store:
        assert store.put_message(message(0)).is_ok
        queue = store.consume_queue("T", 0)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None and unit.tags_code == tags_code("t0")
    assert is_clean(tmp_path / "tiny", small)


def test_a_broker_without_the_switch_reads_and_a_rebuild_writes_plain_codes(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        store.put_messages([message(number) for number in range(6)])
    with small_store(root) as store:
        assert store.put_message(message(6)).is_ok
        found = store.get_message("T", 0, 0, 32, TagFilter("t1 || t6"))
        assert [record.queue_offset for record in found.records] == [1, 6]
    assert is_clean(root)
    rebuild_to(plan_rebuild(root, EXT, "queues"), tmp_path / "rebuilt")
    assert not (tmp_path / "rebuilt/consumequeue_ext").exists()


@pytest.mark.parametrize(
    "junk", [b"", b"\x00\x05", b"\x7f\xff" * 48, b"\xff" * 96, b"\x00\x14" * 7]
)
def test_files_with_anything_in_them(tmp_path: Path, junk: bytes) -> None:
    directory = tmp_path / "consumequeue_ext/T/0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(junk)
    ext = ConsumeQueueExt(directory, 96, writable_root=tmp_path)
    address = ext.put(5, 6, -(2**63) + 3)
    if address is not None:
        found = ext.get(address)
        assert found is not None and (found.tags_code, found.msg_store_time) == (5, 6)
    ext.close()
    assert (directory / f"{0:020d}").stat().st_size == len(junk)
