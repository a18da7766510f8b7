"""``rmqctl pull``."""

from __future__ import annotations

import click

from rmqctl.cli.options import (
    INT_MAX,
    LONG_MAX,
    Settings,
    Whole,
    body_option,
    common,
    queue_id_option,
    topic_option,
)
from rmqctl.cli.options import command as make


@make(
    "pull",
    examples=[
        "rmqctl pull --store DIR --topic orders --queue-id 0",
        "rmqctl pull --topic orders --queue-id 0 --offset 17 --tag 'paid || due' --body utf8",
        "rmqctl pull --topic orders --queue-id 0 --max-messages 100000 --format ndjson",
    ],
    exits={0: "FOUND", 1: "any other status"},
)
@topic_option(required=True)
@queue_id_option(required=True)
@click.option(
    "--offset",
    metavar="N",
    type=Whole(-LONG_MAX - 1, LONG_MAX),
    help="Queue offset to start at; default: the queue's first.",
)
@click.option(
    "--max-messages",
    metavar="N",
    type=Whole(1, INT_MAX),
    default=32,
    show_default=True,
    help="At most N; more than 32 take several answers of the broker.",
)
@click.option("--tag", metavar="EXPR", default="*", help="A tag, or 'A || B'; default: all.")
@body_option
@common
def command(
    settings: Settings,
    topic: str,
    queue_id: int,
    offset: int | None,
    max_messages: int,
    tag: str,
    body: str,
) -> int:
    """Pull messages of one queue, as a broker would answer.

    Prints rows of type message, then a summary with RocketMQ's status and the next offset.
    """
    from rmqctl.operations.pull import ONE_PULL, pull

    bulk = max_messages > ONE_PULL
    with settings.open() as store, settings.writer("message", bulk=bulk) as writer:
        summary = writer.rows(
            pull(store, topic, queue_id, offset, max_messages=max_messages, tag=tag, body=body)
        )
    return 0 if summary["status"] == "FOUND" else 1
