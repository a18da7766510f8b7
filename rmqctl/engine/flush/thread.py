"""``ServiceThread``: a thread of the store that waits, works and can be woken."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: The shortest wait: an interval of 0 in ``broker.conf`` would keep a processor busy.
_LEAST_MILLIS = 10


class ServiceThread:
    """One service. A subclass does its work after each wait in :meth:`work`, and its last work in
    :meth:`finish`.

    No error of :meth:`work` ends the service: ``failure`` keeps the first one until somebody takes
    it, and the work is tried again.
    """

    #: Whether a wake-up cuts the wait short; else the service only works at its interval.
    is_woken = True

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._finishes = True

    @property
    def is_running(self) -> bool:
        return self._thread is not None and not self._stop.is_set()

    @property
    def interval_millis(self) -> int:
        """The longest wait in milliseconds; below 10 it counts as 10."""
        return 1000

    def start(self) -> None:
        """Starts the thread, which works at once; does nothing if it runs already."""
        if self._thread is None:
            self._stop.clear()
            self._wake.set()
            self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
            self._thread.start()

    def wakeup(self) -> None:
        """Ends the wait. Without a thread it does nothing: a thread works at once when it
        starts."""
        if self._thread is not None:
            self._wake.set()

    def shutdown(self, *, finish: bool = True) -> None:
        """Ends the thread and waits for it; without ``finish`` its last work is not done."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._finishes = finish
        self._stop.set()
        self._wake.set()
        thread.join()

    def take_failure(self) -> Exception | None:
        """The first error since the last call."""
        failure, self.failure = self.failure, None
        return failure

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """The last work, when the service ends with ``finish``."""
        self.work()

    def _run(self) -> None:
        while not self._stop.is_set():
            seconds = max(self.interval_millis, _LEAST_MILLIS) / 1000
            (self._wake if self.is_woken else self._stop).wait(seconds)
            self._wake.clear()
            if not self._stop.is_set():
                self._try(self.work)
        if self._finishes:
            self._try(self.finish)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failure = self.failure or error
