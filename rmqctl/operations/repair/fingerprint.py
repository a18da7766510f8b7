"""Fingerprints tell whether something in a store has changed since a plan was made.

The fingerprint of a file has its length and a checksum. Where the checksum does not cover all bytes
it also has the time of modification, in seconds: copies of a store, and restored backups, keep no
finer time. That of a directory is made from the fingerprints of everything in it. That of the log
has where it begins and ends, and a checksum of its last bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqctl.engine.files.paths import open_for_reading
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.record.record import Blank, Record
from rmqctl.errors import CannotRead

#: A fingerprint as a plan and a journal hold it. None in its place: nothing is there.
Fingerprint = dict[str, Any]

#: Files up to so many bytes are read whole; of a longer one so many, half at each end.
_WHOLE = 8 << 20
_PIECE = 1 << 20
#: So many bytes before the end of the log are part of its fingerprint.
_LOG_TAIL = 64 << 10


def fingerprint(path: Path) -> Fingerprint | None:
    """The fingerprint of what is at a path; links are not followed. None: nothing is there.

    :raises OSError: the system refuses to list a directory.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISDIR(status.st_mode):
        return _of_one(path, status)
    digest, count, size = hashlib.sha256(), 0, 0
    for relative, one in _below(path):
        digest.update(f"{relative}\0{sorted(one.items())}\0".encode("utf-8", "surrogateescape"))
        count, size = count + 1, size + one.get("size", 0)
    return {
        "kind": "directory",
        "entries": count,
        "size": size,
        "sha256": digest.hexdigest(),
    }


def _of_one(path: Path, status: os.stat_result) -> Fingerprint:
    if stat.S_ISLNK(status.st_mode):
        return {
            "kind": "link",
            "sha256": hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest(),
        }
    if not stat.S_ISREG(status.st_mode):
        return {"kind": "other"}
    checksum = _checksum(path, status.st_size)
    found = {"kind": "file", "size": status.st_size, "sha256": checksum}
    if checksum is None or status.st_size > _WHOLE:
        found["modified"] = status.st_mtime_ns // 1_000_000_000
    return found


def _below(top: Path) -> Iterator[tuple[str, Fingerprint]]:
    """Everything below a directory, with relative paths, always in the same order."""
    waiting = [""]
    while waiting:
        before = waiting.pop()
        for entry in sorted(os.scandir(top / before), key=lambda entry: entry.name):
            relative = before + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield relative, {"kind": "directory"}
                waiting.append(relative + "/")
            else:
                yield relative, _of_one(Path(entry.path), entry.stat(follow_symlinks=False))


def _checksum(path: Path, size: int) -> str | None:
    """The SHA-256 of a file's bytes, or of both ends of a long file. None: there is no right to
    read it, so that length and time must do."""
    try:
        descriptor = open_for_reading(path)
    except CannotRead:
        return None
    digest = hashlib.sha256()
    with os.fdopen(descriptor, "rb") as file:
        half = _WHOLE // 2
        ranges = [(0, size)] if size <= _WHOLE else [(0, half), (size - half, size)]
        for start, end in ranges:
            file.seek(start)
            while start < end and (piece := file.read(min(_PIECE, end - start))):
                digest.update(piece)
                start += len(piece)
    return digest.hexdigest()


# --- the log ---------------------------------------------------------------------------------


def log_fingerprint(log: CommitLog, end_offset: int) -> Fingerprint:
    """The fingerprint of a log that ends at ``end_offset``."""
    return {
        "min_offset": log.min_offset,
        "end_offset": end_offset,
        "sha256": hashlib.sha256(_before(log, end_offset)).hexdigest(),
        "behind": _behind(log, end_offset),
    }


def log_problem(log: CommitLog, known: Fingerprint, end_offset: int | None = None) -> str | None:
    """Why a log does not have a fingerprint, in words; None: it has.

    :param end_offset: where the log ends now. None: only the bytes are compared, as a repair may
        have changed what tells where it ends.
    """
    end = known["end_offset"]
    if not log.files.entries and end:
        return "no file of its log is there: give the broker.conf that says where they lie"
    if log.min_offset != known["min_offset"]:
        return f"its log begins at {log.min_offset}, and began at {known['min_offset']}"
    if end_offset is not None and end_offset != end:
        return f"its log ends at {end_offset}, and ended at {end}"
    if hashlib.sha256(_before(log, end)).hexdigest() != known["sha256"]:
        return f"before offset {end} its log holds other bytes"
    if _behind(log, end) not in (known["behind"], "nothing"):
        return f"something was stored behind the log's end, {end}"
    return None


def _before(log: CommitLog, end: int) -> bytes:
    """The last bytes of the log's last file before its end."""
    number = log.files.index_of(max(end - 1, 0))
    if number < 0:
        return b""
    mapped = log.files.file(number)
    stop = end - mapped.file_from_offset
    start = max(stop - _LOG_TAIL, 0)
    return mapped.read_aside(start, stop - start)


def _behind(log: CommitLog, end: int) -> str:
    """Whether something stands at the end of the log: ``something`` or ``nothing``."""
    if log.files.index_of(end) < 0:
        return "nothing"
    entry = log.entry_at(end)
    return "something" if isinstance(entry, Record | Blank) else "nothing"
