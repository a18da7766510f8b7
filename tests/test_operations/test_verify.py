"""verify on stores that are odd in ways which no damage case shows."""

from __future__ import annotations

import errno
import os
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats import layouts
from formats.constants import HOST_V6_MASK
from formats.text import index_key_hash
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import PREFIXES, Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import Checkpoint, write_checkpoint
from rmqctl.errors import CannotRead
from rmqctl.operations.verify import ERROR, INFO, Finding, indexcursor, verify
from tests.conftest import Golden
from tests.golden_data import copy_tree
from tests.test_operations.small_store import (
    CONFIG,
    GEOMETRY,
    at_most_one_table,
    findings_of,
    make_small_store,
    messages,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_small_store(tmp_path / "store")


def last_keyed(root: Path) -> Record:
    return last_record(root, "UNIQ_KEY")


def last_record(root: Path, with_property: str = "KEYS") -> Record:
    with MessageStore(root, CONFIG) as opened:
        records = [entry for entry in opened.commit_log.walk() if isinstance(entry, Record)]
    return [record for record in records if with_property in record.properties][-1]


@pytest.mark.parametrize(
    ("key", "code", "severity"),
    [(None, "index-item-repeated", INFO), ("none of its", "index-item-without-key", ERROR)],
)
def test_a_second_item_of_a_key_is_no_damage_but_one_of_no_key_is(
    store: Path, key: str | None, code: str, severity: str
) -> None:
    """After a kill the engine indexes the last message of the file before once more."""
    record = last_keyed(store)
    key_hash = index_key_hash(record.topic, key or record.properties["UNIQ_KEY"])
    service = IndexServiceWriter(store / "index", GEOMETRY, store)
    file = service.last()
    assert file is not None
    assert file.put_keys([key_hash], record.physical_offset, record.store_timestamp) == 1
    service.close()
    findings, summary = findings_of(store)
    assert [(f.code, f.severity, f.physical_offset) for f in findings] == [
        (code, severity, record.physical_offset)
    ]
    assert summary.is_clean == (severity == INFO)


def test_a_message_indexed_again_across_two_files_is_no_damage(tmp_path: Path) -> None:
    """After a kill the engine deletes the last index file, and begins the next one with all items
    of the message that its predecessor ends with, even where that had only some of them."""
    root = tmp_path / "store"
    full = GEOMETRY.index_num - 1
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        for number in range(full // 4 + 1):
            keys = " ".join(f"k{number}-{at}" for at in range(4))
            message = MessageExtBrokerInner("TopicA", b"x", properties={"KEYS": keys})
            assert writer.put_message(message, flush=False).is_ok
    assert full % 4 == 3
    _, second = sorted((root / "index").iterdir())
    second.unlink()
    record = last_record(root)
    hashes = [index_key_hash("TopicA", key) for key in record.properties["KEYS"].split()]
    service = IndexServiceWriter(root / "index", GEOMETRY, root)
    file = service.last_or_new()
    assert file.put_keys(hashes, record.physical_offset, record.store_timestamp) == 4
    service.close()
    findings, summary = findings_of(root)
    assert [(f.code, f.found) for f in findings] == [("index-item-repeated", "3 items")]
    assert summary.is_clean


def test_an_index_file_that_has_no_item_yet_counts_none(store: Path) -> None:
    """The engine stores the count, which starts at 1, with the first item."""
    service = IndexServiceWriter(store / "index", GEOMETRY, store)
    last = service.last()
    assert last is not None
    service.close()
    newest = store / "index" / f"{int(service.paths[-1].name) + 1}"
    head = last.header._replace(
        begin_timestamp=last.header.end_timestamp,
        begin_phy_offset=last.header.end_phy_offset,
        hash_slot_count=0,
        index_count=0,
    )
    newest.write_bytes(head.pack() + bytes(GEOMETRY.file_size - len(head.pack())))
    assert findings_of(store)[0] == []


@pytest.mark.parametrize(
    ("position", "data", "code"),
    [
        (84, b"\x80\0\0\0", "body-length-out-of-range"),
        (8, b"\0\0\0\1", "body-crc-mismatch"),
    ],
)
def test_what_the_engine_passes_over_in_an_empty_body_is_named(
    store: Path, position: int, data: bytes, code: str
) -> None:
    path = store / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    findings, summary = findings_of(store)
    assert [(f.code, f.physical_offset, f.severity) for f in findings] == [(code, 0, ERROR)]
    assert summary.records == 30  # the engine reads it as a record, and so do we


def test_a_delay_that_is_no_number(tmp_path: Path) -> None:
    """``CommitLog#checkMessageAndReturnSize`` fails on it in any version, and a recovery takes that
    for the end of the log."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for level in ("2", "3"):
            sent = MessageExtBrokerInner("T", b"x", properties={"DELAY": level, "TAGS": "a"})
            assert store.put_message(sent, flush=False).is_ok
        place = store.get_message("SCHEDULE_TOPIC_XXXX", 2, 0).records[0].physical_offset
    path = root / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"DELAY\x013\x02TAGS", b"DELAY\x013BTAGS"))
    findings, summary = findings_of(root)
    assert summary.records == 2
    (found,) = [one for one in findings if one.structure == "commitlog"]
    assert (found.code, found.severity) == ("delay-not-a-number", ERROR)
    assert (found.physical_offset, found.found) == (place, "3BTAGS\1a")


@pytest.mark.parametrize("host", ["born", "store"])
@pytest.mark.parametrize("hosts", PREFIXES)
def test_a_port_at_which_a_client_gives_up_is_named(store: Path, hosts: int, host: str) -> None:
    """``MessageDecoder#decode`` refuses it, and every message behind it in the same answer."""
    with MessageStore(store, CONFIG) as opened:
        records = [entry for entry in opened.commit_log.walk() if isinstance(entry, Record)]
        record = next(r for r in records if r.sys_flag & HOST_V6_MASK == hosts)
        mapped, position = opened.commit_log.locate(record.physical_offset)
    fields = layouts.RECORD_PREFIX[hosts].fields
    at = position + next(field.offset for field in fields if field.name == f"{host}_port")
    for port, is_one in ((65535, True), (65536, False), (-1, False)):
        with mapped.path.open("r+b") as file:
            file.seek(at)
            file.write(port.to_bytes(4, "big", signed=True))
        findings, _ = findings_of(store)
        found = [(f.code, f.severity, f.physical_offset, f.found) for f in findings]
        wanted = ("message-not-decodable", ERROR, record.physical_offset, str(port))
        assert found == ([] if is_one else [wanted])


COMPRESSED = 1


@pytest.mark.parametrize(
    ("body", "sys_flag", "found"),
    [
        (zlib.compress(b"x" * 900), COMPRESSED, None),
        (zlib.compress(b"x" * 900) + b"rest", COMPRESSED | 3 << 8, None),
        (b"", COMPRESSED, None),
        (b"plain", 0, None),
        (b"plain", COMPRESSED, "incorrect header check"),
        (zlib.compress(b"x" * 900)[:-4], COMPRESSED, "end too early"),
        (zlib.compress(b"x" * 900)[:-1] + b"\0", COMPRESSED, "incorrect data check"),
        (zlib.compress(b"x" * 900), COMPRESSED | 4 << 8, "no such compression"),
        (b"plain" * 20, COMPRESSED | 1 << 8, "ERROR_frameType_unknown"),
        (b"plain" * 20, COMPRESSED | 2 << 8, "Unknown frame descriptor"),
    ],
)
def test_a_compressed_body_that_does_not_decompress_is_named(
    tmp_path: Path, body: bytes, sys_flag: int, found: str | None
) -> None:
    root = tmp_path / "store"
    message = MessageExtBrokerInner("T", body, sys_flag=sys_flag, properties={"TAGS": "a"})
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        assert writer.put_message(message).is_ok  # A broker does not look into it.
    findings, _ = findings_of(root)
    assert [f.code for f in findings] == ["message-not-decodable"] * (found is not None)
    assert all(found in str(f.found) for f in findings if found is not None)


@pytest.mark.parametrize("number", range(10))
def test_a_store_that_grows_meanwhile_is_sound(
    tmp_path: Path, chance: random.Random, number: int
) -> None:
    """Units, items and checkpoint of messages that a broker, or another writer, puts while the log
    is read and after it."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        puts = 0

        def put(count: int) -> None:
            nonlocal puts
            for message in [*messages()][:count]:
                assert writer.put_message(message, flush=False).is_ok
                puts += 1
            writer.flush()

        put(30)

        def progress(done: int) -> None:
            if puts == 30 or (puts < 200 and chance.random() < 0.5):
                put(chance.choice((3, 30)))

        found = list(verify(root, CONFIG, progress))
        assert {row.code for row in found[:-1] if isinstance(row, Finding)} <= {
            "unclean-shutdown",
            "dispatch-behind",
            "index-behind",
        }
        assert puts > 30


def add_to(path: Path, position: int, size: int, much: int = 1) -> None:
    """Adds to a big-endian number in a file."""
    with path.open("r+b") as file:
        file.seek(position)
        value = int.from_bytes(file.read(size), "big") + much
        file.seek(position)
        file.write(value.to_bytes(size, "big"))


@pytest.mark.parametrize(
    ("position", "size", "much", "codes"),
    [
        (0, 8, 1, {"unit-mismatch"}),
        (8, 4, 1, {"unit-mismatch"}),
        (12, 8, 1, {"unit-mismatch"}),
    ],
)
def test_each_field_of_a_unit_is_compared(
    store: Path, position: int, size: int, much: int, codes: set[str]
) -> None:
    """Wrong by one only, in the middle of a queue."""
    queue = sorted((store / "consumequeue/TopicA").iterdir())[0]
    add_to(sorted(queue.iterdir())[0], 20 + position, size, much)
    findings, _ = findings_of(store)
    assert {f.code for f in findings} == codes
    (found,) = findings
    assert (found.severity, found.queue_offset, found.position) == (ERROR, 1, 20)


ITEMS = 40 + 4 * GEOMETRY.hash_slot_num


def test_an_item_that_leads_far_away_at_the_end_of_its_file_is_one(store: Path) -> None:
    """The next item, in the next file, shows that it is wrong, and not all that follow."""
    first = min((store / "index").iterdir())
    add_to(first, ITEMS + (GEOMETRY.index_num - 1) * 20 + 4, 8, 1 << 24)
    findings, _ = findings_of(store)
    told = {one.code: one.found for one in findings if one.code != "index-header-mismatch"}
    assert told.pop("key-not-indexed") and told == {"index-item-without-key": "1 item"}


def test_an_item_that_leads_far_away_among_expired_ones_is_one(store: Path) -> None:
    (store / "commitlog" / f"{0:020d}").unlink()
    first = min((store / "index").iterdir())
    add_to(first, ITEMS + 6 * 20 + 4, 8, 1 << 24)
    told = {one.code: one.found for one in findings_of(store)[0]}
    assert told == {"log-starts-late": None, "index-item-without-key": "1 item"}


@pytest.mark.parametrize(
    ("position", "size", "codes"),
    [
        (0, 8, {"index-header-mismatch", "index-item-mismatch"}),
        (8, 8, {"index-header-mismatch", "index-item-mismatch"}),
        (16, 8, {"index-header-mismatch"}),
        (24, 8, {"index-header-mismatch"}),
        (32, 4, {"index-header-mismatch"}),
        (ITEMS + 2 * 20 + 4, 8, {"index-item-without-key", "key-not-indexed"}),
        (ITEMS + 2 * 20 + 12, 4, {"index-item-mismatch"}),
        (ITEMS + 2 * 20 + 16, 4, {"index-prev-mismatch"}),
    ],
)
def test_each_field_of_the_index_is_compared(
    store: Path, position: int, size: int, codes: set[str]
) -> None:
    """Of the first of two files, wrong by one (times by two seconds)."""
    first, _ = sorted((store / "index").iterdir())[:2]
    add_to(first, position, size, 2000 if position < 16 else 1)
    findings, summary = findings_of(store)
    assert {f.code for f in findings} == codes and not summary.is_clean


@pytest.mark.parametrize("at_once", [1, 3, 5])
def test_slots_are_compared_some_at_a_time_and_told_as_if_at_once(
    store: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of each file are 20 MB by default, and are in memory once already."""
    first, *_ = sorted((store / "index").iterdir())
    for slot in (2, 3, 4, 9):  # The neighbours are one finding.
        add_to(first, 40 + 4 * slot, 4, 1)
    told, _ = findings_of(store)
    assert [(f.code, f.position) for f in told] == [
        ("index-slot-mismatch", 40 + 4 * slot) for slot in (2, 9)
    ]
    slots, taken = IndexFile.slots, []

    def some(self: IndexFile, start: int, count: int) -> Any:
        taken.append(count)
        return slots(self, start, count)

    monkeypatch.setattr(indexcursor, "_SLOTS", at_once)
    monkeypatch.setattr(IndexFile, "slots", some)
    assert findings_of(store)[0] == told
    assert set(taken) == {at_once} and len(taken) > GEOMETRY.hash_slot_num // at_once


def test_the_slots_of_one_index_file_are_in_memory(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a check makes of a file's items go before the next file's come."""
    made = at_most_one_table(indexcursor, monkeypatch)
    assert findings_of(store)[1].is_clean
    assert len(made) == len(list((store / "index").iterdir())) > 1


def test_an_index_that_is_gone_or_begins_late(store: Path) -> None:
    first, *rest = sorted((store / "index").iterdir())
    aside = store.parent / "aside"
    aside.mkdir()
    first.rename(aside / first.name)
    codes = {f.code for f in findings_of(store)[0]}
    assert "index-starts-late" in codes and "key-not-indexed" not in codes
    for path in rest:
        path.rename(aside / path.name)
    assert [f.code for f in findings_of(store)[0]] == ["index-missing"]
    # After a kill a young store may have come to no item yet: of that only a broker can tell.
    (store / "abort").touch()
    codes = {f.code for f in findings_of(store)[0]}
    assert codes in ({"unclean-shutdown", code} for code in ("index-missing", "index-behind"))


@pytest.mark.parametrize(
    ("aborts", "physic", "severity"),
    [(False, 0, ERROR), (True, 10**15, ERROR), (True, 0, INFO)],
    ids=["clean", "the checkpoint is newer", "the checkpoint is older"],
)
def test_an_index_that_has_lost_its_end(
    store: Path, aborts: bool, physic: int, severity: str
) -> None:
    """Only after a crash a broker dispatches again, from where the checkpoint says
    (``CommitLog#recoverAbnormally``): nothing else brings the keys of a record back."""
    sorted((store / "index").iterdir())[-1].unlink()
    if aborts:
        (store / "abort").touch()
        path = store / "checkpoint"
        path.write_bytes(physic.to_bytes(8, "big") * 2 + path.read_bytes()[16:])
    (found,) = (f for f in findings_of(store)[0] if f.structure == "index")
    assert (found.code, found.severity) == ("index-behind", severity)
    assert ("next start" in found.advice) == (severity == INFO)


def test_an_index_that_is_to_be_safe_is_made_again_from_its_own_time(store: Path) -> None:
    """With ``messageIndexSafe`` a start reads from where the checkpoint's index time leads."""
    sorted((store / "index").iterdir())[-1].unlink()
    (store / "abort").touch()
    write_checkpoint(store, store / "checkpoint", Checkpoint(10**15, 10**15, 0))
    for config, severity in ((CONFIG, ERROR), (replace(CONFIG, message_index_safe=True), INFO)):
        (found,) = (
            one
            for one in verify(store, config)
            if isinstance(one, Finding) and one.structure == "index"
        )
        assert (found.code, found.severity) == ("index-behind", severity)


def test_keys_of_a_file_that_cannot_be_read_are_not_missed(store: Path) -> None:
    """That its length is wrong is said; which keys it had nobody can tell."""
    last = sorted((store / "index").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:-20])
    assert [f.code for f in findings_of(store)[0]] == ["index-length-mismatch"]


@pytest.mark.parametrize("kind", ["a file", "a link to nothing"])
@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "consumequeue_ext", "index"])
def test_what_stands_in_place_of_a_directory_is_named(store: Path, name: str, kind: str) -> None:
    if (store / name).exists():
        (store / name).rename(store.parent / "aside")
    if kind == "a file":
        (store / name).touch()
    else:
        (store / name).symlink_to("nowhere")
    found = {row.code: row for row in findings_of(store)[0]}
    assert found["not-a-directory"].path == name
    assert found["not-a-directory"].severity == ERROR
    # Of a log nothing is made, and no repair moves it away.
    assert ("bring the log back" in found["not-a-directory"].advice) == (name == "commitlog")


@pytest.mark.parametrize(
    ("time", "is_named"),
    [
        *((0, True), (-1, True), (1 << 30, True), (1 << 62, True), (4_102_444_800_000, True)),
        *((1_325_376_000_000, False), (4_102_444_799_999, False)),
    ],
)
def test_a_store_time_that_no_clock_shows_is_named(store: Path, time: int, is_named: bool) -> None:
    """Of a message without keys nothing else tells."""
    with MessageStore(store, CONFIG) as opened:
        records = [entry for entry in opened.commit_log.walk() if isinstance(entry, Record)]
        bare = next(r for r in records if not {"KEYS", "UNIQ_KEY"} & r.properties.keys())
        mapped, position = opened.commit_log.locate(bare.physical_offset)
    fields = layouts.RECORD_PREFIX[bare.sys_flag & HOST_V6_MASK].fields
    at = position + next(field.offset for field in fields if field.name == "store_timestamp")
    with mapped.path.open("r+b") as file:
        file.seek(at)
        file.write(time.to_bytes(8, "big", signed=True))
    found = [one for one in findings_of(store)[0] if one.structure == "commitlog"]
    assert [(one.code, one.physical_offset, one.found) for one in found] == (
        [("store-time-implausible", bare.physical_offset, f"{time} ms")] if is_named else []
    )


def test_what_may_not_be_read_is_not_called_missing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of units and items that nobody has seen nothing is said, and nobody is told to make them
    anew."""
    refused = {
        min(path for path in (store / "consumequeue").rglob("*") if path.is_file()),
        min((store / "index").iterdir()),
    }
    before = findings_of(store)[0]
    assert not before
    access, opened = os.access, os.open

    def may(path: Any, mode: int, **more: Any) -> bool:
        return Path(path) not in refused and access(path, mode, **more)

    def opens(path: Any, flags: int, *more: Any, **names: Any) -> int:
        if isinstance(path, str | os.PathLike) and Path(path) in refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, flags, *more, **names)

    monkeypatch.setattr(os, "access", may)
    monkeypatch.setattr(os, "open", opens)
    found = findings_of(store)[0]
    assert {one.code for one in found} == {"unreadable-file"} and len(found) == len(refused)


def test_every_directory_that_cannot_be_listed_is_named(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the error that the first of them is; nothing below another one is."""
    topics = sorted((store / "consumequeue").iterdir())
    named = {topics[0] / "0", topics[1], store / "index", store / "commitlog"}
    refused = named | {topics[1] / "0"}
    access, listed = os.access, os.listdir

    def may(path: Any, mode: int, **more: Any) -> bool:
        return Path(path) not in refused and access(path, mode, **more)

    def lists(path: Any = ".") -> list[Any]:
        if isinstance(path, str | os.PathLike) and Path(path) in refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listed(path)

    monkeypatch.setattr(os, "access", may)
    monkeypatch.setattr(os, "listdir", lists)
    findings, told = verify(store, MessageStoreConfig()), set()
    with pytest.raises(CannotRead, match="Permission denied"):
        for one in findings:
            assert isinstance(one, Finding) and one.path is not None
            told.add((one.code, str(store / one.path)))
    assert told == {("unreadable-file", str(path)) for path in named}


@pytest.mark.parametrize("lost", [False, True], ids=["cut", "cut-and-lost"])
def test_what_a_cut_file_lacks_is_named_by_that_file(
    golden: Golden, tmp_path: Path, lost: bool
) -> None:
    """And not by a file that there never was, of the place where it ends."""
    root = copy_tree(golden("basic"), tmp_path / "cut")
    os.truncate(root / "commitlog" / f"{65536:020d}", 40000)
    if lost:
        (root / "commitlog" / f"{131072:020d}").unlink()
    found = [one for one in verify(root, MessageStoreConfig()) if isinstance(one, Finding)]
    (gap,) = [one for one in found if one.code == "commitlog-file-missing"]
    assert (gap.path, gap.position) == (f"commitlog/{65536:020d}", 40000)
    assert gap.physical_offset == 65536 + 40000
    assert gap.expected == f"65536 bytes of {65536:020d}"
    rest = f", and no file {131072:020d} (91072" if lost else " (25536"
    assert gap.found == f"40000 bytes{rest} bytes to the next record)"
