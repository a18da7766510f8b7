"""The paths of a store's parts, and how they are opened safely for reading.

Names come from stored data, so a topic becomes a directory name only after
:func:`check_topic_directory`. A reader opens only regular files, so that no FIFO or device can
block it. A writer opens paths by :mod:`~rmqctl.engine.files.writing`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from formats.text import encode_utf8
from rmqctl.engine.files.unfinished import check_not_amid_repair
from rmqctl.errors import (
    CannotRead,
    NoFileToWrite,
    NotAFile,
    NotAStore,
    StoreNotFound,
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

FILE_NAME_BYTES = 255
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
    if len(encode_utf8(topic)) > FILE_NAME_BYTES:
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


def read_start(path: Path | str, most: int) -> bytes:
    """The first ``most`` bytes of a regular file, or all of a shorter one. Errors as of
    :func:`open_for_reading`."""
    with os.fdopen(open_for_reading(path), "rb") as file:
        try:
            return file.read(most)
        except OSError as error:
            raise CannotRead(path=str(path), reason=error.strerror) from error


class FileGone(CannotRead):
    """A file of a store that was there when its directory was listed."""

    step = (
        "It was there a moment ago: the retention of a broker deletes the oldest files of log and "
        "queues. Run the command again."
    )


def listed_status(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
    """The status of a file that was listed.

    :raises FileGone: it has gone since. :raises CannotRead: the system refuses.
    """
    try:
        return path.stat(follow_symlinks=follow_symlinks)
    except OSError as error:
        kind = FileGone if isinstance(error, FileNotFoundError) else CannotRead
        raise kind(path=str(path), reason=error.strerror) from error


def open_listed(path: Path) -> int:
    """:func:`open_for_reading` of a file that was listed. :raises FileGone: it has gone since."""
    try:
        return open_for_reading(path)
    except CannotRead as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise FileGone(path=str(path), reason=error.reason) from error.__cause__
        raise
