"""``rmqctl topics``."""

from __future__ import annotations

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, topic_option
from rmqctl.cli.settings import Settings


@make(
    "topics",
    examples=[
        "rmqctl topics --store DIR",
        "rmqctl topics --no-bytes --format ndjson",
        "rmqctl topics --topic orders --json",
    ],
    exits={1: "--topic was given and there is no such topic"},
)
@topic_option()
@click.option("--no-bytes", is_flag=True, help="Do not sum the sizes; faster on large queues.")
@common
def command(settings: Settings, topic: str | None, no_bytes: bool) -> int:
    """List the topics: queues, messages, bytes, last message.

    Lists topics with queues and topics of config/topics.json; "queues" and "configured" show where
    a topic is. Prints rows of type topic, then a summary. The log is not read.
    """
    from rmqctl.operations.look.topics import topics

    with settings.open() as store, settings.writer("topic") as writer:
        settings.note_config(store)
        settings.note_queues(store)
        queues = sum(1 for _ in store.queues.directories())
        with settings.progress("topics", queues, writer, counts=True) as advance:
            rows = topics(store, topic, sums_bytes=not no_bytes, progress=advance)
            summary = writer.rows(rows)
        if not summary["topics"]:
            settings.note_absent_topic(store, topic)
    if count := summary["without_config"]:
        topics_are = "1 topic with queues is" if count == 1 else f"{count} topics with queues are"
        settings.note(
            f"note: {topics_are} not in config/topics.json, so no consumer finds the queues: "
            "`rmqctl config check` says which."
        )
    return int(topic is not None and not summary["topics"])
