"""``--watch``: the same question again and again, ended as ``--follow`` is.

On a terminal each answer takes the place of the one before; elsewhere they come one after the
other, each closed by its summary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.cli.following import Following
from rmqctl.cli.settings import Settings
from rmqctl.cli.sink import Row

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.engine.messagestore import MessageStore

F = TypeVar("F", bound=Callable[..., Any])
INTERVAL_SECONDS = 2.0
Question = Callable[["MessageStore"], Iterable[Row]]


def watch_options(function: F) -> F:
    """``--watch`` and ``--interval``."""
    function = click.option(
        "--interval",
        metavar="SECONDS",
        type=click.FloatRange(0.01, 3600),
        default=INTERVAL_SECONDS,
        show_default=True,
        help="With --watch: how often to look.",
    )(function)
    return click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")(
        function
    )


def watch(settings: Settings, main_type: str, interval: float, ask: Question) -> int:
    """Prints what ``ask`` answers of the store, opened anew each time, until a signal comes."""
    with Following(interval) as following, _writers(settings, main_type) as next_writer:
        while not following.ended():
            with settings.open() as store:
                answer = list(ask(store))
            writer = next_writer()
            writer.rows(answer)
            writer.flush()
            following.wait()
    return 130


@contextmanager
def _writers(settings: Settings, main_type: str) -> Iterator[Callable[[], RowWriter]]:
    """Gives the writer of each answer: of a table one of its own, whose columns fit it, and which
    begins at the top of a terminal."""
    with settings.writer(main_type, live=True) as writer:

        def next_writer() -> RowWriter:
            nonlocal writer
            if settings.format == "table":
                if sys.stdout.isatty() and not settings.quiet:
                    click.clear()
                writer = settings.writer(main_type, live=True)
            return writer

        yield next_writer
