"""``rmqctl message``."""

from __future__ import annotations

import click

from rmqctl.cli.options import Settings, body_option, common
from rmqctl.cli.options import command as make


@make(
    "message",
    examples=[
        "rmqctl message 7F00000100002A9F00000000000003E8 --store DIR",
        "rmqctl message 1000 --body utf8 --json",
    ],
    exits={5: "there is no message at that place, or it cannot be read"},
)
@click.argument("place", metavar="ID|OFFSET")
@body_option
@common
def command(settings: Settings, place: str, body: str) -> None:
    """Show one message by its message id or physical offset.

    The id's offset is what counts: the broker's address in it may be long gone. Prints one row of
    type message.
    """
    from rmqctl.operations.message import look_message, parse_place

    parse_place(place)
    with settings.open() as store, settings.writer(vertical=True) as writer:
        writer.row(look_message(store, place, body))
