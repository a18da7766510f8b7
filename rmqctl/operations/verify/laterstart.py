"""Finds what keeps a broker of 5.x from starting: files that only 5.x has, and that contradict each
other.

Only names, lengths, queue types, and whether JSON parses are checked here, not the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.shown import shown
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import (
    config_in_rocksdb,
    is_of_5,
    queues_not_understood,
)
from rmqctl.errors import CannotRead, ConfigFileUnreadable
from rmqctl.operations.verify.findings import Finding, finding

#: ``TimerWheel``: twice the slots of seven days of seconds, 32 bytes each.
_WHEEL, _WHEEL_LENGTH = "timerwheel", 2 * 7 * 86_400 * 32
_METRICS = "timermetrics"
_QUEUE_TYPE, _SIMPLE, _BATCH = "queue.type", "SimpleCQ", "BatchCQ"
_QUEUES_OF = {paths.CONSUME_QUEUE: _SIMPLE, "batchconsumequeue": _BATCH}


def check_later_start(root: Path) -> Iterator[Finding]:
    """The findings of a store on which a broker of 5.x has run; none for another store."""
    if not is_of_5(root):
        return
    for part in (_wheel, _metrics, _queue_types, _compaction):
        try:
            yield from part(root)
        except CannotRead as error:
            path = shown(root, Path(str(error.path)))
            yield finding("unreadable-file", path=path, found=str(error.reason))


def _wheel(root: Path) -> Iterator[Finding]:
    """``TimerWheel``'s constructor accepts an empty or missing file, and one of the right
    length."""
    length = (root / _WHEEL).stat().st_size if (root / _WHEEL).is_file() else 0
    if length not in (0, _WHEEL_LENGTH):
        expected = f"{_WHEEL_LENGTH} bytes"
        yield finding("timer-wheel-length", path=_WHEEL, expected=expected, found=f"{length} bytes")


def _metrics(root: Path) -> Iterator[Finding]:
    """A broker reads the copy if the file is missing, is empty or does not parse, and does not
    start if the copy does not parse either (``ConfigManager#load``). Without a copy it starts."""
    path, backup = (f"{brokerjson.CONFIG}/{_METRICS}{end}" for end in ("", brokerjson.BACKUP))
    problem = _problem(root / path)
    if problem is None and (root / path).is_file() and (root / path).stat().st_size:
        return
    if of_backup := _problem(root / backup):
        where, found = (backup, of_backup) if problem is None else (path, problem)
        yield finding("timer-metrics-unreadable", path=where, expected="JSON", found=found)


def _problem(path: Path) -> str | None:
    """Why a file is not JSON; None: it is, or it is missing or empty."""
    try:
        brokerjson.read(path)
    except ConfigFileUnreadable as error:
        return str(error)[:200]
    return None


def _queue_types(root: Path) -> Iterator[Finding]:
    """A broker checks the type of each queue that it loads
    (``ConsumeQueueStore#queueTypeShouldBe``)."""
    if config_in_rocksdb(root) or queues_not_understood(root):
        return  # Then topics.json does not count, or there are no queues in files.
    try:
        topics = brokerjson.read_config(root, brokerjson.TOPICS)
    except ConfigFileUnreadable:
        return  # `config check` reports it.
    if topics is None:
        return  # The store came without config/, which `config check` reports.
    table = brokerjson.table_of(topics, "topicConfigTable")
    for directory, kind in _QUEUES_OF.items():
        for topic in paths.scan_names(root / directory):
            stated = _type_of(table.get(topic))
            names = paths.scan_names(root / directory / topic)
            if stated != kind and any(map(paths.is_queue_id, names)):
                yield finding(
                    "queue-type-contradicted",
                    path=f"{directory}/{topic}",
                    expected=f"{_QUEUE_TYPE}={kind} in topics.json",
                    found=f"{_QUEUE_TYPE}={stated[:100]}",
                )


def _type_of(entry: object) -> str:
    """The queue type of a topic's entry in ``topics.json``. Without one the queues are simple."""
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    stated = attributes.get(_QUEUE_TYPE, _SIMPLE) if isinstance(attributes, dict) else _SIMPLE
    return str(stated)


def _compaction(root: Path) -> Iterator[Finding]:
    """Checks that log files and queue files of a compacted topic have the same names, as
    ``CompactionLog.TopicPartitionLog#sanityCheck`` does for queues that are in both directories. A
    start cuts off log files behind the last queue file before that, so these are no finding."""
    for topic in paths.scan_names(root / paths.COMPACTION_LOG):
        for queue_id in paths.scan_names(root / paths.COMPACTION_LOG / topic):
            names = (paths.COMPACTION_LOG, paths.COMPACTION_QUEUE)
            both = [root / name / topic / queue_id for name in names]
            if not all(path.is_dir() for path in both):
                continue
            log, queue = ({one for one in paths.scan_names(p) if one.isdecimal()} for p in both)
            last = max(queue, default="")
            unpaired = [(paths.COMPACTION_LOG, one) for one in log - queue if one < last]
            unpaired += [(paths.COMPACTION_QUEUE, one) for one in queue - log]
            for directory, name in sorted(unpaired):
                yield finding(
                    "compaction-file-unpaired",
                    path=f"{directory}/{topic}/{queue_id}/{name}",
                    expected="a file of that name in both directories",
                    found="one in this one only",
                )
