"""Work done in a background thread while the caller goes on, such as a wait for the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Behind:
    """Runs pieces of work in order in one thread; without ``is_threaded``, in the caller's.

    At most one piece is pending: the next call of :meth:`do` waits for it first.
    """

    def __init__(self, name: str, *, is_threaded: bool) -> None:
        self._thread: ThreadPoolExecutor | None = None
        if is_threaded:
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1, name)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Starts ``work`` when the piece before it is done. An error of that piece is raised here,
        and ``work`` is then not started."""
        if self._thread is None:
            work()
            return
        self.wait()
        self._last = self._thread.submit(work)

    def wait(self) -> None:
        """Waits for the pending piece, and raises its error."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Ends the thread when its current piece is done. An error of that piece is lost: call
        :meth:`wait` first."""
        if self._thread is not None:
            self._thread.shutdown()
