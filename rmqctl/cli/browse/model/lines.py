"""The interface of a list: columns, lines, and a source from which a few lines are read at a time.

A source may have a billion lines. Only those on the screen are read, in a thread that is stopped if
the screen has moved on meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqctl.errors import CannotRead, RmqctlError

#: Lines of a page, or more: all are read before any is shown.
PAGE_AT_ONCE = 1 << 10
#: Returns True once the work is no longer wanted.
Stop = Callable[[], bool]
ERROR, WARNING, INFO, DIM, GOOD, NAME = "error", "warning", "info", "dim", "good", "name"


class Cancelled(Exception):
    """The result of the work is no longer wanted."""


def go_on(stop: Stop) -> None:
    """Call this often in long work. :raises Cancelled: the result is no longer wanted."""
    if stop():
        raise Cancelled


def error_text(error: Exception) -> str:
    """An error as the text of a line. If a file is gone, the broker's retention has probably
    removed it."""
    path = error.path if isinstance(error, CannotRead) else getattr(error, "filename", None)
    if path and not os.path.lexists(str(path)):
        name = "/".join(Path(str(path)).parts[-2:])
        return f"{name} is gone: retention removes files while you look; r looks again"
    return error.for_command_line if isinstance(error, RmqctlError) else str(error)


class Column(NamedTuple):
    """A column that is ``width`` cells wide, right-aligned or not. Columns with ``grows`` share the
    space that is left. If there is too little space, columns with the highest ``rank`` are left
    out."""

    title: str
    width: int
    right: bool = False
    grows: int = 0
    rank: int = 0


class Place(NamedTuple):
    """Where a line leads: to a place in the log, a queue, or a topic. Unknown fields are None."""

    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    number: int = 0


class Line(NamedTuple):
    """One line: a cell for each column, its style, and where it leads. The cells are raw data of
    the store; the widget that draws them makes them safe. A single cell takes the whole width.
    ``note`` is shown when the cursor is on the line."""

    cells: tuple[str, ...]
    tone: str = ""
    place: Place = Place()
    note: str = ""


class Source(Protocol):
    """The lines of a list by their numbers, which may be negative, from ``low`` to ``high``
    (exclusive). If a source does not know its ends yet, its bounds are a page beyond the known
    lines, and shrink when it finds the ends.
    """

    columns: tuple[Column, ...]
    #: The name of the lines, in the plural.
    noun: str
    #: Whether the numbers only say how far a line is from the one at which the list was opened.
    is_endless: bool
    #: How many lines are read before they are shown; few if a line takes long.
    at_once: int

    def prepare(self, stop: Stop) -> None:
        """Called once, in a thread, before anything else. Raises what :meth:`load` raises."""

    def bounds(self) -> tuple[int, int]: ...

    def first(self) -> int:
        """The number of the first line."""

    def last(self) -> int:
        """The number of the last line."""

    def load(self, low: int, high: int, stop: Stop) -> dict[int, Line]:
        """The existing lines of a range. Called in a thread.

        :raises RmqctlError, OSError: they cannot be read. :raises Cancelled: ``stop`` was set.
        """

    def where(self, number: int) -> str:
        """The text of the position line when the cursor is on a line."""


class Counted:
    """A source with :meth:`count` lines, numbered from 0. Each is made separately."""

    columns: tuple[Column, ...] = ()
    noun = "lines"
    is_endless = False
    at_once = PAGE_AT_ONCE

    def prepare(self, stop: Stop) -> None:
        """Does nothing by default."""

    def count(self) -> int:
        raise NotImplementedError

    def line(self, number: int, stop: Stop) -> Line:
        """One line. Raises what :meth:`Source.load` raises."""
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
                # If one file is gone, lines of other files can still be read.
                found[number] = Line((error_text(error),), ERROR)
        return found

    def where(self, number: int) -> str:
        count = self.count()
        return f"{min(number + 1, count):,} of {count:,} {self.noun}"
