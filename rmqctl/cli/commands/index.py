"""``rmqctl index query|info``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click

from formats.constants import INT_MAX
from rmqctl.cli.command import command as make
from rmqctl.cli.command import group
from rmqctl.cli.options import (
    Option,
    body_option,
    common,
    decompress_options,
    time_range,
    topic_option,
)
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Name, Whole
from rmqctl.errors import UsageError
from rmqctl.shell import shell_line

if TYPE_CHECKING:
    from rmqctl.cli.lines import LineSource
    from rmqctl.cli.output import RowWriter
    from rmqctl.engine.read.lines import Lines
    from rmqctl.rows import Row


@group(
    "index",
    examples=[
        "rmqctl index query --store DIR --topic orders --key order-42",
        "rmqctl index info --store DIR",
    ],
)
def command() -> None:
    """Find messages by key, and look at the index files."""


@make(
    "query",
    examples=[
        "rmqctl index query --store DIR --topic orders --key order-42",
        "rmqctl index query --topic orders --key order-42 --since -1d --json",
        "rmqctl index query --topic orders --key order-42 --body-as utf8 --decompress",
        "rmqctl index query --topic orders --key order-42 --raw",
        "rmqctl index query --topic orders --keys-from ids.txt --format ndjson",
        "cut -d, -f1 orders.csv | rmqctl index query --topic orders --keys-from -",
    ],
    exits={1: "nothing matched one of the keys, or a body shown is not what was stored"},
)
@topic_option(required=True)
@click.option(
    "--key",
    metavar="KEY",
    type=Name(),
    help="One of KEYS, or the UNIQ_KEY; T#TAG: a tag, where the broker is of 5.4 or later.",
)
@click.option(
    "--keys-from", "source", metavar="FILE|-", help="Many of them, one a line; - is stdin."
)
@click.option(
    "--limit",
    "max_messages",
    cls=Option,
    formerly=("--max",),
    metavar="N",
    type=Whole(1, INT_MAX),
    default=64,
    show_default=True,
    help="The newest N of a key.",
)
@time_range
@click.option("--raw", is_flag=True, help="Show the index items of the key's hash.")
@body_option
@decompress_options
@common
def query(
    settings: Settings,
    topic: str,
    key: str | None,
    source: str | None,
    max_messages: int,
    since: int | None,
    until: int | None,
    raw: bool,
    body: str,
    decompress_limit: int | None,
) -> int:
    """Find messages by topic and key.

    Prints rows of type message in log order, then a summary. The index knows hashes only: each
    hit is compared with its record, and those of another topic or key are counted as collisions.

    With --keys-from keys come in the order of the lines, and one without a message is a row of type
    absent_key. Lines that come one by one are answered one by one.
    """
    from rmqctl.operations.look import index
    from rmqctl.operations.look.keyed import query_keys
    from rmqctl.operations.look.ranges import check_range

    check_range("--since", since, "--until", until)
    if (key is None) == (source is None):
        raise UsageError(reason="give one of --key and --keys-from.")
    if raw and (key is None or body != "none"):
        reason = "--raw shows the items of one key: give it with --key, and without --body-as."
        raise UsageError(reason=reason)
    asked: Callable[..., Iterator[Row | Lines]]
    if raw:
        asked = partial(index.query_items, max_items=max_messages, since=since, until=until)
    else:
        query_one_or_many: Callable[..., Iterator[Row | Lines]]
        query_one_or_many = query_keys if key is None else index.query
        asked = partial(
            query_one_or_many,
            max_messages=max_messages,
            since=since,
            until=until,
            body=body,
            decompress_limit=decompress_limit,
        )
    if source is not None:
        return _query_keys(settings, source, topic, asked)
    assert key is not None
    with (
        settings.open(every_queue=False) as store,
        settings.writer("index_item" if raw else "message", also=["matches"]) as writer,
    ):
        settings.note_index(store)
        summary = writer.rows(asked(store, topic, key))
        if not summary["items" if raw else "messages"]:
            settings.note_absent_topic(store, topic)
    settings.note_missing(summary)
    found = summary["items"] if raw else summary["messages"]
    if not found and not summary["index_files"]:
        settings.note(_no_index(topic))
    return int(settings.note_bodies(summary) or not found)


def _query_keys(
    settings: Settings, source: str, topic: str, asked: Callable[..., Iterator[Row | Lines]]
) -> int:
    """Of the keys of a file; ``asked`` is told the store, the keys, and the form of lines."""
    from rmqctl.cli.lines import LineSource

    with (
        closing(LineSource(source, "keys")) as lines,
        settings.open(every_queue=False) as store,
        settings.writer("message") as writer,
    ):
        settings.note_index(store)
        summary = writer.rows(asked(store, topic, _keys(lines, writer), form=writer.form))
        if not summary["messages"]:
            settings.note_absent_topic(store, topic)
    settings.note_missing(summary)
    if summary["absent_keys"] and not summary["index_files"]:
        settings.note(_no_index(topic))
    return int(settings.note_bodies(summary) or summary["absent_keys"] > 0)


def _no_index(topic: str) -> str:
    search = shell_line(["rmqctl", "walk", "commitlog", "--topic", topic])
    return (
        "note: the store has no index files: make them with `rmqctl rebuild index`, or search the "
        f"log with `{search}`."
    )


def _keys(lines: LineSource, writer: RowWriter) -> Iterator[str | None]:
    """The keys of some lines; empty lines are none. Who waits for more has the answers first."""
    from rmqctl.operations.change.putstream import LineTooLong

    try:
        for line in lines:
            if line is None:
                yield None
                writer.flush()
            elif key := os.fsdecode(line.removesuffix(b"\r")):
                yield key
    except LineTooLong as error:
        raise UsageError(reason=f"a line of {lines.name} is no key: {error}") from error


@make("info", examples=["rmqctl index info --store DIR", "rmqctl index info --format ndjson"])
@common
def info(settings: Settings) -> None:
    """List the index files: header and fill.

    Prints rows of type index_file, then a summary.
    """
    from rmqctl.operations.look.index import index_info

    with settings.open(every_queue=False) as store, settings.writer("index_file") as writer:
        settings.note_index(store)
        writer.rows(index_info(store))


command.add_command(query)
command.add_command(info)
