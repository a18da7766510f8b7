"""``rmqctl pop ls``."""

from __future__ import annotations

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, completed, limit_option, topic_option
from rmqctl.cli.sections import group
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Name, Time
from rmqctl.rows.words import some, some_are


@group(
    "pop",
    examples=[
        "rmqctl pop ls --store DIR",
        "rmqctl pop ls --group cg_orders --format ndjson",
    ],
)
def command() -> None:
    """Messages popped by consumers of 5.x."""


@make(
    "ls",
    examples=[
        "rmqctl pop ls --store DIR",
        "rmqctl pop ls --group cg_orders --topic orders",
        "rmqctl pop ls --now '04:30' --format ndjson | jq 'select(.state == \"due\")'",
    ],
    exits={1: "--group or --topic was given and nothing matched"},
)
@click.option(
    "--group",
    metavar="GROUP",
    type=Name(),
    shell_complete=completed("groups"),
    help="Only of this consumer group.",
)
@topic_option()
@click.option(
    "--now",
    "at",
    metavar="TIME",
    type=Time(),
    help="Take this as the current time.  [default: now]",
)
@click.option("--all", "everything", is_flag=True, help="Also list what is acknowledged.")
@limit_option
@common
def ls(
    settings: Settings,
    group: str | None,
    topic: str | None,
    at: int | None,
    everything: bool,
    limit: int | None,
) -> int:
    """List what was popped and not acknowledged.

    Prints a row of type pop_check_point for each pop that the broker has not finished, pop_order
    for each queue that is popped in order, pop_queue for each queue of the revive topic, then a
    summary. state is invisible until the time that the consumer asked for; after that a broker
    copies the message into retry_topic. The offset of a group that pops moves when it takes
    messages, so its lag is that of `rmqctl groups` plus what waits here.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.look.pop import Chosen, pops

    chosen = Chosen(group, topic, limit, everything)
    with settings.open() as store, settings.writer("pop_check_point") as writer:
        settings.note_config(store)
        settings.note_queues(store)
        summary = writer.rows(pops(store, system_clock() if at is None else at, chosen))
        if not (summary["check_points"] or summary["ordered_queues"]):
            settings.note_version(store, "only its consumers pop.")
    if summary["lost"]:
        settings.note(
            f"note: {some_are(summary['lost'], 'message')} no longer in a queue, or of a "
            "topic that is gone: a broker gives nothing of that back."
        )
    if summary["unreadable"]:
        settings.note(
            f"note: the revive topic has {some(summary['unreadable'], 'message')} of another kind "
            "than check points and acknowledgements: `rmqctl pull` shows what it has."
        )
    found = summary["check_points"] or summary["ordered_queues"]
    return int((group is not None or topic is not None) and not found)


command.add_command(ls)
command.sections = {"Inspect (never writes)": ["ls"]}
