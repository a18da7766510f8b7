"""``rmqctl dump OFFSET`` and its siblings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from formats.constants import INT_MAX
from rmqctl.cli.command import Group, command_first, group
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, completed, decompress_options
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import OFFSET, QUEUE_ID, Whole

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows import Row

#: Bytes and characters of a field that a table shows.
_SHOWN_BYTES = 16
_SHOWN_TEXT = 64


class _DumpGroup(Group):
    """``dump OFFSET`` is short for ``dump record OFFSET``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = command_first(args)
        if args and args[0].isdigit():
            args = ["record", *args]
        return super().parse_args(ctx, args)


@group(
    "dump",
    cls=_DumpGroup,
    examples=[
        "rmqctl dump 4096 --store DIR",
        "rmqctl dump unit orders 0 17",
        "rmqctl dump index-header 20240501120000000",
        "rmqctl dump checkpoint",
    ],
)
def command() -> None:
    """Explain one structure field by field, with its bytes.

    Rows of type field: offset in the structure, size, bytes, name, value, meaning; then a summary
    with the place and what does not fit. Damaged structures are shown as far as they go.
    """


def _show(settings: Settings, dump: Callable[[MessageStore], Iterator[Row]]) -> int:
    with settings.open(every_queue=False) as store, settings.writer("field") as writer:
        rows = dump(store)
        if settings.format == "table" and not settings.verbose:
            rows = map(_shortened, rows)
        summary = writer.rows(rows)
    return int(bool(summary["problems"]))


def _shortened(row: Row) -> Row:
    """A row for a table: long contents are for JSON (or -v)."""
    from rmqctl.cli.text import cell

    if row["type"] != "field":
        return row
    data, text = row["bytes"], cell(row["name"], row["value"])
    if row["size"] > _SHOWN_BYTES:
        data = f"{data[: 2 * _SHOWN_BYTES]}…"
    if len(text) > _SHOWN_TEXT:
        text = text[:_SHOWN_TEXT] + "…"
    return {**row, "bytes": data, "value": text}


_EXITS = {1: "something in the structure does not fit"}


@make(
    "record",
    examples=[
        "rmqctl dump 4096 --store DIR",
        "rmqctl dump record 4096 --json",
        "rmqctl dump record 4096 --decompress --json",
    ],
    exits=_EXITS,
)
@click.argument("offset", type=OFFSET)
@decompress_options
@common
def record(settings: Settings, offset: int, decompress_limit: int | None) -> int:
    """Explain what is at a physical offset of the log."""
    from rmqctl.operations.look.dump import dump_record

    return _show(settings, lambda store: dump_record(store, offset, decompress_limit))


@make("unit", examples=["rmqctl dump unit orders 0 17 --store DIR"], exits=_EXITS)
@click.argument("topic", shell_complete=completed("topics"))
@click.argument("queue_id", type=QUEUE_ID, shell_complete=completed("queue_ids"))
@click.argument("queue_offset", type=OFFSET)
@common
def unit(settings: Settings, topic: str, queue_id: int, queue_offset: int) -> int:
    """Explain one unit of a consume queue."""
    from rmqctl.operations.look.dump import dump_unit

    return _show(settings, lambda store: dump_unit(store, topic, queue_id, queue_offset))


@make("index-header", examples=["rmqctl dump index-header 20240501120000000"], exits=_EXITS)
@click.argument("file", shell_complete=completed("index_files"))
@common
def index_header(settings: Settings, file: str) -> int:
    """Explain the header of one index file."""
    from rmqctl.operations.look.dump import dump_index_header

    return _show(settings, lambda store: dump_index_header(store, file))


@make("index-item", examples=["rmqctl dump index-item 20240501120000000 1"], exits=_EXITS)
@click.argument("file", shell_complete=completed("index_files"))
@click.argument("index_no", type=Whole(1, INT_MAX))
@common
def index_item(settings: Settings, file: str, index_no: int) -> int:
    """Explain one item of an index file; items count from 1."""
    from rmqctl.operations.look.dump import dump_index_item

    return _show(settings, lambda store: dump_index_item(store, file, index_no))


@make("checkpoint", examples=["rmqctl dump checkpoint --store DIR"], exits=_EXITS)
@common
def checkpoint(settings: Settings) -> int:
    """Explain the checkpoint."""
    from rmqctl.operations.look.dump import dump_checkpoint

    return _show(settings, dump_checkpoint)


for part in (record, unit, index_header, index_item, checkpoint):
    command.add_command(part)
