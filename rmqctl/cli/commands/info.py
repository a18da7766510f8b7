"""``rmqctl info``."""

from __future__ import annotations

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common
from rmqctl.cli.settings import Settings


@make("info", examples=["rmqctl info --store DIR", "rmqctl info --json"])
@common
def command(settings: Settings) -> None:
    """Show the store at a glance: files, offsets, state.

    Prints one row of type store. It reads no log, so it takes no longer on a big store. It names
    what it does not understand (files of later versions).
    """
    from rmqctl.operations.look.info import info

    with settings.open() as store, settings.writer(vertical=True) as writer:
        writer.row(info(store))
