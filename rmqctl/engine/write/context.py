"""The parts of a store that is open for writing, for all that work on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqctl.engine.derive.catchup import CatchUp
from rmqctl.engine.derive.writer import DerivedWriter
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig


class WriteContext(NamedTuple):
    """One store whose lock file is held. ``derived`` writes into ``queues`` and into the index.

    ``lock`` is the put lock: it is held while something is appended or dispatched, and never by a
    reader. ``clock`` gives store times, in milliseconds.
    """

    root: Path
    config: MessageStoreConfig
    log: CommitLogWriter
    queues: ConsumeQueueTableWriter
    derived: DerivedWriter
    tail: CatchUp
    lock: threading.RLock
    clock: Callable[[], int]


class ReplicaService(Protocol):
    """Waits for slaves (``HAService``). A store that is not served has none: slaves fetch the rest
    once a broker runs on it."""

    def submit(self, next_offset: int, timeout_millis: int) -> PutMessageStatus:
        """PUT_OK, SLAVE_NOT_AVAILABLE, or FLUSH_SLAVE_TIMEOUT."""
