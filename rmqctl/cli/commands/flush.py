"""``rmqctl flush``."""

from __future__ import annotations

from rmqctl.cli.options import WRITING_EXITS, Settings, common
from rmqctl.cli.options import command as make


@make("flush", examples=["rmqctl flush --store DIR"], exits=WRITING_EXITS)
@common
def command(settings: Settings) -> None:
    """Force the data to disk and advance the checkpoint.

    Units and index items that a killed writer left undone are written first. Prints one row of
    type checkpoint.
    """
    from rmqctl.operations.flush import flush

    with settings.open(writable=True) as store, settings.writer(vertical=True) as writer:
        writer.row(flush(store))
