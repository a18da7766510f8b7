"""``rmqctl flush``."""

from __future__ import annotations

import click

from rmqctl.cli.options import WRITING_EXITS, Settings, common
from rmqctl.cli.options import command as make


@make(
    "flush",
    examples=["rmqctl flush --store DIR", "rmqctl flush --structure commitlog"],
    exits=WRITING_EXITS,
)
@click.option(
    "--structure",
    metavar="NAME",
    type=click.Choice(("commitlog", "queues", "index", "all")),
    default="all",
    show_default=True,
    help="commitlog, queues, index or all.",
)
@common
def command(settings: Settings, structure: str) -> None:
    """Force the data to disk and advance the checkpoint.

    Units and index items that a killed writer left undone are written first. Prints a row of type
    flush for each structure, with the physical offsets between which the log, or what is derived
    from it, may not have been on disk, and a row of type checkpoint.
    """
    from rmqctl.operations.flush import flush

    with settings.open(writable=True) as store, settings.writer("flush") as writer:
        writer.rows(flush(store, structure))
