"""``--watch``: asks the same question again and again, until a signal or a closed stdout ends it.

On a terminal each answer replaces the one before. Elsewhere the answers follow each other, each
with its summary at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.cli.following import Following
from rmqctl.cli.settings import Settings

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows import Row

F = TypeVar("F", bound=Callable[..., Any])
INTERVAL_SECONDS = 2.0
Question = Callable[["MessageStore"], Iterable["Row"]]


def watch_options(function: F) -> F:
    """``--watch`` and ``--interval``."""
    function = click.option(
        "--interval",
        metavar="SECONDS",
        type=click.FloatRange(0.01, 3600),
        default=INTERVAL_SECONDS,
        show_default=True,
        help="With --watch: seconds between two looks.",
    )(function)
    return click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")(function)


def watch(settings: Settings, main_type: str, interval: float, ask: Question) -> int:
    """Opens the store, prints what ``ask`` answers, waits, and does so again until a signal
    comes."""
    settings = replace(settings, paged=False)
    with ExitStack() as stack:
        following = stack.enter_context(Following(interval))
        is_table = settings.format == "table"
        # A table has columns that fit its rows; other formats are one document.
        one = None if is_table else stack.enter_context(settings.writer(main_type, live=True))
        while not following.ended():
            with settings.open() as store:
                answer = list(ask(store))
            if one is not None:
                one.rows(answer)
                one.flush()
            else:
                if sys.stdout.isatty() and not settings.quiet:
                    click.clear()
                with settings.writer(main_type) as writer:
                    writer.rows(answer)
            following.wait()
    return 130
