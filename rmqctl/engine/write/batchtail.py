"""Checks that batch queues (5.x) end where the log does. Nothing here writes such queues.

If records are not dispatched yet, they must be before anything is put: a broker dispatches nothing
before the newest unit of any queue, so their consumers would never get them. If units point to or
behind the log's end, nothing must be put there: a start removes such units only as long as no
record stands there."""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.batchqueue import BATCH_UNIT, BatchConsumeQueue
from rmqctl.engine.settings.filesizes import batch_queue_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import DamagedStore


class BatchQueueBehind(DamagedStore):
    """A batch queue lacks the newest messages. Only its broker or a rebuild adds them."""

    template = (
        "queue {queue_id} of topic {topic!r}, a batch queue (5.x), lacks the message at physical "
        "offset {physical_offset}, and would never get it once something is put behind that. "
        "Nothing was changed. Let its broker start once, or make its queues anew: `rmqctl rebuild "
        "queues --in-place`."
    )


class BatchQueueAhead(DamagedStore):
    """A batch queue has units of messages that the log has lost."""

    template = (
        "queue {queue_id} of topic {topic!r}, a batch queue (5.x), ends with a message at physical "
        "offset {physical_offset}, and the log ends at {log_end}: what is put there would take the "
        "place of that message. Nothing was changed. Let its broker start once, or make its queues "
        "anew: `rmqctl rebuild queues --in-place`."
    )


def check_batch_queues(
    root: Path,
    config: MessageStoreConfig,
    log: CommitLog,
    dispatcher: Dispatcher,
    stretch: tuple[int, int],
) -> None:
    """Checks the end of each batch queue, and the records of ``stretch``: the part of the log that
    is about to be dispatched, from a record up to the log's end.

    :raises BatchQueueBehind: a record there has no unit in its batch queue.
    :raises BatchQueueAhead: a batch queue has a unit of a record at or behind the log's end.
    """
    if not dispatcher.batch_topics:
        return
    _check_none_is_ahead(root, config, stretch[1])
    if stretch[0] >= stretch[1]:
        return
    from rmqctl.engine.dispatch.batches import batch_queue_units
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    newest: dict[tuple[str, int], int] = {}
    for entry in Scanner(log).scan(*stretch):
        if not isinstance(entry, Batch):
            continue
        for key, stored in batch_queue_units(entry, dispatcher).items():
            if key not in newest:
                newest[key] = _newest_record(root, config, *key)
            for physical_offset, *_ in BATCH_UNIT.iter_unpack(stored):
                if physical_offset > newest[key]:
                    topic, queue_id = key
                    raise BatchQueueBehind(
                        topic=topic, queue_id=queue_id, physical_offset=physical_offset
                    )


def _check_none_is_ahead(root: Path, config: MessageStoreConfig, log_end: int) -> None:
    for topic, queue_id, _ in paths.queue_directories(root / paths.BATCH_CONSUME_QUEUE):
        newest = _newest_record(root, config, topic, queue_id)
        if newest >= log_end:
            raise BatchQueueAhead(
                topic=topic, queue_id=queue_id, physical_offset=newest, log_end=log_end
            )


def _newest_record(root: Path, config: MessageStoreConfig, topic: str, queue_id: int) -> int:
    """Physical offset in a queue's last unit; -1 without units."""
    where = root / paths.BATCH_CONSUME_QUEUE / topic / str(queue_id)
    if not where.is_dir():
        return -1
    queue = BatchConsumeQueue(where, topic, queue_id, batch_queue_file_size(root, config))
    last = queue.unit(queue.end - 1)
    queue.close()
    return -1 if last is None else last.physical_offset
