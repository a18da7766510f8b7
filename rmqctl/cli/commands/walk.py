"""``rmqctl walk commitlog|queue|index``."""

from __future__ import annotations

from typing import Any

from rmqctl.cli.options import (
    Settings,
    body_option,
    common,
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
    ],
    exits=_EXITS,
)
@offset_range
@topic_option()
@queue_id_option()
@time_range
@limit_option
@body_option
@common
def commitlog(settings: Settings, body: str, **selection: Any) -> int:
    """Walk over the log: every message, blank and damage.

    Prints rows of type message, blank and damage, then a summary. Damage does not end the walk:
    it goes on at the next record. Bodies are not checked: that is verify's work.
    """
    from rmqctl.operations.walk import Selection, walk_commit_log

    what = Selection(**selection)
    with settings.open() as store, settings.writer("message", bulk=True) as writer:
        summary = writer.rows(walk_commit_log(store, what, body))
    return int(summary["damages"] > 0 or (what.filters and not summary["messages"]))


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
