"""The names in a new directory, forced to disk while more of them are made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class NewNames:
    """What is below ``root``, of which nobody removes anything.

    :param is_ahead: whether :meth:`begin` does anything, by a thread of its own.
    """

    def __init__(self, root: Path, *, is_ahead: bool) -> None:
        self._root = root
        self._on_disk: dict[str, list[str]] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[None] | None = None
        if is_ahead:
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1, "names")

    def begin(self) -> None:
        """Begins with the names that there are when this is called first, and waits for nothing;
        :meth:`finish` tells what goes wrong."""
        if self._thread is not None and self._begun is None:
            self._begun = self._thread.submit(self._sync)

    def finish(self) -> None:
        """Forces all names to disk, which each directory's are already when it got no other ones.
        :raises OSError: the disk failed, now or before."""
        if self._begun is not None:
            self._begun.result()
        self._sync()

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._thread.shutdown()

    def _sync(self) -> None:
        paths.sync_directories(self._root, self._on_disk)
