"""Tables: drawn by rich on a terminal, plain aligned text elsewhere; one field a line for one row.

Rows of other types than the main one are lines of their own, and so is the summary. Only a page
of rows is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.sink import Shape, Sink
from rmqctl.cli.text import cell, pairs, title, visible, width

if TYPE_CHECKING:
    from rich.text import Text

    from rmqctl.rows import Row

#: Rows that share one header, and are held at a time.
PAGE_ROWS = 100
#: Columns: a longer word may be broken to make a table fit.
_LONGEST_WHOLE_WORD = 40

#: What a table shows of a wide row, in this order; -v shows every field.
TABLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "message": (
        "physical_offset",
        "topic",
        "queue_id",
        "queue_offset",
        "total_size",
        "store_timestamp",
        "properties",
        "body",
        "body_encoding",
        "status",
        "body_status",
        "found_by",
    ),
    "append_result": (
        "status",
        "topic",
        "queue_id",
        "queue_offset",
        "wrote_offset",
        "wrote_bytes",
        "msg_id",
        "reason",
    ),
    "finding": (
        "severity",
        "code",
        "path",
        "physical_offset",
        "topic",
        "queue_id",
        "queue_offset",
        "expected",
        "found",
    ),
    "topic": (
        "topic",
        "kind",
        "queues",
        "messages",
        "bytes",
        "newest_store_timestamp",
        "configured",
    ),
    "group": ("group", "topic", "queues", "lag", "behind_milliseconds", "missed", "state"),
    "offset_change": (
        "topic",
        "queue_id",
        "old_offset",
        "new_offset",
        "max_offset",
        "skipped",
        "read_again",
    ),
    "group_queue": (
        "group",
        "topic",
        "queue_id",
        "consumer_offset",
        "max_offset",
        "lag",
        "behind_milliseconds",
        "state",
    ),
    "delay_level": (
        "level",
        "delay_milliseconds",
        "progress",
        "pending",
        "due",
        "next_delivery_timestamp",
    ),
    "half_message": (
        "physical_offset",
        "state",
        "real_topic",
        "producer_group",
        "keys",
        "age_milliseconds",
        "broker_does",
    ),
    "progress": ("topic", "queue_id", "group", "consumer_offset", "lag", "lost"),
    "file": ("path", "reason", "allocated_bytes", "modified_timestamp"),
}
#: Columns that a terminal too narrow for all does without, the first one first.
SPARE_COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": ("kind", "configured", "bytes"),
    "group": ("missed", "queues"),
    "group_queue": ("max_offset", "consumer_offset"),
}
#: Fields that need no name where a row is too wide for columns.
_TITLES: dict[str, tuple[str, ...]] = {
    "finding": ("severity", "code", "path"),
    "field": ("offset", "size", "name", "value"),
}
#: What goes without saying on a terminal, which has little room.
_USUAL: dict[str, dict[str, tuple[str, ...]]] = {
    "message": {"status": ("ok",), "body_encoding": ("utf8", "hex")},
}
#: A message that was refused has no place, and nothing else to say of that.
_WITHOUT_EMPTY = {"append_result"}
_STYLES = {"error": "bold red", "warning": "yellow"}


class Vertical(Shape):
    """One field a line, without those that say nothing in rows of :data:`_WITHOUT_EMPTY`."""

    def row(self, row: Row) -> None:
        names = [name for name in row if name != "type"]
        if row["type"] in _WITHOUT_EMPTY:
            names = [name for name in names if row[name] is not None]
        margin = max(map(len, names), default=0)
        for name in names:
            self.sink.line(f"{name:<{margin}}  {cell(name, row[name])}".rstrip())

    def summary(self, row: Row) -> None:
        self.sink.line(f"summary: {pairs(row)}")


class Table(Shape):
    """What both tables share: a page of rows of one type, everything else as lines."""

    def __init__(self, sink: Sink, main_type: str | None, wide: bool) -> None:
        super().__init__(sink)
        self._type = main_type
        self._wide = wide
        self._names: list[str] = []
        self._page: list[Row] = []

    def row(self, row: Row) -> None:
        self._type = self._type or row["type"]
        if row["type"] != self._type:
            self._print_page()
            self._line(f"{visible(row['type'])}: {pairs(row)}")
            return
        if not self._names:
            chosen = None if self._wide else TABLE_COLUMNS.get(row["type"])
            self._names = [n for n in chosen or row if n in row and n != "type"]
        self._page.append(row)
        if len(self._page) >= PAGE_ROWS:
            self._print_page()

    def summary(self, row: Row) -> None:
        self._print_page()
        self._line(f"summary: {pairs(row)}")

    def remark(self, text: str) -> None:
        self._print_page()
        self._line(visible(text))

    def command(self, text: str) -> None:
        self._print_page()
        self.sink.line(f"  {visible(text)}")

    def flush(self) -> None:
        self._print_page()

    def close(self) -> None:
        self._print_page()

    def _print_page(self) -> None:
        if self._page:
            page, self._page = self._page, []
            self._print(page)

    def _print(self, page: list[Row]) -> None:
        raise NotImplementedError

    def _line(self, text: str) -> None:
        self.sink.line(text)


def _is_number(name: str, page: list[Row]) -> bool:
    """Whether a column holds numbers, which are aligned to the right."""
    kinds = {type(row.get(name)) for row in page} - {type(None)}
    return kinds == {int} and not name.endswith("timestamp")


class Plain(Table):
    """Aligned text: one header, widths from the first page, never cut."""

    _widths: list[int] | None = None

    def _print(self, page: list[Row]) -> None:
        names = self._names
        lines = [[cell(name, row.get(name)) for name in names] for row in page]
        if self._widths is None:
            self._numeric = [_is_number(name, page) for name in names]
            titles = [title(name) for name in names]
            self._widths = [max(map(width, column)) for column in zip(titles, *lines, strict=True)]
            lines.insert(0, titles)
        for values in lines:
            parts = []
            for value, room, number in zip(values, self._widths, self._numeric, strict=True):
                padding = " " * (room - width(value))
                parts.append(padding + value if number else value + padding)
            self.sink.line("  ".join(parts).rstrip())


class Pages(Table):
    """rich's tables, one a page and as wide as the terminal, without the columns that say nothing
    on a page. Where a page is too wide, the spare columns go, and if that does not do, a row takes
    some lines; no word is broken."""

    def __init__(self, sink: Sink, main_type: str | None, wide: bool) -> None:
        from rich.console import Console

        super().__init__(sink, main_type, wide)
        self._console = Console(highlight=False)

    def _print(self, page: list[Row]) -> None:
        names = [n for n in self._names if any(self._tells(row, n) for row in page)]
        spare = () if self._wide else SPARE_COLUMNS.get(self._type or "", ())
        columns, widths = self._fitted(names, page)
        for unneeded in spare if widths is None else ():
            names = [name for name in names if name != unneeded]
            columns, widths = self._fitted(names, page)
            if widths is not None:
                break
        if widths is None:
            for row in page:
                self._print_narrow(row)
            return
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
        )
        for name, room in zip(names, widths, strict=True):
            table.add_column(
                title(name).replace("_", "\n"),
                justify="right" if _is_number(name, page) else "left",
                width=room,
                overflow="fold",
            )
        for values in zip(*columns, strict=True):
            table.add_row(*(Text(value, _STYLES.get(value, "")) for value in values))
        self.sink.flush()
        self._console.print(table)

    def _tells(self, row: Row, name: str) -> bool:
        value = row.get(name)
        usual = () if self._wide else _USUAL.get(row["type"], {}).get(name, ())
        return value is not None and value not in usual

    def _fitted(
        self, names: list[str], page: list[Row]
    ) -> tuple[list[list[str]], list[int] | None]:
        """The cells of each column, and its room; None where there is not enough for all."""
        columns = [[cell(name, row.get(name)) for row in page] for name in names]
        return columns, self._widths(names, columns, page)

    def _widths(
        self, names: list[str], columns: list[list[str]], page: list[Row]
    ) -> list[int] | None:
        """Room for each column so that no word is broken; None when there is not enough."""
        least, spare = [], self._console.width - 2 * (len(names) - 1)
        for name, cells in zip(names, columns, strict=True):
            whole = _is_number(name, page) or name.endswith("timestamp")
            word = max(map(width, cells)) if whole else max(map(_longest_word, cells))
            least.append(max(word, *map(len, title(name).split("_"))))
        wanted = [max(n, *map(width, cells)) for n, cells in zip(least, columns, strict=True)]
        spare -= sum(least)
        if spare < 0:
            return None
        # Who wants little gets it; the others share what is left.
        order = sorted(range(len(names)), key=lambda at: wanted[at] - least[at])
        for number, at in enumerate(order):
            more = min(wanted[at] - least[at], spare // (len(order) - number))
            least[at] += more
            spare -= more
        return least

    def _print_narrow(self, row: Row) -> None:
        from rich.text import Text

        shown = {name: row[name] for name in self._names if self._tells(row, name)}
        title = [cell(n, shown.pop(n)) for n in _TITLES.get(row["type"], ()) if n in shown]
        if title:
            text = Text("  ").join(Text(value, _STYLES.get(value, "bold")) for value in title)
            self._wrapped(text)
            self._wrapped(Text(f"  {pairs(shown)}"))
        else:
            self._wrapped(Text(pairs(shown)))

    def _line(self, text: str) -> None:
        from rich.text import Text

        self._wrapped(Text(text))

    def _wrapped(self, text: Text) -> None:
        """Prints a line; what does not fit goes on below, indented."""
        self.sink.flush()
        for number, line in enumerate(text.wrap(self._console, self._console.width - 2)):
            line.rstrip()
            self._console.print("  " if number else "", line, sep="")


def _longest_word(text: str) -> int:
    return min(max(map(width, text.split()), default=1), _LONGEST_WHOLE_WORD)
