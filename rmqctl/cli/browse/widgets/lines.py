"""``Lines``: a list of any length, of which only the lines on the screen are read.

All cells are made safe here, where they are drawn. So no source can send raw data of a store to the
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from rmqctl.cli.browse.model.lines import Cancelled, Column, Line, Source, error_text
from rmqctl.cli.browse.widgets.threads import in_background, in_thread
from rmqctl.cli.text import visible
from rmqctl.errors import RmqctlError

_UNREAD = Line(("…",), "dim")
#: How many lines are kept that are not on the screen.
_KEPT = 2000
_WHEEL = 3


class Lines(Widget, can_focus=True):
    """Shows a source, with a cursor. The keys for lines, pages and ends are those of less."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lines--header",
        "lines--cursor",
        "lines--error",
        "lines--warning",
        "lines--info",
        "lines--dim",
        "lines--good",
        "lines--name",
    }
    DEFAULT_CSS = """
    Lines { height: 1fr; width: 1fr; }
    Lines > .lines--header { text-style: bold underline; }
    Lines > .lines--cursor { text-style: reverse; }
    Lines > .lines--error { color: $text-error; }
    Lines > .lines--warning { color: $text-warning; }
    Lines > .lines--info { text-style: dim; }
    Lines > .lines--dim { text-style: dim; }
    Lines > .lines--good { color: $text-success; }
    Lines > .lines--name { text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,b,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", show=False),
        Binding("home,g", "first", show=False),
        Binding("end,G", "last", show=False),
    ]

    class Chosen(Message):
        """A line was chosen to be opened."""

        def __init__(self, number: int, line: Line) -> None:
            super().__init__()
            self.number = number
            self.line = line

    class Moved(Message):
        """The cursor is on another line, or its line was read."""

        def __init__(self, source: Source, number: int, line: Line | None) -> None:
            super().__init__()
            self.source = source
            self.number = number
            self.line = line

    class Failed(Message):
        """Lines could not be read."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.source: Source | None = None
        self.cursor = 0
        self.is_ready = False
        self._top = 0
        self._read: dict[int, Line] = {}
        self._reading: range | None = None
        self._empty = "reading…"
        #: Moves of the cursor that were requested before the source was ready.
        self._goes_to_end = self._chooses = False

    # --- what is shown ---------------------------------------------------------------------

    def show(self, source: Source, number: int | None = None) -> None:
        """Prepares a source, and shows it with the cursor on a line; None: its first line."""
        self.source, self.is_ready, self._empty = source, False, "reading…"
        self._read, self._reading = {}, None
        self._goes_to_end = self._chooses = False
        self.refresh()
        in_background(self, "prepare", self._prepare, source, number)

    async def _prepare(self, source: Source, number: int | None) -> None:
        try:
            await in_thread(source.prepare)
        except Cancelled:
            return
        except (RmqctlError, OSError) as error:
            self._empty = error_text(error)
            self.refresh()
            self.post_message(self.Failed(self._empty))
            return
        self.is_ready, self._empty = True, f"no {source.noun} here"
        if self._goes_to_end:
            number = source.last()
        elif number is None:
            number = source.first()
        if source.is_endless or number != self.cursor:
            # Show some lines before the wanted one, too.
            self._top = number - self.page_size // 3
        self.go_to(number)

    def changed(self) -> None:
        """Call this when the lines of the source have changed: those on the screen are read
        again."""
        self._read, self._reading = {}, None
        if self.is_ready:
            self.go_to(self.cursor)

    def grown(self) -> None:
        """Call this when the source has more lines at its end."""
        if self.is_ready:
            self.go_to(self.cursor)

    def current(self) -> Line | None:
        """The line under the cursor; None until it is read."""
        return self._read.get(self.cursor)

    # --- moving ----------------------------------------------------------------------------

    @property
    def page_size(self) -> int:
        return max(self.size.height - self._header_height, 1)

    @property
    def _header_height(self) -> int:
        source = self.source
        return int(source is not None and any(column.title for column in source.columns))

    def go_to(self, number: int) -> None:
        """Moves the cursor to a line, or to the nearest one that exists."""
        if self.source is None or not self.is_ready:
            return
        low, high = self.source.bounds()
        self.cursor = min(max(number, low), max(high - 1, low))
        page = self.page_size
        top = min(max(self._top, self.cursor - page + 1), self.cursor)
        self._top = max(min(top, high - page), low)
        self.refresh()
        self.post_message(self.Moved(self.source, self.cursor, self.current()))
        if self._chooses and self.current() is not None:
            self.choose()
        self._fill()

    def action_move(self, by: int) -> None:
        self._chooses = False
        self.go_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._chooses = False
        self._top += by * self.page_size
        self.go_to(self.cursor + by * self.page_size)

    def action_first(self) -> None:
        self._goes_to_end = self._chooses = False
        if self.source is not None and self.is_ready:
            self._go_to_end(self.source.first())

    def action_last(self) -> None:
        self._goes_to_end, self._chooses = not self.is_ready, False
        if self.source is not None and self.is_ready:
            self._go_to_end(self.source.last())

    def _go_to_end(self, number: int) -> None:
        # A source may renumber its lines when it is asked for its ends.
        self._read, self._reading = {}, None
        self.go_to(number)

    def choose(self) -> None:
        """Chooses the line under the cursor, as soon as it is read."""
        line = self.current()
        self._chooses = line is None
        if line is not None:
            self.post_message(self.Chosen(self.cursor, line))

    # --- reading ---------------------------------------------------------------------------

    def _fill(self) -> None:
        """Starts reading the lines on the screen, and then a page around them, unless they are
        being read already. So scrolling rarely waits for a slow disk."""
        assert self.source is not None
        low, high = self.source.bounds()
        page = self.page_size
        for first, end in (
            (self._top, self._top + page),
            (self._top - page, self._top + 2 * page),
        ):
            wanted = range(max(first, low), min(end, high))
            missing = [number for number in wanted if number not in self._read]
            if not missing:
                continue
            reading = self._reading
            if reading is None or missing[0] not in reading or missing[-1] not in reading:
                self._reading = range(missing[0], missing[-1] + 1)
                in_background(self, "lines", self._load, self.source, self._reading)
            return

    async def _load(self, source: Source, wanted: range) -> None:
        if len(self._read) > _KEPT:
            self._read = {}
        for low in range(wanted.start, wanted.stop, source.at_once):
            part = range(low, min(low + source.at_once, wanted.stop))
            try:
                read = await in_thread(partial(source.load, part.start, part.stop))
            except Cancelled:
                return
            except (RmqctlError, OSError) as error:
                text = error_text(error)
                read = dict.fromkeys(part, Line((text,), "error"))
                self.post_message(self.Failed(text))
            if source is not self.source or self._reading is not wanted:
                return
            if part.stop == wanted.stop:
                self._reading = None
            self._show_read(source, part, read)

    def _show_read(self, source: Source, part: range, read: dict[int, Line]) -> None:
        self._read.update(read)
        low, high = source.bounds()
        # Lines within the bounds that do not exist are not requested again.
        self._read.update((n, _UNREAD) for n in part if low <= n < high and n not in self._read)
        self.go_to(self.cursor)

    # --- drawing ---------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self.go_to(self.cursor)

    def on_click(self, event: events.Click) -> None:
        number = self._top + event.y - self._header_height
        if event.y < self._header_height or self.source is None:
            return
        was_here = number == self.cursor
        self.go_to(number)
        if was_here or event.chain > 1:
            self.choose()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.action_move(_WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.action_move(-_WHEEL)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        source, header = self.source, self._header_height
        if source is None or not self.is_ready:
            return self._strip(Line((self._empty,), "dim"), width, ()) if y == 0 else Strip([])
        if y < header:
            titles = Line(tuple(column.title for column in source.columns))
            return self._strip(titles, width, source.columns, "header")
        low, high = source.bounds()
        number = self._top + y - header
        if low == high and y == header:
            return self._strip(Line((self._empty,), "dim"), width, ())
        if not low <= number < high:
            return Strip([])
        line = self._read.get(number, _UNREAD)
        look = "cursor" if number == self.cursor else line.tone
        return self._strip(line, width, source.columns, look, line.tone)

    def _strip(
        self, line: Line, width: int, columns: Sequence[Column], look: str = "", tone: str = ""
    ) -> Strip:
        style = self.rich_style
        for name in dict.fromkeys((tone or line.tone, look)):
            if name and f"lines--{name}" in self.COMPONENT_CLASSES:
                style += self.get_component_rich_style(f"lines--{name}", partial=True)
        return Strip([Segment(drawn(line.cells, columns, width), style)], width)


def drawn(cells: Sequence[str], columns: Sequence[Column], width: int) -> str:
    """A line that is exactly so many columns wide, and safe for a terminal."""
    if len(cells) == 1 or not columns:
        return fitted(cells[0], width) if cells else " " * width
    widths = column_widths(columns, width)
    parts = [
        fitted(text, wide, right=column.right)
        for text, column, wide in zip(cells, columns, widths, strict=False)
        if wide
    ]
    return set_cell_size(" ".join(parts), width)


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """A text in so many columns: cut with an ellipsis, or filled with blanks."""
    # A body may be long: only the part that can be seen is processed.
    text = visible(text[: 4 * width + 1])
    used = cell_len(text)
    if used > width:
        return set_cell_size(text, width - 1) + "…" if width else ""
    return " " * (width - used) + text if right else text + " " * (width - used)


def column_widths(columns: Sequence[Column], width: int) -> list[int]:
    """The width of each column; 0 for a column that is left out."""
    shown = list(columns)
    while len(shown) > 1 and sum(column.width + 1 for column in shown) - 1 > width:
        worst = max(column.rank for column in shown)
        if not worst:
            break
        shown.remove(next(column for column in reversed(shown) if column.rank == worst))
    left = max(width - sum(column.width + 1 for column in shown) + 1, 0)
    parts = sum(column.grows for column in shown)
    return [
        column.width + (left * column.grows // parts if parts else 0) if column in shown else 0
        for column in columns
    ]
