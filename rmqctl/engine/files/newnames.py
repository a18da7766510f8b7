"""Forces the names in a new directory to disk while more files are made in it."""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.files import durable
from rmqctl.engine.files.behind import Behind


class NewNames:
    """The names below ``root``, where nothing is removed meanwhile.

    :param is_ahead: :meth:`begin` starts a thread; else it does nothing.
    """

    def __init__(self, root: Path, *, is_ahead: bool) -> None:
        self._root = root
        self._on_disk: dict[str, list[str]] = {}
        self._behind = Behind("names", is_threaded=True) if is_ahead else None
        self._is_begun = False

    def begin(self) -> None:
        """Starts forcing the names that exist now, once, without waiting. :meth:`finish` raises
        what goes wrong."""
        if self._behind is not None and not self._is_begun:
            self._is_begun = True
            self._behind.do(self._sync)

    def finish(self) -> None:
        """Forces the names of all directories that have got new ones since :meth:`begin`.

        :raises OSError: the disk failed, now or in the background.
        """
        if self._behind is not None:
            self._behind.wait()
        self._sync()

    def close(self) -> None:
        """Ends the thread."""
        if self._behind is not None:
            self._behind.close()

    def _sync(self) -> None:
        durable.sync_directories(self._root, self._on_disk)
