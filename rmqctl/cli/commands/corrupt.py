"""``rmqctl corrupt``."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Whole

#: As :data:`rmqctl.operations.doctor.faults.KINDS` has them; a test compares.
KINDS = (
    *("bit-flip", "bad-magic", "wild-size", "hole", "torn-tail", "lost-file", "short-file"),
    *("stray-file", "queue-hole", "wild-unit", "lost-queue", "lost-queues", "lost-index"),
    *("lost-checkpoint", "future-checkpoint", "crash"),
)


@make(
    "corrupt",
    examples=[
        "rmqctl corrupt --store DIR --output /tmp/damaged",
        "rmqctl corrupt --kind bit-flip --kind crash --seed 7 --output /tmp/damaged",
        "rmqctl corrupt --store DIR --seed 9 --output /tmp/damaged --quiet",
    ],
    exits={4: "another rmqctl is writing --output", 6: "refused: --output holds something"},
)
@click.option(
    "--output",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The damaged copy: a new directory outside of the store.",
)
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    type=click.Choice(KINDS),
    help=f"{', '.join(KINDS)} (repeatable). By default the seed chooses.",
)
@click.option(
    "--seed",
    metavar="N",
    type=Whole(0, 1 << 32),
    default=1,
    help="Seed that chooses the places; 1 by default.",
)
@common
def command(settings: Settings, output: Path, kinds: tuple[str, ...], seed: int) -> None:
    """Damage a copy of a store on purpose, to rehearse on.

    The store is only read. Its copy appears when all is done, holes kept; the same kinds and seed
    hit the same places. Prints a row of type corrupted for each thing that was done, and where,
    then a summary; with -q it prints nothing, so that you find out with lint, verify and
    simulate-start.
    """
    from rmqctl.cli.outside import check_outside
    from rmqctl.operations.doctor.corrupt import corrupt, corrupted_row, summary_row

    check_outside("--output", output, [settings])
    with settings.writer("corrupted") as writer:
        total = sum(path.lstat().st_blocks * 512 for path in settings.root.rglob("*"))
        with settings.progress("copy", total, writer) as advance:
            done = corrupt(settings.root, settings.config, output, kinds, seed, advance)
        for kind, fault in done.faults:
            writer.row(corrupted_row(kind, fault))
        writer.summary(**summary_row(done))
