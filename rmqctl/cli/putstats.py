"""``--stats``: what the store counted while a command put messages into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore

F = TypeVar("F", bound=Callable[..., Any])


def stats_option(function: F) -> F:
    """``--stats``, as an argument of that name."""
    return click.option("--stats", is_flag=True, help="Print statistics to stderr at the end.")(
        function
    )


def print_stats(store: MessageStore) -> None:
    """Prints them to stderr; the store may be closed by now."""
    from rmqctl.cli.output import note
    from rmqctl.operations.putbatches import stats_lines

    for line in stats_lines(store.writer.stats):
        note(line)
