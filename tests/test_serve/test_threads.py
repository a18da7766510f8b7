"""Who writes what was sent, and who looks: threads, or the event loop on a disk without delay."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.errors import CannotWrite
from rmqctl.serve import readers, writer
from rmqctl.serve.events import Append, Job, Persist
from rmqctl.serve.processors.put import Put

NUMBERS = range(writer._QUICK_ONES)


class Disk:
    """Writes of puts, which take ``seconds``, or wait for ``gate``: by whom, and which."""

    def __init__(self) -> None:
        self.seconds = self.now = 0.0
        self.reads = 0
        self.writes: list[tuple[str, list[Any]]] = []
        self.gate = threading.Event()
        self.gate.set()

    def append_all(self, store: WritableStore, puts: Sequence[Put]) -> list[Any]:
        who = "thread" if threading.current_thread().name == "rmqctl-writer" else "loop"
        assert who == "loop" or self.gate.wait(60)
        self.writes.append((who, [put.messages for put in puts]))
        self.now += self.seconds
        return [put.messages for put in puts]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(writer, "append_all", disk.append_all)
    return disk


def write(root: Path, disk: Disk, *groups: list[Any]) -> list[Any]:
    """What was told, after one group after the other was put, each when the one before is done."""
    told: list[Any] = []

    async def run(store: MessageStore) -> None:
        one = writer.Writer(store, lambda work, answer: told.append(answer), lambda: disk.now)
        one.start()
        for group in groups:
            for item in group:
                if callable(item):
                    item()
                else:
                    one.put(item if isinstance(item, Persist) else put(item))
            await one.drain()
        one.end()

    with MessageStore(root, writable=True, create=True) as store:
        asyncio.run(run(store))
    return told


def put(number: Any) -> Append:
    return Append(None, Put(number, False, lambda results, now: None))  # type: ignore[arg-type]


def who(disk: Disk) -> list[str]:
    return [who for who, _ in disk.writes]


def test_the_loop_writes_when_the_disk_is_quick(tmp_path: Path, disk: Disk) -> None:
    told = write(tmp_path / "s", disk, *([n] for n in NUMBERS), ["a", "b"], ["c"])
    assert who(disk) == ["thread"] * len(NUMBERS) + ["loop"] * 2
    # What is there at once is one write.
    assert disk.writes[-2:] == [("loop", ["a", "b"]), ("loop", ["c"])]
    assert told == [*NUMBERS, "a", "b", "c"]


def test_a_write_that_takes_long_is_the_last_of_the_loop(tmp_path: Path, disk: Disk) -> None:
    def slow(seconds: float) -> Any:
        return lambda: setattr(disk, "seconds", seconds)

    groups = [*([n] for n in NUMBERS), [slow(0.001), "a"], [slow(0), "b"], ["c"]]
    write(tmp_path / "s", disk, *groups)
    assert who(disk) == ["thread"] * len(NUMBERS) + ["loop", "thread", "thread"]


async def learned(store: MessageStore, disk: Disk, told: list[Any]) -> writer.Writer:
    """One that knows how long the disk takes."""
    one = writer.Writer(store, lambda work, answer: told.append(answer), lambda: disk.now)
    one.start()
    for number in NUMBERS:
        one.put(put(number))
        await one.drain()
    return one


@pytest.mark.parametrize(
    "broken", [b"", bytes(40), b'{"offsetTable":{'], ids=["empty", "zeros", "cut"]
)
def test_the_copy_of_a_broken_file_stays_until_that_is_replaced(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, broken: bytes
) -> None:
    """The offsets were taken from it: whatever fails on the way, they are in one of the two."""
    name, good = "consumerOffset.json", '{"offsetTable":{"orders@group":{0:7}}}'
    write(tmp_path / "s", disk)  # Makes the store.
    config = tmp_path / "s/config"
    config.mkdir()
    (config / name).write_bytes(broken)
    (config / f"{name}.bak").write_text(good)
    rename = os.rename

    def full(one: str, other: str, **more: Any) -> None:
        if other == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(one, other, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        (refused,) = write(tmp_path / "s", disk, [Persist(name, "{}")])
    assert isinstance(refused, CannotWrite)
    assert (config / f"{name}.bak").read_text() == good
    texts = ['{"offsetTable":{"orders@group":{0:8}}}', '{"offsetTable":{"orders@group":{0:9}}}']
    assert write(tmp_path / "s", disk, [Persist(name, texts[0])]) == [None]
    assert (config / f"{name}.bak").read_text() == good
    assert write(tmp_path / "s", disk, [Persist(name, texts[1])]) == [None]
    assert [(config / one).read_text() for one in (f"{name}.bak", name)] == texts


def test_files_and_what_comes_behind_them_are_the_threads(tmp_path: Path, disk: Disk) -> None:
    """Order is kept: who sends behind a file that is being written waits for it."""
    told: list[Any] = []

    async def run(store: MessageStore) -> None:
        one = await learned(store, disk, told)
        disk.gate.clear()
        one.put(Persist("topics.json", "{}"))
        one.put(put("with it"))
        await asyncio.sleep(0)
        one.put(put("behind it"))
        await asyncio.sleep(0)
        assert told == [*NUMBERS]
        disk.gate.set()
        await one.drain()
        one.put(put("later"))
        await one.drain()
        one.end()

    with MessageStore(tmp_path / "s", writable=True, create=True) as store:
        asyncio.run(run(store))
    assert told == [*NUMBERS, None, "with it", "behind it", "later"]
    assert {who for who, _ in disk.writes[:-1]} == {"thread"}
    assert disk.writes[-1] == ("loop", ["later"])
    assert (tmp_path / "s/config/topics.json").read_text() == "{}"


def test_what_goes_wrong_with_an_answer_holds_up_no_end(tmp_path: Path, disk: Disk) -> None:
    wrong: list[object] = []

    def told(work: object, answer: object) -> None:
        raise ValueError

    async def run(store: MessageStore) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, it: wrong.append(it))
        one = writer.Writer(store, told, lambda: disk.now)
        one.start()
        one.put(put("first"))
        one.put(put("second"))
        await asyncio.wait_for(one.drain(), 60)
        one.end()

    with MessageStore(tmp_path / "s", writable=True, create=True) as store:
        asyncio.run(run(store))
    assert wrong


@pytest.mark.parametrize("error", [SystemExit("ended"), KeyboardInterrupt(), ValueError("wrong")])
def test_who_waits_for_a_thread_that_has_died_is_told(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Whatever has ended it: what it had is answered with that, and so is what comes later."""
    told: list[Any] = []

    def dies(queue: object) -> object:
        raise error

    async def run(store: MessageStore) -> None:
        one = writer.Writer(store, lambda work, answer: told.append(answer), lambda: disk.now)
        one.start()
        one.put(put("first"))
        await one.drain()
        # Beside the writes, whose own errors are answers.
        monkeypatch.setattr(one, "_timed", dies)
        one.put(put("second"))
        await asyncio.sleep(0)
        one.put(Persist("topics.json", "{}"))
        await asyncio.wait_for(one.drain(), 60)
        one.put(put("late"))
        await asyncio.wait_for(one.drain(), 60)
        one.end()

    with MessageStore(tmp_path / "s", writable=True, create=True) as store:
        asyncio.run(run(store))
    assert told[0] == "first"
    ends = [str(one) for one in told[1:]]
    assert len(ends) == 3 and all(type(error).__name__ in one for one in ends)


def test_a_bug_in_a_write_of_the_loop_is_an_answer(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def wrong(self: writer.Writer, works: list[writer.Work]) -> list[object]:
        raise ValueError("wrong")

    async def run(store: MessageStore) -> None:
        one = await learned(store, disk, told)
        monkeypatch.setattr(writer.Writer, "_write", wrong)
        one.put(put("a"))
        await asyncio.wait_for(one.drain(), 60)
        one.end()

    with MessageStore(tmp_path / "s", writable=True, create=True) as store:
        asyncio.run(run(store))
    assert told[:-1] == [*NUMBERS] and isinstance(told[-1], ValueError)


# --- readers ---------------------------------------------------------------------------------


def look(
    disk: Disk, seconds: float, *, is_brief: bool = True, fails: bool = False, reads: int = 0
) -> Job:
    def work() -> str:
        disk.now += seconds
        disk.reads += reads
        if fails:
            raise OSError("the disk")
        return threading.current_thread().name.partition("_")[0]

    return Job(None, work, lambda found, now: None, is_brief)  # type: ignore[arg-type]


def readers_of(disk: Disk, told: list[Any]) -> readers.Readers:
    """Readers by the disk's clock, which add what looks gave to ``told``."""
    return readers.Readers(
        lambda looked: told.extend(result for _, result in looked),
        lambda: disk.now,
        lambda: disk.reads,
    )


def looked(disk: Disk, *jobs: Job) -> list[Any]:
    """What was told of looks, one after the other."""
    told: list[Any] = []

    async def run() -> None:
        one = readers_of(disk, told)
        for job in jobs:
            one.take(job)
            await one.drain(60)
        one.end()

    asyncio.run(run())
    return told


def test_the_loop_looks_when_looks_are_quick() -> None:
    disk = Disk()
    quick, slow = look(disk, 0.0009), look(disk, 0.001)
    long, failing = look(disk, 5, is_brief=False), look(disk, 0, fails=True)
    first = [quick] * readers.QUICK_ONES
    # What is not brief goes to a thread, and says nothing of what is.
    told = looked(disk, *first, quick, long, quick, failing, slow, quick)
    threads = ["rmqctl-reader"] * len(first)
    assert told[:-3] == [*threads, "MainThread", "rmqctl-reader", "MainThread"]
    assert isinstance(told[-3], OSError) and told[-2:] == ["MainThread", "rmqctl-reader"]


def test_a_look_that_waits_for_a_processor_is_spared_and_one_that_waits_for_a_disk_is_not() -> None:
    disk = Disk()
    quick, slow, reading = look(disk, 0), look(disk, 1), look(disk, 1, reads=1)
    many = [quick] * 2 * readers.QUICK_ONES
    # One is, and the next one only when as many as before were quick.
    told = looked(disk, *many, slow, quick, slow, quick)
    assert told[-5:] == [*["MainThread"] * 4, "rmqctl-reader"]
    told = looked(disk, *many, slow, *many, slow, quick)
    assert set(told[readers.QUICK_ONES :]) == {"MainThread"}
    assert looked(disk, *many, reading, quick)[-2:] == ["MainThread", "rmqctl-reader"]


def test_what_threads_wait_for_that_is_no_disk_says_nothing() -> None:
    disk = Disk()
    quick, slow, reading = look(disk, 0), look(disk, 1), look(disk, 1, reads=1)
    half = [quick] * (readers.QUICK_ONES // 2)
    assert looked(disk, *half, slow, *half, quick)[-1] == "MainThread"
    assert looked(disk, *half, reading, *half, quick)[-1] == "rmqctl-reader"


def test_of_many_looks_some_are_taken_before_the_sockets_are_asked() -> None:
    """And none by the event loop behind one that the disk was asked for."""
    disk = Disk()
    first = [look(disk, 0)] * readers.QUICK_ONES
    many = [look(disk, 0)] * (2 * readers.AT_ONCE + 1)
    told: list[Any] = []

    async def run() -> None:
        one = readers_of(disk, told)
        for job in first:
            one.take(job)
            await one.drain(60)
        del told[:]
        one.take(*many)
        assert len(told) == readers.AT_ONCE
        await one.drain(60)
        assert told == ["MainThread"] * len(many)
        del told[:]
        one.take(look(disk, 1, reads=1), *many)
        assert told == ["MainThread"]
        await one.drain(60)
        assert told == ["MainThread", *["rmqctl-reader"] * len(many)]
        one.end()

    asyncio.run(run())


def test_looks_of_one_peer_are_not_taken_one_within_the_other() -> None:
    """As many as a peer likes to send: each answer lets the next one begin."""
    disk = Disk()
    count = 5 * sys.getrecursionlimit()
    left = iter(range(count))

    async def run() -> None:
        def told(looked: list[tuple[Job, object]]) -> None:
            for job, _ in looked:
                if next(left, None) is not None:
                    one.take(job)

        one = readers.Readers(told, lambda: disk.now)
        one.take(look(disk, 0))
        await one.drain(60)
        one.end()

    asyncio.run(run())
    assert next(left, None) is None
