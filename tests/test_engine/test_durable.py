"""What is said to be there is there after a power loss, too, and what cannot be is told as such."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import pytest

from rmqctl.engine.files import durable, writing
from rmqctl.engine.files.durable import (
    PlacedInDoubt,
    ReplacedInDoubt,
    put_in_place,
    write_whole,
)
from rmqctl.engine.files.newdirectory import made_anew, new_directory
from rmqctl.engine.state.persist import persist
from rmqctl.errors import CannotWrite, NoFileToWrite
from rmqctl.operations.backup.place import created
from tests.descriptors import open_descriptors
from tests.interrupts import interrupted_at


def test_a_new_directorys_name_is_forced_to_disk_when_it_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, forced = tmp_path / "new", []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        forced.append((os.fstat(descriptor).st_ino, place.exists()))

    with new_directory(place) as building:
        (building / "file").touch()
        monkeypatch.setattr(os, "fsync", noted)
    assert (tmp_path.stat().st_ino, True) in forced


def test_a_lock_is_let_go_of_when_what_was_left_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building = tmp_path / "building"
    (building / "left").mkdir(parents=True)

    def refuse(path: str) -> None:
        raise PermissionError(path)

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", refuse)
        with pytest.raises(PermissionError):
            made_anew(building, tmp_path / "place")
    # Else it would be in use now.
    os.close(made_anew(building, tmp_path / "place"))


@pytest.mark.parametrize(
    ("place", "problem"), [("file/plan", CannotWrite), ("directory/plan", NoFileToWrite)]
)
def test_what_cannot_be_written_is_told_as_such(
    tmp_path: Path, place: str, problem: type[CannotWrite]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory" / "plan.rmqctl-new").mkdir(parents=True)
    with pytest.raises(problem):
        write_whole(tmp_path / place, b"{}")
    assert not (tmp_path / place).exists()


def new_file(place: Path) -> AbstractContextManager[object]:
    return created(str(place))


@pytest.mark.parametrize("make", [new_directory, new_file])
def test_what_is_said_not_to_be_made_is_not_in_the_way_of_the_next_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], AbstractContextManager[object]],
) -> None:
    """The disk fails when the new name is forced to it."""
    place = tmp_path / "new.tar.zst"

    def refused(directory: Path) -> None:
        assert place.exists()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(durable, "sync_directory", refused)
        with pytest.raises(CannotWrite, match="Input/output error"), make(place):
            pass
    assert not list(tmp_path.iterdir())
    with make(place):
        pass
    assert list(tmp_path.iterdir()) == [place]


def written(place: Path) -> AbstractContextManager[object]:
    write_whole(place, b"{}")
    return nullcontext()


@pytest.mark.parametrize("make", [new_directory, new_file, written])
def test_what_cannot_get_its_old_name_back_is_said_to_be_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], AbstractContextManager[object]],
) -> None:
    """The disk fails when the name is forced to it, and the system makes it read-only then."""
    place, rename = tmp_path / "new.tar.zst", os.rename

    def failed(directory: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def refused(source: Path, target: Path) -> None:
        if source == place:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        rename(source, target)

    monkeypatch.setattr(durable, "sync_directory", failed)
    monkeypatch.setattr(os, "rename", refused)
    told = r"is whole and in its place, .*Input/output error"
    with pytest.raises(PlacedInDoubt, match=told), make(place):
        pass
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("call", ["rename", "open", "fsync", "close"])
@pytest.mark.parametrize("is_directory", [False, True])
def test_an_interrupt_behind_any_call_of_putting_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_directory: bool, call: str
) -> None:
    """What was built has its old name, for whoever is told that it was not put in place."""
    built, place, called = tmp_path / "built", tmp_path / "place", getattr(os, call)
    built.mkdir() if is_directory else built.touch()

    def interrupted(*given: object, **named: object) -> None:
        called(*given, **named)
        monkeypatch.setattr(os, call, called)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        put_in_place(built, place)
    assert list(tmp_path.iterdir()) == [built]
    put_in_place(built, place)
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("before", [None, b"before"])
def test_an_interrupt_at_any_step_of_writing_a_file(tmp_path: Path, before: bytes | None) -> None:
    """There is the old file or the new one, whole, and nothing beside it."""
    path, functions = tmp_path / "plan", {"write_whole", "put_in_place", "sync_directory"}
    for step in range(1, 1000):
        if before is not None:
            path.write_bytes(before)
        else:
            path.unlink(missing_ok=True)
        with suppress(KeyboardInterrupt), interrupted_at(step, {durable}, functions) as reached:
            write_whole(path, b"after")
        found = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
        assert found in ({} if before is None else {"plan": before}, {"plan": b"after"}), step
        if not reached:
            break
    assert 50 < step < 999
    assert found == {"plan": b"after"}


def test_an_interrupt_while_a_directory_is_locked_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, before = fcntl.flock, open_descriptors()

    def interrupted(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fcntl, "flock", interrupted)
        made_anew(tmp_path / "building", tmp_path / "place")
    assert open_descriptors() == before


@pytest.mark.parametrize("is_config", [False, True])
def test_what_is_in_place_is_not_said_not_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_config: bool
) -> None:
    """The disk fails when a name that stands for something else now is forced to it."""
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "topics.json"
    path.write_bytes(b"before")
    fsync = os.fsync

    def refused(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and path.read_bytes() == b"after":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(ReplacedInDoubt, match=r"has its new content, but .*Input/output error"):
        if is_config:
            persist(tmp_path, "topics.json", "after")
        else:
            write_whole(path, b"after")
    assert path.read_bytes() == b"after"
    backup = ["topics.json.bak"] if is_config else []
    assert sorted(os.listdir(path.parent)) == ["topics.json", *backup]


@pytest.mark.parametrize("keep_backup", [False, True])
def test_what_a_killed_writer_of_config_leaves_goes_with_the_next_write(
    tmp_path: Path, keep_backup: bool
) -> None:
    (tmp_path / "config").mkdir()
    for name in ("topics.json", "topics.json.bak", "topics.json.tmp", "topics.json.bak.tmp"):
        (tmp_path / "config" / name).write_text(name)
    persist(tmp_path, "topics.json", "after", keep_backup=keep_backup)
    held = {path.name: path.read_text() for path in (tmp_path / "config").iterdir()}
    backup = "topics.json.bak" if keep_backup else "topics.json"
    assert held == {"topics.json": "after", "topics.json.bak": backup}


def test_of_many_directories_several_are_forced_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {str(tmp_path / f"queue-{number}") for number in range(31)} | {str(tmp_path)}
    for name in wanted:
        Path(name).mkdir(exist_ok=True)
    forced: list[str] = []
    are_two = threading.Event()

    def noted(directory: str) -> None:
        forced.append(directory)
        if len(forced) > 1:
            are_two.set()
        assert are_two.wait(60), "the first one is forced alone"

    monkeypatch.setattr(durable, "sync_directory", noted)
    on_disk: dict[str, list[str]] = {}
    durable.sync_directories(tmp_path, on_disk)
    assert sorted(forced) == sorted(wanted) == sorted(on_disk)
    durable.sync_directories(tmp_path, on_disk)
    assert len(forced) == len(wanted)


def test_a_directory_that_is_not_forced_is_not_noted_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue").mkdir()

    def refused(directory: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    on_disk: dict[str, list[str]] = {}
    with monkeypatch.context() as patched:
        patched.setattr(durable, "sync_directory", refused)
        with pytest.raises(OSError, match="Input/output error"):
            durable.sync_directories(tmp_path, on_disk)
    assert not on_disk


@pytest.mark.parametrize("before", [None, b"before"])
def test_a_file_gets_its_name_when_its_content_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    """And then the name is forced to disk, once."""
    path = tmp_path / "plan"
    if before is not None:
        path.write_bytes(before)
    forced: list[tuple[int, bytes | None]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        there = path.read_bytes() if path.exists() else None
        forced.append((os.fstat(descriptor).st_ino, there))

    monkeypatch.setattr(os, "fsync", noted)
    write_whole(path, b"after")
    assert forced == [(path.stat().st_ino, before), (tmp_path.stat().st_ino, b"after")]


def test_of_several_errors_that_of_the_disk_is_told() -> None:
    """It tells of lost pages once; a limit of open files is met again."""

    def refused(path: str) -> None:
        code = errno.EIO if path == "queue-7" else errno.EMFILE
        raise OSError(code, os.strerror(code))

    with pytest.raises(OSError, match="Input/output error"):
        durable.sync_each([f"queue-{number}" for number in range(32)], refused)


def test_the_name_of_a_file_that_a_writer_makes_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: forced.append(os.fstat(descriptor).st_ino))
    os.close(writing.open_for_writing(tmp_path, tmp_path / "lock", create=True))
    assert forced == [tmp_path.stat().st_ino]


@pytest.mark.parametrize("has_unnamed", [True, False])
def test_a_file_whose_name_cannot_be_forced_to_disk_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed: bool
) -> None:
    """Else the next start would find it, and its maker has said that there is none."""

    def refused(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    if not has_unnamed:
        monkeypatch.setattr(writing, "_open_unnamed", lambda directory: -1)
    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(CannotWrite, match="Input/output error"):
        writing.create_file(tmp_path, tmp_path / "checkpoint", 4096)
    assert not list(tmp_path.iterdir())
