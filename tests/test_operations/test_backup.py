"""Backups: what is copied of a store at rest and of one that is written, and what comes back."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tarfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rmqctl.engine.files.answers import PATIENCE, NoAnswer
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import TIMER_CHECKPOINT
from rmqctl.engine.index.header import HEADER
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.queue.extension import ext_offset
from rmqctl.engine.queue.queuewriter import ConsumeQueueWriter
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.timer.timercheck import TimerCheckpoint, encode, read_timer_checkpoint
from rmqctl.errors import CannotWrite, CommitLogMissing
from rmqctl.operations.backup import archive as archives
from rmqctl.operations.backup import content as contents
from rmqctl.operations.backup import create as creating
from rmqctl.operations.backup import listing as listings
from rmqctl.operations.backup import manifest as manifests
from rmqctl.operations.backup import place as places
from rmqctl.operations.backup import source
from rmqctl.operations.backup.check import Verification
from rmqctl.operations.backup.create import Created, Wanted, create
from rmqctl.operations.backup.cut import scratch_copy
from rmqctl.operations.backup.errors import (
    BackupUnreachable,
    BackupUnsound,
    StoreChanging,
    TooManyFiles,
)
from rmqctl.operations.backup.manifest import MANIFEST
from rmqctl.operations.backup.restore import plan_restore, restore
from rmqctl.operations.verify.snapshot import newest_unit_end
from tests import golden_data
from tests.conftest import Golden
from tests.test_safety.support import Clock, assert_clean, findings, message, small_config, tree

CONFIG = small_config()
#: One of each kind of backup.
KINDS = ("full", "full.tar.zst")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Some log, queue and index files, and a ``config/``."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as opened:
        opened.put_messages([message(number) for number in range(700)])
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    (root / "config" / "topics.json").write_text("{}")
    return root


def backup(root: Path, output: Path, base: Path | None = None) -> Created:
    return create(Wanted(root, CONFIG, str(output), None if base is None else str(base)))


def restored(*backups: Path, output: Path) -> Path:
    restore(plan_restore([str(path) for path in backups], output))
    return output


def content(root: Path) -> dict[str, bytes]:
    """All files but ``lock``, which belongs to a process."""
    return {name: data for name, data in tree(root).items() if name != "lock"}


def problems(*backups: Path) -> list[dict[str, Any]]:
    return [dict(row) for row in Verification([str(path) for path in backups]).rows()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_comes_back_byte_for_byte(store: Path, tmp_path: Path, kind: str) -> None:
    (store / "abort").touch()
    (store / "empty" / "directory").mkdir(parents=True)
    (store / "config" / "nothing").touch()
    (store / "config" / "topics.json").chmod(0o640)
    os.utime(store / "config" / "topics.json", ns=(0, 1_600_000_000_123_000_000))
    before = tree(store)
    made = backup(store, tmp_path / kind)
    assert tree(store) == before and not made.manifest.head.is_live
    assert made.manifest.head.physical_offset == MessageStore(store, CONFIG).max_offset
    assert problems(tmp_path / kind) == []
    new = restored(tmp_path / kind, output=tmp_path / "new")
    assert content(new) == content(store)
    status = (new / "config" / "topics.json").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o640, 1_600_000_000_123_000_000)
    assert {path.name for path in tmp_path.iterdir()} >= {kind, "new"}
    assert not [path for path in tmp_path.iterdir() if "rmqctl-new" in path.name]


# Index files of the usual size take some seconds.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name == "defaults"))
        for name in golden_data.STORES
    ],
)
def test_every_golden_store_comes_back(golden: Golden, tmp_path: Path, name: str) -> None:
    root, output = golden(name), tmp_path / "full.tar.zst"
    create(Wanted(root, golden_data.broker_conf(name), str(output)))
    new = restored(output, output=tmp_path / "new")
    assert content(new) == content(root)
    # Not a block more than the store has, but for what its directories take.
    assert blocks(new) <= blocks(root)


@pytest.mark.parametrize("name", ["no-consumequeue", "hole", "short-last-file", "torn-tail"])
def test_a_damaged_store_is_copied_as_it_is(
    copy_store: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    damage = golden_data.damage_case(name)
    root = copy_store(damage["base"])
    golden_data.apply_damage(root, damage["ops"])
    create(Wanted(root, golden_data.broker_conf(damage["base"]), str(tmp_path / "full.tar.zst")))
    new = restored(tmp_path / "full.tar.zst", output=tmp_path / "new")
    assert content(new) == content(root)


def blocks(root: Path) -> int:
    return sum(path.stat().st_blocks for path in root.rglob("*") if path.is_file())


def test_other_tools_read_what_is_written(store: Path, tmp_path: Path) -> None:
    """A tar program gives the store back, holes as holes; a directory has it as it is."""
    backup(store, tmp_path / "full")
    backup(store, tmp_path / "full.tar.zst")
    assert content(tmp_path / "full" / "store") == content(store)
    assert blocks(tmp_path / "full" / "store") <= blocks(store)
    plain = tmp_path / "full.tar"
    with (tmp_path / "full.tar.zst").open("rb") as packed, plain.open("wb") as file:
        decompressor = zstandard.ZstdDecompressor()
        shutil.copyfileobj(decompressor.stream_reader(packed, read_across_frames=True), file)
    with tarfile.open(plain) as archive:
        if hasattr(tarfile, "tar_filter"):  # Python 3.11.4 and later
            archive.extractall(tmp_path / "python", filter="tar")
        else:
            archive.extractall(tmp_path / "python")
    assert content(tmp_path / "python" / "store") == content(store)
    if shutil.which("tar"):
        (tmp_path / "gnu").mkdir()
        subprocess.run(["tar", "-xf", plain, "-C", tmp_path / "gnu"], check=True)
        assert content(tmp_path / "gnu" / "store") == content(store)
        assert (tmp_path / "gnu" / MANIFEST).is_file()


@pytest.mark.parametrize("kinds", [("full", "a", "b"), ("full.tar.zst", "a.tar.zst", "b")])
def test_a_chain_is_restored_in_one_go(store: Path, tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """What was appended is stored as a range, what was written over as a file; what has gone is
    gone; and each backup of the chain gives its own store."""
    places = [tmp_path / kind for kind in kinds]
    states, stored, base = [], [], None
    for number, place in enumerate(places):
        if number:
            with MessageStore(store, CONFIG, writable=True, clock=Clock(1 << 41)) as opened:
                opened.put_messages([message(1000 * number + n) for n in range(40)])
            (store / "config" / "topics.json").write_text(f"{{{number}}}")
            (store / "config" / f"new-{number}.json").touch()
        if number == 2:
            (store / "config" / "new-1.json").unlink()
            (store / "commitlog" / ("0" * 20)).unlink()
        made = backup(store, place, base)
        states.append(content(store))
        stored.append(made.manifest.files)
        base = place
    log = max(name for name in stored[1] if name.startswith("commitlog/"))
    assert stored[1][log].stored_from == stored[0][log].data_end > 0
    assert stored[1][log].stored_bytes < 1 << 14
    unchanged = stored[1]["commitlog/" + "0" * 20]
    assert (unchanged.stored_from, unchanged.stored_bytes) == (unchanged.data_end, 0)
    for number, state in enumerate(states):
        named = places[number::-1]  # The newest first.
        assert content(restored(*named, output=tmp_path / f"new-{number}")) == state
    assert problems(*places) == []


@pytest.mark.parametrize("name", ["commitlog", "consumequeue"])
@pytest.mark.parametrize("first", ["cut", "whole"])
@pytest.mark.parametrize("kinds", [("full", "a"), ("full.tar.zst", "a.tar.zst")], ids=str)
def test_a_file_of_which_the_length_alone_has_changed_comes_back(
    store: Path, tmp_path: Path, kinds: tuple[str, str], first: str, name: str
) -> None:
    """As a rebuild, or who brings a log file back, leaves it."""
    path = max(one for one in (store / name).rglob("*") if one.is_file())
    whole = path.stat().st_size
    lengths = [len(path.read_bytes().rstrip(b"\0")) + 40, whole]
    assert lengths[0] < whole
    if first == "whole":
        lengths.reverse()
    os.truncate(path, lengths[0])
    full, more = (tmp_path / kind for kind in kinds)
    backup(store, full)
    os.truncate(path, lengths[1])
    backup(store, more, full)
    assert not problems(full, more)
    assert content(restored(full, more, output=tmp_path / "new")) == content(store)


def test_a_quiet_store_is_listed_before_and_after_the_copy_only(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[Path] = []
    walk = os.walk

    def counted(start: Path, **options: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        walked.append(start)
        return walk(start, **options)

    monkeypatch.setattr(os, "walk", counted)
    backup(store, tmp_path / "backup")
    assert walked.count(store) == 2


@pytest.mark.parametrize("with_base", [False, True])
def test_progress_goes_up_to_all_that_is_there(
    store: Path, tmp_path: Path, with_base: bool
) -> None:
    """A file of a queue takes a whole block and has few bytes; a file that has changed since the
    base is read twice."""
    base = None
    if with_base:
        base = tmp_path / "base"
        backup(store, base)
        with (store / "config" / "topics.json").open("r+b") as file:
            file.write(b"[" * 5000)
    told: list[tuple[int, int]] = []
    wanted = Wanted(store, CONFIG, str(tmp_path / "full"), None if base is None else str(base))
    create(wanted, lambda done, total: told.append((done, total)))
    files = (path for path in store.rglob("*") if path.is_file() and path.name != "lock")
    allocated = [path.stat().st_blocks * 512 for path in files]
    assert {total for _, total in told} == {sum(allocated)}
    assert told == sorted(told) and sum(allocated) - told[-1][0] <= max(allocated)


def test_a_store_without_its_log_is_not_backed_up(store: Path, tmp_path: Path) -> None:
    """Its disk is not mounted, or the configuration is another: no backup is without messages."""
    (store / "commitlog").rename(tmp_path / "elsewhere")
    for kind in KINDS:
        with pytest.raises(CommitLogMissing):
            backup(store, tmp_path / kind)
        assert not (tmp_path / kind).exists()


def decompressed(archive: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(archive, read_across_frames=True)
    data: bytes = reader.read()
    return data


def test_a_flipped_bit_is_damage_of_one_archive(store: Path, tmp_path: Path) -> None:
    """Wherever it is: in the files, in the manifest, in the checksum of either frame. There are
    bits of compressed blocks that change nothing (one in some thousand): with those flipped the
    archive still is what it was."""
    sound, flipped = tmp_path / "full.tar.zst", tmp_path / "flipped.tar.zst"
    backup(store, sound)
    data = sound.read_bytes()
    frames_end = len(data) - archives._FOOTER.size
    near_the_end = range(frames_end - 40, frames_end)
    found_count = 0
    for at in [*range(600, len(data) - 600, len(data) // 20), *near_the_end]:
        flipped.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        found = problems(flipped)
        if not found:
            assert decompressed(flipped.read_bytes()) == decompressed(data), at
            continue
        found_count += 1
        assert all(row["backup"] == str(flipped) for row in found), at
        with pytest.raises(BackupUnsound):
            restored(flipped, output=tmp_path / "new")
        assert not (tmp_path / "new").exists()
    assert found_count > 50


def test_nobody_reads_holes_for_hours(store: Path, tmp_path: Path) -> None:
    """A manifest may claim as many zeros as a file system has holes."""
    backup(store, tmp_path / "full")
    path = max((tmp_path / "full" / "store" / "commitlog").iterdir())
    size, name = 1 << 43, f"commitlog/{path.name}"
    os.truncate(path, size)
    with path.open("r+b") as file:
        file.seek(size - 1)
        file.write(b"x")
    lines = (tmp_path / "full" / MANIFEST).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if row.get("path") == name:
            row["size"] = row["data_end"] = size
    (tmp_path / "full" / MANIFEST).write_text(
        "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    )
    (row,) = problems(tmp_path / "full")
    assert "larger holes" in row["what"]


def test_a_manifest_alone_is_a_base(store: Path, tmp_path: Path) -> None:
    full = backup(store, tmp_path / "full")
    more = create(Wanted(store, CONFIG, str(tmp_path / "more"), str(tmp_path / "full" / MANIFEST)))
    assert more.manifest.head.base == full.manifest.id
    assert sum(entry.stored_bytes for entry in more.manifest.files.values()) == 0
    new = restored(tmp_path / "more", tmp_path / "full", output=tmp_path / "new")
    assert content(new) == content(store)


def test_links_are_followed_and_what_is_no_file_is_told(store: Path, tmp_path: Path) -> None:
    """A log on another disk is a link to a directory, mostly."""
    before = content(store)
    (store / "commitlog").rename(tmp_path / "disk")
    (store / "commitlog").symlink_to(tmp_path / "disk")
    (store / "loop").symlink_to(store)
    (store / "nowhere").symlink_to(tmp_path / "none")
    os.mkfifo(store / "pipe")
    made = backup(store, tmp_path / "full.tar.zst")
    assert made.left_out == ["nowhere", "pipe"]
    new = content(restored(tmp_path / "full.tar.zst", output=tmp_path / "new"))
    assert {name: new[name] for name in before} == before


def test_a_log_in_several_directories_comes_back_in_one(store: Path, tmp_path: Path) -> None:
    before = content(store)
    directories = [tmp_path / "disk-1", tmp_path / "disk-2"]
    for directory in directories:
        directory.mkdir()
        (directory / "notes.txt").write_text(f"of {directory.name}")
    for number, path in enumerate(sorted((store / "commitlog").iterdir())):
        path.rename(directories[number % 2] / path.name)
    (store / "commitlog").rmdir()
    spread = MessageStoreConfig(
        store_path_commit_log=f"{directories[0]},{directories[1]}",
        mapped_file_size_commit_log=CONFIG.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=CONFIG.mapped_file_size_consume_queue,
    )
    (store / "commitlog").mkdir()
    (store / "commitlog" / "stray").touch()
    before["commitlog/notes.txt"] = b"of disk-1"
    for kind in KINDS:
        made = create(Wanted(store, spread, str(tmp_path / kind)))
        assert made.left_out == [str(tmp_path / "disk-2/notes.txt"), "commitlog/stray"]
        assert content(restored(tmp_path / kind, output=tmp_path / f"new-{kind}")) == before


def test_memory_does_not_grow_with_a_file(store: Path, tmp_path: Path) -> None:
    """Of a file of 24 MiB that does not compress some pieces are held at a time."""
    (store / "config" / "large").write_bytes(random.Random(1).randbytes(24 << 20))
    # What is loaded once counts for nothing.
    backup(tmp_path / "store", tmp_path / "warm.tar.zst")
    tracemalloc.start()
    try:
        backup(store, tmp_path / "full.tar.zst")
        backup(store, tmp_path / "more", tmp_path / "full.tar.zst")
        assert problems(tmp_path / "full.tar.zst") == []
        restored(tmp_path / "full.tar.zst", output=tmp_path / "new")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


# --- a store that is written meanwhile -------------------------------------------------------


@pytest.fixture
def broker(store: Path) -> Iterator[WritableStore]:
    with WritableStore(store, CONFIG, clock=Clock(1 << 41)) as opened:
        yield opened


def live(
    store: Path,
    output: Path,
    happens: Callable[[], None],
    moments: int,
    config: MessageStoreConfig = CONFIG,
) -> Created:
    """A backup while somebody writes: something happens each so many files and pieces."""
    seen = 0

    def progress(done: int, total: int) -> None:
        nonlocal seen
        seen += 1
        if seen % moments == 0:
            happens()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creating, "is_locked", lambda root: True)
        patch.setattr(source, "_DISPATCH_SECONDS", 0.001)
        return create(Wanted(store, config, str(output)), progress)


def judge(written: WritableStore, made: Created, new: Path) -> None:
    """The new store is clean, has the log up to the named offset and no more, and opens with all
    of its messages where they were."""
    head = made.manifest.head
    assert head.is_live and head.physical_offset is not None
    assert not (new / "abort").exists()
    # No file of a queue that has no units before that offset.
    files = [path for path in (new / "consumequeue").rglob("*") if path.is_file()]
    assert files and all(path.read_bytes().strip(b"\0") for path in files)
    assert_clean(new, CONFIG, "not-dispatched", "log-starts-late")
    with MessageStore(new, CONFIG) as store:
        assert store.max_offset == head.physical_offset
    with WritableStore(new, CONFIG) as store:
        assert store.max_offset == head.physical_offset
        for number in range(3):
            assert store.put_message(message(number)).is_ok
        for where in store.queues.directories():
            queue = store.consume_queue(where.topic, where.queue_id)
            theirs = written.consume_queue(where.topic, where.queue_id)
            assert queue is not None and theirs is not None
            for at in range(queue.min_offset, queue.max_offset):
                unit = queue.unit(at)
                if unit is not None and unit.physical_offset < head.physical_offset:
                    assert theirs.unit(at) == unit
    assert_clean(new, CONFIG, "log-starts-late")


@pytest.mark.parametrize("moments", [1, 3, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_messages_come_while_it_is_copied(
    store: Path, broker: WritableStore, tmp_path: Path, kind: str, moments: int
) -> None:
    number = 10_000

    def happens() -> None:
        nonlocal number
        broker.put_messages([message(number + n) for n in range(50)])
        number += 50

    before = broker.max_offset
    made = live(store, tmp_path / kind, happens, moments)
    assert number > 10_000 and made.manifest.head.physical_offset is not None
    assert before <= made.manifest.head.physical_offset < broker.max_offset
    judge(broker, made, restored(tmp_path / kind, output=tmp_path / "new"))


@pytest.mark.parametrize("name", ["dledger", "dledger-converted"])
def test_the_log_of_a_dledger_group_stays_its_own(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    root, config = golden(name), golden_data.broker_conf(name)
    create(Wanted(root, config, str(tmp_path / "full")))
    new = restored(tmp_path / "full", output=tmp_path / "new")
    assert content(new) == content(root)


def test_the_clock_of_the_timer_is_not_ahead_of_the_log(
    store: Path, broker: WritableStore, tmp_path: Path
) -> None:
    """What a broker of 5.x delivered between the two would be in no log, and never be delivered."""
    path = store / TIMER_CHECKPOINT

    def happens() -> None:
        assert broker.put_message(message(0)).is_ok
        path.write_bytes(encode(TimerCheckpoint(broker.max_offset)))

    happens()
    made = live(store, tmp_path / "full", happens, 1)
    new = restored(tmp_path / "full", output=tmp_path / "new")
    found = read_timer_checkpoint(new / TIMER_CHECKPOINT)
    end = made.manifest.head.physical_offset
    assert found is not None and end is not None and found.read_timestamp <= end


@pytest.mark.parametrize("where", ["queues", "index"])
def test_a_bulk_of_which_one_queue_only_has_its_units_is_waited_for(
    store: Path,
    broker: WritableStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """rmqctl's own writers put the units of a bulk queue by queue, and its keys behind them: the
    newest unit of all may be there while others are not."""
    is_amid, goes_on = threading.Event(), threading.Event()

    def held(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            newest = newest_unit_end(store, CONFIG.mapped_file_size_consume_queue)
            if newest == broker.max_offset:
                is_amid.set()
                assert goes_on.wait(60)
            return real(*arguments)

        return call

    owner = ConsumeQueueWriter if where == "queues" else IndexServiceWriter
    for name in {"put_run", "put_batch"} & vars(owner).keys():
        monkeypatch.setattr(owner, name, held(getattr(owner, name)))
    # The last message is one of the queue that is written first.
    some = [message(10_000 + n, "topic0", (n + 1) % 2) for n in range(300)]
    writer = threading.Thread(target=broker.put_messages, args=[some])
    writer.start()
    assert is_amid.wait(60)

    def sleep(seconds: float) -> None:
        goes_on.set()
        writer.join()

    monkeypatch.setattr("rmqctl.operations.backup.source.time.sleep", sleep)
    try:
        made = live(store, tmp_path / "full", lambda: None, 1)
    finally:
        goes_on.set()
        writer.join()
    assert made.manifest.head.dispatched_offset == broker.max_offset
    new = restored(tmp_path / "full", output=tmp_path / "new")
    assert_clean(new, CONFIG)


@pytest.mark.parametrize("there", [1, 2])
def test_a_message_of_which_only_some_keys_are_indexed_is_waited_for(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    """A broker counts each item by itself, and its index names the message from the first one on
    (``IndexFile#putKey``)."""
    with WritableStore(store, CONFIG, clock=Clock(1 << 41)) as broker:
        before = max((store / "index").iterdir())
        assert broker.put_message(message(1, keys=0)).is_ok
        assert broker.put_message(message(2, keys=3)).is_ok
    newest = max((store / "index").iterdir())
    assert newest == before
    whole = newest.read_bytes()
    at = HEADER.size - 4
    count = int.from_bytes(whole[at : at + 4], "big")
    amid = bytearray(whole)
    amid[at : at + 4] = (count - 3 + there).to_bytes(4, "big")
    newest.write_bytes(amid)

    def sleep(seconds: float) -> None:
        newest.write_bytes(whole)

    monkeypatch.setattr("rmqctl.operations.backup.source.time.sleep", sleep)
    live(store, tmp_path / "full", lambda: None, 1)
    assert_clean(restored(tmp_path / "full", output=tmp_path / "new"), CONFIG)


def test_an_index_file_that_is_being_made_is_left_out(store: Path, tmp_path: Path) -> None:
    """It has a name before it has its length (``MappedFile#init``)."""
    made, other = store / "index" / "20991231235959999", store / "index" / "notes"
    made.touch()
    assert {one.code for one in findings(store, CONFIG)} == {"index-length-mismatch"}
    other.touch()
    live(store, tmp_path / "full", lambda: None, 1)
    new = restored(tmp_path / "full", output=tmp_path / "new")
    assert_clean(new, CONFIG, "foreign-file")
    assert not (new / "index" / made.name).exists() and (new / "index" / other.name).exists()


def test_units_of_an_extension_that_come_while_it_is_copied(tmp_path: Path) -> None:
    """What no unit of the copy points to is not in it, and a start walks through what is."""
    config = replace(CONFIG, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=400)
    root, number = tmp_path / "store", 0
    with WritableStore(root, config, create=True, clock=Clock()) as broker:
        broker.put_messages([message(n) for n in range(300)])

        def happens() -> None:
            nonlocal number
            broker.put_messages([message(10_000 + number + n) for n in range(30)])
            number += 30

        made = live(root, tmp_path / "full.tar.zst", happens, 2, config)
        assert number and made.manifest.head.physical_offset != broker.max_offset
    new = restored(tmp_path / "full.tar.zst", output=tmp_path / "new")
    assert_clean(new, config)
    with MessageStore(new, config) as store:
        for where in store.queues.directories():
            queue = store.consume_queue(where.topic, where.queue_id)
            assert queue is not None and queue.ext is not None
            assert queue.ext.sizes_astray() is None
            unit = queue.unit(queue.max_offset - 1)
            assert unit is not None
            last = queue.ext.get(unit.tags_code)
            offset = ext_offset(unit.tags_code)
            assert last is not None and offset is not None
            file = queue.ext.files.file(len(queue.ext.files.entries) - 1)
            end = file.file_from_offset + file.end_of_data(0)
            assert offset < end <= offset + last.size
    with WritableStore(new, config) as store:
        assert store.put_messages([message(n) for n in range(50)])[-1].is_ok
    assert_clean(new, config)


def test_the_oldest_files_go_while_it_is_copied(
    store: Path, broker: WritableStore, tmp_path: Path
) -> None:
    """As retention takes them: what is copied has no gap."""

    def happens() -> None:
        files = sorted((store / "commitlog").iterdir())
        if len(files) > 2:
            files[0].unlink()

    made = live(store, tmp_path / "full", happens, 1)
    new = restored(tmp_path / "full", output=tmp_path / "new")
    kept = sorted(path.name for path in (new / "commitlog").iterdir())
    assert len(kept) > 1 and made.manifest.head.physical_offset == broker.max_offset
    sizes = {int(b) - int(a) for a, b in pairwise(kept)}
    assert sizes == {CONFIG.mapped_file_size_commit_log}


def test_queues_that_lag_are_cut_where_all_had_been_dispatched(
    store: Path, broker: WritableStore, tmp_path: Path
) -> None:
    """A dispatcher that stands still while the log goes on: the next start dispatches the rest."""
    queue = store / "consumequeue" / "topic0" / "0"
    with MessageStore(store, CONFIG) as opened:
        newest = max(unit[0] for unit in opened.newest_units())
    for path in queue.iterdir():
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 20):
            if int.from_bytes(data[at : at + 8], "big") == newest:
                data[at : at + 20] = bytes(20)
        path.write_bytes(data)
    made = live(store, tmp_path / "full", lambda: None, 1)
    head = made.manifest.head
    assert head.dispatched_offset is not None and head.physical_offset is not None
    assert head.dispatched_offset <= head.physical_offset
    judge(broker, made, restored(tmp_path / "full", output=tmp_path / "new"))


def test_a_log_with_damage_is_copied_to_its_end(store: Path, tmp_path: Path) -> None:
    """The dispatch of a running broker stands still there; what is behind is not given up."""
    log = sorted((store / "commitlog").iterdir())
    with log[1].open("r+b") as file:
        file.write(b"\xff" * 30)
    shutil.rmtree(store / "consumequeue")
    made = live(store, tmp_path / "full.tar.zst", lambda: None, 1)
    head = made.manifest.head
    assert head.dispatched_offset == 0 and head.physical_offset is not None
    assert head.physical_offset > int(log[-1].name)
    new = restored(tmp_path / "full.tar.zst", output=tmp_path / "new")
    assert tree(new / "commitlog") == tree(store / "commitlog")


def test_who_writes_without_a_lock_that_is_seen_is_noticed(store: Path, tmp_path: Path) -> None:
    """A broker in another container: the copy begins anew, as of a store that is written."""
    with WritableStore(store, CONFIG, clock=Clock(1 << 41)) as broker:
        number = 10_000

        def happens(done: int, total: int) -> None:
            nonlocal number
            assert broker.put_message(message(number)).is_ok
            number += 1

        made = create(Wanted(store, CONFIG, str(tmp_path / "full.tar.zst")), happens)
        judge(broker, made, restored(tmp_path / "full.tar.zst", output=tmp_path / "new"))


@pytest.mark.parametrize("name", ["consumerOffset.json", "lmqConsumerOffset.json"])
def test_offsets_of_consumers_are_never_ahead_of_their_queues(
    name: str, store: Path, broker: WritableStore, tmp_path: Path
) -> None:
    """They, and the checkpoint, are those of the begin; topics are those of the end."""
    config = store / "config"
    (config / "consumerOffset.json").rename(config / name)  # A broker has one of them.
    before = {name: (store / name).read_bytes() for name in ("checkpoint", "config/topics.json")}
    moments = 0

    def happens() -> None:
        nonlocal moments
        moments += 1
        if moments == 2:  # The first pieces are those of the offsets and of the checkpoint.
            (config / name).write_text('{"offsetTable":{"t@g":{"0":999}}}')
            (config / "topics.json").write_text('{"a":1}')
            broker.put_messages([message(n) for n in range(50)])
            broker.flush()

    live(store, tmp_path / "full", happens, 1)
    new = restored(tmp_path / "full", output=tmp_path / "new")
    assert (new / "config" / name).read_text() == '{"offsetTable":{}}'
    assert (new / "checkpoint").read_bytes() == before["checkpoint"]
    assert (new / "config" / "topics.json").read_text() == '{"a":1}'
    assert (store / "checkpoint").read_bytes() != before["checkpoint"]


def test_a_file_that_is_about_to_be_renamed_is_waited_for(
    store: Path, broker: WritableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``MixAll#string2File`` deletes the old file before it renames the new one."""
    config = store / "config"
    (config / "consumerOffset.json").rename(config / "consumerOffset.json.tmp")
    (config / "broken.json.tmp").write_text("half of it")
    waited = 0

    def sleep(seconds: float) -> None:
        nonlocal waited
        waited += 1
        if waited == 2:
            (config / "consumerOffset.json.tmp").rename(config / "consumerOffset.json")

    monkeypatch.setattr("rmqctl.operations.backup.source.time.sleep", sleep)
    live(store, tmp_path / "full", lambda: None, 1)
    new = restored(tmp_path / "full", output=tmp_path / "new")
    assert waited >= 2
    names = sorted(path.name for path in (new / "config").iterdir())
    assert names == ["consumerOffset.json", "topics.json"]


def test_a_log_that_is_cut_meanwhile_is_an_error(store: Path, tmp_path: Path) -> None:
    last = max((store / "commitlog").iterdir())

    def happens() -> None:
        with last.open("r+b") as file:
            size = last.stat().st_size
            file.truncate(0)
            file.truncate(size)

    shutil.rmtree(store / "consumequeue")
    with pytest.raises(StoreChanging, match="its log was cut"):
        live(store, tmp_path / "full", happens, 4)
    assert not (tmp_path / "full").exists()
    assert not [path for path in tmp_path.iterdir() if "rmqctl-new" in path.name]


def test_a_repair_meanwhile_is_an_error(store: Path, broker: WritableStore, tmp_path: Path) -> None:
    """Queues of before it, and its journal of after it, would be no store."""
    (store / "rmqctl-repair" / "new").mkdir(parents=True)
    (store / "rmqctl-repair" / "new" / "built").write_text("half of it")
    live(store, tmp_path / "first", lambda: None, 1)
    assert "rmqctl-repair" not in str(sorted(tree(tmp_path / "first")))

    def happens() -> None:
        (store / "rmqctl-backup-20260101000000000000").mkdir(exist_ok=True)

    with pytest.raises(StoreChanging, match="its parts were made anew"):
        live(store, tmp_path / "second", happens, 1)
    (store / "rmqctl-repair" / "journal.json").write_text("{}")
    live(store, tmp_path / "third", lambda: None, 1)

    def moves() -> None:
        (store / "rmqctl-repair" / "old").mkdir(exist_ok=True)

    with pytest.raises(StoreChanging, match="its parts were made anew"):
        live(store, tmp_path / "fourth", moves, 1)


def test_what_is_written_can_be_read_again(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a reader refuses, for it would take for ever, is never written: large holes, files
    longer than any, more files than a list may have."""
    monkeypatch.setattr(contents, "MOST_HOLE_BYTES", 1 << 20)
    monkeypatch.setattr(archives, "MOST_HOLE_BYTES", 1 << 20)
    monkeypatch.setattr(listings, "MOST_SIZE", 1 << 24)
    monkeypatch.setattr(manifests, "MOST_SIZE", 1 << 24)
    with (store / "core").open("wb") as file:
        file.truncate(3 << 20)
        file.seek(2 << 20)
        file.write(b"x")
    before = content(store)
    with (store / "longer").open("wb") as file:
        file.truncate((1 << 24) + 1)
    made = backup(store, tmp_path / "full.tar.zst")
    assert made.left_out == ["longer"] and problems(tmp_path / "full.tar.zst") == []
    new = restored(tmp_path / "full.tar.zst", output=tmp_path / "new")
    assert content(new) == before
    assert (new / "core").stat().st_blocks <= 16
    monkeypatch.setattr(manifests, "_LONGEST", 1 << 10)
    for kind in KINDS:
        with pytest.raises(TooManyFiles):
            backup(store, tmp_path / f"more-{kind}")
    assert not [path for path in tmp_path.iterdir() if "more" in path.name]


def test_no_backup_is_written_into_the_log(store: Path, tmp_path: Path) -> None:
    """Wherever that lies: a broker does not start with a strange file there."""
    (store / "commitlog").rename(tmp_path / "disk")
    elsewhere = replace(CONFIG, store_path_commit_log=f"{tmp_path / 'disk'},")
    for config in (elsewhere, CONFIG):
        if config is CONFIG:
            (store / "commitlog").symlink_to(tmp_path / "disk")
        for kind in KINDS:
            with pytest.raises(CannotWrite, match="inside the store"):
                create(Wanted(store, config, str(tmp_path / "disk" / kind)))
    assert "full" not in str(list((tmp_path / "disk").iterdir()))


def test_a_copy_that_the_disk_takes_in_pieces_is_whole(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda d, data, at: pwrite(d, bytes(data)[:99], at))
    path = min((store / "index").iterdir())
    copy = scratch_copy(tmp_path, MappedFile.open(path))
    assert bytes(copy.buffer) == path.read_bytes()


@pytest.mark.parametrize("answers", [0, 1])
@pytest.mark.parametrize("use", [places.opened, places.created])
def test_a_url_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, answers: int, use: Callable[[str], Any]
) -> None:
    memory = pytest.importorskip("fsspec.implementations.memory")
    monkeypatch.setattr(memory.MemoryFileSystem, "exists", lambda *asked: use is places.opened)
    asked: list[float | None] = []

    def answer(ask: Callable[[], Any], within: float | None) -> Any:
        asked.append(within)
        if len(asked) > answers:
            raise NoAnswer("no answer within 30 seconds")
        return ask()

    monkeypatch.setattr(places, "answered", answer)
    with (
        pytest.raises(BackupUnreachable, match="no answer within 30 seconds"),
        use("memory://away/full.tar.zst"),
    ):
        pass
    assert asked == [PATIENCE] * (answers + 1)
