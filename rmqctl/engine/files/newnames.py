"""The names in a new directory, forced to disk while more of them are made."""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.files import durable
from rmqctl.engine.files.behind import Behind


class NewNames:
    """What is below ``root``, of which nobody removes anything.

    :param is_ahead: whether :meth:`begin` does anything, by a thread of its own.
    """

    def __init__(self, root: Path, *, is_ahead: bool) -> None:
        self._root = root
        self._on_disk: dict[str, list[str]] = {}
        self._behind = Behind("names", is_threaded=True) if is_ahead else None
        self._is_begun = False

    def begin(self) -> None:
        """Begins with the names that there are when this is called first, and waits for nothing;
        :meth:`finish` tells what goes wrong."""
        if self._behind is not None and not self._is_begun:
            self._is_begun = True
            self._behind.do(self._sync)

    def finish(self) -> None:
        """Forces all names to disk, which each directory's are already when it got no other ones.
        :raises OSError: the disk failed, now or before."""
        if self._behind is not None:
            self._behind.wait()
        self._sync()

    def close(self) -> None:
        """Ends the thread."""
        if self._behind is not None:
            self._behind.close()

    def _sync(self) -> None:
        durable.sync_directories(self._root, self._on_disk)
