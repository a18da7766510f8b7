"""Names and whole files that survive a power loss."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from rmqctl.engine.files.owner import hand_over_tree
from rmqctl.engine.files.unfinished import BESIDE
from rmqctl.engine.files.writing import writing_error
from rmqctl.errors import CannotWrite

P = TypeVar("P", Path, str)

#: What the system says where too many files are open: a flush has tried nothing then.
NOT_OPENED = (errno.EMFILE, errno.ENFILE)
#: Threads that force many files to disk, at most, and files that are worth a thread.
_SYNCED_AT_ONCE, _SYNCED_BY_ONE = 16, 4
#: What the system says where a file is gone, or something else (ENXIO: a socket) has its place.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)


class MayLose(Protocol):
    """Somebody who keeps what the disk has said when it failed."""

    lost: OSError | None


def raise_lost(loser: MayLose) -> None:
    """:raises OSError: the disk has failed before."""
    if loser.lost is not None:
        raise OSError(*loser.lost.args)


class ReplacedInDoubt(CannotWrite):
    """A file has its new content, and what says so may not be on disk."""

    template = (
        "{path} has its new content, but its name could not be forced to disk: {reason}. A loss of "
        "power may bring the old content back."
    )
    step = "Check the disk before you rely on either."


class PlacedInDoubt(ReplacedInDoubt):
    """The same of what has got its name at the end, where nothing stood, and cannot be renamed any
    more: the system makes a file system read-only when its disk fails."""

    template = (
        "{path} is whole and in its place, but its name could not be forced to disk: {reason}. A "
        "loss of power may take it away."
    )
    step = "Check the disk before you rely on it."


def remove_tree(path: Path) -> None:
    """Removes a directory with what is in it, as far as the system lets. Anything else stays:
    ``shutil.rmtree`` would wait until somebody writes into a pipe."""
    if path.is_dir() and not path.is_symlink():
        import shutil  # It loads three compressors, and who only reads needs none.

        shutil.rmtree(path, ignore_errors=True)


def sync_directory(directory: Path | str) -> None:
    """Forces the names in a directory to disk. :raises OSError: the disk failed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(root: Path, on_disk: dict[str, list[str]] | None = None) -> None:
    """Forces the names in a directory, and in all directories below it, to disk
    (:func:`sync_each`).

    :param on_disk: by path of a directory, the names in it that are on disk already. A directory
        that has just these is skipped; the others are noted here.
    :raises OSError: the disk failed, or a directory cannot be listed.
    """
    on_disk = {} if on_disk is None else on_disk
    new: dict[str, list[str]] = {}
    for directory, directories, files in os.walk(root, onerror=_refused):
        names = [*directories, *files]
        if on_disk.get(directory) != names:
            new[directory] = names
    sync_each(list(new), sync_directory)
    on_disk.update(new)


def force(descriptor: int, loser: MayLose) -> None:
    """Forces an open file to disk.

    :param loser: keeps the error of a disk that failed, also where an interrupt comes instead.
    :raises OSError: the disk failed.
    """
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        # Without a call before: there an interrupt that waits would take the error's place.
        loser.lost = error
        raise


def sync_files(
    paths: Iterable[Path], *, may_be_gone: bool = False, loser: MayLose | None = None
) -> None:
    """Forces files to disk by their paths, and the names in directories (:func:`sync_each`).

    :param may_be_gone: skip paths that retention has removed meanwhile, and those of queues that
        could not be made because something else has their place.
    :param loser: keeps the error of a disk that failed, also where an interrupt comes instead.
    :raises OSError: the disk failed. All threads have ended then.
    """
    sync_each(list(paths), lambda path: _sync_file(path, may_be_gone, loser))


def _sync_file(path: Path, may_be_gone: bool, loser: MayLose | None) -> None:
    descriptor = -1
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            os.fsync(descriptor)  # fdatasync of a directory need not cover its names.
        elif stat.S_ISREG(mode) or not may_be_gone:
            os.fdatasync(descriptor)
    except OSError as error:
        if descriptor < 0 and may_be_gone and error.errno in _NOT_THERE:
            return
        if loser is not None and error.errno not in NOT_OPENED:
            loser.lost = error  # Without a call before, as in :func:`force`.
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def sync_each(paths: Sequence[P], sync: Callable[[P], None]) -> None:
    """Calls ``sync`` with each path. Of many, several are forced at a time: one commit of a file
    system's journal serves them all. Raises what ``sync`` raises, when all threads have ended; of
    several errors one of the disk, which tells of lost pages once, before a limit of open files.
    An interrupt waits for what is on its way, too."""
    threads = min(len(paths) // _SYNCED_BY_ONE, _SYNCED_AT_ONCE)
    if threads < 2:
        for path in paths:
            sync(path)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    is_over = False

    def sync_some(part: Sequence[P]) -> None:
        for path in part:
            if is_over:
                return
            sync(path)

    pool, parts = ThreadPoolExecutor(threads), list[Future[None]]()
    interrupt: BaseException | None = None
    while True:
        try:
            while len(parts) < threads and interrupt is None:
                parts.append(pool.submit(sync_some, paths[len(parts) :: threads]))
            pool.shutdown()
            break
        except BaseException as caught:
            is_over, interrupt = True, caught
    if interrupt is not None:
        raise interrupt
    errors = [error for part in parts if (error := part.exception()) is not None]
    if errors:
        raise min(errors, key=lambda error: getattr(error, "errno", None) in NOT_OPENED)


def _refused(error: OSError) -> None:
    """Raises the error: ``os.walk`` would skip a directory that it cannot list."""
    raise error


def put_in_place(built: Path, place: Path) -> None:
    """Renames ``built`` to ``place``, durably. Nothing stands there, or an empty directory. What
    root has built belongs to the owner of the directory that it comes into.

    :raises OSError: the system refuses. ``built`` then has its old name again, as after an
        interrupt, so that the caller can try once more.
    :raises PlacedInDoubt: it could not get its old name back.
    """
    hand_over_tree(built, place.parent)
    before = os.lstat(built)
    try:
        os.rename(built, place)
        sync_directory(place.parent)
    except BaseException as error:
        # An interrupt may come before the rename, or behind it.
        if _stands_at(place, before):
            try:
                os.rename(place, built)
            except OSError:
                reason = error.strerror if isinstance(error, OSError) else "it was interrupted"
                raise PlacedInDoubt(path=str(place), reason=reason) from error
        raise


def _stands_at(place: Path, status: os.stat_result) -> bool:
    """Whether the file or directory with a status has the name ``place``."""
    try:
        return os.path.samestat(os.lstat(place), status)
    except OSError:
        return False


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file under a temporary name and renames it to ``path``, durably. A file that was
    there is replaced at once; root leaves its owner. An interrupt leaves no temporary file.

    :raises CannotWrite, StoreReadOnly: the system refuses; ``path`` is as it was.
    :raises ReplacedInDoubt: the new content is there, and a loss of power may undo it.
    """
    beside = path.with_name(path.name + BESIDE)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        is_new = not os.path.lexists(path)
        if is_new:
            put_in_place(beside, path)
        else:
            hand_over_tree(beside, path)
            os.rename(beside, path)
    except BaseException as error:
        # It may not exist: making it is what failed, perhaps.
        with suppress(OSError):
            beside.unlink()
        if not isinstance(error, OSError):
            raise
        raise writing_error(path, error) from error
    if is_new:
        return
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise ReplacedInDoubt(path=str(path), reason=error.strerror) from error
