"""``rmqctl walk commitlog|queue|index``."""

from __future__ import annotations

from typing import Any

import click

from rmqctl.cli.following import follow_options, print_rows
from rmqctl.cli.options import (
    Settings,
    body_option,
    common,
    decompress_options,
    group,
    limit_option,
    offset_range,
    queue_id_option,
    time_range,
    topic_option,
)
from rmqctl.cli.options import command as make

_EXITS = {1: "damage was met, or filters were given and nothing matched"}


@group(
    "walk",
    examples=[
        "rmqctl walk commitlog --store DIR --format ndjson",
        "rmqctl walk queue --store DIR --topic orders --queue-id 0",
    ],
)
def command() -> None:
    """Walk over every record, queue unit or index item, in order."""


@make(
    "commitlog",
    examples=[
        "rmqctl walk commitlog --store DIR --limit 10",
        "rmqctl walk commitlog --topic orders --since -2h --body utf8 --format ndjson",
        "rmqctl walk commitlog --start 1073741824 --end 2147483648 --json",
        "rmqctl walk commitlog --follow --from-end --filter 'amount > 5' --format ndjson",
    ],
    exits=_EXITS,
)
@offset_range
@topic_option()
@queue_id_option()
@time_range
@limit_option
@click.option("--filter", "sql", metavar="SQL92", help="Only messages whose properties match.")
@decompress_options
@body_option
@follow_options
@common
def commitlog(
    settings: Settings,
    sql: str | None,
    body: str,
    decompress_limit: int | None,
    follow: bool,
    from_end: bool,
    interval: float,
    **selection: Any,
) -> int:
    """Walk over the log: every message, blank and damage.

    Prints rows of type message, blank and damage, then a summary. Damage does not end the walk:
    it goes on at the next record. Bodies are not checked: that is verify's work.
    """
    from rmqctl.operations.walk import Selection, walk_commit_log

    what = Selection(**selection)
    if from_end and not follow:
        raise click.UsageError("--from-end needs --follow.")
    if from_end and what.start is not None:
        raise click.UsageError("--start and --from-end exclude each other.")
    message_filter = None
    if sql is not None:
        from rmqctl.engine.sqlfilter import SqlFilter

        message_filter = SqlFilter(sql)
    options: dict[str, Any] = {
        "body": body,
        "decompress_limit": decompress_limit,
        "message_filter": message_filter,
    }
    ended = False
    with settings.open() as store:
        if follow:
            from rmqctl.operations.follow import follow_log

            summary, ended = print_rows(
                settings,
                "message",
                interval,
                lambda patience: follow_log(store, what, patience, from_end=from_end, **options),
            )
        else:
            with settings.writer("message", bulk=True) as writer:
                summary = writer.rows(walk_commit_log(store, what, **options))
    if ended:
        return 130
    filters = what.filters or sql is not None
    return int(summary["damages"] > 0 or (filters and not summary["messages"]))


@make(
    "queue",
    examples=[
        "rmqctl walk queue --store DIR --topic orders --queue-id 0 --limit 10",
        "rmqctl walk queue --format ndjson",
    ],
    exits=_EXITS,
)
@offset_range
@topic_option()
@queue_id_option()
@limit_option
@common
def queue(settings: Settings, **selection: Any) -> int:
    """Walk over the units of all consume queues, or of some.

    Prints rows of type unit, then a summary; a row of type damage is a stretch of units that were
    never written though later ones were.
    """
    from rmqctl.operations.walk import Selection, walk_queues

    what = Selection(**selection)
    with settings.open() as store, settings.writer("unit", bulk=True) as writer:
        summary = writer.rows(walk_queues(store, what))
    return int(summary["damages"] > 0 or (what.filters and not summary["units"]))


@make(
    "index",
    examples=["rmqctl walk index --store DIR --limit 10", "rmqctl walk index --since -1d --json"],
    exits={1: "filters were given and nothing matched"},
)
@offset_range
@time_range
@limit_option
@common
def index(settings: Settings, **selection: Any) -> int:
    """Walk over the items of all index files, in order.

    Prints rows of type index_item, then a summary.
    """
    from rmqctl.operations.walk import Selection, walk_index

    what = Selection(**selection)
    with settings.open() as store, settings.writer("index_item", bulk=True) as writer:
        summary = writer.rows(walk_index(store, what))
    return int(what.filters and not summary["items"])


for part in (commitlog, queue, index):
    command.add_command(part)
