"""Queues whose directories are gone, as a start finds them after a crash."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.rules import Dispatcher
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.scan.batch import Batch

#: Topic and queue id → the queue offset of the queue's first message in a part of the log.
Firsts = dict[tuple[str, int], int]


def note_firsts(batch: Batch, dispatcher: Dispatcher, firsts: Firsts) -> None:
    """Notes the first queue offset of each queue in a scan; light queues are left out."""
    from rmqctl.engine.derive.writer import group_by_queue
    from rmqctl.engine.dispatch.batches import rows_with_unit

    rows = rows_with_unit(batch, dispatcher)
    for topic_id, queue_id, at in group_by_queue(batch.topic_id[rows], batch.queue_id[rows]):
        key = batch.topics.names[topic_id], queue_id
        if key not in firsts:
            firsts[key] = int(batch.queue_offset[rows[at[0]]])


def firsts_between(log: CommitLog, dispatcher: Dispatcher, start: int, end: int) -> Firsts:
    """The first queue offsets in a part of the log."""
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    firsts: Firsts = {}
    for entry in Scanner(log, properties=False).scan(start, end):
        if isinstance(entry, Batch):
            note_firsts(entry, dispatcher, firsts)
    return firsts


def has_lost_queue(root: Path, there: Set[tuple[str, int]], firsts: Firsts) -> bool:
    """Whether the directory of a queue is gone that had messages before those in ``firsts``.

    A queue of a topic that ``topics.json`` does not name may have been deleted with it
    (``DefaultMessageStore#cleanUnusedTopic``).

    :param there: topic and queue id of the queues that have a directory.
    """
    topics = {queue[0] for queue, first in firsts.items() if first > 0 and queue not in there}
    if not topics:
        return False
    from rmqctl.engine.state.topicconfig import topic_configs
    from rmqctl.errors import ConfigFileUnreadable

    try:
        named = topic_configs(root)
    except ConfigFileUnreadable:
        named = None
    return named is None or not topics.isdisjoint(named)
