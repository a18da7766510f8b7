"""``rmqctl flush``."""

from __future__ import annotations

import click

from rmqctl.cli.command import WRITING_EXITS
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option
from rmqctl.cli.settings import Settings


@make(
    "flush",
    examples=[
        "rmqctl flush --store DIR",
        "rmqctl flush --store DIR --dry-run",
        "rmqctl flush --structure commitlog",
    ],
    exits=WRITING_EXITS,
)
@click.option(
    "--structure",
    metavar="NAME",
    type=click.Choice(("commitlog", "queues", "index", "all")),
    default="all",
    show_default=True,
    help="What to flush: commitlog, queues, index or all.",
)
@dry_run_option
@common
def command(settings: Settings, structure: str, dry_run: bool) -> None:
    """Force the data to disk and advance the checkpoint.

    First writes the units and index items that a killed writer did not write. Prints a row of type
    flush for each structure, with the physical offsets between which the log, or what is derived
    from it, may not have been on disk, and a row of type checkpoint. With --dry-run only a row of
    type recovery, when there is something to bring in order.
    """
    from rmqctl.operations.change.flush import flush

    if dry_run:
        with settings.open() as store, settings.writer("recovery") as writer:
            if not settings.planned_recovery(store, writer, strict=True).is_needed:
                settings.note("note: nothing has to be brought in order before the flush")
        return
    with settings.open(writable=True) as store, settings.writer("flush") as writer:
        writer.rows(flush(store, structure))
