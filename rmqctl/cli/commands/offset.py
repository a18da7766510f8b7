"""``rmqctl offset``."""

from __future__ import annotations

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, queue_id_option, topic_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Time

_BOUNDARIES = ("nearest", "first", "last", "floor", "ceil")


@make(
    "offset",
    examples=[
        "rmqctl offset --topic orders --queue-id 0 --time -2h --boundary ceil",
        "rmqctl offset --topic orders --queue-id 0 --time 2024-05-01T12:00 --json",
    ],
    exits={1: "no message answers the time"},
)
@topic_option(required=True)
@queue_id_option(required=True)
@click.option(
    "--time",
    "timestamp",
    metavar="TIME",
    type=Time(),
    required=True,
    help="ms, ISO 8601, -2h, 14:30, yesterday or now.",
)
@click.option(
    "--boundary",
    metavar="WHICH",
    type=click.Choice(_BOUNDARIES),
    default=_BOUNDARIES[0],
    show_default=True,
    help="first or last (stored exactly then), floor (the last until then), ceil (the first from "
    "then on), or nearest.",
)
@click.option(
    "--scan",
    is_flag=True,
    help="Read every message; also correct if the broker's clock was set back.",
)
@common
def command(
    settings: Settings, topic: str, queue_id: int, timestamp: int, boundary: str, scan: bool
) -> int:
    """Find the queue offset of a time.

    Goes by the messages' store times, not by the times of files. Prints one row of type offset,
    with null for queue_offset when no message matches.
    """
    from rmqctl.operations.look.offset import offset_by_time

    with settings.open(every_queue=False) as store, settings.writer(vertical=True) as writer:
        settings.note_absent_queue(store, topic, queue_id)
        settings.note_compacted(store, topic)
        row = offset_by_time(store, topic, queue_id, timestamp, boundary, every=scan)
        writer.row(row)
    return int(row["queue_offset"] is None)
