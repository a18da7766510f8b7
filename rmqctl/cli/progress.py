"""A progress bar on stderr that gives way to rows on the same terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter

#: Seconds before the first bar is drawn: quick work shows none.
_LATE_SECONDS = 0.5
#: Seconds that the bar stays away after rows: a stream of rows does not flicker.
_PAUSE_SECONDS = 0.3


@contextmanager
def progress(
    title: str, total: int, writer: RowWriter, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes how much of ``total`` is done by now.

    The bar is shown when stderr is a terminal, is wiped before ``writer`` prints to a terminal,
    and leaves nothing behind.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_interactive:  # TERM=dumb
        yield lambda done: None
        return
    bar = Progress(
        "{task.description}",
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        # Rows go to the real stdout, whatever is drawn.
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task(title, total=total)
    wiped = 0.0

    def advance(done: int) -> None:
        bar.update(task, completed=done)
        if not bar.live.is_started and time.monotonic() - wiped > _PAUSE_SECONDS:
            bar.start()

    def wipe() -> None:
        nonlocal wiped
        if bar.live.is_started:
            bar.stop()
        wiped = time.monotonic()

    with writer.before_output(wipe), bar:
        yield advance


@contextmanager
def late_progress(title: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that takes how much is done, and of how much: a bar on stderr shows it when
    that is a terminal and it takes a while. Nothing is imported before."""
    begun, bar = time.monotonic(), None
    with ExitStack() as stack:

        def advance(done: int, total: int) -> None:
            nonlocal bar
            if quiet or not sys.stderr.isatty() or time.monotonic() - begun < _LATE_SECONDS:
                return
            if bar is None:
                from rich.console import Console
                from rich.progress import Progress

                bar = Progress(console=Console(stderr=True), transient=True)
                stack.enter_context(bar)
                bar.add_task(title)
            bar.update(bar.task_ids[0], completed=done, total=total)

        yield advance
