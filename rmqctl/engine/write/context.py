"""The parts of a store that is open for writing, as all that works on them gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.derive.catchup import DispatchTail
from rmqctl.engine.derive.writer import Reput
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.settings.storeconfig import MessageStoreConfig


class StoreParts(NamedTuple):
    """One store, whose lock file is held. ``reput`` writes into ``queues`` and into the index.

    ``lock`` is the put lock: held while something is appended or dispatched; no reader takes it.
    ``clock`` gives store times, in milliseconds.
    """

    root: Path
    config: MessageStoreConfig
    log: CommitLogWriter
    queues: ConsumeQueueTableWriter
    reput: Reput
    tail: DispatchTail
    lock: threading.RLock
    clock: Callable[[], int]
