"""Modification times of the files of rebuilt queues.

A broker answers an offset by time from one file: the queue's first one that was modified at that
time or later (``MappedFileQueue#getMappedFileByTime``). If all files of a queue were made just now,
this is its first file, and a group that is reset to a time goes back too far. A file that a broker
has filled has, about, the store time of its last message.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.read.bytime import readable_before, store_times
from rmqctl.operations.mend.rebuildplan import RebuildPlan

#: Seconds since 1970 that file systems store: later ones no broker's clock shows.
_LATEST = 1 << 33


def date_queue_files(plan: RebuildPlan, building: Path) -> None:
    """Sets the modification time of every file of the queues in ``building`` to the store time of
    its last message. The last file of a queue stays as it is: no time after the others' depends on
    it.

    Times are rounded up to whole seconds. Some versions of Java read whole seconds only; a time
    that is rounded down would pass over messages.

    :raises OSError: the system refuses.
    """
    if not plan.queues:
        return
    with closing(open_commit_log(plan.root, plan.config, plan.commit_log_file_size)) as log:
        for where in paths.queue_directories(building / paths.CONSUME_QUEUE):
            if len(paths.scan_names(where.path)) < 2:
                continue
            size = plan.consume_queue_file_size
            with closing(ConsumeQueue(where.path, where.topic, where.queue_id, size)) as queue:
                times = store_times(log, queue)
                for entry in queue.files.entries[:-1]:
                    first = entry.file_from_offset // UNIT_SIZE
                    last = readable_before(times, first, first + entry.size // UNIT_SIZE)
                    stored = None if last is None else times(last)
                    if stored is not None and 0 <= stored < _LATEST * 1000:
                        seconds = -(-stored // 1000)
                        os.utime(entry.path, (seconds, seconds))
