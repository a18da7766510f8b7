"""``rmqctl group set-offset``."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from rmqctl.cli.command import EXIT_CODES, group
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, completed, dry_run_option, queue_id_option, topic_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import OFFSET, Name, Time


class TargetType(click.ParamType[Any]):
    """``begin``, ``end``, a queue offset, or a time: ``@`` and epoch milliseconds, or as
    :mod:`rmqctl.cli.times` reads one."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from rmqctl.operations.change.groupoffsets import Place, Target

        text = str(value).strip()
        if text in (Place.BEGIN.value, Place.END.value):
            return Target(Place(text))
        if re.fullmatch(r"[0-9]+", text):
            return Target(Place.OFFSET, OFFSET.convert(text, param, ctx))
        if text.startswith("@"):
            return Target(Place.TIME, Time().convert(text[1:], param, ctx))
        from rmqctl.cli.times import parse_time

        moment = parse_time(text, time.time_ns() // 1_000_000)
        if moment is None:
            self.fail(
                f"{text!r} is no place: give begin, end, a queue offset, or a time: ISO 8601 such "
                "as 2024-05-01T12:00:00+02:00, -2h, 14:30, yesterday, or @ and epoch milliseconds",
                param,
                ctx,
            )
        return Target(Place.TIME, moment)


@group(
    "group",
    examples=["rmqctl group set-offset cg_orders --topic orders --to end --dry-run"],
)
def command() -> None:
    """Change consumer groups. `rmqctl groups` shows them."""


@make(
    "set-offset",
    examples=[
        "rmqctl group set-offset cg_orders --store DIR --topic orders --to end",
        "rmqctl group set-offset cg_orders --topic orders --to -2h --dry-run",
        "rmqctl group set-offset cg_orders --topic orders --to begin --yes",
        "rmqctl group set-offset cg_orders --topic orders --queue-id 3 --to 1200 --yes",
    ],
    exits={code: EXIT_CODES[code] for code in (4, 6)},
)
@click.argument(
    "group_name", metavar="GROUP", type=Name(is_stored=True), shell_complete=completed("groups")
)
@topic_option(required=True)
@click.option(
    "--to",
    "target",
    metavar="PLACE",
    required=True,
    type=TargetType(),
    help="begin, end, a queue offset, or the time of the first message to read: ISO 8601, -2h, "
    "14:30, yesterday, or @ and milliseconds.",
)
@queue_id_option()
@click.option("--new", "is_new", is_flag=True, help="The group may have no offset there yet.")
@dry_run_option
@click.option("--yes", is_flag=True, help="Consent to the change.")
@common
def set_offset(
    settings: Settings, group_name: str, topic: str, dry_run: bool, yes: bool, **request: Any
) -> None:
    """Set the offset from which a consumer group continues.

    Needs a store without a running broker. Changes config/consumerOffset.json; its old content goes
    to the .bak copy, and the old offsets to config/rmqctl-offsets.ndjson as well. Prints rows of
    type offset_change, then a summary. Consumers that broadcast keep their offsets themselves.
    """
    from rmqctl.operations.change import groupoffsets

    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other.")
    what = groupoffsets.Request(group_name, topic, **request)
    root, config = settings.root, settings.config
    if not yes:
        plan = groupoffsets.plan_offsets(root, config, what)
        if not dry_run:
            with settings.open() as store:
                groupoffsets.ask_consent(plan, store)
    with settings.writer("offset_change") as writer:
        if dry_run:
            with settings.open() as store:
                if not settings.planned_order(store, writer, strict=True):
                    settings.note(f"note: {groupoffsets.NOT_FINAL}")
        elif yes:
            plan = groupoffsets.set_offsets(root, config, what)
            settings.note_recovery(plan.recovered)
        writer.rows(groupoffsets.rows(plan, dry_run=dry_run))


command.add_command(set_offset)
