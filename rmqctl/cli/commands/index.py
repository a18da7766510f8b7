"""``rmqctl index query|info``."""

from __future__ import annotations

from collections.abc import Iterator
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
from rmqctl.cli.types import Whole

if TYPE_CHECKING:
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
        "rmqctl index query --topic orders --key order-42 --since -1d --body-as utf8 --json",
        "rmqctl index query --topic orders --key order-42 --body-as utf8 --decompress",
        "rmqctl index query --topic orders --key order-42 --raw",
    ],
    exits={1: "nothing matched, or a body shown is not what was stored"},
)
@topic_option(required=True)
@click.option("--key", metavar="KEY", required=True, help="One of KEYS, or the UNIQ_KEY.")
@click.option(
    "--limit",
    "max_messages",
    cls=Option,
    formerly=("--max",),
    metavar="N",
    type=Whole(1, INT_MAX),
    default=64,
    show_default=True,
    help="The newest N.",
)
@time_range
@click.option("--raw", is_flag=True, help="Show the index items of the key's hash.")
@body_option
@decompress_options
@common
def query(
    settings: Settings,
    topic: str,
    key: str,
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
    """
    from rmqctl.operations.look import index
    from rmqctl.operations.look.ranges import check_range

    check_range("--since", since, "--until", until)
    with (
        settings.open(every_queue=False) as store,
        settings.writer("index_item" if raw else "message") as writer,
    ):
        settings.note_index(store)
        rows: Iterator[Row]
        if raw:
            rows = index.query_items(
                store, topic, key, max_items=max_messages, since=since, until=until
            )
        else:
            rows = index.query(
                store,
                topic,
                key,
                max_messages=max_messages,
                since=since,
                until=until,
                body=body,
                decompress_limit=decompress_limit,
            )
        summary = writer.rows(rows)
    found = summary["items"] if raw else summary["messages"]
    if not found and not summary["index_files"]:
        settings.note(
            "note: the store has no index files: make them with `rmqctl rebuild index`, or search "
            f"the log with `rmqctl walk commitlog --topic {topic}`."
        )
    return int(settings.note_bodies(summary) or not found)


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
