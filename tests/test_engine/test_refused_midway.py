"""An interrupt, or a refusal of the system, amid the making of a file: what the store then takes to
be there is there, and it goes on."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files import filequeuewriter, holes, mappedfile, paths, writing
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.state import brokerjson, controller
from rmqctl.errors import CannotRead, CannotWrite
from tests.descriptors import open_descriptors
from tests.interrupts import interrupted_at
from tests.test_engine.test_messagestore import SMALL, is_clean

Message = MessageExtBrokerInner
FILE = 4096
#: The modules that make a file, and their functions that do.
MAKING = {filequeuewriter, mappedfile, writing}
STEPS = {"append_file", "_append_file", "create", "_name", "parent_directory", "__init__"}


@pytest.mark.parametrize("has_unnamed", [True, False], ids=["unnamed", "named"])
def test_an_interrupt_at_any_step_of_making_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed: bool
) -> None:
    """The file is listed, or not there; and the next call makes it."""
    if not has_unnamed:
        monkeypatch.setattr(writing, "_open_unnamed", lambda directory: -1)
    for step in range(1, 1000):
        directory = tmp_path / str(step)
        directory.mkdir()
        files = MappedFileQueueWriter(directory, FILE, directory)
        files.append_file(0)
        with suppress(KeyboardInterrupt), interrupted_at(step, MAKING, STEPS) as reached:
            files.append_file(FILE)
        listed = [entry.path.name for entry in files.entries]
        assert sorted(os.listdir(directory)) == listed, reached
        assert (files.find(FILE) is not None) == (files.end_offset == 2 * FILE), reached
        if files.end_offset == FILE:
            files.append_file(FILE)
        files.append_file(2 * FILE)
        files.close()
        if not reached:
            break
    assert 200 < step < 999


def test_an_interrupt_at_any_step_of_removing_files(tmp_path: Path) -> None:
    """Those that are gone are not listed, or the next call takes them for removed."""
    for step in range(1, 1000):
        directory = tmp_path / str(step)
        directory.mkdir()
        files = MappedFileQueueWriter(directory, FILE, directory)
        for number in range(3):
            files.append_file(number * FILE)
        with suppress(KeyboardInterrupt), interrupted_at(step, MAKING, {"remove_from"}) as reached:
            files.remove_from(FILE)
        if reached:
            files.remove_from(FILE)
        assert os.listdir(directory) == [entry.path.name for entry in files.entries]
        assert files.append_file(FILE) is files.find(FILE)
        files.close()
        if not reached:
            break
    assert 50 < step < 999


def put(store: WritableStore, size: int) -> PutMessageStatus:
    return store.put_message(Message("T", b"x" * size)).status


def test_a_put_behind_one_whose_log_file_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has its name, and the log does not list it."""
    link = os.link

    def interrupted(*given: Any, **named: Any) -> None:
        link(*given, **named)
        raise KeyboardInterrupt

    with MessageStore(tmp_path, SMALL, writable=True, create=True) as store:
        assert put(store, 2000) is PutMessageStatus.PUT_OK
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "link", interrupted)
            put(store, 2000)
        assert put(store, 2000) is PutMessageStatus.PUT_OK
    assert is_clean(tmp_path)


def no_maps(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """The system maps no file whose path has a part, as at ``vm.max_map_count``."""
    real = mmap.mmap

    class Refusing(type):
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, real)

        def __call__(cls, descriptor: int, *given: Any, **named: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""
            if part in path:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            return real(descriptor, *given, **named)

    monkeypatch.setattr(mmap, "mmap", Refusing("mmap", (), {}))


@pytest.mark.parametrize("has_unnamed", [True, False], ids=["unnamed", "named"])
def test_nothing_is_left_of_a_file_that_cannot_be_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed: bool
) -> None:
    if not has_unnamed:
        monkeypatch.setattr(writing, "_open_unnamed", lambda directory: -1)
    (tmp_path / "there").write_bytes(b"x")
    before = open_descriptors()
    with monkeypatch.context() as patch:
        no_maps(patch, str(tmp_path))
        with pytest.raises(CannotWrite, match=r"Cannot allocate memory.*vm.max_map_count"):
            MappedFile.create(tmp_path, tmp_path / "new", FILE)
        with pytest.raises(CannotWrite, match=r"Cannot allocate memory.*vm.max_map_count"):
            MappedFile.open_writable(tmp_path, tmp_path / "there")
        with pytest.raises(CannotRead, match=r"Cannot allocate memory.*vm.max_map_count"):
            MappedFile.open(tmp_path / "there")
    assert os.listdir(tmp_path) == ["there"]
    assert open_descriptors() == before


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_put_for_which_no_file_can_be_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """It has an answer that says so, the next one has its place, and nothing is there twice."""
    with MessageStore(tmp_path, SMALL, writable=True, create=True) as store:
        for _ in range(10):
            assert put(store, 200) is PutMessageStatus.PUT_OK
        store.queues.close()
        store.index.close()
        monkeypatch.setattr(writing, "_open_unnamed", lambda directory: -1)
        with monkeypatch.context() as patch:
            no_maps(patch, f"{tmp_path}/{part}")
            results = [store.put_message(Message("T", b"y" * 1500)) for _ in range(2)]
        refused = results[-1]
        assert not refused.is_ok and "Cannot allocate memory" in refused.reason
        stored = sum(
            one.stored is not None or "do not put it again" in one.reason for one in results
        )
        assert put(store, 1500) is PutMessageStatus.PUT_OK
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 11 + stored
    assert is_clean(tmp_path)


def test_a_record_that_cannot_be_read_back_is_told_to_be_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(log: CommitLogWriter, physical_offset: int) -> Record:
        raise CannotRead(path="file", reason=os.strerror(errno.EIO))

    with MessageStore(tmp_path, SMALL, writable=True, create=True) as store:
        assert put(store, 10) is PutMessageStatus.PUT_OK
        with monkeypatch.context() as patch:
            patch.setattr(CommitLogWriter, "record_at", unreadable)
            result = store.put_message(Message("T", b"y"))
        assert not result.is_ok and result.reason.endswith("do not put it again")
        assert put(store, 10) is PutMessageStatus.PUT_OK
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 3
    assert is_clean(tmp_path)


def test_a_copy_for_which_there_is_no_memory_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy takes the place of a part with holes."""
    mapped = MappedFile.create(tmp_path, tmp_path / "file", FILE)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patch, pytest.raises(CannotRead, match=r"/file: .*ulimit -v"):
        patch.setattr(mmap, "mmap", refuse)
        holes.whole(mapped, 0, FILE)
    mapped.close()


#: Nothing can be read at its start (EIO).
UNREADABLE = Path("/proc/self/mem")


@pytest.mark.parametrize(
    "read",
    [
        partial(paths.read_start, most=100),
        brokerjson.read,
        controller.read_epochs,
        controller.read_identity,
    ],
)
def test_a_small_file_that_the_disk_does_not_read_is_named(read: Callable[[Path], object]) -> None:
    with pytest.raises(CannotRead, match=r"/proc/self/mem: Input/output error"):
        read(UNREADABLE)
