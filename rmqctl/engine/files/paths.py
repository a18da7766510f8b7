"""The paths of a store's parts, and how they are opened safely.

Names come from stored data, so a topic becomes a directory name only after
:func:`check_topic_directory`. A writer opens every path component by component below the store's
root and follows no symbolic link. A reader opens only regular files, so that no FIFO or device can
block it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from formats.text import encode_utf8
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.unfinished import check_not_amid_repair
from rmqctl.errors import (
    CannotRead,
    CannotWrite,
    NoDirectoryToWriteTo,
    NoFileToWrite,
    NotAFile,
    NotAStore,
    StoreNotFound,
    StoreReadOnly,
    SymbolicLinkRefused,
    TopicNotAllowed,
)

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
#: Of 5.x.
BATCH_CONSUME_QUEUE = "batchconsumequeue"
#: Compacted topics (5.x): copies of their messages, the units of those, and the compacted offsets.
COMPACTION = "compaction"
COMPACTION_LOG, COMPACTION_QUEUE = f"{COMPACTION}/compactionLog", f"{COMPACTION}/compactionCq"
COMPACTION_POSITION = f"{COMPACTION}/position-checkpoint"
INDEX = "index"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
TIMER_WHEEL = "timerwheel"
TIMER_LOG = "timerlog"
TIMER_CHECKPOINT = "config/timercheck"

#: The reason that every error gives for something in a file's place that is no regular file.
NOT_REGULAR = "it is not a regular file"

_FILE_NAME_BYTES = 255
#: A file of a queue lies four directories below its store. A directory of more entries than this
#: is not searched for stores.
_MOST_ABOVE, _MOST_ENTRIES = 4, 1000


def topic_directory_problem(topic: str) -> str | None:
    """Why ``topic`` cannot be a directory of its own below ``consumequeue/``; None when it can."""
    if not topic:
        return "it is empty"
    if topic in (".", ".."):
        return "it names a directory above"
    if "/" in topic or "\\" in topic:
        return "it contains a path separator"
    if "\0" in topic:
        return "it contains a NUL"
    if len(encode_utf8(topic)) > _FILE_NAME_BYTES:
        return "it is longer than a file name"
    return None


def check_topic_directory(topic: str) -> None:
    """:raises TopicNotAllowed: ``topic`` would leave ``consumequeue/`` or name nothing."""
    reason = topic_directory_problem(topic)
    if reason is not None:
        raise TopicNotAllowed(topic=topic, reason=reason)


def check_store(root: Path) -> None:
    """:raises StoreNotFound: no such directory; :raises NotAStore: nothing of a store in it."""
    if not root.is_dir():
        if root.exists():
            raise NotAStore(path=str(root), reason=f"it is a file{_meant(root)}")
        raise StoreNotFound(path=str(root))
    if not any((root / name).exists() for name in (COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT)):
        reason = f"it has no commitlog/, consumequeue/ or checkpoint{_meant(root)}"
        raise NotAStore(path=str(root), reason=reason)


def _meant(path: Path) -> str:
    """Words about the store that may have been meant by a path that is none: the one that it lies
    in, as ``commitlog/`` or a file does, or the only one that lies in it. Else nothing."""
    whole = Path(os.path.abspath(path))
    for above in whole.parents[:_MOST_ABOVE]:
        if _looks_like_store(above):
            return f", but lies in the store {above}"
    try:
        with os.scandir(whole) as entries:
            inside = [entry.path for entry in islice(entries, _MOST_ENTRIES)]
    except OSError:
        return ""
    stores = [name for name in inside if _looks_like_store(Path(name))]
    return f", but {stores[0]} is a store" if len(stores) == 1 else ""


def _looks_like_store(path: Path) -> bool:
    # os.path.isdir is False, and raises nothing, where one may not look.
    return any(os.path.isdir(path / name) for name in (COMMIT_LOG, CONSUME_QUEUE))


def check_writable(root: Path) -> None:
    """Refuses, before anything is changed, what a writer would fail at later.

    :raises SymbolicLinkRefused: a part of the store is a link.
    :raises NoFileToWrite: something else stands in place of ``lock``, ``checkpoint`` or ``abort``.
    :raises RepairUnfinished: a repair was cut off.
    """
    check_not_amid_repair(root)
    for name in (LOCK, ABORT, CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE, INDEX):
        path = root / name
        if path.is_symlink():
            raise SymbolicLinkRefused(path=str(path))
        if name in (LOCK, ABORT, CHECKPOINT) and path.exists() and not path.is_file():
            raise NoFileToWrite(path=str(path), reason=NOT_REGULAR)


def local_path(place: str) -> str:
    """The path of a place that may be a URL: ``file:///a``, or ``file:/a`` as Hadoop writes it."""
    if place.startswith("file:/") and not place.startswith("file://"):
        return place.removeprefix("file:")
    return place.removeprefix("file://")


class QueueDirectory(NamedTuple):
    """One ``consumequeue/<topic>/<queueId>``."""

    topic: str
    queue_id: int
    path: Path


def queue_directories(base: Path) -> Iterator[QueueDirectory]:
    """Every queue below ``consumequeue/`` (or ``consumequeue_ext/``), sorted by topic and number.

    Entries that cannot be queues are skipped; ``verify`` names them.
    """
    for topic, queue_id, path in queue_paths(base):
        yield QueueDirectory(topic, queue_id, Path(path))


def queue_paths(base: Path) -> Iterator[tuple[str, int, str]]:
    """:func:`queue_directories` as tuples of topic, queue id and path: faster for thousands."""
    for topic in scan_names(base):
        for queue_id, path in queue_paths_of(base, topic):
            yield topic, queue_id, path


def queue_paths_of(base: Path, topic: str) -> Iterator[tuple[int, str]]:
    """Queue id and path of every queue of one topic, sorted."""
    directory = f"{base}/{topic}"
    names = [name for name in scan_names(directory) if is_queue_id(name)]
    for name in sorted(names, key=int) if len(names) > 1 else names:
        yield int(name), f"{directory}/{name}"


def is_queue_id(name: str) -> bool:
    """Whether a directory's name is a queue id: decimal digits without leading zeros."""
    return name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) < 11


def scan_names(directory: Path | str) -> list[str]:
    """Sorted names in a directory; none when it is absent, or a file stands in its place.

    :raises CannotRead: the system refuses to list it.
    """
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CannotRead(path=str(directory), reason=error.strerror) from error


def resolved(path: Path) -> Path:
    """The path with all links followed; the place itself need not exist.

    A loop of links is followed as far as it goes, and opening the result raises the system's error.
    ``Path.resolve`` would raise an error of its own.
    """
    return Path(os.path.realpath(path))


def open_for_reading(path: Path | str) -> int:
    """A descriptor of a regular file, for reading.

    :raises NotAFile: something else stands there. :raises CannotRead: the system refuses.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CannotRead(path=str(path), reason=error.strerror) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAFile(path=str(path), reason=NOT_REGULAR)
    return descriptor


def open_for_writing(root: Path, path: Path, *, create: bool = False) -> int:
    """Opens ``path`` (below ``root``) read-write without following a link below ``root``.

    With ``create`` missing directories and an empty file are made.

    :raises SymbolicLinkRefused: a component is a link. :raises NoFileToWrite: something else than a
        regular file stands there. :raises StoreReadOnly: no right to write. :raises CannotWrite:
        any other error of the system.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with parent_directory(root, path, create) as directory:
        made = False
        try:
            descriptor = os.open(path.name, flags, dir_fd=directory)
        except FileNotFoundError:
            if not create:
                raise
            descriptor = os.open(path.name, flags | os.O_CREAT, 0o644, dir_fd=directory)
            made = True
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NoFileToWrite(path=str(path), reason=NOT_REGULAR)
        if made:
            os.fsync(directory)
        return descriptor


class Forced(IntEnum):
    """What of a new file is forced to disk when it is made; the caller syncs the rest."""

    NOTHING = 0
    #: Its bytes, before it gets its name; not the name, nor the names of new directories above it.
    FILE = 1
    ALL = 2


def create_file(
    root: Path, path: Path, size: int, head: bytes = b"", forced: Forced = Forced.ALL
) -> int:
    """Makes a sparse file of ``size`` bytes, ``head`` and zeros, and opens it read-write.

    The file gets its name when it has its length, so a kill leaves a whole file or none: a broker
    does not start on a short one. Errors as in :func:`open_for_writing`; nothing is left then.
    """
    with parent_directory(root, path, True, forced) as directory:
        descriptor = _open_unnamed(directory)
        named = descriptor < 0
        if named:
            # A file system without unnamed files: the length follows the name at once.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path.name, flags, 0o644, dir_fd=directory)
        try:
            os.ftruncate(descriptor, size)
            write_at(descriptor, head, 0)
            if not named:
                _name(descriptor, path.name, directory, forced)
            elif forced >= Forced.FILE:
                os.fsync(descriptor)
                if forced >= Forced.ALL:
                    os.fsync(directory)
        except BaseException:
            os.close(descriptor)
            if named:
                os.unlink(path.name, dir_fd=directory)
            raise
        return descriptor


def create_unnamed(root: Path, path: Path, size: int, forced: Forced = Forced.ALL) -> int:
    """Makes a sparse file of ``size`` bytes that has no name before :func:`name_file` gives it
    ``path``. A kill until then leaves nothing of it.

    :returns: a descriptor; -1 where the file system has no unnamed files (``O_TMPFILE``).
    Errors as in :func:`open_for_writing`.
    """
    with parent_directory(root, path, True, forced) as directory:
        descriptor = _open_unnamed(directory)
        if descriptor >= 0:
            try:
                os.ftruncate(descriptor, size)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor


def name_file(root: Path, path: Path, descriptor: int, forced: Forced = Forced.ALL) -> None:
    """Gives a file of :func:`create_unnamed` its name. After an error it has none. Errors as in
    :func:`open_for_writing`."""
    with parent_directory(root, path, True, forced) as directory:
        _name(descriptor, path.name, directory, forced)


def _open_unnamed(directory: int) -> int:
    """A new file without a name; -1 where the file system has no such files."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
        return -1


def _name(descriptor: int, name: str, directory: int, forced: Forced) -> None:
    """Links an unnamed file into a directory; after an error the name is gone again."""
    if forced >= Forced.FILE:
        os.fsync(descriptor)
    os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=directory)
    try:
        if forced >= Forced.ALL:
            os.fsync(directory)
    except BaseException:
        os.unlink(name, dir_fd=directory)
        raise


def remove_file(root: Path, path: Path) -> None:
    """Removes ``path`` (below ``root``) durably, without following a link below ``root``.

    Does nothing when there is no such file. Errors as in :func:`open_for_writing`.
    """
    with parent_directory(root, path, False) as directory:
        try:
            status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.unlink(path.name, dir_fd=directory)
        os.fsync(directory)


@contextmanager
def parent_directory(
    root: Path, path: Path, create: bool, forced: Forced = Forced.ALL
) -> Iterator[int]:
    """Yields a descriptor of the directory that holds ``path``, opened without following a link
    below ``root``. System errors inside the ``with`` become rmqctl's (:func:`writing_error`).

    :param create: make missing directories. :param forced: what of their names is forced to disk.
    """
    directory, place = -1, root
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in path.relative_to(root).parts[:-1]:
            place /= part
            # In this order, so that an interrupt in ``close`` does not lead to a second one: the
            # number may belong to another thread's file by then.
            above, directory = directory, _open_directory(directory, place, create, forced)
            os.close(above)
        yield directory
    except OSError as error:
        raise writing_error(path, error) from error
    finally:
        if directory >= 0:
            os.close(directory)


def _open_directory(parent: int, place: Path, create: bool, forced: Forced) -> int:
    name = place.name
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    except NotADirectoryError as error:
        # Linux says ENOTDIR of a link that must be a directory.
        refused = SymbolicLinkRefused if place.is_symlink() else NoDirectoryToWriteTo
        raise refused(path=str(place)) from error
    os.mkdir(name, 0o755, dir_fd=parent)
    if forced >= Forced.ALL:
        os.fsync(parent)
    return os.open(name, flags, dir_fd=parent)


def writing_error(path: Path | str, error: OSError) -> Exception:
    """The error to raise for a system error of a write."""
    if error.errno == errno.EISDIR:
        return NoFileToWrite(path=str(path), reason=NOT_REGULAR)
    if error.errno == errno.ELOOP:
        return SymbolicLinkRefused(path=str(path))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(path=str(path), reason=error.strerror)
    return CannotWrite(path=str(path), reason=error.strerror)
