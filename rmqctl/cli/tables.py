"""Tables: drawn by rich on a terminal, plain aligned text elsewhere; one field a line for one row.

Rows of other types than the main one are lines of their own, and so is the summary. Only a page
of rows is held.
"""

from __future__ import annotations

from rmqctl.cli.sink import Row, Shape, Sink
from rmqctl.cli.text import cell, pairs, visible, width

PAGE_ROWS = 100
_LEAST_TEXT = 10

#: What a table shows of a wide row; -v shows every field.
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
    ),
    "append_result": (
        "status",
        "topic",
        "queue_id",
        "queue_offset",
        "wrote_offset",
        "wrote_bytes",
        "msg_id",
    ),
}


class Vertical(Shape):
    def row(self, row: Row) -> None:
        names = [name for name in row if name != "type"]
        margin = max(map(len, names), default=0)
        for name in names:
            self.sink.line(f"{name:<{margin}}  {cell(name, row[name])}".rstrip())

    def summary(self, row: Row) -> None:
        self.sink.line(f"summary: {pairs(row)}")


class Table(Shape):
    """What both tables share: a page of rows of one type, other rows as lines."""

    def __init__(self, sink: Sink, main_type: str | None, wide: bool) -> None:
        super().__init__(sink)
        self._type = main_type
        self._wide = wide
        self._names: list[str] = []
        self._page: list[list[str]] = []
        self._numeric: list[bool] = []

    def row(self, row: Row) -> None:
        self._type = self._type or row["type"]
        if row["type"] != self._type:
            self._print_page()
            self.sink.line(f"{visible(row['type'])}: {pairs(row)}")
            return
        if not self._names:
            chosen = None if self._wide else TABLE_COLUMNS.get(row["type"])
            self._names = [
                n for n in row if n != "type" and (chosen is None or n in chosen or n == "reason")
            ]
            self._numeric = [
                isinstance(row[n], int) and not n.endswith("timestamp") for n in self._names
            ]
        self._page.append([cell(name, row.get(name)) for name in self._names])
        if len(self._page) >= PAGE_ROWS:
            self._print_page()

    def summary(self, row: Row) -> None:
        self._print_page()
        self.sink.line(f"summary: {pairs(row)}")

    def close(self) -> None:
        self._print_page()

    def _print_page(self) -> None:
        if self._page:
            page, self._page = self._page, []
            self._print(page)

    def _print(self, page: list[list[str]]) -> None:
        raise NotImplementedError


class Plain(Table):
    """Aligned text: one header, widths from the first page, never cut."""

    _widths: list[int] | None = None

    def _print(self, page: list[list[str]]) -> None:
        if self._widths is None:
            columns = zip(self._names, *page, strict=True)
            self._widths = [max(map(width, column)) for column in columns]
            self._line(self._names)
        for values in page:
            self._line(values)

    def _line(self, values: list[str]) -> None:
        assert self._widths is not None
        parts = []
        for value, room, number in zip(values, self._widths, self._numeric, strict=True):
            padding = " " * (room - width(value))
            parts.append(padding + value if number else value + padding)
        self.sink.line("  ".join(parts).rstrip())


class Pages(Table):
    """rich's tables, one a page, as wide as the terminal."""

    def _print(self, page: list[list[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        console = Console(highlight=False)
        self.sink.flush()
        if self._least_width(page) > console.width:
            # Too narrow for columns: one field a line loses nothing.
            for values in page:
                for name, value in zip(self._names, values, strict=True):
                    self.sink.line(f"{name:<{max(map(len, self._names))}}  {value}")
                self.sink.line("")
            return
        table = RichTable(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True
        )
        for name, number in zip(self._names, self._numeric, strict=True):
            table.add_column(
                name.replace("_", "\n"),
                justify="right" if number else "left",
                no_wrap=number or name.endswith("timestamp"),
                overflow="fold",
                vertical="top",
            )
        for values in page:
            table.add_row(*map(Text, values))
        console.print(table)

    def _least_width(self, page: list[list[str]]) -> int:
        """What the columns take when only text is folded."""
        total = 2 * len(self._names)
        for name, number, *cells in zip(self._names, self._numeric, *page, strict=True):
            fixed = number or name.endswith("timestamp")
            widest = max(map(width, cells))
            head = max(map(len, name.split("_")))
            total += max(head, widest if fixed else min(widest, _LEAST_TEXT))
        return total
