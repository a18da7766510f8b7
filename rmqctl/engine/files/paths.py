"""Where things lie in a store, and how they are opened without being led astray.

Names come from data: a topic is a directory name only after :func:`check_topic_directory`. A
writer opens every path component by component below the store's root and follows no symbolic
link; a reader opens only regular files, so that a FIFO or a device cannot hang it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.unfinished import check_not_amid_repair
from rmqctl.errors import (
    CannotRead,
    CannotWrite,
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
#: Of compacted topics (5.x): the copies of their messages, the units of these, and what has been
#: compacted.
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

#: What stands where a file belongs and is none, in all words about it.
NOT_REGULAR = "it is not a regular file"

_FILE_NAME_BYTES = 255


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
    if len(topic.encode("utf-8", "surrogateescape")) > _FILE_NAME_BYTES:
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
            raise NotAStore(path=str(root), reason="it is a file")
        raise StoreNotFound(path=str(root))
    if not any((root / name).exists() for name in (COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT)):
        raise NotAStore(path=str(root), reason="it has no commitlog/, consumequeue/ or checkpoint")


def check_writable(root: Path) -> None:
    """Refuses what a writer would only stumble over later.

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
    """A path of this machine, which may be given as a URL (``file:///a``, and ``file:/a`` as Hadoop
    writes it)."""
    if place.startswith("file:/") and not place.startswith("file://"):
        return place.removeprefix("file:")
    return place.removeprefix("file://")


class QueueDirectory(NamedTuple):
    """One ``consumequeue/<topic>/<queueId>``."""

    topic: str
    queue_id: int
    path: Path


def queue_directories(base: Path) -> Iterator[QueueDirectory]:
    """Every queue of ``consumequeue/`` (or ``consumequeue_ext/``), sorted by topic and number.

    Entries that are no queue are passed over: ``verify`` names them.
    """
    for topic, queue_id, path in queue_paths(base):
        yield QueueDirectory(topic, queue_id, Path(path))


def queue_paths(base: Path) -> Iterator[tuple[str, int, str]]:
    """:func:`queue_directories` as plain values, for who looks at many thousands."""
    for topic in scan_names(base):
        for queue_id, path in queue_paths_of(base, topic):
            yield topic, queue_id, path


def queue_paths_of(base: Path, topic: str) -> Iterator[tuple[int, str]]:
    """Those of one topic: number and path."""
    directory = f"{base}/{topic}"
    names = [name for name in scan_names(directory) if is_queue_id(name)]
    for name in sorted(names, key=int) if len(names) > 1 else names:
        yield int(name), f"{directory}/{name}"


def is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) < 11


def scan_names(directory: Path | str) -> list[str]:
    """Sorted names in a directory; an absent one, or a file in its place, is empty.

    :raises CannotRead: the system refuses to list it.
    """
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CannotRead(path=str(directory), reason=error.strerror) from error


def resolved(path: Path) -> Path:
    """Where links lead, the last of which need not be there. Of links that lead to each other as
    far as they do (``Path.resolve`` raises an error of its own): who opens it gets the system's."""
    return Path(os.path.realpath(path))


def open_for_reading(path: Path | str) -> int:
    """A descriptor of a regular file; :raises NotAFile: it is another thing.
    :raises CannotRead: the system refuses."""
    try:
        # O_NONBLOCK: opening a FIFO that somebody put here must not wait for a writer.
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

    :raises SymbolicLinkRefused: a component is a link; :raises StoreReadOnly: no right to write;
        :raises CannotWrite: anything else that the system says.
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
    """What of a new file is on disk when it has been made; the rest is the caller's to sync."""

    NOTHING = 0
    #: Its bytes, before it has a name; the name, and those of directories that were made, are not.
    FILE = 1
    ALL = 2


def create_file(
    root: Path, path: Path, size: int, head: bytes = b"", forced: Forced = Forced.ALL
) -> int:
    """Makes a sparse file of ``size`` bytes, ``head`` and zeros, and opens it read-write.

    The file gets its name when it has its length: a kill leaves none or a whole one, for a broker
    refuses to start on a short file. Errors as of :func:`open_for_writing`; nothing is left then.
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
    """A sparse file of ``size`` bytes that gets the name ``path`` with :func:`name_file`: until
    then a kill leaves nothing of it; -1 where the file system has no such files. Errors as of
    :func:`open_for_writing`."""
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
    """Gives a file of :func:`create_unnamed` its name. It has none when this raises; errors as of
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
    """Gives a file its name. An error takes it away."""
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
    """Removes ``path`` (below ``root``) for good, without following a link below ``root``.

    A file that is not there is removed already. Errors as of :func:`open_for_writing`.
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
    """A descriptor of the directory that holds ``path``, reached without following a link below
    ``root``; system errors within become rmqctl's. ``create`` makes what is missing."""
    directory = -1
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in path.relative_to(root).parts[:-1]:
            # An interrupt at the closing must not have it closed twice: the number may be another
            # thread's by then.
            above, directory = directory, _open_directory(directory, part, create, forced)
            os.close(above)
        yield directory
    except OSError as error:
        raise writing_error(path, error) from error
    finally:
        if directory >= 0:
            os.close(directory)


def _open_directory(parent: int, name: str, create: bool, forced: Forced) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    except NotADirectoryError:
        # Linux says ENOTDIR of a link that must be a directory.
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise
    os.mkdir(name, 0o755, dir_fd=parent)
    if forced >= Forced.ALL:
        os.fsync(parent)
    return os.open(name, flags, dir_fd=parent)


def writing_error(path: Path | str, error: OSError) -> Exception:
    """The error of rmqctl that stands for what the system said of a write."""
    if error.errno == errno.EISDIR:
        return NoFileToWrite(path=str(path), reason=NOT_REGULAR)
    if error.errno == errno.ELOOP:
        return SymbolicLinkRefused(path=str(path))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(path=str(path), reason=error.strerror)
    return CannotWrite(path=str(path), reason=error.strerror)
