"""Makes a store's page along with a check: before it, during it, and after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.cli.html.document import write
from rmqctl.cli.outside import check_outside, check_place
from rmqctl.cli.storepage import Collected, Report, log_range, page
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.state.laterversions import is_of_5
from rmqctl.errors import RmqctlError
from rmqctl.operations.doctor import simulatestart, startrows
from rmqctl.operations.doctor.portrait import portrait

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rmqctl.cli.output import RowWriter
    from rmqctl.cli.settings import Settings


class Making:
    """Takes findings (``add``) and writes the page to ``path`` at the end."""

    def __init__(self, settings: Settings, path: Path, by: str) -> None:
        """Looks at the store.

        :raises CannotWriteThere: no file can be there. :raises click.UsageError: it lies in the
            store. Both are told before a long check.
        :raises StoreNotFound, NotAStore, FileLengthContradiction: it cannot be opened.
        """
        check_place(path)
        check_outside("--report", path, [settings])
        self._settings, self._path, self._by = settings, path, by
        self.store = portrait(settings.root, settings.config)
        self._found = Collected(*log_range(self.store))
        self.add = self._found.add

    def progress(self, writer: RowWriter) -> AbstractContextManager[Callable[[int], None]]:
        """The progress bar of the simulated start."""
        begin, end = log_range(self.store)
        return self._settings.progress("start", end - begin, writer)

    def after_check(self, verdict: str, records: int, read: Callable[[int], None]) -> None:
        """Simulates a start, and writes the page. ``read`` is called with the number of bytes that
        the start reads."""
        settings, start, why = self._settings, None, ""
        if is_locked(settings.root):
            why = "a broker, or an rmqctl that writes, has the store open"
        else:
            version = "5.3.3" if is_of_5(settings.root) else "4.9.3"
            try:
                start = simulatestart.simulate_start(
                    settings.root, settings.config, version=version, read=read
                )
            except RmqctlError as error:
                why = error.for_command_line
        told = Report(self._by, verdict, self.store, self._found, start, why, records)
        write(self._path, page(told))

    def after_start(self, start: simulatestart.Simulation) -> None:
        """Writes the page of a simulated start without a check."""
        told = Report(self._by, startrows.verdict(start), self.store, None, start)
        write(self._path, page(told))
