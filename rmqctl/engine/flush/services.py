"""The services that bring the log and the queues to disk.

:class:`GroupCommitService` is SYNC_FLUSH: one flush serves all waiting putters. It also works
without a thread: then the first waiting putter flushes for all. :class:`FlushRealTimeService` is
ASYNC_FLUSH, behind :class:`CommitRealTimeService` if there is a transient store pool.
:class:`FlushConsumeQueueService` flushes the queues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from rmqctl.engine.flush.thread import ServiceThread
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig

#: Called with the store time (ms) up to which the log is on disk (``setPhysicMsgTimestamp``).
Flushed = Callable[[int], None]


class GroupCommitRequest:
    """One putter waits until the log is on disk up to ``next_offset``."""

    def __init__(self, next_offset: int, timeout_millis: float) -> None:
        self.next_offset = next_offset
        self.dead_line = time.monotonic() + timeout_millis / 1000
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._status = PutMessageStatus.PUT_OK
        self._error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self._ended.is_set()

    @property
    def remaining(self) -> float:
        """Seconds to the deadline, 0 behind it."""
        return max(self.dead_line - time.monotonic(), 0)

    def wakeup_customer(self, status: PutMessageStatus, error: Exception | None = None) -> None:
        """Ends the wait. Only the first call counts; after the deadline it is a timeout."""
        with self._lock:
            if self._ended.is_set():
                return
            if error is None and time.monotonic() > self.dead_line:
                status = PutMessageStatus.FLUSH_DISK_TIMEOUT
            self._status, self._error = status, error
            self._ended.set()

    def wait(self) -> PutMessageStatus:
        """Returns PUT_OK, or FLUSH_DISK_TIMEOUT at the deadline. Each putter watches its own
        deadline; the engine has one thread for all (``FlushDiskWatcher``).

        :raises OSError: the disk failed. Any other error of the flush is raised here, too.
        """
        if not self._ended.wait(self.remaining):
            self.wakeup_customer(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        if self._error is not None:
            raise self._error
        return self._status


class GroupCommitService(ServiceThread):
    """Flushes for all waiting putters. Those that come during a flush wait in a second list.

    The engine keeps two lists and swaps them. Here a flush owns the list that it took, because an
    ending thread and a putter that flushes for itself may work at the same time.
    """

    def __init__(self, log: CommitLogWriter, flushed: Flushed) -> None:
        super().__init__()
        self._log = log
        self._flushed = flushed
        self._lock = threading.Lock()
        #: Held by who flushes for all. It knows its owner, who gives it back also after an
        #: interrupt that came just when it was got.
        self._leading = threading.RLock()
        self._requests_write: list[GroupCommitRequest] = []

    @property
    def interval_millis(self) -> int:
        return 10

    def put_request(self, request: GroupCommitRequest) -> None:
        with self._lock:
            self._requests_write.append(request)
        self.wakeup()

    def submit(self, request: GroupCommitRequest) -> PutMessageStatus:
        """Waits for a request; without a thread the first putter flushes for all. A putter that
        waits for another's flush goes on at its own deadline; the next flush includes its record.

        :raises OSError: the disk failed.
        """
        self.put_request(request)
        try:
            leads = not self.is_running and self._leading.acquire(timeout=request.remaining)
            if leads and not request.is_done:
                self.work()
        finally:
            with suppress(RuntimeError):  # It is not held, or not any more.
                while True:
                    self._leading.release()
        return request.wait()

    def work(self) -> None:
        with self._lock:
            requests, self._requests_write = self._requests_write, []
        self._do_commit(requests)

    def _do_commit(self, requests: list[GroupCommitRequest]) -> None:
        try:
            if not requests:
                # For messages that nobody waits for (WAIT=false).
                self._log.force()
            for request in requests:
                is_flushed = self._log.force(request.next_offset)
                request.wakeup_customer(
                    PutMessageStatus.PUT_OK if is_flushed else PutMessageStatus.FLUSH_DISK_TIMEOUT
                )
        except Exception as error:
            for request in requests:
                request.wakeup_customer(PutMessageStatus.UNKNOWN_ERROR, error)
            if not requests:
                raise
        self._flushed(self._log.flushed_timestamp)


class FlushRealTimeService(ServiceThread):
    """At an interval, flushes the log if it has grown by some pages; from time to time anyhow."""

    def __init__(self, log: CommitLogWriter, config: MessageStoreConfig, flushed: Flushed) -> None:
        super().__init__()
        self._log = log
        self._config = config
        self._flushed = flushed
        self._last_flush_timestamp = 0.0
        self.is_woken = not config.flush_commit_log_timed

    @property
    def interval_millis(self) -> int:
        return self._config.flush_interval_commit_log

    def work(self) -> None:
        config, now = self._config, time.monotonic() * 1000
        least_pages = config.flush_commit_log_least_pages
        if now >= self._last_flush_timestamp + config.flush_commit_log_thorough_interval:
            self._last_flush_timestamp, least_pages = now, 0
        self._log.flush(least_pages)
        self._flushed(self._log.flushed_timestamp)

    def finish(self) -> None:
        self._log.force()
        self._flushed(self._log.flushed_timestamp)


class CommitRealTimeService(ServiceThread):
    """Writes the transient store pool's buffers to the files, and then wakes flush and dispatch."""

    def __init__(
        self, log: CommitLogWriter, config: MessageStoreConfig, followers: Iterable[ServiceThread]
    ) -> None:
        super().__init__()
        self._log = log
        self._config = config
        self._followers = tuple(followers)
        self._last_commit_timestamp = 0.0

    @property
    def interval_millis(self) -> int:
        return self._config.commit_interval_commit_log

    def work(self) -> None:
        config, now = self._config, time.monotonic() * 1000
        least_pages = config.commit_commit_log_least_pages
        if now >= self._last_commit_timestamp + config.commit_commit_log_thorough_interval:
            self._last_commit_timestamp, least_pages = now, 0
        if self._log.commit(least_pages):
            self._last_commit_timestamp = time.monotonic() * 1000
            for service in self._followers:
                service.wakeup()

    def finish(self) -> None:
        self._log.commit_all()


class FlushConsumeQueueService(ServiceThread):
    """Flushes queues that have grown by some pages; from time to time all, then the checkpoint.

    :param flush: flushes the queues by least pages; with 0 also writes the checkpoint.
    """

    is_woken = False

    def __init__(self, config: MessageStoreConfig, flush: Callable[[int], None]) -> None:
        super().__init__()
        self._config = config
        self._flush = flush
        self._last_flush_timestamp = 0.0

    @property
    def interval_millis(self) -> int:
        return self._config.flush_interval_consume_queue

    def work(self) -> None:
        config, now = self._config, time.monotonic() * 1000
        least_pages = config.flush_consume_queue_least_pages
        if now >= self._last_flush_timestamp + config.flush_consume_queue_thorough_interval:
            self._last_flush_timestamp, least_pages = now, 0
        self._flush(least_pages)

    def finish(self) -> None:
        self._flush(0)
