"""``ReputMessageService``: dispatches appended records in the background."""

from __future__ import annotations

from rmqctl.engine.flush.thread import ServiceThread
from rmqctl.engine.write.context import WriteContext
from rmqctl.engine.write.flags import RunningFlag, RunningFlags
from rmqctl.errors import RmqctlError


class ReputMessageService(ServiceThread):
    """Runs the store's :class:`CatchUp` behind its appends.

    While queues or index cannot be written, for example on a full disk, the store refuses messages
    (``makeLogicsQueueError``). The service goes on trying until they can.
    """

    def __init__(self, context: WriteContext, flags: RunningFlags) -> None:
        super().__init__()
        self._tail = context.tail
        self._log = context.log
        self._lock = context.lock
        self._flags = flags

    @property
    def behind(self) -> int:
        """Bytes of log that are not dispatched yet (``dispatchBehindBytes``)."""
        return max(self._log.read_offset - self._tail.done, 0)

    def work(self) -> None:
        if not self.behind and not self._tail.failed:
            return
        try:
            with self._lock:
                self._tail.complete()
        except (RmqctlError, OSError):
            self._flags.make(RunningFlag.WRITE_LOGICS_QUEUE_ERROR)
        else:
            self._flags.clear(RunningFlag.WRITE_LOGICS_QUEUE_ERROR)
