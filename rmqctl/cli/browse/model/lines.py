"""What a list of lines is: columns, lines, and a source that is asked for a few of them at a time.

A source may have a thousand million lines. It is asked for those on the screen, in a thread that is
given up when the screen has moved on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqctl.errors import CannotRead, RmqctlError

#: Says that what is being done is no longer wanted.
Stop = Callable[[], bool]
ERROR, WARNING, INFO, DIM, GOOD, NAME = "error", "warning", "info", "dim", "good", "name"


class Cancelled(Exception):
    """Nobody wants the answer any more."""


def go_on(stop: Stop) -> None:
    """:raises Cancelled: nobody waits for what is being done."""
    if stop():
        raise Cancelled


def error_text(error: Exception) -> str:
    """An error in a line. What is gone was most likely removed by the broker's retention."""
    path = error.path if isinstance(error, CannotRead) else getattr(error, "filename", None)
    if path and not os.path.lexists(str(path)):
        name = "/".join(Path(str(path)).parts[-2:])
        return f"{name} is gone: retention removes files while you look; r looks again"
    return error.for_command_line if isinstance(error, RmqctlError) else str(error)


class Column(NamedTuple):
    """A column of ``width`` cells, right-aligned or not. What the others leave is shared by
    ``grows``; where there is not enough for all, those with the highest ``rank`` are left out."""

    title: str
    width: int
    right: bool = False
    grows: int = 0
    rank: int = 0


class Place(NamedTuple):
    """What a line leads to: a place in the log, a queue, a topic; what does not say it is None."""

    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    number: int = 0


class Line(NamedTuple):
    """One line: a cell for each column, raw as the store has it (who draws it makes it safe), how
    it looks, and where it leads; a single cell takes the whole width. ``note`` is told when the
    cursor stands on it."""

    cells: tuple[str, ...]
    tone: str = ""
    place: Place = Place()
    note: str = ""


class Source(Protocol):
    """Lines by their numbers, ``low`` to ``high`` (exclusive), which may be negative. The bounds of
    a source that has not seen its ends go a page beyond what it knows, and come back when it does.
    """

    columns: tuple[Column, ...]
    #: What a line is, in the plural.
    noun: str
    #: Whether its numbers say nothing but how far a line is from the one it was opened at.
    is_endless: bool

    def prepare(self, stop: Stop) -> None:
        """Asked once before anything else, in a thread; errors as of :meth:`load`."""

    def bounds(self) -> tuple[int, int]: ...

    def first(self) -> int:
        """The number to go to for the first line."""

    def last(self) -> int:
        """The number to go to for the last line."""

    def load(self, low: int, high: int, stop: Stop) -> dict[int, Line]:
        """The lines of a range that there are; in a thread.

        :raises RmqctlError, OSError: they cannot be read. :raises Cancelled: ``stop`` said so.
        """

    def where(self, number: int) -> str:
        """What the position line says with the cursor on a line."""


class Counted:
    """A source whose lines are numbered from 0, :meth:`count` of them, each made by itself."""

    columns: tuple[Column, ...] = ()
    noun = "lines"
    is_endless = False

    def prepare(self, stop: Stop) -> None:
        """Nothing is needed."""

    def count(self) -> int:
        raise NotImplementedError

    def line(self, number: int, stop: Stop) -> Line:
        """One line; errors as of :meth:`Source.load`."""
        raise NotImplementedError

    def bounds(self) -> tuple[int, int]:
        return 0, self.count()

    def first(self) -> int:
        return 0

    def last(self) -> int:
        return max(self.count() - 1, 0)

    def load(self, low: int, high: int, stop: Stop) -> dict[int, Line]:
        found = {}
        first, end = self.bounds()
        for number in range(max(low, first), min(high, end)):
            go_on(stop)
            try:
                found[number] = self.line(number, stop)
            except (RmqctlError, OSError) as error:
                # One file that is gone says nothing of the lines beside it.
                found[number] = Line((error_text(error),), ERROR)
        return found

    def where(self, number: int) -> str:
        count = self.count()
        return f"{min(number + 1, count):,} of {count:,} {self.noun}"
