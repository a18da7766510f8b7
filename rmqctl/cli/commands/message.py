"""``rmqctl message``."""

from __future__ import annotations

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import body_option, common, decompress_options, topic_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Name


@make(
    "message",
    examples=[
        "rmqctl message 7F00000100002A9F00000000000003E8 --store DIR",
        "rmqctl message 1000 --body-as utf8 --json",
        "rmqctl message 1000 1234 7F00000100002A9F00000000000003E8 --format ndjson",
        "rmqctl message --unique-key 7F0000010001 --topic orders --body-as utf8",
    ],
    exits={
        1: "no message has the unique key, one of several places has no message, or a body shown "
        "is not what was stored",
        5: "there is no message at the one place, or it cannot be read",
    },
)
@click.argument("places", metavar="[ID|OFFSET]…", nargs=-1)
@click.option("--unique-key", metavar="KEY", type=Name(), help="Look for a UNIQ_KEY in the index.")
@topic_option()
@decompress_options
@body_option
@common
def command(
    settings: Settings,
    places: tuple[str, ...],
    unique_key: str | None,
    topic: str | None,
    body: str,
    decompress_limit: int | None,
) -> int:
    """Show messages by id, physical offset or unique key.

    A place is a message id or a physical offset. Only the offset in the id counts: the broker's
    address in it may be long gone. Prints one row of type message. Of several places it prints one
    for each, or a row of type absent, and a summary; with --unique-key one for each time the
    message was stored, newest first, and a summary.
    """
    from rmqctl.engine.record.status import OK
    from rmqctl.operations.look.message import (
        look_message,
        look_messages,
        messages_by_unique_key,
        parse_physical_offset,
    )
    from rmqctl.operations.look.rows import BODY_CRC_MISMATCHES

    if bool(places) is (unique_key is not None):
        raise click.UsageError("Give message ids, physical offsets, or --unique-key.")
    if places:
        if topic is not None:
            raise click.UsageError("--topic goes with --unique-key.")
        for place in places:
            parse_physical_offset(place)
    if len(places) > 1:
        with settings.open(every_queue=False) as store, settings.writer("message") as writer:
            summary = writer.rows(look_messages(store, places, body, decompress_limit))
        return int(settings.note_bodies(summary) or summary["absent"] > 0)
    if places:
        with settings.open(every_queue=False) as store, settings.writer(vertical=True) as writer:
            row = look_message(store, places[0], body, decompress_limit)
            writer.row(row)
        mismatches = int(row.get("status", OK) != OK)
        return int(settings.note_bodies({BODY_CRC_MISMATCHES: mismatches}))
    assert unique_key is not None
    with settings.open(every_queue=False) as store, settings.writer("message") as writer:
        settings.note_index(store)
        summary = writer.rows(
            messages_by_unique_key(store, unique_key, topic, body, decompress_limit)
        )
    return int(settings.note_bodies(summary) or not summary["messages"])
