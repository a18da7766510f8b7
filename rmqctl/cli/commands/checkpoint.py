"""``rmqctl checkpoint show|compute|set``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.cli.command import EXIT_CODES, group
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Time

if TYPE_CHECKING:
    from rmqctl.operations.doctor.checkpoint import Judged

_UNSOUND = "there is no checkpoint, or it says too much"


@group(
    "checkpoint",
    examples=[
        "rmqctl checkpoint show --store DIR",
        "rmqctl checkpoint compute --store DIR",
        "rmqctl checkpoint set --store DIR --computed --dry-run",
    ],
)
def command() -> None:
    """Show or set where a start after a crash begins to read."""


@make(
    "show",
    examples=["rmqctl checkpoint show --store DIR", "rmqctl checkpoint show --json"],
    exits={1: _UNSOUND},
)
@common
def show(settings: Settings) -> int:
    """Show the checkpoint, and what a start after a crash would read.

    Prints a row of type checkpoint_time for each time, then a summary: from which file the log
    would be read, and about how long that takes. Nothing is walked, and nothing is changed.
    """
    from rmqctl.operations.doctor import checkpoint

    return _print(settings, checkpoint.show(settings.root, settings.config))


@make(
    "compute",
    examples=["rmqctl checkpoint compute --store DIR --broker-conf broker.conf"],
    exits={1: _UNSOUND},
)
@common
def compute(settings: Settings) -> int:
    """Compute the latest checkpoint that the data proves right.

    Reads the whole store, as verify does. The log's time is that of its newest record. Those of
    queues and index end before the first record with a finding, which the row names. The summary
    says what a start after a crash would read with these times. Nothing is changed.
    """
    return _print(settings, _computed(settings))


@make(
    "set",
    examples=[
        "rmqctl checkpoint set --store DIR --computed --dry-run",
        "rmqctl checkpoint set --store DIR --computed --yes",
        "rmqctl checkpoint set --store DIR --logics '2024-05-01T12:00' --yes",
    ],
    exits={code: EXIT_CODES[code] for code in (4, 6)},
)
@dry_run_option
@click.option("--yes", is_flag=True, help="Consent to the change.")
@click.option("--computed", is_flag=True, help="Set what `checkpoint compute` says.")
@click.option(
    "--physic", metavar="TIME", type=Time(), help="Store time up to which the log is on disk."
)
@click.option(
    "--logics", metavar="TIME", type=Time(), help="Store time up to which the queues are on disk."
)
@click.option(
    "--index", metavar="TIME", type=Time(), help="Store time up to which the index is on disk."
)
@common
def set_(settings: Settings, dry_run: bool, yes: bool, computed: bool, **times: int | None) -> None:
    """Set the checkpoint, under the store's lock.

    A time later than the newest record is refused; 0 makes a start after a crash read the whole
    log. Times that are not given stay as they are. Prints a row of type checkpoint_time for each
    time, then a summary of what a start after a crash would then read.
    """
    from rmqctl.operations.doctor import checkpoint

    given = {f"{name}_msg_timestamp": time for name, time in times.items()}
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other.")
    if computed == any(time is not None for time in given.values()):
        raise click.UsageError("give --computed, or one of --physic, --logics and --index.")
    judged = (
        _computed(settings)
        if computed
        else checkpoint.plan_set(checkpoint.show(settings.root, settings.config), given)
    )
    if not yes and not dry_run:
        checkpoint.ask_consent(judged)
    assert judged.new is not None
    if dry_run:
        done = checkpoint.planned(settings.root, settings.config, judged.new)
    else:
        done = checkpoint.store_checkpoint(settings.root, settings.config, judged.new)
    _print(settings, done._replace(proofs=judged.proofs), dry_run=dry_run)


command.add_command(show)
command.add_command(compute)
command.add_command(set_)


def _computed(settings: Settings) -> Judged:
    from rmqctl.operations.doctor import checkpoint

    total = settings.log_bytes()
    with settings.quiet_progress("checkpoint") as progress:
        read = 0

        def advance(size: int) -> None:
            nonlocal read
            read += size
            progress(read, total)

        return checkpoint.compute(settings.root, settings.config, advance)


def _print(settings: Settings, judged: Judged, *, dry_run: bool | None = None) -> int:
    from rmqctl.operations.doctor import checkpoint

    with settings.writer("checkpoint_time") as writer:
        if judged.new is None or judged.proofs:
            writer.remark(checkpoint.verdict(judged))
        writer.rows(checkpoint.rows(judged))
        writer.summary(**checkpoint.summary_row(judged, dry_run=dry_run))
    return int(not judged.is_sound)
