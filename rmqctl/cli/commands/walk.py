"""``rmqctl walk commitlog|queue|index``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.command import group
from rmqctl.cli.following import Follow, follow_options, print_rows
from rmqctl.cli.options import (
    body_option,
    common,
    decompress_options,
    limit_option,
    offset_range,
    queue_id_option,
    time_range,
    topic_option,
)
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import OFFSET, Name

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.rows import Row

_EXITS = {1: "damage was met, or filters were given and nothing matched"}
_LOG_EXITS = {
    1: "damage was met, a body shown is not what was stored, or filters were given and nothing "
    "matched"
}


@group(
    "walk",
    examples=[
        "rmqctl walk commitlog --store DIR --format ndjson",
        "rmqctl walk queue --store DIR --topic orders --queue-id 0",
    ],
)
def command() -> None:
    """Walk over records, queue units or index items, in order."""


@make(
    "commitlog",
    examples=[
        "rmqctl walk commitlog --store DIR --limit 10",
        "rmqctl walk commitlog --topic orders --since -2h --body-as utf8 --json",
        "rmqctl walk commitlog --topic orders --key order-42",
        "rmqctl walk commitlog --topic orders --tag 'paid || due' --limit 10",
        "rmqctl walk commitlog --start 1073741824 --end 2147483648 --json",
        "rmqctl walk commitlog --follow --from-end --filter 'amount > 5'",
    ],
    exits=_LOG_EXITS,
)
@offset_range
@topic_option()
@queue_id_option()
@time_range
@limit_option
@click.option("--key", metavar="KEY", type=Name(), help="Only messages with this key or UNIQ_KEY.")
@click.option("--tag", metavar="EXPR", help="Only messages with this tag, or 'A || B'.")
@click.option("--filter", "sql", metavar="SQL92", help="Only messages whose properties match.")
@decompress_options
@body_option
@follow_options("start")
@common
def commitlog(
    settings: Settings,
    tag: str | None,
    sql: str | None,
    body: str,
    decompress_limit: int | None,
    follow: Follow | None,
    **selection: Any,
) -> int:
    """Walk over the log: every message, blank and damage.

    Prints rows of type message, blank and damage, then a summary. Damage does not end the walk: it
    continues at the next record. Bodies that are shown are checked, and status has the result;
    verify checks all of them.
    """
    from rmqctl.operations.look.walk import Selection, walk_commit_log

    what = Selection(**selection)
    shown: dict[str, Any] = {"body": body, "decompress_limit": decompress_limit}
    if message_filter := _message_filter(tag, sql):
        shown["message_filter"] = message_filter
    filters = what.filters or message_filter is not None

    def exit_code(summary: Row) -> int:
        settings.note_uncommitted()
        mismatches = settings.note_bodies(summary)
        nothing = filters and not summary["messages"]
        if nothing:
            settings.note_keys(sql)
            settings.note_absent_topic(store, what.topic)
        return int(summary["damages"] > 0 or mismatches or nothing)

    with settings.open(every_queue=False) as store:
        if follow is not None:
            from rmqctl.operations.look.follow import follow_log

            rows = functools.partial(follow_log, store, what, from_end=follow.from_end, **shown)
            return print_rows(settings, "message", follow, rows, exit_code)
        with settings.writer("message", bulk=True) as writer:
            if writer.form and message_filter is None:
                from rmqctl.operations.look.walk import commit_log_lines

                lines = commit_log_lines(store, what, form=writer.form, **shown)
                return exit_code(writer.rows(lines))
            return exit_code(writer.rows(walk_commit_log(store, what, **shown)))


def _message_filter(tag: str | None, sql: str | None) -> MessageFilter | None:
    """The filter of the records themselves; None where all are taken."""
    from rmqctl.engine.filters.tags import BothFilters, TagFilter

    by_tag = None if tag is None else TagFilter(tag)
    if sql is None:
        return by_tag
    from rmqctl.engine.filters.sql import SqlFilter

    by_sql = SqlFilter(sql)
    return by_sql if by_tag is None else BothFilters(by_tag, by_sql)


@make(
    "queue",
    examples=[
        "rmqctl walk queue --store DIR --topic orders --queue-id 0 --limit 10",
        "rmqctl walk queue --topic orders --queue-id 0 --offset 1000 --end-offset 1010",
        "rmqctl walk queue --format ndjson",
    ],
    exits=_EXITS,
)
@click.option("--offset", metavar="N", type=OFFSET, help="Queue offset to start at.")
@click.option("--end-offset", metavar="N", type=OFFSET, help="Queue offset to stop before.")
@offset_range
@topic_option()
@queue_id_option()
@limit_option
@common
def queue(settings: Settings, offset: int | None, end_offset: int | None, **selection: Any) -> int:
    """Walk over the units of all consume queues, or of some.

    --offset and --end-offset are offsets in queues; --start and --end choose units by the place in
    the log that they point to. Prints rows of type unit, of batch queues (5.x) batch_unit, then a
    summary; a row of type damage is a stretch of units that a file lacks, or that were never
    written though later ones were.
    """
    from rmqctl.operations.look.ranges import check_range
    from rmqctl.operations.look.walk import Selection
    from rmqctl.operations.look.walkqueues import queue_lines, walk_queues

    check_range("--offset", offset, "--end-offset", end_offset)
    what = Selection(**selection)
    with settings.open() as store:
        settings.note_queues(store)
        where = (store, what, offset or 0, end_offset)
        main_type = "batch_unit" if what.topic in store.dispatcher.batch_topics else "unit"
        with settings.writer(main_type, bulk=True) as writer:
            rows = queue_lines(*where, form=writer.form) if writer.form else walk_queues(*where)
            summary = writer.rows(rows)
        if not summary["units"]:
            settings.note_absent_topic(store, what.topic)
    filters = what.filters or offset is not None or end_offset is not None
    return int(summary["damages"] > 0 or (filters and not summary["units"]))


@make(
    "index",
    examples=["rmqctl walk index --store DIR --limit 10", "rmqctl walk index --since -1d --json"],
    exits={1: "an index file was left out, or filters were given and nothing matched"},
)
@offset_range
@time_range
@limit_option
@common
def index(settings: Settings, **selection: Any) -> int:
    """Walk over the items of all index files, in order.

    Prints rows of type index_item, then a summary.
    """
    from rmqctl.operations.look.walk import Selection, walk_index

    what = Selection(**selection)
    with (
        settings.open(every_queue=False) as store,
        settings.writer("index_item", bulk=True) as writer,
    ):
        lacks_files = settings.note_index(store)
        summary = writer.rows(walk_index(store, what))
    return int(lacks_files or (what.filters and not summary["items"]))


for part in (commitlog, queue, index):
    command.add_command(part)
