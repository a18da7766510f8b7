"""Extension files: written behind each other, rolled at their end, gone on with after a stop."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from formats.constants import MAX_ADDR
from formats.text import tags_code
from rmqctl.engine.consumequeue_ext import ConsumeQueueExt, ext_offset
from rmqctl.engine.getmessage import TagFilter
from rmqctl.engine.message import MessageExtBrokerInner
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.missing import add_missing
from rmqctl.operations.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import Finding, verify
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


@pytest.mark.parametrize("missing", [2, 12])
def test_an_address_that_a_kill_has_cut_is_written_again(tmp_path: Path, missing: int) -> None:
    """By the bulk of a catching up, too: with more than a few records missing."""
    root = extension_store(tmp_path / "s")
    before = {name: tree_content(root / name) for name in ("consumequeue", "consumequeue_ext")}
    for queue_id in (0, 1):
        files = sorted((root / f"consumequeue/T/{queue_id}").iterdir())
        data = bytearray(b"".join(file.read_bytes() for file in files))
        end = (12 - missing // 2) * 20
        data[end - 4 :] = bytes(len(data) - end + 4)
        for number, file in enumerate(files):
            file.write_bytes(data[number * 200 : number * 200 + 200])
    (root / "abort").touch()
    small_store(root, EXT).close()
    assert before == {name: tree_content(root / name) for name in before}


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


def test_a_broker_without_the_switch_reads_and_writes_plain_codes(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        store.put_messages([message(number) for number in range(6)])
    with small_store(root) as store:
        assert store.put_message(message(6)).is_ok
        found = store.get_message("T", 0, 0, 32, TagFilter("t1 || t6"))
        assert [record.queue_offset for record in found.records] == [1, 6]
    assert is_clean(root)


def extension_store(root: Path) -> Path:
    """Two queues with an extension over some files, and light queues without one."""
    with small_store(root, EXT) as store:
        for number in range(24):
            one = message(number)
            one.queue_id = number % 2
            if number % 5 == 0:
                one.properties["INNER_MULTI_DISPATCH"] = "%LMQ%x,U"
            assert store.put_message(one).is_ok
    return root


@pytest.mark.parametrize("said", [True, False])
def test_a_rebuild_writes_the_extension_as_the_puts_did(tmp_path: Path, said: bool) -> None:
    """With the switch, or for a store that has an extension."""
    root = extension_store(tmp_path / "s")
    config = EXT if said else replace(EXT, enable_consume_queue_ext=False)
    rebuild_to(plan_rebuild(root, config, "queues"), tmp_path / "rebuilt")
    for name in ("consumequeue", "consumequeue_ext"):
        assert tree_content(tmp_path / "rebuilt" / name) == tree_content(root / name)
    assert len(tree_content(root / "consumequeue_ext")) == 6


def test_a_broker_conf_without_the_switch_has_plain_codes_rebuilt(tmp_path: Path) -> None:
    root = extension_store(tmp_path / "s")
    explicit = EXT.explicit | {"enable_consume_queue_ext"}
    config = replace(EXT, enable_consume_queue_ext=False, explicit=explicit)
    before = tree_content(root / "consumequeue_ext")
    (kept,) = rebuild_in_place(plan_rebuild(root, config, "queues")).kept
    assert not (root / "consumequeue_ext").exists()
    assert tree_content(kept / "consumequeue_ext") == before
    assert is_clean(root, config)


def test_one_queue_is_rebuilt_with_its_extension(tmp_path: Path) -> None:
    root = extension_store(tmp_path / "s")
    before = {name: tree_content(root / name) for name in ("consumequeue", "consumequeue_ext")}
    (root / "consumequeue/T/1" / f"{0:020d}").unlink()
    (root / "consumequeue_ext/T/1" / f"{0:020d}").write_bytes(bytes(96))
    summary = rebuild_in_place(plan_rebuild(root, EXT, "queues", "T", 1))
    assert summary.queues == 1
    assert before == {name: tree_content(root / name) for name in before}


def codes(root: Path) -> set[str]:
    return {row.code for row in verify(root, EXT) if isinstance(row, Finding)}


def test_verify_finds_a_flipped_bit_of_an_extension_unit(tmp_path: Path, is_deep: bool) -> None:
    root = extension_store(tmp_path / "s")
    assert codes(root) == set()
    for path in sorted((root / "consumequeue_ext/T/1").iterdir()):
        whole = path.read_bytes()
        used = [at for at in range(0, 80, 20) if any(whole[at : at + 20])]
        assert used
        # All in the nightly run, else every 13th: each bit of a byte in turn.
        step = 1 if is_deep else 13
        for bit in range(0, used[-1] * 8 + 160, step):
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            assert "unit-mismatch" in codes(root), f"bit {bit} of {path.name}"
        path.write_bytes(whole)


def test_verify_finds_extension_files_that_are_gone_or_nobodys(tmp_path: Path) -> None:
    root = extension_store(tmp_path / "s")
    files = sorted((root / "consumequeue_ext/T/0").iterdir())
    behind = files[-1].with_name(f"{len(files) * 96:020d}")
    behind.write_bytes(bytes(96))
    assert codes(root) == set(), "made ahead"
    behind.write_bytes(files[0].read_bytes())
    assert codes(root) == {"extension-file-unclaimed"}
    behind.unlink()
    (root / "consumequeue_ext/T/7").mkdir()
    nobodys = root / "consumequeue_ext/T/7" / f"{0:020d}"
    nobodys.write_bytes(files[0].read_bytes())
    assert codes(root) == {"extension-file-unclaimed"}
    nobodys.write_bytes(files[0].read_bytes()[:-1])
    (root / "consumequeue_ext/T/no").touch()
    expected = {"extension-file-unclaimed", "file-length-mismatch", "foreign-file"}
    assert codes(root) == expected
    for path in (nobodys, nobodys.parent, root / "consumequeue_ext/T/no"):
        path.rmdir() if path.is_dir() else path.unlink()
    whole = files[1].read_bytes()
    files[1].write_bytes(bytes(96))
    assert codes(root) == {"unit-mismatch"}
    files[1].unlink()
    found = [row for row in verify(root, EXT) if isinstance(row, Finding)]
    assert [row.code for row in found] == ["unit-mismatch"]
    assert str(found[0].found).startswith("4 units from ")
    assert "an address where the extension has no unit" in str(found[0].found)
    files[1].write_bytes(whole)
    assert codes(root) == set()


def test_missing_units_get_their_extension(tmp_path: Path) -> None:
    root = extension_store(tmp_path / "s")
    before = {name: tree_content(root / name) for name in ("consumequeue", "consumequeue_ext")}
    for name in before:
        shutil.rmtree(root / name / "T/1")
    add_missing(root, EXT, "queues")
    assert before == {name: tree_content(root / name) for name in before}


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


@pytest.mark.parametrize(("size", "each"), [(64, 3), (63, 2), (65, 3), (83, 3), (84, 4)])
def test_a_unit_that_just_fits_stays_in_its_file(tmp_path: Path, size: int, each: int) -> None:
    """``ConsumeQueueExt#put``: 20 bytes a unit, and four at the end of a file."""
    config = replace(EXT, mapped_file_size_consume_queue_ext=size)
    with small_store(tmp_path / "s", config) as store:
        for number in range(2 * each + 1):
            assert store.put_message(message(number)).is_ok
        places = [n // each * size + n % each * 20 for n in range(2 * each + 1)]
        codes = [tags_code(f"t{n}") for n in range(2 * each + 1)]
        assert units(store) == list(zip(places, codes, strict=True))
    names = sorted(path.name for path in (tmp_path / "s/consumequeue_ext/T/0").iterdir())
    assert names == [f"{n * size:020d}" for n in range(3)]
    assert is_clean(tmp_path / "s", config)
