"""Tables on a terminal: no line is wider than it, and the lines of a table stay lines.

Rows are laid out a page at a time, each page as the one before where it fits (`layout.py`), with a
header of one line. Rows that are no table in that room, with -v nearly all, are printed one field a
line. Drawn by hand: rich takes ten times as long for as many rows as its tables are good for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rmqctl.cli import layout
from rmqctl.cli.pager import terminal_width
from rmqctl.cli.sink import Sink
from rmqctl.cli.tables import NARROW_COLUMNS, SPARE_COLUMNS, Table, Vertical
from rmqctl.cli.text import cell, pairs, parts, visible, width, wrapped

if TYPE_CHECKING:
    from rmqctl.rows import Row

#: Fields that need no name where a row is too wide for columns.
TITLES: dict[str, tuple[str, ...]] = {"finding": ("severity", "code", "path")}
#: A sentence that ends a row: it goes on below itself, in its own column of so many at least.
_SENTENCES = {"step": "why", "deleted": "why"}
_LEAST_SENTENCE = 24
#: What goes without saying on a terminal, which has little room.
_USUAL: dict[str, dict[str, tuple[str, ...]]] = {
    "message": {"status": ("ok",), "body_encoding": ("utf8", "hex")},
}
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[33m"}
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def has_colours() -> bool:
    """Whether a terminal takes styles, and its user wants them (``NO_COLOR``)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") not in ("", "dumb")


class Paper:
    """A terminal: its columns, and lines of text on it."""

    def __init__(self, sink: Sink) -> None:
        self.columns = terminal_width()
        self._sink = sink
        self._has_colours = has_colours()

    def styled(self, text: str, style: str) -> str:
        return f"{style}{text}{_PLAIN}" if style and self._has_colours else text

    def severity(self, text: str) -> str:
        """A cell with the colour of what it says."""
        return self.styled(text, _STYLES.get(text.strip(), ""))

    def print(self, text: str, style: str = "", margin: str = "") -> None:
        """A line; what does not fit goes on below, two columns from the left."""
        for line in wrapped(text, self.columns - 2):
            self._sink.line(margin + self.styled(line.rstrip(), style))
            margin = "  "

    def fields(self, names: list[str], row: Row) -> None:
        """One field a line; a long value goes on below itself."""
        margin = max(map(len, names), default=0) + 2
        margin = min(margin, self.columns // 2)
        for name in names:
            value = row[name]
            if isinstance(value, dict) and len(value) > 1:
                texts = parts(value)
            else:
                texts = [cell(name, value)]
            lines = [one for text in texts for one in wrapped(text, self.columns - margin)]
            for number, line in enumerate(lines):
                self._sink.line(f"{'' if number else name:<{margin}}{line}".rstrip())


class Fields(Vertical):
    """One row as a list of its fields."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._paper = Paper(sink)

    def row(self, row: Row) -> None:
        self._paper.fields(self.names(row), row)

    def summary(self, row: Row) -> None:
        self._paper.print(f"summary: {pairs(row)}")


class Pages(Table):
    """Tables as wide as the terminal, without the columns that say nothing on a page."""

    def __init__(self, sink: Sink, main_type: str | None, wide: bool) -> None:
        super().__init__(sink, main_type, wide)
        self._paper = Paper(sink)
        #: Of the page before, and the columns that it was made for.
        self._layout: layout.Layout | None = None
        self._of: list[str] = []
        self._rows = 0
        #: Columns that went, and those in which a value is cut: dictionaries keep the order.
        self._gone: dict[str, None] = {}
        self._cut: dict[str, None] = {}

    def summary(self, row: Row) -> None:
        self._print_page()
        self._tell_what_lacks()
        super().summary(row)

    def close(self) -> None:
        super().close()
        self._tell_what_lacks()

    def _end_table(self) -> None:
        self._tell_what_lacks()
        self._layout, self._of = None, []

    def _print(self, page: list[Row]) -> None:
        names = [name for name in self._names if any(self._tells(row, name) for row in page)]
        cells = layout.Page(names, page)
        if self._printed_with_sentences(cells):
            return
        before = self._layout
        if before is None or self._of != names or not before.takes(cells):
            self._layout, self._of = self._laid_out(cells), names
        if self._layout is None:
            for row in page:
                self._print_alone(row)
            return
        if self._layout is not before:
            self.sink.line(self._paper.styled(self._layout.header(), _BOLD))
            self.sink.line("─" * self._layout.width)
        self._gone |= {name: None for name in names if name not in self._layout.names}
        self._cut |= dict.fromkeys(self._layout.cut(cells))
        self.sink.line("\n".join(self._layout.rows(cells, self._paper.severity)))

    def _printed_with_sentences(self, cells: layout.Page) -> bool:
        """Prints a page whose last column is a sentence, broken where the terminal ends; whether
        it was one, and there was room."""
        *names, last = cells.names
        if _SENTENCES.get(self._of_table) != last or not names:
            return False
        room = self._paper.columns
        front = layout.uncut(cells, room, names)
        if front is None or room - front.width - layout.GAP < _LEAST_SENTENCE:
            return False
        margin = front.width + layout.GAP
        wide = min(room - margin, cells.width(last, ""))
        if self._of != cells.names:
            self._of = cells.names
            header = f"{front.header():<{margin}}{layout.heading(last)}"
            self.sink.line(self._paper.styled(header, _BOLD))
            self.sink.line("─" * max(margin + wide, len(header)))
        for row, text in zip(front.rows(cells, str), cells.texts(last, ""), strict=True):
            begin, *more = wrapped(text, room - margin)
            self.sink.line(f"{row}{' ' * (margin - width(row))}{begin}".rstrip())
            for one in more:
                self.sink.line(" " * margin + one)
        return True

    def _laid_out(self, cells: layout.Page) -> layout.Layout | None:
        """The layout of a page; None where its rows are told in words: of a finding nothing may
        lack."""
        room = self._paper.columns
        if self._of_table in TITLES:
            return layout.uncut(cells, room)
        spare = SPARE_COLUMNS.get(self._of_table, ())
        narrow = NARROW_COLUMNS.get(self._of_table, {})
        return layout.fitted(cells, room, spare=spare, narrow=narrow, whole=self._wide)

    def _tells(self, row: Row, name: str) -> bool:
        value = row.get(name)
        usual = () if self._wide else _USUAL.get(row["type"], {}).get(name, ())
        return value is not None and value not in usual

    def _print_alone(self, row: Row) -> None:
        """A row that is no line."""
        shown = {name: row[name] for name in self._names if self._tells(row, name)}
        title = [cell(n, shown.pop(n)) for n in TITLES.get(row["type"], ()) if n in shown]
        if title:
            severity, *rest = title
            self._paper.print("  ".join([severity, *rest]), _STYLES.get(severity, _BOLD))
            self._paper.print(pairs(shown), margin="  ")
            return
        self._rows += 1
        head = f"── {visible(row['type'])} {self._rows} "
        self._paper.print(head.ljust(self._paper.columns - 2, "─"), _BOLD)
        self._paper.fields(list(shown), shown)

    def _line(self, text: str, style: str = "") -> None:
        self._has_lines = True
        self._paper.print(text, style)

    def _tell_what_lacks(self) -> None:
        told = [
            f"{what}: {', '.join(map(layout.heading, names))}"
            for what, names in (("cut", self._cut), ("left out", self._gone))
            if names
        ]
        if told:
            self._paper.print(f"({'; '.join(told)}. -v shows all)", _DIM)
        self._cut, self._gone = {}, {}
