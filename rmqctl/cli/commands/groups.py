"""``rmqctl groups``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, completed, topic_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Name
from rmqctl.cli.watching import watch as keep_watching
from rmqctl.cli.watching import watch_options

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows import Row


@make(
    "groups",
    examples=[
        "rmqctl groups --store DIR",
        "rmqctl groups --group cg_orders --queues",
        "rmqctl groups --topic orders --format ndjson",
        "rmqctl groups --group cg_orders --watch",
    ],
    exits={1: "--group or --topic was given and nothing matched"},
)
@click.option(
    "--group",
    metavar="GROUP",
    type=Name(),
    shell_complete=completed("groups"),
    help="Only this consumer group.",
)
@topic_option()
@click.option("--queues", "per_queue", is_flag=True, help="Print one row for each queue.")
@watch_options
@common
def command(
    settings: Settings,
    group: str | None,
    topic: str | None,
    per_queue: bool,
    watch: bool,
    interval: float,
) -> int:
    """Show the lag of each consumer group, in messages and time.

    Offsets are those of config/consumerOffset.json, which a broker writes every five seconds.
    Prints rows of type group, with --queues group_queue, then a summary. missed counts messages
    that were deleted before the group had read them.
    """
    from rmqctl.cli.place import is_typed
    from rmqctl.operations.look import groups

    main_type = "group_queue" if per_queue else "group"

    def rows(store: MessageStore) -> Iterable[Row]:
        return (groups.group_queues if per_queue else groups.groups)(store, group, topic)

    if is_typed("interval") and not watch:
        raise click.UsageError("--interval needs --watch.")
    if watch:
        return keep_watching(settings, main_type, interval, rows)
    with settings.open() as store, settings.writer(main_type) as writer:
        settings.note_config(store)
        settings.note_queues(store)
        summary = writer.rows(rows(store))
        if not summary["groups"]:
            settings.note_absent_topic(store, topic)
        has_log = bool(store.commit_log.files.entries)
    if count := summary["past_queue"]:
        lie = "1 offset lies" if count == 1 else f"{count} offsets lie"
        settings.note(
            f"note: {lie} past the end of the queue: what is "
            "stored up to there may never be read."
            # Where the log is gone nothing is set: it is to be brought back.
            + (" `rmqctl config check` says what to do." if has_log else "")
        )
    return int((group is not None or topic is not None) and not summary["groups"])
