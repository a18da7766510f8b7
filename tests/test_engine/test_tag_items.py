"""Index items of tags, which brokers of 5.4 and later make: puts, rebuilds and starts make them as
well where such a broker has run, and an index that has them in part is sound."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats.text import index_key_hash
from rmqctl.engine.dispatch.batches import KeyBatch, key_batch, marked_key_batch
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.index.mending import keep
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.scan.backend import backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.start.plan import scan_place
from rmqctl.engine.state.checkpoint import read_checkpoint
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import Finding, Summary, indexparts, verify
from tests.golden_data import index_contents, make_one_of_5_4

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 15,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=40,
    max_index_num=150,
)
TAGS = ("a", "Aa", "BB", "标签", "with blank", "")


def mark(root: Path, *, is_of_5_4: bool = True) -> None:
    """Makes a store one on which a broker of 5.4 has run, or has not."""
    shutil.rmtree(root / "rocksdbstore", ignore_errors=True)
    if is_of_5_4:
        make_one_of_5_4(root)


def messages(count: int, seed: int = 0) -> Iterator[MessageExtBrokerInner]:
    """Messages with and without tags, with no, one and several keys."""
    chance = random.Random(seed)
    for number in range(count):
        properties = {}
        if chance.random() < 0.8:
            properties["UNIQ_KEY"] = f"{seed}-{number}"
        if chance.random() < 0.6:
            properties["KEYS"] = " ".join(
                f"k{seed}-{number}-{n}" for n in range(chance.randint(1, 3))
            )
        if chance.random() < 0.7:
            properties["TAGS"] = chance.choice(TAGS)
        topic = chance.choice(("T", "主题", "%RETRY%g"))
        yield MessageExtBrokerInner(topic, b"body", chance.randrange(2), properties=properties)


def one_by_one(store: MessageStore, sent: Iterator[MessageExtBrokerInner]) -> None:
    assert all(store.put_message(message, flush=False).is_ok for message in sent)


def as_batches(store: MessageStore, sent: Iterator[MessageExtBrokerInner]) -> None:
    for message in sent:
        assert store.put_batch([message, message], flush=False).is_ok


def as_stream(store: MessageStore, sent: Iterator[MessageExtBrokerInner]) -> None:
    assert all(result.is_ok for bulk in store.put_stream(sent, flush=False) for result in bulk)


WAYS = (one_by_one, as_batches, as_stream)
Way = Callable[[MessageStore, Iterator[MessageExtBrokerInner]], None]


def put(root: Path, way: Way, count: int, seed: int = 0) -> None:
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    with MessageStore(root, CONFIG, writable=True) as store:
        way(store, messages(count, seed))


def findings(root: Path) -> list[str]:
    return [found.code for found in verify(root, CONFIG) if isinstance(found, Finding)]


def items(root: Path) -> int:
    summary = list(verify(root, CONFIG))[-1]
    assert isinstance(summary, Summary)
    return summary.index_items


@pytest.mark.parametrize("way", WAYS)
def test_puts_make_what_a_rebuild_makes(tmp_path: Path, way: Way) -> None:
    root = tmp_path / "store"
    mark(root)
    put(root, way, 100)
    assert findings(root) == []
    rebuild_to(plan_rebuild(root, CONFIG, "index"), tmp_path / "built")
    assert index_contents(tmp_path / "built/index") == index_contents(root / "index")
    with MessageStore(root, CONFIG) as store:
        tags = [one for one in messages(100) if one.properties.get("TAGS")]
        assert tags
        for message in tags:
            key = f"T#{message.properties['TAGS']}"
            assert any(hit.matches for hit in store.query_message(message.topic, key))


def test_without_such_a_broker_none_are_made(tmp_path: Path) -> None:
    plain, later = tmp_path / "plain", tmp_path / "later"
    mark(later)
    for root in (plain, later):
        put(root, as_stream, 60)
    tagged = sum(bool(one.properties.get("TAGS")) for one in messages(60))
    assert items(later) == items(plain) + tagged
    with MessageStore(plain, CONFIG) as store:
        assert not any(hit.matches for hit in store.query_message("T", "T#Aa"))


@pytest.mark.parametrize("name", backends())
@pytest.mark.parametrize("is_plain", [False, True])
def test_scans_give_the_keys_of_each_record(tmp_path: Path, name: str, is_plain: bool) -> None:
    """Those of tags come last, and are marked."""
    root = tmp_path / "store"
    put(root, as_stream, 80)
    dispatcher = Dispatcher(CONFIG, indexes_tags=True)
    with MessageStore(root, CONFIG) as store:
        log = store.commit_log
        wanted = [
            (key_hash, record.physical_offset, record.store_timestamp)
            for entry in Scanner(log).scan()
            if isinstance(entry, Batch)
            for record in map(entry.record, range(len(entry)))
            for key_hash in dispatcher.keys(record)
        ]
        scanner = Scanner(log, indexes_tags=True, backend=backends()[name])
        entries = scanner.scan_plain(PlainWanted(keys=True)) if is_plain else scanner.scan()
        found = [entry for entry in entries if isinstance(entry, Batch | Plain)]
        keys = KeyBatch.joined([key_batch(one) for one in found])
        assert list(zip(*(column.tolist() for column in keys), strict=True)) == wanted
        marked = KeyBatch.joined([marked_key_batch(one) for one in found]).key_hash
    tags = [
        (one.topic, one.properties["TAGS"]) for one in messages(80) if one.properties.get("TAGS")
    ]
    assert [~hash_ for hash_ in marked.tolist() if hash_ < 0] == [
        index_key_hash(topic, f"T#{tag}") for topic, tag in tags
    ]


@pytest.mark.parametrize("at_once", [7, indexparts.KEYS_AT_ONCE])
@pytest.mark.parametrize("first", [False, True])
def test_an_upgrade_and_a_way_back_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool, at_once: int
) -> None:
    """Messages of before have no items of tags; the check ends its merges at any key."""
    monkeypatch.setattr("rmqctl.operations.verify.index.KEYS_AT_ONCE", at_once)
    root = tmp_path / "store"
    root.mkdir()
    for turn in range(5):
        mark(root, is_of_5_4=(turn % 2 == 0) == first)
        put(root, as_stream, 17 + turn, seed=turn)
    mark(root)
    assert findings(root) == []
    # What is made anew has all of them.
    rebuild_in_place(plan_rebuild(root, CONFIG, "index"))
    assert findings(root) == []
    tagged = sum(bool(m.properties.get("TAGS")) for n in range(5) for m in messages(17 + n, n))
    with MessageStore(root, CONFIG) as store:
        scanner = Scanner(store.commit_log)
        keys = sum(len(one.key_hash) for one in scanner.scan() if isinstance(one, Batch))
    assert items(root) == keys + tagged


@pytest.mark.parametrize("is_of_5_4", [False, True])
def test_other_items_that_are_missing_or_foreign_are_found(tmp_path: Path, is_of_5_4: bool) -> None:
    root = tmp_path / "store"
    put(root, as_stream, 10)
    mark(root, is_of_5_4=is_of_5_4)
    put(root, as_stream, 10, seed=1)
    path = max((root / "index").iterdir())
    file = IndexFileWriter(MappedFile.open_writable(root, path), CONFIG.index_geometry)
    last = file.item(file.item_count)
    foreign = index_key_hash("T", "T#of nobody")
    assert file.put_keys([foreign], last.physical_offset, file.header.end_timestamp) == 1
    file.close()
    assert findings(root) == ["index-item-without-key"]
    file = IndexFileWriter(MappedFile.open_writable(root, path), CONFIG.index_geometry)
    keep(file, file.item_count - 4, lambda offset: None)
    file.close()
    assert "index-behind" in findings(root)


def test_a_start_after_a_crash_keeps_items_of_tags(tmp_path: Path) -> None:
    root = tmp_path / "store"
    mark(root)
    put(root, one_by_one, 30)
    index = index_contents(root / "index")
    (root / "abort").touch()
    MessageStore(root, CONFIG, writable=True).close()
    assert index_contents(root / "index") == index
    assert findings(root) == []


def test_keys_that_only_look_like_tags(tmp_path: Path) -> None:
    """``T#x`` is a key of a message as any other, in a store of any version."""
    root = tmp_path / "store"
    root.mkdir()
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        keyed = MessageExtBrokerInner("T", b"", properties={"KEYS": "T#x"})
        tagged = MessageExtBrokerInner("T", b"", properties={"TAGS": "y", "KEYS": "k"})
        assert store.put_message(keyed).is_ok and store.put_message(tagged).is_ok
        assert [hit.matches for hit in store.query_message("T", "T#x")] == [True]
        assert list(store.query_message("T", "T#y")) == []
        assert list(store.query_message("T", "T#")) == []


@pytest.mark.parametrize("claimed", [0, 1, 1 << 15, 1 << 40])
@pytest.mark.parametrize("is_unclean", [False, True])
def test_the_place_from_which_5_5_reads_is_no_later_than_the_times_lead(
    tmp_path: Path, claimed: int, is_unclean: bool
) -> None:
    """``logicsPhysicalOffset``: an unclean start of 5.5 reads from the newest file that does not
    begin behind it, and the log may have lost its end since it was stored."""
    root = tmp_path / "store"
    put(root, as_stream, 600)
    path = root / "checkpoint"
    data = bytearray(path.read_bytes())
    data[40:48] = claimed.to_bytes(8, "big")
    path.write_bytes(data)
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 2
    files[-1].unlink()
    if is_unclean:
        (root / "abort").touch()
    with MessageStore(root, CONFIG, writable=True) as store:
        checkpoint, log = read_checkpoint(path), store.commit_log
        assert checkpoint is not None
        start = scan_place(log, checkpoint, CONFIG)
        stored = int.from_bytes(path.read_bytes()[40:48], "big")
        assert stored == min(claimed, start, store.obstacle.offset)
        assert stored > 0 or not claimed
