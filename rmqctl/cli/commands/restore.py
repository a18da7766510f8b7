"""``rmqctl restore``."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import dry_run_option, without_store
from rmqctl.cli.settings import Settings


@make(
    "restore",
    examples=[
        "rmqctl restore /backup/monday.tar.zst --output /data/rocketmq/store",
        "rmqctl restore /backup/monday.tar.zst /backup/tue.tar.zst --output DIR",
        "rmqctl restore s3://bucket/monday.tar.zst --output DIR --dry-run",
    ],
    exits={
        3: "no such backup",
        4: "another rmqctl is writing --output",
        6: "refused: --output holds something",
    },
)
@click.argument("backups", metavar="BACKUP…", nargs=-1, required=True, type=click.Path())
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    required=True,
    help="The store: a directory that is not there yet, or empty.",
)
@dry_run_option
@without_store
def command(settings: Settings, backups: tuple[str, ...], output: Path, dry_run: bool) -> None:
    """Make a store from backups.

    Name the backups in any order, with the full one among them; the newest says what the store is.
    The store appears when every file has been written, read again, and found equal to what was
    backed up. Files get their old permissions and times. They belong to the user who restores them;
    root gives them to the owner of the directory around the store.

    Prints rows of type backup, in the order in which they are put together, then a summary.
    """
    from rmqctl.cli.advice import line_for
    from rmqctl.cli.outside import check_outside
    from rmqctl.operations.backup.check import backup_row
    from rmqctl.operations.backup.manifest import is_amid_repair
    from rmqctl.operations.backup.restore import plan_restore, restore, summary_row

    check_outside("--output", output, [])
    plan = plan_restore(backups, output)
    with settings.writer("backup") as writer:
        writer.rows(backup_row(backup) for backup in plan.chain.backups)
        if not dry_run:
            with settings.progress("restore", plan.bytes_to_do, writer) as advance:
                restore(plan, advance)
            writer.remark("OK: every file was read again and is what was backed up")
        writer.summary(**summary_row(plan, dry_run=dry_run))
    if is_amid_repair(plan.chain.manifest):
        ways = ("--resume", "--undo")
        resume, undo = (line_for(("repair", way), str(output), None) for way in ways)
        settings.note(
            "note: when the store was copied a repair had been interrupted: some of the store is "
            f"old, some new. Before anything else complete it with `{resume}`, or "
            f"take it back with `{undo}`. A broker would start on it all the same."
        )
