"""Extension files: written behind each other, rolled at their end, gone on with after a stop."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from formats.constants import MAX_ADDR
from formats.text import tags_code
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.extension import ConsumeQueueExtWriter, ext_offset
from rmqctl.engine.queue.queuewriter import ConsumeQueueWriter
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.missing import add_missing
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import Finding, verify
from tests.golden_data import copy_tree, tree_content
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
    ext = ConsumeQueueExtWriter(root / "consumequeue_ext/T/0", 96, root)
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


@pytest.mark.parametrize("lost", ["the extension", "the queue's extension", "its last files"])
def test_units_without_their_extension_are_dispatched_again(tmp_path: Path, lost: str) -> None:
    """However many of them, with a crash whose recovery reads their records."""
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        store.put_messages([message(number) for number in range(60)])
        store.put_message(replace(message(60), topic="U"))
    sound = {name: tree_content(root / name) for name in ("consumequeue", "consumequeue_ext")}
    if lost == "the extension":
        shutil.rmtree(root / "consumequeue_ext")
    elif lost == "its last files":
        for path in sorted((root / "consumequeue_ext/T/0").iterdir())[1:]:
            path.unlink()
    else:
        shutil.rmtree(root / "consumequeue_ext/T")
    (root / "abort").touch()
    small_store(root, EXT).close()
    assert is_clean(root, EXT)
    assert sound == {name: tree_content(root / name) for name in sound}


def test_without_room_the_unit_has_the_plain_code(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        assert store.put_message(message(0)).is_ok
        queue = store.consume_queue("T", 0)
        assert queue is not None and isinstance(queue.ext, ConsumeQueueExtWriter)
        with full_disk():
            room = [queue.ext.put(number, 1, None) is not None for number in range(1, 5)]
            # As many as the file that is there still holds; the next one cannot be made.
            assert room == [True, True, True, False]
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
    ext = ConsumeQueueExtWriter(directory, 96, tmp_path)
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


def behind(root: Path, bit_map: bytes, files: int = 1) -> None:
    """Behind the last unit of queue T/0 longer ones, as a broker with filters leaves them when a
    start after a crash takes units of the queue back; and more files, full of such."""
    size = 20 + len(bit_map)
    unit = pack(">hqqh", size, 77, 88, len(bit_map)) + bit_map
    directory = root / "consumequeue_ext/T/0"
    (path,) = directory.iterdir()
    length = path.stat().st_size
    with MessageStore(root, WIDE) as store:
        start = units(store)[-1][0] + 20
    for number, at in [(0, start), *((number, 0) for number in range(1, files))]:
        data = bytearray(path.read_bytes() if number == 0 else bytes(length))
        whole = unit * ((length - at - 4) // size)
        data[at : at + len(whole) + 2] = whole + b"\xff\xff"
        (directory / f"{number * length:020d}").write_bytes(data)


def astray(root: Path, config: MessageStoreConfig = EXT) -> list[Finding]:
    found = [row for row in verify(root, config) if isinstance(row, Finding)]
    return [row for row in found if row.code == "extension-sizes-astray"]


WIDE = replace(EXT, mapped_file_size_consume_queue_ext=1000)
#: A size of one byte more than 0, and one of two.
BIT_MAPS = pytest.mark.parametrize("bit_map", [b"\x7f" * 31, b"\x7f" * 300], ids=["51", "320"])


@BIT_MAPS
@pytest.mark.parametrize("files", [1, 3])
def test_a_put_leaves_nothing_behind(tmp_path: Path, bit_map: bytes, files: int) -> None:
    """``ConsumeQueueExt#recover`` walks through what is there, whoever it was."""
    root, whole = tmp_path / "s", tmp_path / "whole"
    for one in (root, whole):
        with small_store(one, WIDE) as store:
            store.put_messages([message(number) for number in range(3)])
    behind(root, bit_map, files)
    assert astray(root) == []
    for one in (root, whole):
        with small_store(one, WIDE) as store:
            assert store.put_message(message(3)).is_ok
    assert is_clean(root, WIDE)
    (first, *rest) = sorted((root / "consumequeue_ext/T/0").iterdir())
    (wanted,) = (whole / "consumequeue_ext/T/0").iterdir()
    sizes = [data[at : at + 2] for data in [first.read_bytes()] for at in range(0, 100, 20)]
    assert sizes == [b"\x00\x14"] * 4 + [b"\x00\x00"]
    assert first.read_bytes()[80:] == wanted.read_bytes()[80:]
    assert not any(any(file.read_bytes()) for file in rest)


class Killed(BaseException):
    pass


@BIT_MAPS
def test_a_kill_while_it_is_cleared_or_put_leaves_sizes_that_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bit_map: bytes
) -> None:
    """A store is cut anywhere; of a size both bytes are stored at once."""
    given, number, is_done = tmp_path / "given", 0, False
    with small_store(given, WIDE) as store:
        store.put_messages([message(number) for number in range(3)])
    behind(given, bit_map, 2)
    write = MappedFile.write
    while not is_done:
        for part in (0, 2, 3, 150, 10_000):
            root = copy_tree(given, tmp_path / f"{number}-{part}")
            ext = ConsumeQueueExtWriter(root / "consumequeue_ext/T/0", 1000, root)
            left = number

            def cut(mapped: MappedFile, position: int, data: bytes, part: int = part) -> None:
                nonlocal left
                write(mapped, position, data if left else data[:part])
                left -= 1
                if left < 0:
                    raise Killed

            with monkeypatch.context() as patched:
                patched.setattr(MappedFile, "write", cut)
                try:
                    is_done = ext.put(1, 2, -(2**63) + 40) == -(2**63) + 60
                except Killed:
                    is_done = False
            assert ext.sizes_astray() is None, f"write {number}, cut to {part}"
            ext.close()
            with small_store(root, WIDE) as store:
                assert store.put_message(message(3)).is_ok
            assert is_clean(root, WIDE)
            assert astray(root) == []
        number += 1
    assert number == 6, "the first bytes of two files, the rest of them, and the unit"


def test_without_an_address_nothing_is_cleared(tmp_path: Path) -> None:
    """Older queue files than are looked at may name what stands behind damage."""
    root = tmp_path / "s"
    with small_store(root, EXT) as store:
        store.put_messages([message(number) for number in range(4)])
    path = root / "consumequeue_ext/T/0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[20:22] = b"\x00\x15"
    path.write_bytes(data)
    ext = ConsumeQueueExtWriter(path.parent, 96, root)
    assert ext.put(1, 2, None) == -(2**63) + 96
    assert path.read_bytes() == data
    ext.close()


@pytest.mark.parametrize("position, size", [(60, 37), (60, 36), (60, 35), (40, 32767), (0, 97)])
def test_verify_names_sizes_on_which_a_broker_does_not_start(
    tmp_path: Path, position: int, size: int
) -> None:
    root = extension_store(tmp_path / "s")
    path = root / "consumequeue_ext/T/0" / f"{96:020d}"
    data = bytearray(path.read_bytes())
    data[position : position + 2] = size.to_bytes(2, "big")
    path.write_bytes(data)
    (found,) = astray(root)
    # With 36 the file ends where a size must stand, and with 35 one byte later.
    ends = size in (35, 36)
    assert found.position == (position + size if ends else position)
    assert found.found == ("the file's end" if ends else f"size {size}")
    assert (found.severity, found.topic, found.queue_id) == ("error", "T", 0)
    assert found.path == f"consumequeue_ext/T/0/{96:020d}"
    off = replace(
        EXT, enable_consume_queue_ext=False, explicit=EXT.explicit | {"enable_consume_queue_ext"}
    )
    assert astray(root, off) == [], "a broker that does not look there starts"
    rebuild_in_place(plan_rebuild(root, EXT, "queues", "T", 0))
    assert codes(root) == set()


def test_a_file_in_place_of_all_extensions(tmp_path: Path) -> None:
    """Not only that the units' addresses lead nowhere; and the step that is named mends it."""
    root = extension_store(tmp_path / "s")
    (root / "consumequeue_ext").rename(tmp_path / "aside")
    (root / "consumequeue_ext").touch()
    assert codes(root) == {"not-a-directory", "unit-mismatch"}
    (root / "consumequeue_ext").unlink()
    rebuild_in_place(plan_rebuild(root, EXT, "all"))
    assert codes(root) == set()
    assert tree_content(root / "consumequeue_ext") == tree_content(tmp_path / "aside")


def test_a_queue_is_looked_through_once_for_its_newest_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the extension cannot be written no unit gets an address, and each put would read all
    units of up to three files."""
    root = tmp_path / "s"
    with small_store(root, SMALL) as store:
        list(store.put_stream(message(number) for number in range(20)))
    (root / "consumequeue_ext").mkdir()
    (root / "consumequeue_ext/T").write_text("in the way")
    looked = []
    newest_address = ConsumeQueueWriter.newest_address

    def counted(queue: ConsumeQueueWriter) -> int | None:
        looked.append(queue.max_offset)
        return newest_address(queue)

    monkeypatch.setattr(ConsumeQueueWriter, "newest_address", counted)
    with small_store(root, EXT) as store:
        for number in range(5):
            assert store.put_message(message(number)).is_ok
        queue = store.consume_queue("T", 0)
        assert queue is not None
        written = [unit.tags_code for _, unit in queue.units(20, queue.max_offset)]
        assert written == [tags_code(f"t{number}") for number in range(5)]
    assert looked == [20]
