"""Finds the segments of tiered storage by their names, and joins them with the metadata.

Nothing from the metadata becomes part of a path: its names are only compared with existing files.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS
from rmqctl.engine.files.paths import scan_names
from rmqctl.engine.tiered.metadata import INDEX, KINDS, SegmentMetadata, TieredMetadata
from rmqctl.errors import CannotRead

_CLUSTER = re.compile(r"([0-9a-f]{8})_(.+)", re.DOTALL)
_SEGMENT = re.compile(rf"([0-9a-f]{{8}})([0-9]{{{FILE_NAME_DIGITS}}})", re.ASCII)
_QUEUE_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


def hash_of(text: str) -> str:
    """The eight digits before a name (``MessageStoreUtil#getHash``)."""
    data = text.encode("utf-8", "surrogateescape")
    return hashlib.md5(data, usedforsecurity=False).hexdigest()[:8]


def cluster_of(name: str) -> str | None:
    """The cluster whose directory has this name; None if it is no cluster's."""
    match = _CLUSTER.fullmatch(name)
    return match[2] if match is not None and match[1] == hash_of(match[2]) else None


def base_of(name: str) -> int | None:
    """Base of the segment whose file has this name (``MessageStoreUtil#offset2FileName``)."""
    match = _SEGMENT.fullmatch(name)
    if match is None or int(match[2]) > LONG_MAX:
        return None
    base = int(match[2])
    return base if match[1] == hash_of(str(base)) else None


class Owner(NamedTuple):
    """The queue of segments. ``cluster`` is empty if no file tells it."""

    cluster: str
    broker: str
    topic: str
    queue_id: int

    @property
    def path(self) -> str:
        """The path of the queue in the metadata."""
        return f"{self.broker}/{self.topic}/{self.queue_id}"


class Segment(NamedTuple):
    """A segment: a file, its metadata, or both. ``file_size`` is in bytes."""

    kind: str
    base_offset: int
    file: Path | None
    file_size: int
    metadata: SegmentMetadata | None

    def readable(self, is_last: bool) -> int:
        """How many of the existing bytes a broker reads (``FlatAppendFile#recoverFileSize``)."""
        if self.metadata is None or (is_last and self.kind != INDEX):
            return self.file_size
        return min(self.file_size, self.metadata.size)


class Found(NamedTuple):
    """The content of a directory of tiered storage: segments by owner, kind and base, and foreign
    files."""

    segments: dict[Owner, dict[tuple[str, int], Segment]]
    foreign: list[Path]


def cluster_directories(directory: Path) -> list[Path]:
    """The directories of clusters, sorted. :raises CannotRead: the system refuses."""
    return [directory / name for name in scan_names(directory) if cluster_of(name) is not None]


def find_files(directory: Path) -> Found:
    """Finds segments by the names below ``directory``; opens no file.

    :raises CannotRead: the system refuses.
    """
    found = Found({}, [])
    for cluster in cluster_directories(directory):
        for broker, topic, queue in _queues(cluster, found.foreign):
            owner = Owner(cluster_of(cluster.name) or "", broker, topic, int(queue.name))
            for kind in scan_names(queue):
                if kind not in KINDS:
                    found.foreign.append(queue / kind)
                    continue
                table = found.segments.setdefault(owner, {})
                for segment in _files(queue / kind, found.foreign):
                    table[kind, segment.base_offset] = segment
    return found


def _queues(cluster: Path, foreign: list[Path]) -> Iterator[tuple[str, str, Path]]:
    for broker in scan_names(cluster):
        for topic in scan_names(cluster / broker):
            for number in scan_names(cluster / broker / topic):
                queue = cluster / broker / topic / number
                if _QUEUE_ID.fullmatch(number) is None:
                    foreign.append(queue)
                else:
                    yield broker, topic, queue


def _files(directory: Path, foreign: list[Path]) -> Iterator[Segment]:
    for name in scan_names(directory):
        path, base = directory / name, base_of(name)
        try:
            status = os.stat(path)
        except OSError as error:
            raise CannotRead(path=str(path), reason=error.strerror) from error
        if base is None or not stat.S_ISREG(status.st_mode):
            foreign.append(path)
        else:
            yield Segment(directory.name, base, path, status.st_size, None)


def joined(found: Found, metadata: TieredMetadata | None) -> dict[Owner, list[Segment]]:
    """The segments of each queue, sorted by kind and base. Several brokers may share a directory:
    with metadata only those of brokers that it names count, or all if it names none."""
    if metadata is None:
        return {owner: _sorted(table) for owner, table in sorted(found.segments.items())}
    named = {path.split("/")[0] for path, _, _ in metadata.segments}
    chosen = {
        owner: dict(table)
        for owner, table in found.segments.items()
        if not named or owner.broker in named
    }
    by_path: dict[str, Owner] = {}
    for owner in sorted(chosen):
        by_path.setdefault(owner.path, owner)
    for (path, kind, base), known in metadata.segments.items():
        owner_of = by_path.get(path) or _owner(path)
        if owner_of is None:
            continue
        by_path[path] = owner_of
        table = chosen.setdefault(owner_of, {})
        there = table.get((kind, base)) or Segment(kind, base, None, 0, None)
        table[kind, base] = there._replace(metadata=known)
    return {owner: _sorted(table) for owner, table in sorted(chosen.items())}


def _owner(path: str) -> Owner | None:
    """The owner by a path in the metadata; None if the path is malformed."""
    parts = path.split("/")
    if len(parts) != 3 or _QUEUE_ID.fullmatch(parts[2]) is None:
        return None
    return Owner("", parts[0], parts[1], int(parts[2]))


def _sorted(table: dict[tuple[str, int], Segment]) -> list[Segment]:
    return [table[key] for key in sorted(table)]
