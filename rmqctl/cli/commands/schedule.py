"""``rmqctl schedule ls|deliver``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from formats.constants import INT_MAX
from rmqctl.cli.command import WRITING_EXITS
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option
from rmqctl.cli.putstats import print_stats, refused, stats_option
from rmqctl.cli.sections import group
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Time, Whole
from rmqctl.rows.words import some_are

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows import Row


@group(
    "schedule",
    examples=[
        "rmqctl schedule ls --store DIR --broker-conf broker.conf",
        "rmqctl schedule deliver --store DIR --broker-conf broker.conf --dry-run",
    ],
)
def command() -> None:
    """Delayed messages: list what waits, deliver what is due."""


@make(
    "ls",
    examples=[
        "rmqctl schedule ls --store DIR --broker-conf broker.conf",
        "rmqctl schedule ls --format ndjson | jq 'select(.due > 0)'",
    ],
)
@common
def ls(settings: Settings) -> None:
    """List the delay levels: what waits, and until when.

    Prints rows of type delay_level, then a summary. progress is what config/delayOffset.json says,
    next_offset is where a broker continues, due is how many messages it would deliver at once.
    Reads queue units only, so millions of messages take no longer than the size of their queues.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.change.schedule import delay_levels

    with settings.open() as store, settings.writer("delay_level") as writer:
        settings.note_queues(store)
        rows: list[Row] = list(delay_levels(store, system_clock()))
        writer.rows(rows)
    for row in rows[:-1]:
        _note_oddities(settings, row)


def _note_oddities(settings: Settings, row: Row) -> None:
    level, progress = row["level"], row["progress"]
    if row["delay_milliseconds"] is None and row["pending"]:
        settings.note(
            f"note: level {level} is none of the configuration's: give the broker's broker.conf "
            "with --broker-conf."
        )
    if row["next_offset"] is not None and progress not in (None, row["next_offset"]):
        settings.note(
            f"note: level {level}: its progress {progress} lies outside the queue "
            f"({row['min_offset']} to {row['max_offset']}); a broker goes on at "
            f"{row['next_offset']}."
        )


class _SkipType(click.ParamType["tuple[int, int, int]"]):
    name = "messages"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        match = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,18})(?:-([0-9]{1,18}))?", str(value))
        if match is None:
            self.fail(f"{value!r} is not LEVEL:N or LEVEL:N-M, such as 3:1042", param, ctx)
        first, last = int(match[2]), int(match[3] or match[2])
        if last < first:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return int(match[1]), first, last


@make(
    "deliver",
    examples=[
        "rmqctl schedule deliver --store DIR --broker-conf broker.conf --dry-run",
        "rmqctl schedule deliver --store DIR --broker-conf broker.conf",
        "rmqctl schedule deliver --until 2024-05-01T12:00 --level 3 --json",
        "rmqctl schedule deliver --skip-delivered --skip 3:1042",
    ],
    exits=WRITING_EXITS
    | {
        1: "messages were passed over, delivered twice, or stop their level",
        5: "the store takes no message (such as on a full disk), or is damaged",
    },
)
@click.option("--until", metavar="TIME", type=Time(), help="Due at this time.  [default: now]")
@click.option("--level", "levels", metavar="N", type=Whole(1, INT_MAX), multiple=True,
              help="Only this level; repeatable.")  # fmt: skip
@click.option(
    "--skip-delivered",
    is_flag=True,
    help="Skip messages that are in their queue already.",
)
@click.option(
    "--skip",
    metavar="LEVEL:N[-M]",
    type=_SkipType(),
    multiple=True,
    help="Skip messages for good, by queue offset; repeatable.",
)
@dry_run_option
@stats_option
@common
def deliver(
    settings: Settings,
    until: int | None,
    levels: tuple[int, ...],
    skip_delivered: bool,
    skip: tuple[tuple[int, int, int], ...],
    dry_run: bool,
    stats: bool,
) -> int:
    """Put messages that are due into their real queues.

    Prints a row of type delivery for each level, a row undelivered for each message that was
    skipped or stops a level, then a summary. Progress is kept in config/delayOffset.json after each
    bulk. Messages with a copy in the queue already (after a killed run, or a broker of 4.9.3, which
    records less than it delivers) are delivered once more and counted as delivered_before;
    --skip-delivered skips them.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.engine.services.schedule import load_delay_offsets
    from rmqctl.operations.change.schedule import Delivery, Skip

    _check_levels(settings, {*levels, *(one[0] for one in skip)})
    # A broken file of config/ is told of before opening for writing changes the checkpoint.
    load_delay_offsets(settings.root)
    now = system_clock()
    delivery = Delivery(
        now if until is None else until,
        now,
        frozenset(levels),
        tuple(Skip(*one) for one in skip),
        skip_delivered,
        dry_run,
    )
    with settings.open(writable=not dry_run) as store:
        status = _run(settings, store, delivery)
    if stats and not dry_run:
        print_stats(store)
    return status


def _check_levels(settings: Settings, levels: set[int]) -> None:
    """:raises click.UsageError: a level is none of the configuration, nor has the store messages of
    it, which are told as undelivered."""
    known = len(settings.config.delay_levels())
    if all(0 < level <= known for level in levels):
        return
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.operations.change.schedule import scheduled_levels

    with MessageStore(settings.root, settings.config) as store:
        levels -= {*range(1, known + 1), *scheduled_levels(store)}
    if levels:
        raise click.UsageError(
            f"there is no delay level {min(levels)}: messageDelayLevel has 1 to {known}. Give the "
            "broker's broker.conf with --broker-conf where it has others."
        )


def _run(settings: Settings, store: MessageStore, delivery: Any) -> int:
    from rmqctl.operations.change.schedule import DeliveryRun

    run = DeliveryRun(store, delivery)
    with (
        settings.writer("delivery") as writer,
        settings.progress("deliver", run.due, writer, counts=True) as advance,
    ):
        run.advance = advance
        if delivery.dry_run:
            settings.planned_recovery(store, writer, strict=True)
        try:
            summary = writer.rows(run.rows())
        except KeyboardInterrupt:
            settings.note(
                "interrupted: what is delivered is stored; at most the last bulk is not recorded. "
                "The next run counts its copies as delivered_before."
            )
            raise
    before = summary["delivered_before"]
    if before and not delivery.skip_delivered:
        settings.note(
            f"note: {some_are(before, 'message')} in the queue already, and "
            + ("would be" if delivery.dry_run else "now")
            + " delivered once more. --skip-delivered passes over such messages."
        )
    if run.refused is not None:
        return refused(settings, "", run.refused.status.value, run.refused.reason)
    repeated = before and not delivery.skip_delivered
    return int(bool(summary["passed_over"] or summary["stopped_levels"] or repeated))


command.add_command(ls)
command.add_command(deliver)
command.sections = {"Inspect (never writes)": ["ls"], "Write": ["deliver"]}
