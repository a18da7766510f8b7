"""What is open stays open while somebody refers to it, and no more than that: maps and queues."""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.engine.files.dirty import Unsynced
from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.queuetable import kept_queues
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import CannotRead
from tests.test_safety.support import Clock, message, small_config

CONFIG = small_config()


def opened_below(root: Path) -> tuple[int, int]:
    """How many descriptors and how many maps this process has of files of a store."""
    below = f"{root}/"
    descriptors = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            descriptors += str(link.readlink()).startswith(below)
        except OSError:  # The one of this look.
            continue
    maps = Path("/proc/self/maps").read_text("utf-8")
    return descriptors, sum(below in line for line in maps.splitlines())


def write(root: Path, count: int, **places: object) -> None:
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(count):
            assert store.put_message(message(number, **places), flush=False).is_ok  # type: ignore[arg-type]


def files_of(directory: Path, count: int, keep: int) -> MappedFileQueue:
    directory.mkdir()
    for number in range(count):
        (directory / f"{number * 4096:020d}").write_bytes(bytes([number]) * 4096)
    return MappedFileQueue(directory, 4096, keep=keep)


# --- the cache ---------------------------------------------------------------------------------


class Thing:
    pass


def test_a_key_has_one_thing_while_somebody_holds_it() -> None:
    cache: OpenCache[int, Thing] = OpenCache(2)
    held = cache.get(1, Thing)
    for key in range(2, 10):
        assert cache.get(key, Thing) is not None
    assert cache.get(1, Thing) is held
    del held
    for key in range(2, 10):
        cache.get(key, Thing)
    assert cache.get(1) is None and cache.get(9) is not None and cache.get(7) is None


def test_what_opens_nothing_is_not_kept() -> None:
    cache: OpenCache[int, Thing] = OpenCache(2)
    assert cache.get(1, lambda: None) is None
    assert cache.get(1, Thing) is not None


def test_what_is_cleared_is_opened_anew_also_when_it_is_held() -> None:
    cache: OpenCache[int, Thing] = OpenCache(2)
    held, other = cache.get(1, Thing), cache.get(2, Thing)
    cache.forget(2)
    assert cache.get(2, Thing) is not other
    cache.clear()
    assert cache.get(1, Thing) is not held


def test_two_threads_that_open_at_once_get_the_same() -> None:
    cache: OpenCache[int, Thing] = OpenCache(2)
    barrier = threading.Barrier(2)
    both_wait = threading.Event()

    def slowly() -> Thing:
        both_wait.wait(0.2)  # The other one is to come by meanwhile; without it nothing is shown.
        return Thing()

    found: list[Thing | None] = []

    def ask() -> None:
        barrier.wait()
        found.append(cache.get(1, slowly))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is not None


# --- files -------------------------------------------------------------------------------------


def test_a_file_is_valid_while_it_is_held_whatever_is_asked_for(tmp_path: Path) -> None:
    files = files_of(tmp_path / "log", 20, keep=2)
    held = files.file(3)
    view = held.buffer
    for number in range(20):
        assert files.file(number).read(0, 1) == bytes([number])
    assert held.read(0, 2) == b"\3\3" and view[4095] == 3
    assert files.file(3) is held
    assert opened_below(tmp_path)[1] <= 3
    del held, view
    for number in range(5, 9):
        files.file(number)
    assert opened_below(tmp_path)[1] == 2


@pytest.mark.parametrize("gone", ["closed", "removed", "cut"])
def test_a_held_file_outlives_its_queue_and_its_name(tmp_path: Path, gone: str) -> None:
    files = files_of(tmp_path / "log", 3, keep=2)
    held = files.file(2)
    if gone == "closed":
        files.close()
    elif gone == "removed":
        held.path.unlink()  # What retention does, here or in another process.
        files.close()
        with pytest.raises(CannotRead):
            files.file(2)
    else:
        files = MappedFileQueueWriter(tmp_path / "log", 4096, tmp_path, keep=2)
        held = files.file(2)
        files.remove_from(2 * 4096)
        assert files.find(2 * 4096) is None and not held.path.exists()
    assert held.read(4095, 9) == b"\2" and held.buffer[0] == 2
    del held
    files.close()
    assert opened_below(tmp_path) == (0, 0)


def test_a_writers_file_that_is_gone_cannot_be_read(tmp_path: Path) -> None:
    """Not told as a write that failed: who reads is told."""
    files_of(tmp_path / "log", 3, keep=2)
    files = MappedFileQueueWriter(tmp_path / "log", 4096, tmp_path)
    files.entries[1].path.unlink()
    with pytest.raises(CannotRead):
        files.find(4096)


def taken(unsynced: Unsynced, least_pages: int = 0) -> set[Path]:
    """What would be forced to disk now."""
    unsynced.take(least_pages)
    paths, unsynced.taken = unsynced.taken, set()
    return paths


def test_what_was_stored_is_synced_though_its_map_is_gone(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    unsynced = Unsynced()
    files = MappedFileQueueWriter(tmp_path / "log", 4096, tmp_path, keep=1, unsynced=unsynced)
    paths = []
    for number in range(4):
        mapped = files.append_file(number * 4096)
        mapped.write(0, b"x")
        paths.append(mapped.path)
    del mapped
    assert opened_below(tmp_path)[1] == 1
    assert taken(unsynced) == set(paths)
    assert taken(unsynced) == set()
    files.file(1).write(8, b"y")
    assert taken(unsynced, 2) == set(), "one page is not two"
    assert taken(unsynced, 1) == {paths[1]}


# --- stores ------------------------------------------------------------------------------------


def walk(store: MessageStore) -> Iterator[object]:
    return store.commit_log.walk()


def scan(store: MessageStore) -> Iterator[object]:
    return Scanner(store.commit_log).scan()


def query(store: MessageStore) -> Iterator[object]:
    return store.query_message("topic0", "same")


def units(store: MessageStore) -> Iterator[object]:
    queue = store.consume_queue("topic0", 0)
    assert queue is not None
    return queue.units(0, queue.max_offset)


def index_files(store: MessageStore) -> Iterator[object]:
    return store.index.files()


@pytest.fixture(scope="module")
def one_queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 messages of a key in one queue, to be read only."""
    root = tmp_path_factory.mktemp("one_queue") / "s"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(600):
            queued = MessageExtBrokerInner(
                "topic0", b"x" * 200, properties={"KEYS": f"same k{number}"}
            )
            assert store.put_message(queued, flush=False).is_ok
    return root


@pytest.mark.parametrize("generator", [walk, scan, query, units, index_files])
@pytest.mark.parametrize("way", ["closed", "dropped", "in a circle"])
def test_a_generator_left_half_used_keeps_no_file_for_ever(
    one_queue: Path, generator: Callable[[MessageStore], Iterator[object]], way: str
) -> None:
    reader = MessageStore(one_queue, CONFIG)
    half = generator(reader)
    first = next(half)
    reader.close()
    if way == "closed":
        half.close()  # type: ignore[attr-defined]
    elif way == "in a circle":
        circle: list[object] = [half]
        circle.append(circle)
        del circle
    del half, first
    gc.collect()
    assert opened_below(one_queue) == (0, 0)


def test_a_suspended_generator_reads_on_when_its_store_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "s"
    write(root, 300)
    store = MessageStore(root, CONFIG)
    expected = list(store.commit_log.walk())
    half = store.commit_log.walk()
    found = [next(half) for _ in range(10)]
    store.close()
    assert found + list(half) == expected


@pytest.mark.parametrize(
    ("soft", "kept"),
    [(40, 16), (256, 24), (1024, 96), (16_384, 1024), (resource.RLIM_INFINITY, 1024)],
)
def test_as_many_queues_stay_open_as_the_limit_of_files_allows(
    soft: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert kept_queues() == kept


@pytest.mark.slow
def test_descriptors_and_maps_are_bounded_over_a_thousand_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    root, count = tmp_path / "s", 1000
    most = 0
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        put = (message(number, queue_id=number, keys=0) for number in range(count))
        for results in store.put_stream(put, flush=False):
            assert all(result.is_ok for result in results)
            most = max(most, *opened_below(root))
        for number in range(count):
            assert store.consume_queue(f"topic{number % 3}", number) is not None
            most = most if number % 250 else max(most, *opened_below(root))
    with MessageStore(root, CONFIG) as store:
        for number in range(count):
            found = store.get_message(f"topic{number % 3}", number, 0)
            assert [record.queue_offset for record in found.records] == [0]
            most = most if number % 250 else max(most, *opened_below(root))
    # A map holds a descriptor of its own.
    assert 96 <= most <= 2 * (96 * 2 + 8)
    assert opened_below(root) == (0, 0)


def test_a_reader_does_not_wait_for_the_put_lock(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(200):
            assert store.put_message(message(number), flush=False).is_ok
        held, let_go = threading.Event(), threading.Event()

        def put_for_ever() -> None:
            putter = store.writer._putter
            with putter.lock, putter.alone, putter:
                held.set()
                let_go.wait()

        def read() -> None:
            pulled = store.get_message("topic0", 0, 0)
            found.append(store.body(pulled.records[0]))
            found.append(store.look_message_by_offset(0).queue_offset)
            found.append([one.matches for one in store.query_message("topic1", "k1-0")])
            found.append(len(list(store.commit_log.walk(None, store.max_offset))))

        found: list[object] = []
        writer = threading.Thread(target=put_for_ever)
        writer.start()
        held.wait()
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(60)
        was_held_up = reader.is_alive()
        let_go.set()
        writer.join()
        assert not was_held_up
        reader.join()
    body = message(0).body
    assert found[:3] == [body, 0, [True]] and isinstance(found[3], int) and found[3] > 200


def test_a_mapped_file_that_is_closed_gives_its_descriptor_back_once(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    mapped = MappedFile.open(tmp_path / "f")
    mapped.close()
    with (tmp_path / "f").open("rb") as other:  # Takes the number that has become free.
        mapped.close()
        del mapped
        gc.collect()
        assert other.read() == b"abc"
