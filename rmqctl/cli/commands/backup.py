"""``rmqctl backup create|verify|ls``."""

from __future__ import annotations

import click

from rmqctl.cli.command import Group, command_first, group
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option, without_store
from rmqctl.cli.settings import Settings


class _BackupGroup(Group):
    """``backup --output PLACE`` is short for ``backup create --output PLACE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = command_first(args)
        if rest and rest[0].startswith("-") and rest[0] not in ("-h", "--help"):
            args = ["create", *args]
        return super().parse_args(ctx, args)


@group(
    "backup",
    cls=_BackupGroup,
    examples=[
        "rmqctl backup --store DIR --output /backup/monday.tar.zst",
        "rmqctl backup verify /backup/monday.tar.zst",
        "rmqctl backup ls /backup/*.tar.zst",
    ],
)
def command() -> None:
    """Make backups of a store, verify and list them.

    `backup --output PLACE` is short for `backup create --output PLACE`; `rmqctl restore` makes a
    store of them.
    """


@make(
    "create",
    examples=[
        "rmqctl backup create --store DIR --output /backup/monday.tar.zst",
        "rmqctl backup create --store DIR --base mon.tar.zst --output tue.tar.zst",
        "rmqctl backup create --store DIR --output /backup/monday",
        "rmqctl backup create --store DIR --output s3://bucket/monday.tar.zst",
    ],
    exits={
        3: "no such store, not a store, or no such backup",
        4: "another rmqctl is writing --output",
        6: "refused: --output is there already",
    },
)
@click.option(
    "--output",
    metavar="PLACE",
    required=True,
    type=click.Path(),
    help="A new directory, a new FILE.tar.zst, or a URL of one.",
)
@click.option(
    "--base",
    metavar="BACKUP",
    type=click.Path(),
    help="Copy only what has changed since this backup (or its manifest).",
)
@dry_run_option
@common
def create(settings: Settings, output: str, base: str | None, dry_run: bool) -> None:
    """Copy a store, with a hash of each file.

    The store is only read, and a broker may run on it: log, queues and index are then copied up to
    one place in the log, which the summary names, and consumers' offsets from before it. Without
    one, all files are copied as they are. Holes stay holes.

    A directory has the store's files in `store/`, and any tar unpacks a .tar.zst. A backup with
    --base needs that one, and what it was made on, to be restored. Prints a row of type part for
    each directory of the store, then a summary.
    """
    from rmqctl.cli.outside import check_outside
    from rmqctl.operations.backup.check import create_summary, part_rows
    from rmqctl.operations.backup.create import Wanted, shown
    from rmqctl.operations.backup.create import create as create_backup
    from rmqctl.operations.backup.manifest import is_amid_repair

    check_outside("--output", output, [settings])
    wanted = Wanted(settings.root, settings.config, output, base)
    with settings.writer("part") as writer:
        with settings.quiet_progress("backup") as advance:
            created = create_backup(wanted, advance, dry_run=dry_run)
        writer.rows(part_rows(created.manifest))
        writer.summary(**create_summary(created, shown(output), dry_run=dry_run))
    if created.is_unlike_base:
        settings.note(
            "note: no file of this store begins as --base has it, which may be a backup of another "
            "store: a full backup would hold no more."
        )
    if created.cut:
        settings.note(
            f"note: the log has lost the end of a file, or may have: {created.cut_text}. The "
            "backup has it as it is, so keep earlier ones. `rmqctl verify` says what to do."
        )
    if is_amid_repair(created.manifest):
        settings.note(
            "note: a repair of this store was interrupted, so in the backup some of the store is "
            "old, some new. A store restored from it needs a repair --resume or --undo first."
        )
    if created.left_out:
        settings.note(
            f"note: what is no plain file of the store was left out: {created.left_out_text}."
        )


@make(
    "verify",
    examples=[
        "rmqctl backup verify /backup/monday.tar.zst",
        "rmqctl backup verify /backup/*.tar.zst --quiet",
    ],
    exits={1: "something in a backup is not as it was written", 3: "no such backup"},
)
@click.argument("backups", metavar="BACKUP…", nargs=-1, required=True, type=click.Path())
@without_store
def verify(settings: Settings, backups: tuple[str, ...]) -> int:
    """Read backups through, and compare hashes.

    Each backup is read by itself; the summary says whether together they make a store. Prints rows
    of type backup_problem, then a summary. Whether the store itself is sound, `rmqctl verify` says
    after a restore.
    """
    from rmqctl.operations.backup.check import Verification

    verification = Verification(backups)
    with settings.writer("backup_problem") as writer:
        with settings.progress("backup verify", verification.bytes_to_do, writer) as advance:
            writer.rows(verification.rows(advance))
        summary = verification.summary()
        if verification.is_sound:
            writer.remark(f"OK: {summary['files']} files are what was backed up")
        writer.summary(**summary)
    return int(not verification.is_sound)


@make("ls", examples=["rmqctl backup ls /backup/*.tar.zst"], exits={3: "no such backup"})
@click.argument("backups", metavar="BACKUP…", nargs=-1, required=True, type=click.Path())
@without_store
def ls(settings: Settings, backups: tuple[str, ...]) -> None:
    """List backups by their manifests.

    Shows when each was made, of what, and on which other backup it builds. Nothing else of them is
    read. Prints a row of type backup for each, the oldest first, then a summary.
    """
    from rmqctl.operations.backup.check import listed

    rows = listed(backups)
    with settings.writer("backup") as writer:
        writer.rows(rows)


for one in (create, verify, ls):
    command.add_command(one)
