"""A flush that the disk refuses, and an interrupt or another flush at the same time: what is not on
disk is never taken for it."""

from __future__ import annotations

import errno
import linecache
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rmqctl.engine.files import dirty
from rmqctl.engine.files.dirty import DirtyRange, Unsynced
from rmqctl.engine.flush.services import GroupCommitRequest, GroupCommitService
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner as Message
from rmqctl.errors import CannotWrite
from tests.forcing import fail_fdatasync, patch_fdatasync
from tests.test_engine.test_messagestore import SMALL


def begun(root: Path, **changes: Any) -> WritableStore:
    store = MessageStore(root, replace(SMALL, **changes), writable=True, create=True)
    assert store.put_message(Message("first", b"", properties={"KEYS": "k"})).is_ok
    store.flush()
    return store


def assert_not_closed_as_sound(store: WritableStore) -> None:
    with pytest.raises(CannotWrite, match="Input/output"):
        store.close()
    assert (store.root / "abort").exists()


@pytest.mark.parametrize("structure", ["commitlog", "consumequeue"])
def test_an_interrupt_that_takes_the_place_of_an_error(
    structure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the disk hangs, which fails then: the interrupt is raised as soon as the file
    that was forced is closed."""
    store = begun(tmp_path / "s")
    store.put_message(Message("T", b"x"), flush=False)
    with monkeypatch.context() as patch:
        asked, close = fail_fdatasync(patch, structure), os.close

        def interrupted(descriptor: int) -> None:
            close(descriptor)
            if asked:
                raise KeyboardInterrupt

        patch.setattr(os, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.flush()
    assert_not_closed_as_sound(store)


def test_an_interrupt_of_a_flush_by_many_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for them, and what they have met is kept."""
    store = begun(tmp_path / "s")
    for number in range(20):
        store.put_message(Message(f"T{number}", b"x"), flush=False)
    store.flush_structures(["commitlog"])
    is_interrupted, running = threading.Event(), [0]
    with monkeypatch.context() as patch:

        def force(path: Path, force: Callable[[], None]) -> None:
            running[0] += 1
            assert is_interrupted.wait(60)
            running[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        shutdown = ThreadPoolExecutor.shutdown

        def interrupted(pool: ThreadPoolExecutor, *_: object, **__: object) -> None:
            if not is_interrupted.is_set():
                is_interrupted.set()
                raise KeyboardInterrupt
            shutdown(pool)

        patch_fdatasync(patch, force)
        patch.setattr(ThreadPoolExecutor, "shutdown", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.flush_structures(["queues"])
        assert running == [0]
    assert_not_closed_as_sound(store)


def test_an_error_while_an_earlier_dispatch_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(tmp_path / "s")
    store.put_message(Message("T", b"x"), flush=False)
    store.flush_structures(["commitlog"])
    store.writer._tail.failed = True
    with monkeypatch.context() as patch:
        fail_fdatasync(patch, "consumequeue")
        with pytest.raises(OSError, match="Input/output"):
            store.writer.flusher.complete()
    assert_not_closed_as_sound(store)


def test_an_error_at_the_end_of_a_full_index_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(tmp_path / "s")
    with monkeypatch.context() as patch:
        asked = fail_fdatasync(patch, "index")
        while not asked:
            keys = {"KEYS": " ".join(map(str, range(40)))}
            try:
                store.put_message(Message("T", b"x", properties=keys), flush=False)
            except CannotWrite as error:
                assert "Input/output" in str(error)
    assert_not_closed_as_sound(store)


def test_an_interrupt_at_any_step_of_a_flush_leaves_every_file_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {tmp_path / str(number) for number in range(3)}
    for path in paths:
        path.write_bytes(b"x")
    steps = 0
    is_over = False
    while not is_over:
        unsynced = Unsynced()
        ranges = {path: DirtyRange(0, 1) for path in paths}
        unsynced.update(ranges)
        steps += 1
        left = steps

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != dirty.__file__:
                return None
            line = linecache.getline(dirty.__file__, frame.f_lineno)
            # Python takes and gives back a lock in one step, but traces the line twice.
            if event == "line" and not line.lstrip().startswith("with "):
                left -= 1
                if not left:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            unsynced.sync()
            is_over = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        # A range with an end counts as noted: nobody would note it again.
        assert all(path in unsynced for path, one in ranges.items() if one.end)
        forced: set[Path] = set()

        def force(path: Path, force: Callable[[], None], forced: set[Path] = forced) -> None:
            forced.add(path)

        with monkeypatch.context() as patch:
            patch_fdatasync(patch, force)
            unsynced.sync()
        assert is_over or forced == paths
    assert steps > 20


def test_a_file_that_another_thread_takes_amid_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the threads change, the flush goes on, and each file is forced or left for the next
    flush."""
    first, other = tmp_path / "0", tmp_path / "1"
    first.touch()
    other.touch()
    steps, left = 0, 0
    while not left:
        unsynced = Unsynced()
        unsynced[first] = DirtyRange(0, 1)
        unsynced.take()
        steps += 1
        left = steps
        forced: set[Path] = set()

        def trace(frame: FrameType, event: str, _: object, unsynced: Unsynced = unsynced) -> Any:
            nonlocal left
            if frame.f_code is not Unsynced.sync_taken.__code__:
                return None
            frame.f_trace_opcodes = True
            left -= event == "opcode"
            if not left:
                sys.settrace(None)
                unsynced.taken.add(other)
            return trace

        def force(path: Path, force: Callable[[], None], forced: set[Path] = forced) -> None:
            forced.add(path)

        with monkeypatch.context() as patch:
            patch_fdatasync(patch, force)
            sys.settrace(trace)
            try:
                unsynced.sync_taken()
            finally:
                sys.settrace(None)
        assert forced | unsynced.taken == ({first} if left else {first, other})
    assert steps > 20


def test_an_interrupt_just_when_a_putter_may_flush_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next putter may, too."""
    with begun(tmp_path / "s") as store:
        group = GroupCommitService(store.writer._log, lambda _: None)
        with monkeypatch.context() as patch:

            class Interrupted:
                def acquire(self, timeout: float) -> bool:
                    leading.acquire(timeout=timeout)
                    raise KeyboardInterrupt

                def release(self) -> None:
                    leading.release()

            leading = group._leading
            patch.setattr(group, "_leading", Interrupted())
            with pytest.raises(KeyboardInterrupt):
                group.submit(GroupCommitRequest(0, 60_000))
        done: list[object] = []
        other = threading.Thread(
            target=lambda: done.append(group.submit(GroupCommitRequest(0, 60_000)))
        )
        other.start()
        other.join(30)
        assert len(done) == 1
