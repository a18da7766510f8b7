"""``rmqctl du``."""

from __future__ import annotations

from typing import Any

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, completed, limit_option, time_range, topic_option
from rmqctl.cli.place import is_typed
from rmqctl.cli.settings import Settings


@make(
    "du",
    examples=[
        "rmqctl du --store DIR",
        "rmqctl du --store DIR --by topic,queue --limit 20",
        "rmqctl du --store DIR --by day,producer-host --since -7d --format csv",
        "rmqctl du --store DIR --disk",
    ],
    exits={1: "damage was met, or filters were given and nothing matched"},
)
@click.option(
    "--by",
    metavar="FIELD[,FIELD]",
    shell_complete=completed("usage_fields"),
    default="topic",
    show_default=True,
    help="Some of topic, queue, tag, producer-host, day.",
)
@click.option("--disk", is_flag=True, help="Print only the space on disk; the log is not read.")
@topic_option()
@time_range
@limit_option
@common
def command(settings: Settings, by: str, disk: bool, **selection: Any) -> int:
    """Count bytes and messages by topic, tag, host or day.

    Prints rows of type usage, most bytes first, rows of type disk (the space that each directory
    of the store takes, without holes), then a summary. Days are those of the local zone. After
    200,000 groups messages of further ones are counted as ungrouped, in the summary.
    """
    from rmqctl.engine.files import paths

    if disk:
        _check_disk()
        from rmqctl.operations.look.disk import disk_usage

        paths.check_store(settings.root)
        with settings.writer("disk") as writer:
            rows = disk_usage(settings.root, settings.config)
            for row in rows:
                writer.row(row)
            writer.summary(allocated_bytes=sum(row["allocated_bytes"] for row in rows))
        return 0
    from rmqctl.operations.look.du import FIELDS, Usage, usage

    what = Usage(tuple(name.strip() for name in by.split(",")), **selection)
    fields = [FIELDS[name] for name in what.by]
    with settings.open() as store, settings.writer("usage", also=fields) as writer:
        log_bytes = store.commit_log.files.end_offset - store.min_offset
        with settings.progress("du", log_bytes, writer) as advance:
            summary = writer.rows(usage(store, what, advance))
        if not summary["messages"]:
            settings.note_absent_topic(store, what.topic)
    filters = any(value is not None for value in (what.topic, what.since, what.until))
    return int(summary["damages"] > 0 or (filters and not summary["messages"]))


def _check_disk() -> None:
    """:raises click.UsageError: an option is given that chooses or counts messages."""
    for name in ("by", "topic", "since", "until", "limit"):
        if is_typed(name):
            raise click.UsageError(
                f"leave --{name} out of du --disk: it tells of whole directories, and reads no "
                "message."
            )
