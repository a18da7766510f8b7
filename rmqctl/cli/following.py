"""``--follow``: looks at the store again and again, until Ctrl-C, SIGTERM or a closed stdout.

After a signal the rows that were found, and the summary, are still printed; the exit code is 130.
"""

from __future__ import annotations

import functools
import select
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rmqctl.cli.notes import DELETED
from rmqctl.cli.output import note
from rmqctl.cli.settings import Settings
from rmqctl.cli.signals import stop_signals

if TYPE_CHECKING:
    from rmqctl.rows import Row

F = TypeVar("F", bound=Callable[..., Any])
INTERVAL_SECONDS = 0.2
_WORDS = {
    "end-moved-back": "the end moved back (the broker cut its log, or it was restored): what was "
    "printed from {to_offset} on has been replaced. Going on there",
    "files-deleted": DELETED,
}


class Follow(NamedTuple):
    """How to follow: seconds between two looks, and whether to begin at the end."""

    interval: float
    from_end: bool


def follow_options(start: str) -> Callable[[F], F]:
    """``--follow``, ``--from-end`` and ``--interval``, as one argument ``follow``; it is None
    without ``--follow``.

    :param start: the name of the argument that says where to begin, which excludes ``--from-end``.
    """

    def decorate(function: F) -> F:
        @click.option(
            "--follow",
            "follows",
            is_flag=True,
            help="Print new messages as the broker writes them, until Ctrl-C.",
        )
        @click.option(
            "--from-end",
            is_flag=True,
            help="With --follow: print only messages stored from now on.",
        )
        @click.option(
            "--interval",
            metavar="SECONDS",
            type=click.FloatRange(0.01, 3600),
            default=INTERVAL_SECONDS,
            show_default=True,
            help="With --follow: seconds between two looks.",
        )
        @functools.wraps(function)
        def run(*args: Any, follows: bool, from_end: bool, interval: float, **kw: Any) -> Any:
            from rmqctl.cli.place import is_typed

            if from_end and not follows:
                raise click.UsageError("--from-end needs --follow.")
            if is_typed("interval") and not follows:
                raise click.UsageError("--interval needs --follow.")
            if from_end and kw[start] is not None:
                raise click.UsageError(f"--{start} and --from-end exclude each other.")
            return function(*args, follow=Follow(interval, from_end) if follows else None, **kw)

        return run  # type: ignore[return-value]

    return decorate


class Following:
    """Decides when to look again. Use as a context manager: signals are handled only inside."""

    def __init__(self, interval: float) -> None:
        self._ended = False
        self._interval = interval
        self._waiting = False
        self._signals = stop_signals(self._stop)
        self._poll: select.poll | None = None
        try:
            descriptor = sys.stdout.fileno()
            # No event is asked for: poll always tells when the reader has gone.
            self._poll = select.poll()
            self._poll.register(descriptor, 0)
        except (OSError, ValueError):
            self._poll = None

    def __enter__(self) -> Following:
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.__exit__(None, None, None)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._waiting or self._ended:
            raise KeyboardInterrupt  # A second one ends a write that waits, too.
        self._ended = True

    def ended(self) -> bool:
        """Whether a signal has ended the following."""
        return self._ended

    def wait(self) -> None:
        """Waits for the next look; :raises BrokenPipeError: the reader has gone."""
        try:
            self._waiting = True
            if not self._ended:
                self._pause()
        except KeyboardInterrupt:
            self._ended = True
        finally:
            self._waiting = False

    def _pause(self) -> None:
        if self._poll is None:
            import time

            time.sleep(self._interval)
        elif self._poll.poll(self._interval * 1000):
            raise BrokenPipeError


def print_rows(
    settings: Settings,
    main_type: str,
    follow: Follow,
    rows: Callable[[Following], Iterable[Row]],
    exit_code: Callable[[Row], int],
) -> int:
    """Prints rows as they come, each handed to the reader at once; gives the exit code of the
    summary, or 130 when a signal ended it."""
    summary: Row = {}
    with Following(follow.interval) as following, settings.writer(main_type, live=True) as writer:
        for row in rows(following):
            if row["type"] == "summary":
                summary = row
            elif row["type"] == "moved":
                note(f"note: {_WORDS[row['reason']].format(**row)} (from {row['from_offset']}).")
            writer.rows([row])
            writer.flush()
    if following.ended():
        settings.note_bodies(summary)
        return 130
    return exit_code(summary)
