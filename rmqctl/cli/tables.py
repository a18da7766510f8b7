"""Tables: what they show, and plain aligned text where there is no terminal (`pages.py` has those
for one); one field a line for one row.

Rows of some other types than the main one (:data:`SECTIONS`) are tables of their own, with a title;
those of further ones are lines, for they come in between, and so is the summary. Only a page of
rows is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.sink import Shape, Sink
from rmqctl.cli.text import cell_of, is_number, pairs, title, visible, width

if TYPE_CHECKING:
    from rmqctl.rows import Row

#: Rows that share one header, and are held at a time.
PAGE_ROWS = 100

#: What a table shows of a wide row, in this order; -v shows every field.
TABLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "listening": ("address", "broker_name", "cluster_name", "read_only", "topics"),
    "replicated": ("max_offset", "master_max_offset", "behind_bytes", "records", "bytes"),
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
    "fleet_store": (
        "store",
        "records",
        "bytes",
        "errors",
        "warnings",
        "worst",
        "damages",
        "retries",
        "dead_letters",
        "allocated_bytes",
        "first_store_timestamp",
        "last_store_timestamp",
        "seconds",
        "exit_code",
    ),
    "repair_step": ("step", "action", "path", "mends", "state"),
    "backup": (
        "backup",
        "made_timestamp",
        "files",
        "data_bytes",
        "stored_bytes",
        "physical_offset",
        "is_live",
    ),
    "difference": (
        "structure",
        "kind",
        "physical_offset",
        "topic",
        "queue_id",
        "queue_offset",
        "group",
        "messages",
        "a",
        "b",
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
    "pop_check_point": (
        "group",
        "topic",
        "queue_id",
        "state",
        "waiting",
        "acked",
        "lost",
        "queue_offsets",
        "visible_timestamp",
        "remaining_milliseconds",
    ),
    "pop_order": (
        "group",
        "topic",
        "queue_id",
        "state",
        "waiting",
        "acked",
        "queue_offsets",
        "visible_timestamp",
        "remaining_milliseconds",
    ),
    "tiered_queue": (
        "broker",
        "topic",
        "queue_id",
        "min_offset",
        "max_offset",
        "messages",
        "log_bytes",
        "segments",
        "begin_timestamp",
        "end_timestamp",
    ),
    "tiered_segment": (
        "topic",
        "queue_id",
        "kind",
        "base_offset",
        "size",
        "file_size",
        "state",
        "end_timestamp",
    ),
    "timer_message": (
        "state",
        "deliver_timestamp",
        "slot_timestamp",
        "topic",
        "queue_id",
        "keys",
        "physical_offset",
        "copy_offset",
    ),
    "half_message": (
        "physical_offset",
        "state",
        "real_topic",
        "producer_group",
        "keys",
        "age_milliseconds",
        "final_offset",
        "broker_does",
    ),
    "progress": ("topic", "queue_id", "group", "consumer_offset", "lag", "lost"),
    "file": ("path", "reason", "allocated_bytes", "modified_timestamp"),
    "index_file": (
        "file",
        "items",
        "max_index_num",
        "is_full",
        "begin_timestamp",
        "end_timestamp",
        "begin_phy_offset",
    ),
}
#: Rows that come one after the other and are a table, whichever the main type is: its title.
SECTIONS: dict[str, str] = {
    "step": "What the start does",
    "deleted": "Files that it deletes",
    "truncated": "Files that it cuts",
    "gap": "What cannot be read",
    "restored": "What was put right",
    "disk": "Files on disk",
    "batch_unit": "Units of batch queues and of compacted topics",
    "pop_order": "Queues popped in order",
    "pop_queue": "Queues of the revive topic",
    "tiered_segment": "Segments",
    "tiered_index_file": "Files of the index",
}
#: What the main table is called where others stand before it.
_MAIN_TITLES = {"queue": "Queues after the start", "lost": "Messages that are lost"}
#: Columns that a terminal too narrow for all does without, the first one first.
SPARE_COLUMNS: dict[str, tuple[str, ...]] = {
    "message": ("total_size", "properties", "body_encoding"),
    "append_result": ("wrote_bytes", "msg_id"),
    "backup": ("files", "data_bytes", "is_live"),
    "topic": ("kind", "configured", "bytes"),
    "fleet_store": (
        "seconds",
        "first_store_timestamp",
        "last_store_timestamp",
        "dead_letters",
        "retries",
    ),
    "group": ("queues", "missed"),
    "group_queue": ("max_offset", "consumer_offset"),
    "offset_change": ("max_offset",),
    "unit": ("size",),
    "batch_unit": ("size", "tags_code"),
    "index_item": ("time_diff_seconds", "prev_index_no"),
    "index_file": ("max_index_num", "begin_phy_offset"),
    "half_message": ("producer_group", "final_offset"),
    "pop_check_point": ("lost", "visible_timestamp", "acked"),
    "tiered_queue": ("begin_timestamp", "broker", "segments", "log_bytes"),
    "tiered_segment": ("end_timestamp", "size"),
    "tiered_index_file": ("end_timestamp", "slots_used", "path"),
    "pop_order": ("visible_timestamp", "acked"),
    "timer_message": ("copy_offset", "queue_id"),
    "transaction": ("real_queue_id", "queue_offset"),
    "field": ("bytes", "meaning"),
}
#: Names that may be cut to fewer columns than elsewhere, so that more of them have room.
NARROW_COLUMNS: dict[str, dict[str, int]] = {"message": {"topic": 14}}
#: A message that was refused has no place, and nothing else to say of that.
_WITHOUT_EMPTY = {"append_result"}


class Vertical(Shape):
    """One field a line, without those that say nothing in rows of :data:`_WITHOUT_EMPTY`."""

    def names(self, row: Row) -> list[str]:
        """The fields that are shown."""
        names = [name for name in row if name != "type"]
        if row["type"] in _WITHOUT_EMPTY:
            names = [name for name in names if row[name] is not None]
        return names

    def row(self, row: Row) -> None:
        names = self.names(row)
        margin = max(map(len, names), default=0)
        for name in names:
            self.sink.line(f"{name:<{margin}}  {cell_of(row, name)}".rstrip())

    def summary(self, row: Row) -> None:
        self.sink.line(f"summary: {pairs(row)}")


class Table(Shape):
    """What both tables share: a page of rows of one type, everything else as lines or as tables
    that follow."""

    def __init__(self, sink: Sink, main_type: str | None, wide: bool) -> None:
        super().__init__(sink)
        self._type = main_type
        self._wide = wide
        #: The type of the rows of the table that is being printed; empty before the first one.
        self._of_table = ""
        self._has_lines = False
        self._names: list[str] = []
        self._page: list[Row] = []

    def row(self, row: Row) -> None:
        kind = row["type"]
        self._type = self._type or kind
        if kind != self._type and kind not in SECTIONS:
            self._print_page()
            self._line(f"{visible(kind)}: {pairs(row)}")
            return
        if kind != self._of_table:
            self._begin(kind)
        if not self._names:
            chosen = None if self._wide else TABLE_COLUMNS.get(kind)
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

    def _begin(self, kind: str) -> None:
        """Another table: it has a title unless it is the main one and the first."""
        self._print_page()
        title = SECTIONS.get(kind) if kind != self._type else None
        if self._of_table:
            self._end_table()
            title = title or _MAIN_TITLES.get(kind)
        if title is not None:
            if self._has_lines:
                self.sink.line("")
            self._line(f"# {title}")
        self._of_table, self._names = kind, []

    def _end_table(self) -> None:
        """After the last row of a table: the next one has other columns."""

    def _print_page(self) -> None:
        """Prints the rows that are held, if any."""
        if self._page:
            page, self._page = self._page, []
            self._has_lines = True
            self._print(page)

    def _print(self, page: list[Row]) -> None:
        raise NotImplementedError

    def _line(self, text: str) -> None:
        self._has_lines = True
        self.sink.line(text)


class Plain(Table):
    """Aligned text: one header, widths from the first page, never cut. Where rows come one by one
    on a terminal, lines that are no rows are broken between words."""

    _widths: list[int] | None = None

    def _line(self, text: str) -> None:
        if not self.sink.is_terminal:
            super()._line(text)
            return
        from rmqctl.cli.pages import Paper

        self._has_lines = True
        Paper(self.sink).print(text)

    def _end_table(self) -> None:
        self._widths = None

    def _print(self, page: list[Row]) -> None:
        names = self._names
        lines = [[cell_of(row, name) for name in names] for row in page]
        if self._widths is None:
            self._numeric = [is_number(name, page) for name in names]
            titles = [title(name) for name in names]
            self._widths = [max(map(width, column)) for column in zip(titles, *lines, strict=True)]
            lines.insert(0, titles)
        for values in lines:
            parts = []
            for value, room, number in zip(values, self._widths, self._numeric, strict=True):
                padding = " " * (room - width(value))
                parts.append(padding + value if number else value + padding)
            self.sink.line("  ".join(parts).rstrip())
