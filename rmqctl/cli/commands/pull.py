"""``rmqctl pull``."""

from __future__ import annotations

import click

from rmqctl.cli.following import follow_options, print_rows
from rmqctl.cli.options import (
    INT_MAX,
    LONG_MAX,
    Settings,
    Whole,
    body_option,
    common,
    decompress_options,
    queue_id_option,
    topic_option,
)
from rmqctl.cli.options import command as make


@make(
    "pull",
    examples=[
        "rmqctl pull --store DIR --topic orders --queue-id 0",
        "rmqctl pull --topic orders --queue-id 0 --offset 17 --tag 'paid || due' --body utf8",
        'rmqctl pull --topic orders --queue-id 0 --filter "amount > 5 AND region IS NOT NULL"',
        "rmqctl pull --topic orders --queue-id 0 --max-messages 100000 --format ndjson",
        "rmqctl pull --topic orders --queue-id 0 --follow --from-end --format ndjson",
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
    help="At most N; more than 32 take several answers of the broker. [default: 32; "
    "without a limit with --follow]",
)
@click.option("--tag", metavar="EXPR", default="*", help="A tag, or 'A || B'; default: all.")
@click.option(
    "--filter",
    "sql",
    metavar="SQL92",
    help="A filter on properties, as a consumer's MessageSelector.bySql.",
)
@click.option(
    "--physical-memory",
    metavar="BYTES",
    type=Whole(0, LONG_MAX),
    help="The broker machine's memory, for what it would call on disk; default: this machine's.",
)
@decompress_options
@body_option
@follow_options
@common
def command(
    settings: Settings,
    topic: str,
    queue_id: int,
    offset: int | None,
    max_messages: int | None,
    tag: str,
    sql: str | None,
    physical_memory: int | None,
    body: str,
    decompress_limit: int | None,
    follow: bool,
    from_end: bool,
    interval: float,
) -> int:
    """Pull messages of one queue, as a broker would answer.

    Prints rows of type message, then a summary with RocketMQ's status and the next offset.
    """
    from rmqctl.operations.pull import ONE_PULL, make_filter, pull

    if from_end and not follow:
        raise click.UsageError("--from-end needs --follow.")
    if from_end and offset is not None:
        raise click.UsageError("--offset and --from-end exclude each other.")
    message_filter = make_filter(tag, sql)
    if follow:
        from rmqctl.operations.follow import follow_queue

        with settings.open() as store:
            summary, ended = print_rows(
                settings,
                "message",
                interval,
                lambda patience: follow_queue(
                    store,
                    topic,
                    queue_id,
                    offset,
                    patience,
                    max_messages=max_messages,
                    message_filter=message_filter,
                    body=body,
                    decompress_limit=decompress_limit,
                    from_end=from_end,
                ),
            )
        return 130 if ended else int(summary["status"] != "FOUND")
    wanted = max_messages or ONE_PULL
    with settings.open() as store, settings.writer("message", bulk=wanted > ONE_PULL) as writer:
        summary = writer.rows(
            pull(
                store,
                topic,
                queue_id,
                offset,
                max_messages=wanted,
                tag=tag,
                message_filter=message_filter if sql is not None else None,
                body=body,
                decompress_limit=decompress_limit,
                physical_memory=physical_memory,
            )
        )
    if summary.get("filter_errors"):
        settings.note(
            f"note: the filter failed on {summary['filter_errors']} messages, which do not match "
            "then: a property is not of the type that it is compared with"
        )
    return 0 if summary["status"] == "FOUND" else 1
