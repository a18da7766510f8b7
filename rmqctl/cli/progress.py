"""A progress bar on stderr that makes way for rows on the same terminal.

For the first half second there is no bar, and nothing is imported for it. Then it shows the bytes
done, their rate, and the time that is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from rmqctl.cli import pager

if TYPE_CHECKING:
    from rich.progress import Progress

    from rmqctl.cli.output import RowWriter

#: Seconds before the first bar is drawn: quick work shows none.
_LATE_SECONDS = 0.5
#: Seconds that the bar stays away after rows: a stream of rows does not flicker.
_PAUSE_SECONDS = 0.3
#: Columns of the bar itself: title, bytes, rate and time have room beside it at 80 columns.
_BAR_COLUMNS = 20


class _AsFarAsPossible:
    """stderr for rich, without its errors: a terminal that has gone does not end a command, nor
    leave rich in the middle of a drawing."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


class _Bar:
    """A bar that is drawn when it is late enough, and nowhere but on a terminal.

    :param counts: what is done is a number of things, and no bytes.
    """

    def __init__(self, title: str, *, counts: bool, quiet: bool) -> None:
        self._title = title
        self._counts = counts
        self._is_shown = not quiet and sys.stderr.isatty()
        self._not_before = time.monotonic() + _LATE_SECONDS
        self._progress: Progress | None = None

    def show(self, done: int, total: int) -> None:
        """Tells how much is done, and of how much."""
        if not self._is_shown or time.monotonic() < self._not_before:
            return
        if pager.is_running():
            return  # The terminal is the pager's.
        if self._progress is None:
            self._progress = self._made(total)
            if self._progress is None:
                self._is_shown = False
                return
        self._progress.update(self._progress.task_ids[0], completed=done, total=total)
        if not self._progress.live.is_started:
            self._progress.start()

    def _made(self, total: int) -> Progress | None:
        """The bar; None on a terminal that cannot draw one (TERM=dumb)."""
        from rich import progress
        from rich.console import Console

        console = Console(file=_AsFarAsPossible(sys.stderr))  # type: ignore[arg-type]
        if not console.is_interactive:
            return None
        amount: list[progress.ProgressColumn] = [progress.TaskProgressColumn()]
        if not self._counts:
            amount = [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        made = progress.Progress(
            "{task.description}",
            progress.BarColumn(_BAR_COLUMNS),
            *amount,
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
            # Rows go to the real stdout, whatever is drawn.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        made.add_task(self._title, total=total)
        return made

    def wipe(self) -> None:
        """Takes the bar away; it comes again a while later."""
        if self._progress is not None and self._progress.live.is_started:
            self._progress.stop()
        self._not_before = max(self._not_before, time.monotonic() + _PAUSE_SECONDS)


@contextmanager
def progress(
    title: str, total: int, writer: RowWriter, *, counts: bool = False, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes how much of ``total`` is done by now: bytes, unless it
    ``counts`` something else.

    The bar is shown when stderr is a terminal, is wiped before ``writer`` prints to a terminal,
    and leaves nothing behind.
    """
    bar = _Bar(title, counts=counts, quiet=quiet)
    with writer.before_output(bar.wipe):
        try:
            yield lambda done: bar.show(done, total)
        finally:
            bar.wipe()


@contextmanager
def late_progress(
    title: str, *, counts: bool = False, quiet: bool
) -> Iterator[Callable[[int, int], None]]:
    """For work before any row is printed. Yields a function that takes how many bytes are done, and
    how many there are, or other things that it ``counts``."""
    bar = _Bar(title, counts=counts, quiet=quiet)
    try:
        yield bar.show
    finally:
        bar.wipe()
