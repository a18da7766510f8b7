"""``rmqctl transaction ls|commit|rollback``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.command import WRITING_EXITS
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option
from rmqctl.cli.putstats import print_stats, refused, stats_option
from rmqctl.cli.sections import group
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import OFFSET, Name

if TYPE_CHECKING:
    from rmqctl.operations.change.transaction import Action
    from rmqctl.rows import Row

_EXITS = WRITING_EXITS | {
    1: "a half message was refused (its row has the status)",
    5: "the store takes no message (such as on a full disk), or is damaged",
}


@group(
    "transaction",
    examples=[
        "rmqctl transaction ls --store DIR",
        "rmqctl transaction commit --store DIR 126623 --dry-run",
    ],
)
def command() -> None:
    """Half messages: list the pending ones, commit or roll back."""


@make(
    "ls",
    examples=[
        "rmqctl transaction ls --store DIR",
        "rmqctl transaction ls --producer-group pg_orders --format ndjson",
        "rmqctl transaction ls --all",
    ],
    exits={1: "--producer-group was given and nothing matched"},
)
@click.option("--producer-group", metavar="GROUP", type=Name(), help="Only of this producer group.")
@click.option("--all", "everything", is_flag=True, help="Also list ended and checked ones.")
@common
def ls(settings: Settings, producer_group: str | None, everything: bool) -> int:
    """List half messages that nothing has ended yet.

    Prints rows of type half_message, then a summary. broker_does is what a broker does with it when
    it checks: wait (younger than transactionTimeOut), ask its producer, or discard it (asked
    transactionCheckMax times, or older than fileReservedTime). Half messages before the progress of
    that check are not pending: they were put back as later ones. final_offset is where the final
    message is already, of a commit that was cut off before its op message: only a commit ends that.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.look.halves import half_messages

    with settings.open() as store, settings.writer("half_message") as writer:
        settings.note_config(store)
        settings.note_queues(store)
        rows = half_messages(store, system_clock(), everything=everything, group=producer_group)
        summary = writer.rows(rows)
    shown = ("pending", "ended", "checked") if everything else ("pending",)
    return int(producer_group is not None and not any(summary[name] for name in shown))


def _ending(function: Callable[..., int]) -> Callable[..., int | None]:
    """What commit and rollback take."""
    decorators = (
        common,
        stats_option,
        dry_run_option,
        click.option(
            "--producer-group",
            metavar="GROUP",
            type=Name(),
            help="Refuse half messages of another group.",
        ),
        click.argument("offsets", metavar="OFFSET…", type=OFFSET, nargs=-1, required=True),
    )
    decorated: Callable[..., int | None] = function
    for decorate in decorators:
        decorated = decorate(decorated)
    return decorated


@make(
    "commit",
    examples=[
        "rmqctl transaction commit --store DIR 126623",
        "rmqctl transaction commit 126623 126920 --producer-group pg_orders --dry-run",
    ],
    exits=_EXITS,
)
@_ending
def commit(settings: Settings, **options: Any) -> int:
    """Commit half messages, by physical offset.

    Puts the message into its real topic and queue and an op message, as a broker does. Prints a row
    of type transaction for each, then a summary. For a commit that was interrupted between the two,
    only the op message is put.
    """
    return _end(settings, "commit", **options)


@make(
    "rollback",
    examples=[
        "rmqctl transaction rollback --store DIR 126623",
        "rmqctl transaction rollback 126623 126920 --producer-group pg_orders --dry-run",
    ],
    exits=_EXITS,
)
@_ending
def rollback(settings: Settings, **options: Any) -> int:
    """Roll half messages back, by physical offset.

    Puts an op message, as a broker does: the half stays in the log and is never delivered. Prints a
    row of type transaction for each, then a summary. Where an interrupted commit has put the final
    message, a rollback is refused: commit it.
    """
    return _end(settings, "rollback", **options)


def _end(
    settings: Settings,
    action: Action,
    offsets: tuple[int, ...],
    producer_group: str | None,
    dry_run: bool,
    stats: bool,
) -> int:
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.change.transaction import STORE_REFUSED, Ending, end_transactions

    ending = Ending(action, system_clock(), producer_group, dry_run)
    stopped: Row | None = None

    def rows() -> Iterator[Row]:
        nonlocal stopped
        for row in end_transactions(store, offsets, ending):
            if row.get("status") in STORE_REFUSED:
                stopped = row
            yield row

    with settings.open(writable=not dry_run) as store, settings.writer("transaction") as writer:
        if dry_run:
            settings.planned_recovery(store, writer, strict=True)
        summary = writer.rows(rows())
    if stats and not dry_run:
        print_stats(store)
    if stopped is not None:
        where = f"{stopped['physical_offset']}: "
        return refused(settings, where, stopped["status"], stopped["reason"])
    return int(bool(summary["refused"] or summary["not_tried"]))


command.add_command(ls)
command.add_command(commit)
command.add_command(rollback)
command.sections = {"Inspect (never writes)": ["ls"], "Write": ["commit", "rollback"]}
