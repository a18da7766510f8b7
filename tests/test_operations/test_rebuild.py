"""rebuild to a new directory: there when it is whole, and not before; and of many queues."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.derive import writer
from rmqctl.engine.derive.writer import DerivedWriter
from rmqctl.engine.files import durable, mappedfile, paths, writeback
from rmqctl.engine.files.unfinished import BESIDE
from rmqctl.engine.files.writeback import begin_writing
from rmqctl.engine.index import newindexfile
from rmqctl.engine.index.newindexfile import NewIndexFile
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue import queuetablewriter
from rmqctl.engine.queue.consumequeue import KEEP, ConsumeQueue
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.record.filler import filler
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.errors import CannotWrite, OutputExists, OutputInUse
from rmqctl.operations.mend import onepass
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from tests.descriptors import open_descriptors
from tests.golden_data import index_contents, tree_content
from tests.test_operations.small_store import (
    CONFIG,
    at_most_one_table,
    findings_of,
    make_small_store,
)

ROOT = Path(__file__).parents[2]
#: A rebuild that is ended when all is written and nothing on disk.
ENDED = """
import os, sys
from pathlib import Path
from rmqctl.engine.derive.writer import DerivedWriter
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from tests.test_operations.small_store import CONFIG
DerivedWriter.flush = lambda self: os.kill(os.getpid(), int(sys.argv[3]))
rebuild_to(plan_rebuild(Path(sys.argv[1]), CONFIG, "all"), Path(sys.argv[2]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_small_store(tmp_path / "store")


def rebuild(store: Path, output: Path, jobs: int = 1) -> None:
    rebuild_to(plan_rebuild(store, CONFIG, "all"), output, jobs=jobs)


def queues_of(root: Path) -> dict[str, tuple[int, dict[int, bytes]]]:
    return {name: data for name, data in tree_content(root).items() if name.startswith("cons")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("exists", [False, True])
def test_what_was_ended_has_no_name(store: Path, number: int, exists: bool) -> None:
    """Half a queue would look like a whole one. The next run removes what is left."""
    output = store.parent / "new"
    if exists:
        output.mkdir()
    command = [sys.executable, "-c", ENDED, str(store), str(output), str(int(number))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert done.returncode == -number, done.stderr
    left = output.with_name(output.name + BESIDE)
    assert output.exists() == exists and (left / "consumequeue").is_dir()
    assert not exists or not any(output.iterdir())
    (left / "consumequeue" / "of an older run").mkdir()
    rebuild(store, output)
    assert queues_of(output) == queues_of(store) and not left.exists()
    assert sorted(path.name for path in output.iterdir()) == ["consumequeue", "index"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_slots_of_one_index_file_are_in_memory(
    jobs: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are 20 MB by default: a full file's go before the next one's come."""
    made = at_most_one_table(newindexfile, monkeypatch)
    rebuild(store, store.parent / "new", jobs)
    assert len(made) == len(list((store / "index").iterdir())) > 1


def test_of_some_queues_no_others_are_built(store: Path) -> None:
    """As a repair asks for them: others would take the time, and the room, of all."""
    output = store.parent / "output"
    with MessageStore(store, CONFIG) as opened:
        queues = [(one.topic, one.queue_id) for one in opened.queues.directories()]
    assert len(queues) > 2
    plan = replace(plan_rebuild(store, CONFIG, "all"), only=frozenset(queues[:2]))
    summary = rebuild_to(plan, output)
    built = {(one.topic, one.queue_id) for one in paths.queue_directories(output / "consumequeue")}
    assert built == set(queues[:2]) and summary.queues == 2
    for topic, queue_id in built:
        name = f"{topic}/{queue_id}"
        new, old = (tree_content(root / "consumequeue" / name) for root in (output, store))
        assert new == old


def test_what_fails_leaves_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(store.parent.iterdir())

    def fail(_: DerivedWriter) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DerivedWriter, "flush", fail)
    with pytest.raises(KeyboardInterrupt):
        rebuild(store, store.parent / "new")
    assert sorted(store.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("which", "what"),
    [
        *((ConsumeQueueTableWriter, "flush"), (NewIndexFile, "flush")),
        (durable, "sync_directories"),
    ],
)
def test_a_disk_that_fails_at_the_end_is_told(
    which: object, what: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues, index and names are forced to disk at once; the error of each comes out."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk failed")

    before = sorted(store.parent.iterdir())
    monkeypatch.setattr(which, what, fail)
    with pytest.raises(CannotWrite, match=os.strerror(errno.EIO)):
        rebuild(store, store.parent / "new", jobs=2)
    assert sorted(store.parent.iterdir()) == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_names_are_forced_to_disk_when_all_files_have_theirs(
    jobs: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each directory is, after its last one came; with several threads the first bulk's names are
    while the log is read."""
    monkeypatch.setattr(writer, "_FIRST_UNITS", 1)
    monkeypatch.setattr(writer, "_UNITS_OF_QUEUE", 0)
    sync, on_disk, calls = os.fsync, {}, 0

    def noted(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            on_disk[status.st_ino] = sorted(os.listdir(descriptor))
        sync(descriptor)

    def counted(*given: Any) -> None:
        nonlocal calls
        calls += 1
        sync_directories(*given)

    sync_directories = durable.sync_directories
    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(durable, "sync_directories", counted)
    output = store.parent / "new"
    rebuild(store, output, jobs=jobs)
    directories = [output, *(path for path in output.rglob("*") if path.is_dir())]
    for directory in directories:
        assert on_disk[directory.stat().st_ino] == sorted(os.listdir(directory))
    assert calls == jobs and output / "index" in directories and len(directories) > 4


@pytest.mark.parametrize(
    ("has_call", "together"), [(True, 1), (True, 70), (True, 1 << 20), (False, 1)]
)
def test_items_are_on_their_way_to_disk_before_the_end(
    has_call: bool, together: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of them once, as many as are written together, and of the slots; where the system
    has no such call nothing else changes."""
    begun: list[tuple[int, int]] = []

    def noted(descriptor: int, start: int, end: int) -> None:
        assert end <= os.fstat(descriptor).st_size
        begun.append((start, end))
        begin_writing(descriptor, start, end)

    if not has_call:
        monkeypatch.setattr(writeback, "_function", lambda: None)
    monkeypatch.setattr(newindexfile, "begin_writing", noted)
    monkeypatch.setattr(newindexfile, "_WRITTEN_AT_ONCE", together)
    monkeypatch.setattr(newindexfile, "_BEGUN_AT_ONCE", 1)
    output = store.parent / "new"
    rebuild(store, output)
    assert index_contents(output / "index") == index_contents(store / "index")
    slots_end, first = map(CONFIG.index_geometry.item_position, (0, 1))
    files = len(list((output / "index").iterdir()))
    items = [(start, end) for start, end in begun if start >= first]
    assert items[0][0] == first and [start for start, _ in items].count(first) == files
    assert all(start in (end, first) for (_, end), (start, _) in pairwise(items))
    # What is left at the end of a file is written then, however little it is.
    small = [end for start, end in items if end - start < together]
    assert len(small) <= files and (together < 1 << 20 or len(items) == files)
    slots = [(start, end) for start, end in begun if start < first]
    assert slots == [(CONFIG.index_geometry.slot_position(0), slots_end)] * files


@pytest.mark.parametrize(("slots", "messages"), [(20, 60), (200_000, 300), (200_000, 3000)])
def test_slots_are_stored_in_large_pieces_where_there_are_many_items(
    slots: int, messages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is the same."""
    config = replace(CONFIG, max_hash_slot_num=slots, max_index_num=10_000)
    with MessageStore(tmp_path / "store", config, writable=True, create=True) as store:
        for number in range(messages):
            message = MessageExtBrokerInner("topic", b"body", properties={"KEYS": f"key{number}"})
            assert store.put_message(message, flush=False).is_ok
    # Never large ones; one; and several.
    for number, (items, size) in enumerate([(10**9, 1), (1, 1 << 20), (1, 1 << 15)]):
        monkeypatch.setattr(newindexfile, "_MANY_ITEMS", items)
        monkeypatch.setattr(newindexfile, "_LARGE_PIECE", size)
        output = tmp_path / str(number)
        rebuild_to(plan_rebuild(tmp_path / "store", config, "all"), output, jobs=2)
        (built,), (written,) = ((root / "index").iterdir() for root in (output, tmp_path / "store"))
        assert built.read_bytes() == written.read_bytes()


def test_two_do_not_build_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = store.parent / "new"
    flush = DerivedWriter.flush

    def and_another(derived: DerivedWriter) -> None:
        with pytest.raises(OutputInUse, match="another rmqctl"):
            rebuild(store, output)
        flush(derived)

    monkeypatch.setattr(DerivedWriter, "flush", and_another)
    rebuild(store, output)
    assert queues_of(output) == queues_of(store)
    with pytest.raises(OutputExists):
        rebuild(store, output)


def test_a_mount_point_is_refused_before_anything_is_built(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = store.parent / "new"
    output.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == output)
    with pytest.raises(CannotWrite, match="name a directory below it"):
        rebuild(store, output)
    rebuild(store, output / "below")
    assert os.listdir(output) == ["below"]


# --- many queues -------------------------------------------------------------------------

QUEUES = 120


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of more queues than stay open, whose units follow each other in turn."""
    root = tmp_path_factory.mktemp("many") / "store"
    messages = (
        MessageExtBrokerInner(f"t{n % QUEUES // 4}", b"x", n % 4, properties={"TAGS": "a"})
        for n in range(30 * QUEUES)
    )
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        for results in opened.put_stream(messages, flush=False):
            assert all(result.is_ok for result in results)
    return root


@pytest.mark.parametrize("remembered", [QUEUES, 20])
def test_a_queue_is_looked_at_once_however_often_it_is_written_to(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    """What a queue has is not looked for again, but once when its files are dated; and few queues
    are open at a time."""
    monkeypatch.setattr(writer, "_BULK_UNITS", (300, 300))
    monkeypatch.setattr(queuetablewriter, "_REMEMBERED", remembered)
    monkeypatch.setattr(queuetablewriter, "kept_queues", lambda: 96)
    looked: Counter[tuple[str, int]] = Counter()
    most = 0
    find_end = ConsumeQueue._find_end

    def counted(queue: ConsumeQueue) -> int:
        nonlocal most
        looked[queue.topic, queue.queue_id] += 1
        most = max(most, len(os.listdir("/proc/self/fd")))
        return find_end(queue)

    before = open_descriptors()
    monkeypatch.setattr(ConsumeQueue, "_find_end", counted)
    rebuild(many, tmp_path / "new")
    assert queues_of(tmp_path / "new") == queues_of(many)
    # A map has a descriptor of its own beside that of its file.
    assert len(looked) == QUEUES and most - before < 2 * KEEP * (96 + 1) + 10
    if remembered == QUEUES:
        assert set(looked.values()) == {2}


@pytest.mark.parametrize("jobs", [1, 2])
def test_queues_that_have_few_units_each_are_not_made_soon(
    jobs: int, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would be opened again for every bulk; of few queues the units are put soon."""
    put_units, bulks = DerivedWriter.put_units, 0

    def counted(derived: DerivedWriter, *given: Any, **named: Any) -> int:
        nonlocal bulks
        bulks += 1
        return put_units(derived, *given, **named)

    monkeypatch.setattr(DerivedWriter, "put_units", counted)
    monkeypatch.setattr(writer, "_FIRST_UNITS", 300)
    rebuild(many, tmp_path / "at the end", jobs)
    assert bulks == 1
    monkeypatch.setattr(writer, "_UNITS_OF_QUEUE", 1)
    rebuild(many, tmp_path / "soon", jobs)
    assert bulks > 2 and queues_of(tmp_path / "soon") == queues_of(many)


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_that_is_rebuilt_is_on_disk_before_it_has_its_name(
    jobs: int, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file and each directory, once."""
    synced: Counter[tuple[int, int]] = Counter()
    wanted: set[tuple[int, int]] = set()
    output = tmp_path / "new"

    def noted(call: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            status = os.fstat(descriptor)
            synced[status.st_dev, status.st_ino] += 1
            call(descriptor)

        return sync

    def rename(path: Path, target: Path) -> Path:
        for one in (path, *path.rglob("*")):
            status = one.stat()
            wanted.add((status.st_dev, status.st_ino))
        os.rename(path, target)
        return target

    monkeypatch.setattr(os, "fsync", noted(os.fsync))
    monkeypatch.setattr(os, "fdatasync", noted(os.fdatasync))
    monkeypatch.setattr(Path, "rename", rename)
    rebuild(many, output, jobs)
    files = [path for path in (output / "consumequeue").rglob("*") if path.is_file()]
    assert wanted <= set(synced) and len(files) >= QUEUES
    for path in files:
        assert synced[path.stat().st_dev, path.stat().st_ino] == 1


def test_a_bulk_grows_with_the_queues(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of them is opened for a few units, again and again."""
    assert [writer.bulk_units(n) for n in (0, 1, 10_000, 10**6)] == [
        1 << 18,
        1 << 18,
        1_048_576,
        1 << 20,
    ]
    # Who makes queues while the log is read puts few units soon.
    assert [writer.bulk_units(n, is_first=True) for n in (0, 16, 10_000)] == [
        *(1 << 15, 1 << 15, 1_048_576)
    ]
    monkeypatch.setattr(writer, "_BULK_UNITS", (2 * QUEUES, 1 << 20))
    opened = 0
    original = mappedfile.MappedFile.open

    def counted(path: Path, file_from_offset: int = 0) -> mappedfile.MappedFile:
        nonlocal opened
        opened += "consumequeue" in path.parts
        return original(path, file_from_offset)

    monkeypatch.setattr(mappedfile.MappedFile, "open", counted)
    findings, summary = findings_of(many)
    assert findings == [] and summary.units == 30 * QUEUES
    files = sum(path.is_file() for path in (many / "consumequeue").rglob("*"))
    # For the newest unit, the first place, the first bulk and the second, and what none claims.
    assert opened < 6 * files


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_gap_before_a_filler_is_no_longer_for_units_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """A message has another queue offset than it got, and one behind it was lost."""
    root, config = tmp_path / "store", replace(CONFIG, mapped_file_size_commit_log=1 << 16)
    with MessageStore(root, config, writable=True, create=True) as opened:
        message = MessageExtBrokerInner("t", bytes(400), properties={"a": "b"})
        stored = [opened.put_message(message) for _ in range(10)]
    moved, lost = (one.stored for one in (stored[4], stored[9]))
    assert moved is not None and lost is not None
    made = filler(lost.wrote_offset, lost.wrote_bytes, lost.store_timestamp)
    with (root / paths.COMMIT_LOG / f"{0:020d}").open("r+b") as file:
        file.seek(moved.wrote_offset + 20)  # The queue offset of a record.
        file.write((6).to_bytes(8, "big"))
        file.seek(lost.wrote_offset)
        file.write(made.head.ljust(made.size - len(made.tail), b"\0") + made.tail)
    plan = plan_rebuild(root, config, "all")
    rebuild_to(plan, tmp_path / "together", jobs=jobs)
    monkeypatch.setattr(onepass, "bulk_units", lambda *_, **__: 1)
    rebuild_to(plan, tmp_path / "at-once", jobs=jobs)
    first, second = (
        tree_content(tmp_path / name / paths.CONSUME_QUEUE) for name in ("together", "at-once")
    )
    assert first == second and first
