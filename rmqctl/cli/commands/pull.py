"""``rmqctl pull``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from formats.constants import INT_MAX, LONG_MAX
from rmqctl.cli.command import command as make
from rmqctl.cli.following import Follow, follow_options, print_rows
from rmqctl.cli.options import (
    Option,
    body_option,
    common,
    decompress_options,
    queue_id_option,
    topic_option,
)
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Whole
from rmqctl.errors import UsageError
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.engine.read.lines import Lines
    from rmqctl.rows import Row


@make(
    "pull",
    examples=[
        "rmqctl pull --store DIR --topic orders --queue-id 0",
        "rmqctl pull --topic orders --queue-id 0 --tag 'paid || due' --body-as utf8",
        'rmqctl pull --topic orders --queue-id 0 --offset 17 --filter "amount > 5"',
        "rmqctl pull --topic orders --queue-id 0 --limit 100000 --format ndjson",
        "rmqctl pull --topic orders --queue-id 0 --follow --from-end --format ndjson",
    ],
    exits={
        0: "FOUND",
        1: "any other status, messages that cannot be read, or a body shown is not what was stored",
    },
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
    "--limit",
    "max_messages",
    cls=Option,
    formerly=("--max-messages",),
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
    help="Memory of the broker's machine, by which it takes messages as on disk or in memory. "
    "Default: this machine's.",
)
@decompress_options
@body_option
@follow_options("offset")
@common
def command(
    settings: Settings,
    topic: str,
    queue_id: int,
    offset: int | None,
    max_messages: int | None,
    tag: str,
    sql: str | None,
    follow: Follow | None,
    physical_memory: int | None,
    **shown: Any,
) -> int:
    """Pull messages of one queue, as a broker would answer.

    Prints rows of type message, then a summary with RocketMQ's status and the next offset.
    """
    from rmqctl.operations.look.pull import ONE_PULL, make_filter, pull, pull_lines

    if follow is not None and physical_memory is not None:
        raise UsageError(reason="--physical-memory and --follow exclude each other.")
    message_filter = make_filter(tag, sql)
    wanted = max_messages or ONE_PULL
    with settings.open(every_queue=False) as store:
        settings.note_absent_queue(store, topic, queue_id)
        queue = (store, topic, queue_id, offset)
        if topic in store.compacted_topics:
            _check_compacted(topic, follow, is_filtered=sql is not None or tag != "*")
        if follow is not None:
            from rmqctl.operations.look.follow import follow_queue

            if topic in store.dispatcher.batch_topics:
                reason = f"{topic!r} has batch queues (5.x), which are not followed: pull again."
                raise UsageError(reason=reason)
            what = shown | {"message_filter": message_filter, "max_messages": max_messages}
            following = functools.partial(follow_queue, *queue, from_end=follow.from_end, **what)
            exit_code = functools.partial(_exit_code, settings)
            return print_rows(settings, "message", follow, following, exit_code)
        rows: Iterator[Row | Lines]
        with settings.writer("message", bulk=wanted > ONE_PULL) as writer:
            what = shown | {"max_messages": wanted, "physical_memory": physical_memory}
            if sql is not None:
                rows = pull(*queue, message_filter=message_filter, **what)
            elif writer.form and wanted > ONE_PULL:
                rows = pull_lines(*queue, form=writer.form, tag=tag, **what)
            else:
                rows = pull(*queue, tag=tag, **what)
            summary = writer.rows(rows)
    _note_filter_errors(settings, summary)
    if not summary["messages"]:
        settings.note_keys(sql)
    return _exit_code(settings, summary)


def _check_compacted(topic: str, follow: Follow | None, *, is_filtered: bool) -> None:
    """:raises UsageError: what a broker does not do with a compacted topic (5.x) is asked for."""
    if follow is not None:
        raise UsageError(reason=f"{topic!r} is compacted (5.x), and not followed: pull again.")
    if is_filtered:
        reason = f"{topic!r} is compacted (5.x): a broker gives all of it, whatever the filter"
        raise UsageError(reason=f"{reason}. Leave it out.")


def _exit_code(settings: Settings, summary: Row) -> int:
    passed_over = summary.get("passed_over", 0)
    if passed_over:
        what = "one message was" if passed_over == 1 else f"{passed_over} messages were"
        settings.note(
            f"note: {what} passed over, of which the unit or the record cannot be read: "
            "`rmqctl verify` says why"
        )
    wrong = settings.note_bodies(summary) or passed_over
    return int(bool(wrong) or summary["status"] != "FOUND")


def _note_filter_errors(settings: Settings, summary: Row) -> None:
    if summary.get("filter_errors"):
        failed = some(summary["filter_errors"], "message")
        settings.note(
            f"note: the filter failed on {failed}, which counts as no match: a property is not of "
            "the type that it is compared with"
        )
