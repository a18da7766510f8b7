"""``rmqctl simulate-start``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, report_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Time

if TYPE_CHECKING:
    from pathlib import Path


#: Of more queues a table shows only those that lose something.
_QUEUES_OF_A_TABLE = 100


@make(
    "simulate-start",
    examples=[
        "rmqctl simulate-start --store DIR",
        "rmqctl simulate-start --store DIR --broker-conf broker.conf --as 5.3.3",
        "rmqctl simulate-start --store DIR --now '04:30' --format ndjson",
        "rmqctl simulate-start --store DIR -q && echo harmless",
        "rmqctl simulate-start --store DIR --report start.html",
    ],
    exits={1: "the broker would not start, or messages would be lost"},
)
@click.option(
    "--as",
    "version",
    metavar="VERSION",
    type=click.Choice(("4.9.3", "5.3.3")),
    help="Start as RocketMQ 4.9.3 or 5.3.3 does.  [default: 4.9.3]",
)
@click.option("--now", "at", metavar="TIME", type=Time(), help="Judge retention as of this time.")
@report_option
@common
def command(settings: Settings, version: str | None, at: int | None, report: Path | None) -> int:
    """Show what a broker's start would do, without doing it.

    Load and recovery are played as the broker does them: the file that the recovery reads from and
    why, what it cuts and deletes, what is dispatched again, which index files go, and what the
    retention takes at once. Prints rows of type step, deleted, truncated and queue (each queue as
    it is after the start; a table of more than 100 has those that lose messages), then a summary.
    Nothing is changed. A deleted index file is no lost message, and does not count for the exit
    status; nor does what the retention deletes. What is missing already, such as a whole queue, a
    start does not notice: verify does. A broker does not start on a store that it may not write
    (mounts, owners, permissions); the rows then say what it would do if it might. --report writes a
    page for a browser that needs no network: the log before and after.
    """
    from rmqctl.cli.advice import filled_line
    from rmqctl.operations.doctor import simulatestart, startrows

    making = None
    if report is not None:
        from rmqctl.cli.storepage.making import Making

        making = Making(settings, report, "simulate-start")
    with settings.writer("queue", heading="queue (simulate-start)") as writer:
        with settings.progress("start", settings.log_bytes(), writer) as advance:
            done = simulatestart.simulate_start(
                settings.root, settings.config, version=version or "4.9.3", at=at, read=advance
            )
        _note_version(settings, version)
        writer.remark(startrows.verdict(done))
        # For scripts there is a row for each queue, for people one for each that matters.
        is_short = settings.format == "table" and len(done.queues) > _QUEUES_OF_A_TABLE
        left_out = 0
        for row in startrows.rows(done):
            if is_short and row["type"] == "queue" and not row["lost"]:
                left_out += 1
            else:
                writer.row(row)
        if left_out:
            writer.remark(
                f"{left_out} queues lose nothing, and are not shown: --format ndjson has a row "
                "for each."
            )
        words = startrows.next_words(done)
        conf = settings.broker_conf
        command = filled_line(words, str(settings.root), conf) if words else None
        writer.summary(**startrows.summary_row(done, command))
        if command:
            writer.remark("Next, while the broker is down:")
            writer.command(command)
        if making is not None:
            making.after_start(done)
    return 0 if done.is_harmless else 1


def _note_version(settings: Settings, version: str | None) -> None:
    """Notes that the store's own broker is of a version whose start is not the one that is
    shown."""
    from rmqctl.engine.state.laterversions import indexes_tags, is_of_5

    shown = version or "4.9.3"
    if indexes_tags(settings.root):
        settings.note(
            f"note: a broker of 5.4 or later has run on this store, and this is the start of "
            f"{shown}. {'' if version == '5.3.3' else '`--as 5.3.3` comes nearer to its own. '}"
            "After a crash 5.5 reads from logics_physical_offset (`rmqctl checkpoint show`), where "
            "that is set, and ten files of the log at most."
        )
    elif version is None and is_of_5(settings.root):
        settings.note(
            "note: a broker of 5.x has run on this store, and this is the start of 4.9.3: "
            "`--as 5.3.3` plays its own."
        )
