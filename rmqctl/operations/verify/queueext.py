"""Checks the extension of the queues (``consumequeue_ext``): the tags codes to which units refer
there, and its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine.files import paths
from rmqctl.engine.files.shown import shown
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import ConsumeQueue, Unit, is_ext_addr
from rmqctl.engine.queue.extension import ConsumeQueueExt, ext_offset
from rmqctl.engine.settings.filesizes import consume_queue_ext_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.verify.directories import check_queue_directories
from rmqctl.operations.verify.findings import Finding, finding

_UNCLAIMED = "extension-file-unclaimed"


def resolve_ext(
    queue: ConsumeQueue, log: CommitLog, window: NDArray[np.void], codes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Replaces addresses in ``codes`` (int64, parallel to ``window``), in place, by the tags codes
    at these addresses. An address stays as it is if it leads nowhere, or to another message's unit.
    Bit maps are not checked: they come from a broker's filters, not from the log."""
    assert queue.ext is not None
    for row in np.flatnonzero(codes <= constants.MAX_ADDR).tolist():
        unit = Unit._make(window[row].tolist())
        found = queue.ext.get(unit.tags_code)
        record = log.find_record(unit.physical_offset) if found is not None else None
        if found is not None and record is not None:
            is_own = found.msg_store_time == record.store_timestamp
            codes[row] = found.tags_code if is_own else codes[row]
    return codes


def describe_ext(queue: ConsumeQueue, unit: Unit) -> str:
    """What a finding says of a unit's extension unit; empty if the unit has no address."""
    if not is_ext_addr(unit.tags_code):
        return ""
    found = queue.ext.get(unit.tags_code) if queue.ext is not None else None
    if found is None:
        return " (an address where the extension has no unit)"
    return f" (in the extension: tags code {found.tags_code}, store time {found.msg_store_time})"


def check_ext_directory(root: Path, config: MessageStoreConfig) -> Iterator[Finding]:
    """Checks names and lengths of the extension's files, and finds extensions of queues that do not
    exist."""
    base = root / paths.CONSUME_QUEUE_EXT
    if not base.is_dir():
        return
    yield from check_queue_directories(root, base, consume_queue_ext_file_size(root, config))
    for where in paths.queue_directories(base):
        if not (root / paths.CONSUME_QUEUE / where.topic / str(where.queue_id)).is_dir():
            yield from _unclaimed(root, where.path, where.topic, where.queue_id, -1)


def check_ext_files(
    root: Path, config: MessageStoreConfig, queue: ConsumeQueue
) -> Iterator[Finding]:
    """The findings of one queue's extension files: a size that keeps a broker from starting, and
    files that a start removes (``ConsumeQueueExt#truncateByMaxAddress``). These are the files
    behind the newest address in the queue's last three files, or all files if there is none. Files
    before the first address are no finding: retention removes them later."""
    if queue.ext is None:
        return
    newest = queue.newest_address()
    offset = ext_offset(newest) if newest is not None else None
    directory, topic, queue_id = queue.ext.files.directory, queue.topic, queue.queue_id
    astray = queue.ext.sizes_astray()
    is_off = config.is_explicit("enable_consume_queue_ext") and not config.enable_consume_queue_ext
    if astray is not None and not is_off:
        yield finding(
            "extension-sizes-astray",
            path=shown(root, astray.path),
            topic=topic,
            queue_id=queue_id,
            position=astray.position,
            expected="the size of a unit that ends in the file, or none",
            found="the file's end" if astray.size is None else f"size {astray.size}",
        )
    yield from _unclaimed(root, directory, topic, queue_id, -1 if offset is None else offset)


def _unclaimed(
    root: Path, directory: Path, topic: str, queue_id: int, newest: int
) -> Iterator[Finding]:
    ext = ConsumeQueueExt(directory)
    try:
        for number, entry in enumerate(ext.files.entries):
            # A file of zeros is preallocated.
            if entry.file_from_offset > newest and ext.files.file(number).end_of_data(0):
                yield finding(
                    _UNCLAIMED,
                    path=entry.path.relative_to(root),
                    topic=topic,
                    queue_id=queue_id,
                    position=0,
                )
    finally:
        ext.close()
