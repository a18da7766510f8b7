"""What a start after a crash makes of an index that has lost files."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rmqctl.engine.index.header import ITEM
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rmqctl.errors import FileLengthContradiction
from rmqctl.operations.mend.missing import add_missing
from tests.test_safety.support import Clock, assert_clean, tree

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 14, max_hash_slot_num=10, max_index_num=41
)
MESSAGES = 200
#: Between them and the next index file stand records that have no key.
KEYLESS = range(50, 60)


def killed_store(root: Path) -> list[Path]:
    """A store whose next start dispatches all of its log again; its index files."""
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(MESSAGES):
            properties = {} if number in KEYLESS else {"KEYS": f"k{number}"}
            message = MessageExtBrokerInner("T", b"body" * 20, 0, properties=properties)
            assert store.put_message(message, flush=False).is_ok
    write_checkpoint(root, root / "checkpoint", Checkpoint())
    (root / "abort").touch()
    return sorted((root / "index").iterdir())


def cut_log(root: Path, end: int) -> None:
    """The log loses what stands behind an offset."""
    with MessageStore(root, CONFIG) as store:
        log = store.commit_log.files
        last = log.entries[log.index_of(end)]
    for one in log.entries[log.index_of(end) + 1 :]:
        one.path.unlink()
    with last.path.open("r+b") as file:
        file.seek(end - last.file_from_offset)
        file.write(bytes(last.size - file.tell()))


def hits(root: Path) -> list[int]:
    """How often each message is found by its key."""
    with MessageStore(root, CONFIG) as store:
        return [len(list(store.query_message("T", f"k{n}"))) for n in range(MESSAGES)]


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1), (2,), (4,), (1, 3)])
def test_keys_of_lost_files_are_found_again(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """As the engine does, which throws all newer files away (``IndexService#load``)."""
    root = tmp_path / "store"
    files = killed_store(root)
    assert len(files) == 5
    for number in lost:
        files[number].unlink()
    with MessageStore(root, CONFIG, writable=True):
        pass
    assert hits(root) == [int(number not in KEYLESS) for number in range(MESSAGES)]
    with MessageStore(root, CONFIG) as store:
        headers = [store.index.open(path).header for path in store.index.paths]
    assert all(one.end_phy_offset < next_.begin_phy_offset for one, next_ in pairwise(headers))


def test_files_between_which_nothing_is_lost_stay(tmp_path: Path) -> None:
    root = tmp_path / "store"
    before = {path: path.read_bytes() for path in killed_store(root)}
    with MessageStore(root, CONFIG, writable=True):
        pass
    assert {path: path.read_bytes() for path in (root / "index").iterdir()} == before


@pytest.mark.parametrize("size", [0, 20, 100, 5000])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_files_of_a_wrong_length_are_passed_over(tmp_path: Path, number: int, size: int) -> None:
    """They may be of other sizes: nobody knows which keys they hold."""
    root = tmp_path / "store"
    files = killed_store(root)
    os.truncate(files[number], size)
    kept = {path: path.read_bytes() for path in files}
    with MessageStore(root, CONFIG, writable=True) as store:
        assert store.put_message(MessageExtBrokerInner("T", b"new", 0)).is_ok
    assert {path: path.read_bytes() for path in (root / "index").iterdir()} == kept


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
def test_a_file_of_a_wrong_length_that_becomes_the_newest_is_refused(
    tmp_path: Path, abort: bool
) -> None:
    """Before anything is changed: the log has lost what the files behind it stand for."""
    root = tmp_path / "store"
    files = killed_store(root)
    if not abort:
        (root / "abort").unlink()
    os.truncate(files[2], 100)
    with MessageStore(root, CONFIG) as store:
        begin = store.index.open(files[3]).header.begin_phy_offset
    cut_log(root, begin)
    before = tree(root)
    with pytest.raises(FileLengthContradiction):
        MessageStore(root, CONFIG, writable=True)
    assert tree(root) == before


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
@pytest.mark.parametrize("what", ["all", "index"])
def test_behind_a_file_of_zeros_nothing_is_indexed_twice(
    tmp_path: Path, abort: bool, what: str
) -> None:
    """A crash leaves such a file where it had just been made, and nothing of it was on disk."""
    root = tmp_path / "store"
    files = killed_store(root)
    if not abort:
        (root / "abort").unlink()
    before = [path.read_bytes() for path in files]
    files[-1].write_bytes(bytes(len(before[-1])))
    add_missing(root, CONFIG, what)
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == before


@pytest.mark.parametrize("number", range(5))
def test_a_file_that_is_there_twice_is_so_once(tmp_path: Path, number: int) -> None:
    """The engine throws both away, and indexes their records again, once."""
    root = tmp_path / "store"
    path = killed_store(root)[number]
    shutil.copy(path, path.with_name(f"{int(path.name) + 1:017d}"))
    with MessageStore(root, CONFIG, writable=True):
        pass
    assert hits(root) == [int(number not in KEYLESS) for number in range(MESSAGES)]
    with MessageStore(root, CONFIG) as store:
        counts = [store.index.open(path).header.index_count - 1 for path in store.index.paths]
    assert sum(counts) == MESSAGES - len(KEYLESS)


def test_the_checkpoint_does_not_vouch_for_a_file_that_is_cut(tmp_path: Path) -> None:
    """After a clean stop it does for what is full: a start after a kill would trust what is being
    written then."""
    root = tmp_path / "store"
    files = killed_store(root)
    (root / "abort").unlink()
    with MessageStore(root, CONFIG) as store:
        vouched = store.index.open(files[1]).header.end_timestamp
        cut = store.index.open(files[2]).item(20).physical_offset
    cut_log(root, cut)
    MessageStore(root, CONFIG, writable=True).abandon()
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None and checkpoint.index_msg_timestamp == vouched


def test_zeros_of_the_newest_file_hide_none_that_a_start_throws_away(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(150):
            message = MessageExtBrokerInner("T", b"body", 0, properties={"KEYS": f"k{number}"})
            assert store.put_message(message, flush=False).is_ok
    newest = max((root / "index").iterdir())
    newest.write_bytes(bytes(newest.stat().st_size))
    with MessageStore(root, CONFIG) as store:
        headers = [store.index.open(path).header for path in store.index.paths]
        for before, header in pairwise(headers[:3]):
            assert store.index.unsafe_since(before.end_timestamp) == header.begin_timestamp
        assert store.index.unsafe_since(headers[2].end_timestamp) is None


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
def test_items_of_lost_records_go_from_before_a_file_without_items(
    tmp_path: Path, abort: bool
) -> None:
    root = tmp_path / "store"
    files = killed_store(root)
    if not abort:
        (root / "abort").unlink()
    with MessageStore(root, CONFIG) as store:
        cut = store.index.open(files[3]).item(20).physical_offset
    files[4].write_bytes(bytes(files[4].stat().st_size))
    cut_log(root, cut)
    with MessageStore(root, CONFIG, writable=True):
        pass
    with MessageStore(root, CONFIG) as store:
        ends = [store.index.open(path).header.end_phy_offset for path in store.index.paths]
    assert max(ends) < cut


def put_again(root: Path) -> None:
    with MessageStore(root, CONFIG, writable=True) as store:
        assert store.put_message(MessageExtBrokerInner("T", b"again")).is_ok


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_put_into_a_log_that_has_lost_all_its_records_is_indexed(
    tmp_path: Path, is_killed: bool
) -> None:
    """The end that the header of the index has is not behind the item that it keeps: there it would
    pass over what is put."""
    root = tmp_path / "store"
    killed_store(root)
    if not is_killed:
        (root / "abort").unlink()
    *gone, last = sorted((root / "commitlog").iterdir())
    for path in gone:
        path.unlink()
    last.write_bytes(bytes(1 << 14))
    with MessageStore(root, CONFIG, writable=True) as store:
        message = MessageExtBrokerInner("T", b"body", 0, properties={"KEYS": "new"})
        result = store.put_message(message)
        assert result.append is not None and result.append.wrote_offset == int(last.name)
        (found,) = store.query_message("T", "new")
        assert found.record is not None
        assert found.record.physical_offset == int(last.name)
    assert_clean(root, CONFIG)


@pytest.mark.parametrize("cut", range(ITEM.size))
def test_half_an_item_is_none(tmp_path: Path, cut: int) -> None:
    """A page, or a sector, of the newest file is not on disk: it begins amid its last item."""
    root = tmp_path / "store"
    newest = killed_store(root)[-1]
    with MessageStore(root, CONFIG) as store:
        file = store.index.open(newest)
        begin = file.geometry.item_position(file.item_count) + cut
    data = newest.read_bytes()
    newest.write_bytes(data[:begin].ljust(len(data), b"\0"))
    put_again(root)
    assert hits(root) == [int(number not in KEYLESS) for number in range(MESSAGES)]
    assert_clean(root, CONFIG)


def test_an_item_without_its_hash_is_none(tmp_path: Path) -> None:
    """The page before the one with the rest of it is not on disk."""
    root = tmp_path / "store"
    newest = killed_store(root)[-1]
    with MessageStore(root, CONFIG) as store:
        begin = store.index.open(newest).geometry.item_position(5)
    data = bytearray(newest.read_bytes())
    data[begin : begin + 4] = bytes(4)
    newest.write_bytes(data)
    put_again(root)
    assert hits(root) == [int(number not in KEYLESS) for number in range(MESSAGES)]
    assert_clean(root, CONFIG)


def test_items_of_records_that_have_expired_are_believed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    killed_store(root)
    logs = sorted((root / "commitlog").iterdir())
    for one in logs[:-1]:
        one.unlink()
    first = int(logs[-1].name)
    with MessageStore(root, CONFIG) as store:
        items = [store.index.open(path).item_count for path in store.index.paths]
        kept = sum(
            store.index.open(path).item(1).physical_offset < first for path in store.index.paths
        )
    put_again(root)
    with MessageStore(root, CONFIG) as store:
        after = [store.index.open(path).item_count for path in store.index.paths]
    assert after[: kept - 1] == items[: kept - 1]


def test_of_a_newest_file_only_the_slots_are_on_disk(tmp_path: Path) -> None:
    root = tmp_path / "store"
    newest = killed_store(root)[-1]
    with MessageStore(root, CONFIG) as store:
        start, end = (store.index.geometry.slot_position(n) for n in (0, CONFIG.max_hash_slot_num))
    data = newest.read_bytes()
    newest.write_bytes((bytes(start) + data[start:end]).ljust(len(data), b"\0"))
    put_again(root)
    assert hits(root) == [int(number not in KEYLESS) for number in range(MESSAGES)]
    assert_clean(root, CONFIG)


def test_a_file_whose_header_is_lost_stays_where_the_checkpoint_may_vouch_for_it(
    tmp_path: Path,
) -> None:
    """Its keys would not be indexed again, and by its slots they are found."""
    root = tmp_path / "store"
    _, second, third, *_ = killed_store(root)
    with MessageStore(root, CONFIG) as store:
        safe = store.index.open(third).header.end_timestamp
    with second.open("r+b") as file:
        file.write(bytes(40))
    write_checkpoint(root, root / "checkpoint", Checkpoint(safe, safe, safe))
    before = second.read_bytes()
    put_again(root)
    assert second.read_bytes() == before


def test_a_file_whose_header_is_lost_goes_with_what_was_behind_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    *_, before, newest = killed_store(root)
    with before.open("r+b") as file:
        file.write(bytes(40))
    newest.write_bytes(bytes(newest.stat().st_size))
    put_again(root)
    assert hits(root) == [int(number not in KEYLESS) for number in range(MESSAGES)]
    assert_clean(root, CONFIG)


def test_the_last_message_of_an_index_whose_file_before_was_cut(tmp_path: Path) -> None:
    """A start indexes its messages again, and counts what the index has of the one that it ends
    with: nobody reads a file of a wrong length, so there are no items in it."""
    root = tmp_path / "store"
    config = replace(CONFIG, max_index_num=5)
    with MessageStore(root, config, writable=True, create=True) as store:
        for number in range(4):
            properties = {"KEYS": f"k{number}"}
            assert store.put_message(MessageExtBrokerInner("T", b"", properties=properties)).is_ok
        # Without a key it makes the next file, which begins where the full one ended.
        assert store.put_message(MessageExtBrokerInner("T", b"")).is_ok
    full, newest = sorted((root / "index").iterdir())
    os.truncate(full, full.stat().st_size - ITEM.size)
    (root / "abort").touch()
    with MessageStore(root, config, writable=True) as store:
        assert store.plan.dispatch_from == 0
        assert [len(list(store.query_message("T", f"k{n}"))) for n in range(4)] == [1] * 4
    assert sorted((root / "index").iterdir())[:2] == [full, newest]
