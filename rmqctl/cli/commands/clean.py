"""``rmqctl clean``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from formats.constants import INT_MAX
from rmqctl.cli.command import EXIT_CODES
from rmqctl.cli.command import command as make
from rmqctl.cli.options import Option, common, dry_run_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Time, Whole

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.operations.change.clean import CleanPlan

F = TypeVar("F", bound=Callable[..., Any])


class _Hours(click.ParamType[str]):
    """Hours of the day with ``;`` between, as ``deleteWhen`` has them. A broker takes others too,
    which never come."""

    name = "hours"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        hours = str(value).rstrip(";").split(";")
        if not all(re.fullmatch(r"[0-9]{1,2}", hour) and int(hour) < 24 for hour in hours):
            self.fail(f"{value!r} is no list of hours from 0 to 23 such as '04;16'", param, ctx)
        return str(value)


def instead_options(function: F) -> F:
    """What is to count in place of the ``broker.conf``, as one argument ``instead``: a function of
    the configuration."""

    @click.option(
        "--file-reserved-time",
        metavar="H",
        type=Whole(0, INT_MAX),
        help="Hours to keep files, instead of broker.conf's.",
    )
    @click.option(
        "--delete-when",
        metavar="HOURS",
        type=_Hours(),
        help="Delete at these hours, such as '04;16', instead of broker.conf's.",
    )
    @click.option(
        "--max-used-ratio",
        "disk_max_used_space_ratio",
        metavar="N",
        type=Whole(10, 95),
        help="As diskMaxUsedSpaceRatio: above N % expired files go at any hour.",
    )
    @click.option(
        "--no-clean-forcibly",
        is_flag=True,
        help="As cleanFileForciblyEnable=false: nothing goes before its time.",
    )
    @functools.wraps(function)
    def run(*args: Any, no_clean_forcibly: bool, **kw: Any) -> Any:
        names = ("file_reserved_time", "delete_when", "disk_max_used_space_ratio")
        given = {name: kw.pop(name) for name in names}
        given["clean_file_forcibly_enable"] = False if no_clean_forcibly else None
        changes = {name: value for name, value in given.items() if value is not None}

        def instead(config: MessageStoreConfig) -> MessageStoreConfig:
            return replace(config, **changes)

        return function(*args, instead=instead, **kw)

    return run  # type: ignore[return-value]


@make(
    "clean",
    examples=[
        "rmqctl clean --store DIR --dry-run",
        "rmqctl clean --broker-conf broker.conf --now 2024-05-01T04:00 --dry-run",
        "rmqctl clean --store DIR --disk-ratio 90 --dry-run --format ndjson",
        "rmqctl clean --file-reserved-time 24 --delete-when '0;12' --dry-run",
        "rmqctl clean --store DIR --manual --rounds 1 --yes",
    ],
    exits={code: EXIT_CODES[code] for code in (4, 6)},
)
@dry_run_option
@click.option("--yes", is_flag=True, help="Consent to deleting.")
@click.option(
    "--now",
    "at",
    cls=Option,
    formerly=("--at",),
    metavar="TIME",
    type=Time(),
    help="Take this as the current time.  [default: now]",
)
@click.option(
    "--disk-ratio",
    "percent",
    metavar="N",
    type=Whole(0, 100),
    help="Take the disks as N % full.",
)
@click.option("--manual", is_flag=True, help="Delete expired files at any hour.")
@click.option("--rounds", metavar="N", type=Whole(1, 1 << 20), help="At most N rounds of 10 files.")
@instead_options
@common
def command(
    settings: Settings,
    dry_run: bool,
    yes: bool,
    instead: Callable[[MessageStoreConfig], MessageStoreConfig],
    **rule: Any,
) -> None:
    """Delete what a broker's retention would delete.

    Log files that were not modified for fileReservedTime go at the hours of deleteWhen, or when a
    disk is fuller than diskMaxUsedSpaceRatio; above 85 % all but the last go, until there is room.
    Queues and index follow. Prints rows of type file in the order of deletion, rows of type
    progress (how far each group has read, and what it would lose), then a summary.
    """
    from rmqctl.engine.files.lock import is_locked
    from rmqctl.engine.settings.filesizes import unproven_log_file
    from rmqctl.operations.change import clean

    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other.")
    what, root, config = clean.Rule(**rule), settings.root, instead(settings.config)
    if not yes:
        plan = clean.plan_clean(root, config, what)
        if not dry_run:
            settings.note_irregular(plan.irregular)  # A dry run opens the store, which says it.
            clean.ask_consent(plan)
    has_files = yes or bool(plan.retention.removals)
    with settings.writer("file" if has_files else "progress") as writer:
        if yes:
            plan = clean.clean(
                settings.root,
                config,
                what,
                lambda removal: writer.row(clean.file_row(settings.root, removal)),
            )
            settings.note_recovery(plan.recovered)
        else:
            with settings.open() as store:
                # A log with files of a wrong length is not brought in order. What would go is told
                # all the same, also beside queues that a deletion would be refused for.
                irregular = store.commit_log.files.irregular
                has_order = not irregular and unproven_log_file(root, store.config) is None
                # Beside a broker no start is to come.
                if has_order and not is_locked(root):
                    settings.planned_order(store, writer, strict=False)
            for removal in plan.retention.removals:
                writer.row(clean.file_row(settings.root, removal))
        tables = settings.format == "table" and bool(plan.retention.removals)
        if not tables:
            _finish(writer, plan, dry_run=not yes)
    if tables:
        # Files and readers have columns of their own.
        with settings.writer("progress") as writer:
            writer.remark("")
            _finish(writer, plan, dry_run=not yes)


def _finish(writer: RowWriter, plan: CleanPlan, *, dry_run: bool) -> None:
    from rmqctl.operations.change import clean

    for row in clean.progress_rows(plan):
        writer.row(row)
    writer.summary(**clean.summary_row(plan, dry_run=dry_run))
