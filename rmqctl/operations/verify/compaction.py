"""Checks the compacted topics of 5.x: names and lengths of their files, what a kill has left, and
how far they are compacted. :mod:`rmqctl.operations.verify.laterstart` says which files belong
together.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.files.shown import shown
from rmqctl.engine.queue.compactedqueue import (
    PARTS,
    CompactedQueue,
    compacted_queues,
    compaction_positions,
)
from rmqctl.engine.settings.filesizes import compaction_file_sizes
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.store import Store
from rmqctl.errors import CannotRead, ConfigFileUnreadable
from rmqctl.operations.verify.compactedmissing import check_missing
from rmqctl.operations.verify.compactedrecords import Checked, check_records
from rmqctl.operations.verify.findings import ERROR, Finding, finding


def check_compaction(root: Path, config: MessageStoreConfig) -> Iterator[Finding]:
    """The findings about a store's compacted topics; none without such topics."""
    queues = list(compacted_queues(root))
    if not queues:
        return
    positions: dict[str, int] = {}
    try:
        positions = compaction_positions(root)
    except ConfigFileUnreadable as error:
        yield finding(
            "compaction-position-unreadable",
            path=paths.COMPACTION_POSITION,
            expected="JSON",
            found=str(error)[:200],
        )
    sizes = compaction_file_sizes(root)
    with Store(root, config) as store:
        for where in queues:
            position = positions.get(f"{where.topic}_{where.queue_id}", -1)
            try:
                yield from _check_files(root, where, sizes)
                with closing(CompactedQueue(root, where.topic, where.queue_id, sizes)) as queue:
                    yield from _check_queue(store, queue, position)
            except CannotRead as error:
                path = Path(str(error.path))
                if os.path.lexists(path):
                    found = str(error.reason)
                    yield finding("unreadable-file", path=shown(root, path), found=found)
                else:  # By a compaction that goes on.
                    yield finding("file-removed-meanwhile", path=shown(root, path))


def _check_files(
    root: Path, where: paths.QueueDirectory, sizes: tuple[int, int]
) -> Iterator[Finding]:
    of_queue = {"topic": where.topic, "queue_id": where.queue_id}
    for base, size in zip((paths.COMPACTION_LOG, paths.COMPACTION_QUEUE), sizes, strict=True):
        directory = root / base / where.topic / str(where.queue_id)
        names = paths.scan_names(directory)
        last = max(filter(is_offset_name, names), default=None)
        for name in names:
            path = directory / name
            if path.is_dir():
                if name in PARTS and paths.scan_names(path):
                    yield finding("compaction-left-over", path=shown(root, path), **of_queue)
                continue
            if not is_offset_name(name):
                yield finding("compaction-foreign-file", path=shown(root, path), **of_queue)
                continue
            found = _size_of(path)
            if found is None:
                continue  # A running compaction has removed it meanwhile.
            # An empty last one is deleted by a start (``MappedFileQueue#doLoad``).
            if found != size and (found or name != last):
                yield finding(
                    "compaction-file-length",
                    path=shown(root, path),
                    expected=f"{size} bytes",
                    found="no regular file" if found < 0 else f"{found} bytes",
                    **of_queue,
                )


def _size_of(path: Path) -> int | None:
    """The length of a file; -1 where it is no file, None where it is gone."""
    try:
        status = path.stat()
    except OSError:
        return -1 if os.path.lexists(path) else None
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def _check_queue(store: Store, queue: CompactedQueue, position: int) -> Iterator[Finding]:
    """Checks the records and units of a queue, and how far it is compacted."""
    checked, has_damage = Checked(position), False
    for found in check_records(store, queue, checked):
        has_damage = has_damage or found.severity == ERROR
        yield found
    if not has_damage:  # Else what lacks has been told.
        yield from check_missing(store, queue, checked)
    if checked.last_offset >= 0 and position > checked.last_offset:
        yield finding(
            "compaction-position-ahead",
            path=paths.COMPACTION_POSITION,
            topic=queue.topic,
            queue_id=queue.queue_id,
            expected=f"at most {checked.last_offset}",
            found=position,
        )
