"""The parts of a store that is open for writing, as all that works on them gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.dispatchtail import DispatchTail
from rmqctl.engine.logwriter import CommitLogWriter
from rmqctl.engine.queuetable import ConsumeQueueTable
from rmqctl.engine.reput import Reput


class StoreParts(NamedTuple):
    """One store, whose lock file is held. ``reput`` writes into ``queues`` and into the index.

    ``lock`` is the put lock: held while something is appended or dispatched, and by readers of the
    same store. ``clock`` gives store times, in milliseconds.
    """

    root: Path
    config: MessageStoreConfig
    log: CommitLogWriter
    queues: ConsumeQueueTable
    reput: Reput
    tail: DispatchTail
    lock: threading.RLock
    clock: Callable[[], int]
