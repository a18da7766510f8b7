"""Threads that read, write, roll files and clean at the same time: whatever a reader is given is
whole, byte for byte what was put, and at its own place."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Blank, End, Record
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.services import retention
from rmqctl.errors import CannotRead
from rmqctl.operations.verify import Summary, verify
from tests.test_engine.test_opencache import opened_below
from tests.test_safety.support import small_config

CONFIG = small_config(log=1 << 14)
QUEUES = 5
#: Files of the log that stay.
KEPT = 6
#: Later than any file of the test was modified.
LATER = 4_000_000_000_000


def put(writer: int, number: int) -> MessageExtBrokerInner:
    """The ``number``-th message of a writer: everything about it follows from the two."""
    body = random.Random(f"{writer} {number}").randbytes(40 + number * 37 % 400)
    return MessageExtBrokerInner(
        f"W{writer}",
        f"{writer} {number} ".encode() + body,
        number % QUEUES,
        properties={"KEYS": f"k{number} all{number % 7}", "TAGS": f"t{number % 3}"},
    )


class Checker:
    """What was put so far, by writer, and whether what is read is that."""

    def __init__(self, store: WritableStore, writers: int, each: int) -> None:
        self.store = store
        self.each = each
        #: Physical offsets of what is stored, in order.
        self.offsets: list[list[int]] = [[] for _ in range(writers)]
        self.failures: list[BaseException] = []
        self.looks = 0

    def check(self, record: Record, physical_offset: int | None = None) -> tuple[int, int]:
        body = self.store.body(record)
        writer, number = map(int, body.split(b" ", 2)[:2])
        wanted = put(writer, number)
        assert body == wanted.body
        assert (record.topic, record.queue_id) == (wanted.topic, wanted.queue_id)
        assert record.queue_offset == number // QUEUES
        assert record.properties["KEYS"] == wanted.properties["KEYS"]
        assert physical_offset is None or record.physical_offset == physical_offset
        offsets = self.offsets[writer]
        assert number >= len(offsets) or offsets[number] == record.physical_offset
        self.looks += 1
        return writer, number

    def is_done(self) -> bool:
        done = all(len(offsets) == self.each for offsets in self.offsets)
        return done or bool(self.failures)

    def some(self, chance: random.Random) -> tuple[int, int]:
        """A message that is stored."""
        writer = chance.randrange(len(self.offsets))
        return writer, chance.randrange(max(len(self.offsets[writer]), 1))

    # --- readers -------------------------------------------------------------------------

    def pull(self, chance: random.Random) -> None:
        writer, number = self.some(chance)
        stored = len(self.offsets[writer])
        queue_id, offset = number % QUEUES, number // QUEUES
        found = self.store.get_message(f"W{writer}", queue_id, offset)
        if found.status is not GetMessageStatus.FOUND:
            assert not stored, found
            return
        for at, record in enumerate(found.records):
            assert self.check(record) == (writer, (offset + at) * QUEUES + queue_id)
        assert found.max_offset >= offset + len(found.records)
        assert found.next_begin_offset == offset + len(found.records)

    def query(self, chance: random.Random) -> None:
        writer, number = self.some(chance)
        stored = len(self.offsets[writer])
        if chance.random() < 0.8:
            matches = [m for m in self.store.query_message(f"W{writer}", f"k{number}") if m.matches]
            assert (stored > 0) <= len(matches) <= 1
        else:
            group = number % 7
            found = self.store.query_message(f"W{writer}", f"all{group}")
            matches = [m for m in found if m.matches]
            assert len(matches) >= len(range(group, stored, 7))
        for match in matches:
            assert match.record is not None
            self.check(match.record, match.hit.item.physical_offset)

    def by_id(self, chance: random.Random) -> None:
        writer, number = self.some(chance)
        if self.offsets[writer]:
            offset = self.offsets[writer][number]
            record = self.store.look_message_by_offset(offset)
            assert self.check(record, offset) == (writer, number)

    def walk(self, chance: random.Random) -> None:
        start, end = self._from_some(chance)
        for entry in self.store.commit_log.walk(start, end):
            assert entry.physical_offset == start
            if isinstance(entry, Record):
                self.check(entry)
            if isinstance(entry, End):
                return
            assert isinstance(entry, Record | Blank), entry
            start += entry.total_size
        raise AssertionError("no end")

    def scan(self, chance: random.Random) -> None:
        start, end = self._from_some(chance)
        for entry in Scanner(self.store.commit_log, check=True).scan(start, end):
            assert entry.physical_offset[0] == start if isinstance(entry, Batch) else True
            if isinstance(entry, Batch):
                assert entry.crc_matches.all() and not len(entry.malformed)
                start = entry.end_offset
            elif isinstance(entry, End):
                assert entry.physical_offset == start
                return
            else:
                assert isinstance(entry, Blank) and entry.physical_offset == start, entry
                start += entry.total_size
        raise AssertionError("no end")

    def _from_some(self, chance: random.Random) -> tuple[int, int | None]:
        """A record's place, and where to end: what is stored, or where nothing stands."""
        writer, number = self.some(chance)
        start = self.offsets[writer][number] if self.offsets[writer] else 0
        return start, chance.choice([self.store.max_offset, None])


def clean(checker: Checker, root: Path) -> None:
    """What a broker's retention does in a round, by one that knows nothing of who reads: the oldest
    files of the log go, and what queues and index have of them."""
    checker.store.flush()
    with MessageStore(root, CONFIG) as store:
        if len(store.commit_log.files.entries) > retention.DELETE_FILES_BATCH_MAX + KEPT:
            plan = retention.plan(store, LATER, manual=True, rounds=1)
            retention.remove(plan.removals, lambda removal: None)


@contextmanager
def often_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run_all(checker: Checker, jobs: list[Callable[[], None]]) -> None:
    """Runs each job in a thread of its own; the first failure ends them all."""

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            checker.failures.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    with often_switched():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if checker.failures:
        raise checker.failures[0]


def writing(checker: Checker, writer: int, chance: random.Random) -> None:
    """Puts one by one, and in bulks, up to the last message."""
    offsets, store = checker.offsets[writer], checker.store
    while not checker.is_done() and len(offsets) < checker.each:
        count = min(chance.choice([1, 1, 1, 7, 150]), checker.each - len(offsets))
        messages = [put(writer, len(offsets) + number) for number in range(count)]
        if count == 1:
            results = [store.put_message(messages[0], flush=False)]
        else:
            bulks = store.put_stream(iter(messages), flush=chance.random() < 0.2)
            results = [result for bulk in bulks for result in bulk]
        for result in results:
            assert result.stored is not None, result
            offsets.append(result.stored.wrote_offset)


def reading(
    checker: Checker, look: Callable[[random.Random], None], chance: random.Random, cleans: bool
) -> None:
    """Looks until all is written, and some times more."""
    rest = 20
    while rest and not checker.failures:
        rest -= checker.is_done()
        try:
            look(chance)
        except CannotRead as error:
            # Retention has removed what was to be read; never what somebody holds.
            if not cleans or Path(str(error.path)).exists():
                raise


def cleaning(checker: Checker, root: Path) -> None:
    while not checker.is_done():
        try:
            clean(checker, root)
        except CannotRead as error:
            if Path(str(error.path)).exists():
                raise


def stress(
    root: Path,
    seed: str,
    each: int,
    *,
    cleans: bool = False,
    pool: bool = False,
    background: bool = False,
) -> None:
    config = CONFIG
    if pool:
        config = replace(CONFIG, transient_store_pool_enable=True, transient_store_pool_size=3)
    with MessageStore(root, config, writable=True, create=True) as store:
        if background:
            store.start()
        checker = Checker(store, 2, each)
        jobs: list[Callable[[], None]] = [
            lambda writer=writer: writing(checker, writer, random.Random(f"{seed} {writer}"))  # type: ignore[misc]
            for writer in range(2)
        ]
        looks = [checker.pull, checker.query, checker.by_id, checker.walk, checker.scan]
        if background:  # Units and items come behind the puts.
            looks = [checker.by_id, checker.walk, checker.scan]
        jobs += [
            lambda look=look: reading(  # type: ignore[misc]
                checker, look, random.Random(f"{seed} {look.__name__}"), cleans
            )
            for look in looks
        ]
        if cleans:
            jobs.append(lambda: cleaning(checker, root))
        run_all(checker, jobs)
        assert checker.looks > each
        descriptors, maps = opened_below(root)
        # Of the log four files, and the one that is written to; two of each queue; the index.
        # Sixteen files of the index stay open for lookups, mapped by the pure engine alone.
        assert maps <= 5 + 2 * 2 * QUEUES + 1 + 16 and descriptors <= 2 * maps + 1 + 16
    assert opened_below(root) == (0, 0)
    summary = list(verify(root, CONFIG))[-1]
    assert isinstance(summary, Summary) and summary.severities["error"] == 0
    assert cleans == (summary.min_offset > 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ways",
    [{}, {"cleans": True}, {"pool": True}],
    ids=["rolls", "rolls and cleans", "rolls from a pool"],
)
def test_readers_beside_writers(
    tmp_path: Path, chance: random.Random, ways: dict[str, bool]
) -> None:
    stress(tmp_path / "s", str(chance.random()), 800, **ways)


@pytest.mark.slow
def test_readers_beside_services(tmp_path: Path, chance: random.Random) -> None:
    stress(tmp_path / "s", str(chance.random()), 600, background=True)


@pytest.mark.nightly
def test_readers_beside_writers_for_a_minute(tmp_path: Path, chance: random.Random) -> None:
    stress(tmp_path / "s", str(chance.random()), 20_000, cleans=True)


def test_a_query_beside_an_append_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot leads to an item that is newer than the header that the query has read."""
    with MessageStore(tmp_path / "s", CONFIG, writable=True, create=True) as store:
        for number in range(50):
            assert store.put_message(put(0, number), flush=False).is_ok
        wanted = [number for number in range(50) if number % 7 == 3]
        later = iter(range(50, 200))
        real = IndexFile.is_time_matched

        def put_meanwhile(file: IndexFile, begin: int, end: int) -> bool:
            for number in later:
                assert store.put_message(put(0, number), flush=False).is_ok
            return real(file, begin, end)

        monkeypatch.setattr(IndexFile, "is_time_matched", put_meanwhile)
        found = [match.record for match in store.query_message("W0", "all3") if match.matches]
        numbers = [int(store.body(record).split()[1]) for record in found if record is not None]
        assert numbers == wanted[::-1]
        assert next(later, None) is None


@pytest.mark.parametrize("way", ["first unit", "file made ahead"])
def test_a_queue_that_begins_late_is_never_seen_from_its_first_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Before its first unit stand pre-blank ones: who reads the end has the begin with it."""
    seen: list[tuple[int, int]] = []
    with MessageStore(tmp_path / "s", CONFIG, writable=True, create=True) as store:
        queue = store.queues.find_or_create("T", 0)
        real_set = type(queue).__setattr__

        def set_one(self: object, name: str, value: object) -> None:
            real_set(self, name, value)
            seen.append((queue.min_offset, queue.max_offset))

        monkeypatch.setattr(type(queue), "__setattr__", set_one)
        if way == "file made ahead":
            queue.reserve(100)
        queue.put_message_position_info(0, 100, 0, 100)
        assert seen[-1] == (100, 101)
        assert all(low == 100 for low, high in seen if high), seen
