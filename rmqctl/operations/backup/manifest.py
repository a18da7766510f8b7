"""The manifest of a backup: what it holds, file by file, as lines of JSON.

The first line describes the backup. A line for each file follows. The last line counts them, so
that a manifest which was cut off is known. The SHA-256 of all these bytes is the backup's id. A
backup that is made on another one names its id: so the newest manifest of a chain proves all
others.

A manifest may come from anywhere: its paths must lie below the directory that is restored, and no
number in it becomes an allocation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.files.unfinished import JOURNAL, REPAIR
from rmqctl.operations.backup.errors import BackupUnsound, TooManyFiles

#: The name of the manifest in a backup, beside the files of the store.
MANIFEST = "rmqctl-backup.ndjson"
#: Where the files of the store lie in a backup.
FILES = "store"
#: The version of all that is written here.
FORMAT = 1
#: Most bytes of a line, and of a manifest. Two million files take less; no store has more.
_LONGEST_LINE = 1 << 16
_LONGEST = 1 << 30
#: Most bytes of a file that is backed up, far more than a broker can map (31 bits).
MOST_SIZE = 1 << 44
_NAME_BYTES = 255
_PATH_BYTES = 4096
_SHA256 = re.compile("[0-9a-f]{64}")


class Entry(NamedTuple):
    """A file of the store.

    Its bytes before ``data_end`` have the hash ``sha256``; zeros follow up to ``size``. This backup
    holds the bytes from ``stored_from`` to ``data_end``, with the hash ``stored_sha256``, of which
    ``stored_bytes`` are not holes. The bytes before are in the backup that it is made on.
    """

    path: str
    size: int
    data_end: int
    sha256: str
    stored_from: int
    stored_bytes: int
    stored_sha256: str
    mode: int
    modified_timestamp: int

    @property
    def part(self) -> str:
        """The directory of the store in which the file lies; ``other`` for a file in the store's
        own directory."""
        return self.path.partition("/")[0] if "/" in self.path else "other"


@dataclass(frozen=True, slots=True)
class Head:
    """What a manifest says of its backup. Offsets are None where the store could not be read as
    one.

    In the backup the log ends at ``physical_offset``; queues and index have all records before
    ``dispatched_offset``, and no others. ``is_live``: the store was being written meanwhile.
    """

    made_timestamp: int
    base: str | None
    min_physical_offset: int | None
    physical_offset: int | None
    dispatched_offset: int | None
    is_live: bool
    version: str


@dataclass(slots=True)
class Manifest:
    """The manifest of a backup. ``directories`` are the empty ones."""

    head: Head
    files: dict[str, Entry] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)
    id: str = ""

    @property
    def data_bytes(self) -> int:
        """Length of the data of the store."""
        return sum(entry.data_end for entry in self.files.values())

    @property
    def stored_bytes(self) -> int:
        """How many bytes this backup holds, without holes."""
        return sum(entry.stored_bytes for entry in self.files.values())


def is_amid_repair(manifest: Manifest) -> bool:
    """Whether a repair of the store had been cut off when it was copied, so that the store is
    between old and new."""
    return f"{REPAIR}/{JOURNAL}" in manifest.files


def holds(manifest: Manifest, entry: Entry) -> bool:
    """Whether a backup holds something of a file. The first one of a chain holds every file, also
    those without data; others hold what has changed."""
    return entry.stored_from < entry.data_end or entry.data_end == 0 or manifest.head.base is None


def write_lines(manifest: Manifest) -> Iterator[bytes]:
    """The manifest's bytes, line by line. Its ``id`` is set after the last line.

    :raises TooManyFiles: the manifest would be longer than any that is read.
    """
    digest, total = hashlib.sha256(), 0
    for row in _rows(manifest):
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        total += len(line)
        if total > _LONGEST:
            raise TooManyFiles(files=len(manifest.files))
        digest.update(line)
        yield line
    manifest.id = digest.hexdigest()


def _rows(manifest: Manifest) -> Iterator[dict[str, Any]]:
    head = manifest.head
    names = Head.__dataclass_fields__
    yield {"type": "backup", "format": FORMAT} | {name: getattr(head, name) for name in names}
    for path in manifest.directories:
        yield {"type": "directory", "path": path}
    for entry in manifest.files.values():
        yield {"type": "file", **entry._asdict()}
    yield {"type": "end", "files": len(manifest.files), "directories": len(manifest.directories)}


def read_manifest(file: IO[bytes], name: str) -> Manifest:
    """Reads a manifest, and checks it.

    :param name: the name of the backup, for errors.
    :raises BackupUnsound: it is no manifest, or was cut off.
    """
    try:
        return _read(_lines(file))
    except _Wrong as error:
        raise BackupUnsound(path=name, reason=f"its manifest {error}") from None


class _Wrong(Exception):
    """Why bytes are no manifest, to follow "its manifest"."""


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    total = 0
    while line := file.readline(_LONGEST_LINE + 1):
        total += len(line)
        if len(line) > _LONGEST_LINE or total > _LONGEST:
            raise _Wrong("is longer than any")
        yield line


def _read(lines: Iterable[bytes]) -> Manifest:
    digest, manifest = hashlib.sha256(), None
    #: Paths that are directories: of a line, or above the path of one.
    parents: set[str] = set()
    for number, line in enumerate(lines, 1):
        digest.update(line)
        row = _row(line, number)
        kind = row.get("type")
        if manifest is None:
            if kind != "backup":
                raise _Wrong("does not begin with the line of a backup")
            manifest = Manifest(_head(row))
        elif kind == "file":
            entry = _entry(row, number)
            _add(manifest, entry.path, parents, number)
            manifest.files[entry.path] = entry
        elif kind == "directory":
            path = _path(row, number)
            _add(manifest, path, parents, number)
            parents.add(path)
            manifest.directories.append(path)
        elif kind == "end":
            counted = (len(manifest.files), len(manifest.directories))
            if (row.get("files"), row.get("directories")) != counted:
                raise _Wrong(f"counts other files than the {counted[0]} that it lists")
            manifest.id = digest.hexdigest()
            if any(True for _ in lines):
                raise _Wrong("goes on behind its end")
            return manifest
        else:
            raise _Wrong(f"has a line of an unknown type ({number})")
    raise _Wrong("is cut off" if manifest is not None else "is empty")


def _add(manifest: Manifest, path: str, parents: set[str], number: int) -> None:
    """Notes a path. :raises _Wrong: it is listed already, or one of its parents is a file."""
    above = path
    is_new = path not in manifest.files and path not in parents
    while "/" in above and is_new:
        above = above.rpartition("/")[0]
        is_new = above not in manifest.files
        parents.add(above)
    if not is_new:
        raise _Wrong(f"lists a path twice, or a file in place of a directory (line {number})")


def _row(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise _Wrong(f"has a line that is no JSON ({number})") from None
    if not isinstance(row, dict):
        raise _Wrong(f"has a line that is no object ({number})")
    return row


def _head(row: dict[str, Any]) -> Head:
    if row.get("format") != FORMAT:
        raise _Wrong(f"is of format {str(row.get('format'))[:20]!r}, and this rmqctl reads 1")
    version, base = row.get("version"), row.get("base")
    if not isinstance(version, str) or type(row.get("is_live")) is not bool:
        raise _Wrong("does not tell of its backup as it must")
    if base is not None and not _is_sha256(base):
        raise _Wrong("names something else than a backup to go on from")
    offsets = [
        None if row.get(name) is None else _number(row, name, 1, LONG_MAX)
        for name in ("min_physical_offset", "physical_offset", "dispatched_offset")
    ]
    made = _number(row, "made_timestamp", 1, LONG_MAX)
    return Head(made, base, offsets[0], offsets[1], offsets[2], row["is_live"], version)


def _entry(row: dict[str, Any], number: int) -> Entry:
    size = _number(row, "size", number, MOST_SIZE)
    data_end = _number(row, "data_end", number, size)
    stored_from = _number(row, "stored_from", number, data_end)
    held = _number(row, "stored_bytes", number, data_end - stored_from)
    sha256, stored = row.get("sha256"), row.get("stored_sha256")
    if not isinstance(sha256, str) or not isinstance(stored, str):
        raise _Wrong(f"has a file without a hash (line {number})")
    if not (_is_sha256(sha256) and _is_sha256(stored)):
        raise _Wrong(f"has a file whose hash is none (line {number})")
    mode = _number(row, "mode", number, 0o777)
    modified = _number(row, "modified_timestamp", number, LONG_MAX // 1_000_000)
    path = _path(row, number)
    return Entry(path, size, data_end, sha256, stored_from, held, stored, mode, modified)


def _number(row: dict[str, Any], name: str, line: int, most: int) -> int:
    value = row.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise _Wrong(f"has a {name} that cannot be (line {line})")
    return value


def _path(row: dict[str, Any], line: int) -> str:
    path = row.get("path")
    if not isinstance(path, str) or not is_sound_path(path):
        raise _Wrong(f"has a path that may lead out of the store (line {line})")
    return path


def is_sound_path(path: str) -> bool:
    """Whether a relative path names something below the directory where it begins."""
    try:
        data = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return len(data) <= _PATH_BYTES and all(
        name not in (b"", b".", b"..") and b"\0" not in name and len(name) <= _NAME_BYTES
        for name in data.split(b"/")
    )


def _is_sha256(text: object) -> bool:
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None
