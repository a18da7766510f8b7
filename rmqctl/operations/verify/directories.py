"""Checks the directories of a store for names, lengths and links that keep a broker from
starting."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS, FileEntry, is_offset_name, strays
from rmqctl.engine.files.shown import shown
from rmqctl.engine.index.indexservice import is_index_name
from rmqctl.engine.log.misnamed import own_name
from rmqctl.engine.settings.filesizes import LEAST_QUEUE_FILE_SIZE, is_too_small
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import is_of_5
from rmqctl.operations.verify.findings import (
    CUT_SHORT,
    ERROR,
    INFO,
    MISPLACED,
    WARNING,
    Finding,
    finding,
)

#: The advice on a link in a file's place, which may lead to a disk that is not mounted.
LEADS_NOWHERE = "a link that leads nowhere"
_MOUNT = (
    "Keep the broker down, and see where it leads (`ls -l`): mount that disk, or bring the file "
    "back. Where it is nobody's, remove the link."
)
#: Of what stands where the log must be: there is nothing to make queues of.
_NO_LOG_THERE = (
    "Keep the broker down, which takes it for a log without a file, and deletes all queues. See "
    "what it is (`ls -ld`), move it away, and bring the log back: mount its disk, or take it from "
    "a replica or a backup."
)
_DELETED = "A broker of 5.x deletes it when it starts, and so does the next command that writes."


def check_directories(
    root: Path,
    log_size: int,
    queue_size: int,
    index_size: int,
    log_directories: tuple[Path, ...] | None = None,
    batch_queue_size: int | None = None,
) -> Iterator[Finding]:
    """Findings about names and lengths; the sizes are those that every file must have.
    ``log_directories`` are those of the log where it lies in several; without
    ``batch_queue_size`` nobody looks at batch queues."""
    names = [paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX]
    for name in names + [paths.BATCH_CONSUME_QUEUE] * (batch_queue_size is not None):
        if (root / name).is_symlink():
            yield finding("symbolic-link", path=name)
        yield from check_is_directory(root, name)
    yield from check_state_files(root)
    of_log = log_directories or (root / paths.COMMIT_LOG,)
    for directory in of_log:
        yield from check_log_files(root, directory, log_size, of_log)
    yield from check_queue_size(queue_size)
    yield from check_queue_directories(root, root / paths.CONSUME_QUEUE, queue_size)
    if batch_queue_size is not None:
        base = root / paths.BATCH_CONSUME_QUEUE
        yield from check_queue_directories(root, base, batch_queue_size)
    yield from check_index_files(root, root / paths.INDEX, index_size)


def check_access(root: Path, log_directories: tuple[Path, ...]) -> Iterator[Finding]:
    """Every directory that the system refuses to list, or to look into: a check ends at the first
    one, and who mends their rights wants to know all."""
    of_queues = (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.BATCH_CONSUME_QUEUE)
    bases = [root / name for name in of_queues]
    levels = [root, *log_directories, root / paths.INDEX, root / brokerjson.CONFIG, *bases]
    refused = yield from _without_access(root, levels)
    for _ in ("topics", "queues"):
        bases = [
            base / name for base in bases if base not in refused for name in paths.scan_names(base)
        ]
        refused = yield from _without_access(root, bases)


def _without_access(
    root: Path, directories: list[Path]
) -> Generator[Finding, None, frozenset[Path]]:
    """Those of some directories that the system refuses, each a finding."""
    refused = set()
    for path in directories:
        try:
            is_directory = path.is_dir()
        except PermissionError:
            continue  # One above it is refused, and told of.
        if is_directory and not os.access(path, os.R_OK | os.X_OK):
            refused.add(path)
            yield finding("unreadable-file", path=shown(root, path), found="no right to list it")
    return frozenset(refused)


def check_log_files(
    root: Path, directory: Path, size: int, log_directories: tuple[Path, ...]
) -> Iterator[Finding]:
    """Checks names and lengths in one of the directories of a log. A file with a foreign name may
    be one of the log by its first record: ``expected`` is then the name that it should have."""
    last = last_name(log_directories)
    for found in _check_files(root, directory, size, log_directories):
        path = root / (found.path or "")
        if found.code == "file-length-mismatch" and 0 < int(found.found or 0) < size:
            yield found._replace(advice=CUT_SHORT) if path.name == last else found
            continue
        own = own_name(path, log_directories, size) if found.code == "foreign-file" else None
        yield found if own is None else found._replace(expected=own, advice=MISPLACED)


def last_name(directories: Iterable[Path]) -> str | None:
    """The name of the last file of a log that lies in some directories; None: it has no file."""
    names = (name for one in directories for name in paths.scan_names(one) if is_offset_name(name))
    return max(names, default=None)


def check_is_directory(root: Path, name: str) -> Iterator[Finding]:
    """Finds what stands in place of a directory of the store, such as a link that leads nowhere."""
    path = root / name
    if os.path.lexists(path) and not path.is_dir():
        what = "a file" if path.is_file() else "no regular file"
        found = finding("not-a-directory", path=name, expected="a directory", found=what)
        yield found._replace(advice=_NO_LOG_THERE) if name == paths.COMMIT_LOG else found


def check_state_files(root: Path) -> Iterator[Finding]:
    """Links in place of ``lock``, ``abort`` and ``checkpoint``, and what is no file there; what is
    no checkpoint, who reads it says. A broker opens the lock before all else, and has no use for
    what the mark of a start is."""
    for name in (paths.LOCK, paths.ABORT, paths.CHECKPOINT):
        path = root / name
        if path.is_symlink():
            yield finding("symbolic-link", path=name)
        # Where a link leads nobody may be allowed to look; the link itself is named above.
        if name != paths.CHECKPOINT and os.path.exists(path) and not os.path.isfile(path):
            severity = ERROR if name == paths.LOCK else WARNING
            found = paths.NOT_REGULAR
            yield finding("unreadable-file", path=name, found=found, severity=severity)


def check_queue_size(size: int) -> Iterator[Finding]:
    """The size of queue files, of those that are there or by the configuration."""
    if is_too_small(size):
        yield finding(
            "queue-files-too-small",
            path=paths.CONSUME_QUEUE,
            expected=f"{LEAST_QUEUE_FILE_SIZE} bytes or more",
            found=f"{size} bytes",
        )


def check_queue_directories(root: Path, base: Path, size: int) -> Iterator[Finding]:
    """Checks names and lengths below ``consumequeue/``, or another directory of queues."""
    for topic in paths.scan_names(base):
        yield from check_topic_directory(root, base, topic, size)


def check_topic_directory(root: Path, base: Path, topic: str, size: int) -> Iterator[Finding]:
    """Checks the queues of one topic."""
    if (base / topic).is_symlink():
        yield finding("symbolic-link", path=(base / topic).relative_to(root))
    if not (base / topic).is_dir():
        yield _foreign(root, base / topic, "a file")
        return
    for number in paths.scan_names(base / topic):
        yield from check_queue_files(root, base / topic / number, size)


def check_queue_files(root: Path, where: Path, size: int) -> Iterator[Finding]:
    """Checks names and lengths of one queue's files; the directory may be no queue at all."""
    if where.is_symlink():
        yield finding("symbolic-link", path=where.relative_to(root))
    if paths.is_queue_id(where.name) and where.is_dir():
        yield from _check_files(root, where, size, (where,))
    else:
        yield _foreign(root, where, "no queue id")


def _deleted_by_start(root: Path, *directories: Path) -> Path | None:
    """The last file of a queue, or of the log, when it is empty and 5.x will delete it
    (``MappedFileQueue#doLoad``)."""
    files = [path / name for path in directories for name in paths.scan_names(path)]
    last = max(files, key=lambda path: path.name, default=None)
    try:
        is_empty = last is not None and last.is_file() and not last.stat().st_size
    except OSError:
        return None  # Removed meanwhile, or said by who looks at its length.
    return last if is_empty and is_of_5(root) else None


def _strays(size: int, directories: tuple[Path, ...]) -> list[Path]:
    entries = []
    for directory in directories:
        for name in filter(is_offset_name, paths.scan_names(directory)):
            path = directory / name
            with suppress(OSError):
                if path.is_file():
                    entries.append(FileEntry(int(name), path, path.stat().st_size))
    return [entry.path for entry in strays(entries, size)]


def _are_regular(directory: Path, size: int) -> bool:
    """Whether there is nothing to be said of what a directory holds: of a store of many queues, of
    nearly all of them."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                is_regular = stat.S_ISREG(status.st_mode) and status.st_size == size
                is_named = is_offset_name(entry.name) and not int(entry.name) % size
                if not (is_regular and is_named and os.access(entry.path, os.R_OK)):
                    return False
    except OSError:
        return False
    return True


def _check_files(
    root: Path, directory: Path, size: int, directories: tuple[Path, ...]
) -> Iterator[Finding]:
    """Checks one of the directories in which the files of a queue, or of the log, lie."""
    if _are_regular(directory, size):
        return
    deleted = _deleted_by_start(root, *directories)
    for name in paths.scan_names(directory):
        path = directory / name
        if path.is_symlink():
            yield finding("symbolic-link", path=shown(root, path))
        if not os.path.lexists(path):
            continue  # A broker's retention has removed it meanwhile.
        is_offset = len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()
        if is_offset and path.is_symlink() and not path.exists():
            yield _foreign(root, path, LEADS_NOWHERE)._replace(advice=_MOUNT)
        elif not is_offset or not path.is_file():
            yield _foreign(root, path, "no file offset" if path.is_file() else "not a regular file")
        elif int(name) % size and path in _strays(size, directories):
            yield _foreign(root, path, f"neither length nor name is of a file of {size} bytes")
        else:
            for found in _check_length(root, path, size):
                is_mended = path == deleted
                yield found._replace(severity=INFO, advice=_DELETED) if is_mended else found
            if int(name) % size:
                yield _foreign(root, path, f"not a multiple of {size}")


def check_index_files(root: Path, directory: Path, size: int) -> Iterator[Finding]:
    """Checks names and lengths of index files."""
    for name in paths.scan_names(directory):
        path = directory / name
        if path.is_symlink():
            yield finding("symbolic-link", path=shown(root, path))
        if not os.path.lexists(path):
            continue
        if not path.is_file() or not is_index_name(name):
            why = "no time of creation" if path.is_file() else "not a regular file"
            yield _foreign(root, path, why)
        else:
            yield from _check_length(root, path, size, "index-length-mismatch")


def _check_length(
    root: Path, path: Path, size: int, code: str = "file-length-mismatch"
) -> Iterator[Finding]:
    relative = shown(root, path)
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        return
    except OSError as error:
        yield finding("unreadable-file", path=relative, found=error.strerror)
        return
    if not os.access(path, os.R_OK):
        yield finding("unreadable-file", path=relative, found="no right to read")
    if found != size:
        yield finding(code, path=relative, expected=size, found=found, position=0)


def _foreign(root: Path, path: Path, why: str) -> Finding:
    return finding("foreign-file", path=shown(root, path), found=why)
