"""``rmqctl salvage``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option, jobs_of, jobs_option
from rmqctl.cli.outside import check_outside
from rmqctl.cli.settings import Settings

if TYPE_CHECKING:
    from rmqctl.operations.mend.salvage import SalvagePlan


@make(
    "salvage",
    examples=[
        "rmqctl salvage --store DIR --output /data/salvaged --dry-run",
        "rmqctl salvage --store DIR --output /data/salvaged",
        "rmqctl salvage --store DIR --output /data/salvaged --from /mnt/slave/store",
        "rmqctl salvage --broker-conf broker.conf --output NEW --placeholders",
    ],
    exits={
        1: "done, but messages are lost, or may be",
        4: "another rmqctl is writing --output",
        6: "refused: --output holds something",
    },
)
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    required=True,
    help="The new store: a directory that is not there yet.",
)
@click.option(
    "--from",
    "other",
    metavar="STORE",
    type=click.Path(path_type=Path),
    help="Fill gaps from this copy (a slave, a backup) where both agree around them.",
)
@click.option(
    "--placeholders",
    is_flag=True,
    help="Put a marked message in the place of each lost one.",
)
@dry_run_option
@jobs_option
@common
def command(
    settings: Settings,
    output: Path,
    other: Path | None,
    placeholders: bool,
    dry_run: bool,
    jobs: int | None,
) -> int:
    """Write a new store with every message that can be read.

    Messages keep their physical and queue offsets, so consumers keep their progress. What cannot be
    read is replaced by a filler of the same length, which no consumer gets, and a broker starts on
    the result without losing anything more. A damaged header of a record is corrected where the
    queue unit and the body prove what it was. The store is only read.

    Prints rows of type gap, restored and lost, then a summary. A lost message leaves its number in
    the queue empty; --placeholders fills it with a message of zeros that has the property
    RMQCTL=lost, for places where a broker would skip messages after it (passed_over in the
    summary). An interrupted run continues when it is run again.
    """
    from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
    from rmqctl.operations.mend.salvagerows import Report

    others = [] if other is None else [replace(settings, root=other, broker_conf=None)]
    check_outside("--output", output, [settings, *others])
    settings.note_in_use(settings.root, "what it stores from now on is not in the new store.")
    threads = jobs_of({"jobs": jobs, "master": None})
    wanted = Salvage(settings.root, settings.config, output, other, placeholders, threads)
    with settings.writer("lost") as writer:
        total = settings.log_bytes()
        with settings.progress("salvage: read", total, writer) as advance:
            plan = plan_salvage(wanted, advance)
        try:
            report = Report(plan)
            for row in report.planned():
                writer.row(row)
            done = None
            if not dry_run:
                with (
                    _told_if_cut_off(settings, output),
                    settings.progress("salvage: write", total, writer) as advance,
                ):
                    done = write_salvage(plan, advance)
                for row in report.numbering():
                    writer.row(row)
            summary = report.summary(done)
            writer.summary(**summary)
        finally:
            plan.close()
    _note(settings, plan, 0 if placeholders else summary["passed_over"])
    return int(not report.is_complete)


@contextmanager
def _told_if_cut_off(settings: Settings, output: Path) -> Iterator[None]:
    """A context in which a Ctrl-C tells what is left beside ``output``."""
    try:
        yield
    except KeyboardInterrupt:
        from rmqctl.engine.files.unfinished import BESIDE

        building = output.absolute().with_name(output.absolute().name + BESIDE)
        if building.is_dir():
            settings.note(
                f"note: interrupted: what is written stays in {building}, and the same command "
                "continues it."
            )
        raise


def _note(settings: Settings, plan: SalvagePlan, passed_over: object) -> None:
    """Notes what the user can do for more of the messages."""
    for place, path in sorted(plan.misnamed.items()):
        settings.note(
            f"note: {path} is the file {place:020d} of the log, as its first records say, and "
            "counts as lost here: give it that name, then nothing in it is."
        )
    if passed_over:
        settings.note(
            f"note: consumers that come by an empty number may pass over up to "
            f"{passed_over} sound messages behind it in the log's first file: "
            "--placeholders keeps them."
        )
