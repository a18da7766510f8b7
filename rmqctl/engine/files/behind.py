"""Work that waits for a disk, or for others, while whoever has asked for it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Behind:
    """Does one thing after the other in a thread of its own; without ``is_threaded`` at once.

    Nothing waits but the piece that is asked for last: who asks for another one waits for it.
    """

    def __init__(self, name: str, *, is_threaded: bool) -> None:
        self._thread: ThreadPoolExecutor | None = None
        if is_threaded:
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1, name)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Does it when all before is done; what that raised is raised here."""
        if self._thread is None:
            work()
            return
        self.wait()
        self._last = self._thread.submit(work)

    def wait(self) -> None:
        """Returns when all is done; what it raised is raised here."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Ends the thread, which comes to the end of what it is at."""
        if self._thread is not None:
            self._thread.shutdown()
