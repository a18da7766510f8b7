"""``rmqctl timer ls|deliver|rebuild``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.cli.command import EXIT_CODES, WRITING_EXITS
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option, limit_option, topic_option
from rmqctl.cli.putstats import refused
from rmqctl.cli.sections import group
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Time
from rmqctl.rows.words import some, some_are

if TYPE_CHECKING:
    from rmqctl.rows import Row

_now_option = click.option(
    "--now", metavar="TIME", type=Time(), help="Take this as the current time.  [default: now]"
)


@group(
    "timer",
    examples=[
        "rmqctl timer ls --store DIR",
        "rmqctl timer rebuild --store DIR --dry-run",
    ],
)
def command() -> None:
    """Timed messages of 5.x: list, deliver, rebuild the timer."""


@make(
    "ls",
    examples=[
        "rmqctl timer ls --store DIR",
        "rmqctl timer ls --topic orders --now 2024-05-01T12:00:00+02:00",
        "rmqctl timer ls --format ndjson | jq 'select(.state == \"overdue\")'",
    ],
    exits={1: "--topic was given and nothing matched, or a start would lose messages"},
)
@topic_option()
@_now_option
@limit_option
@common
def ls(settings: Settings, topic: str | None, now: int | None, limit: int | None) -> int:
    """List messages that a 5.x broker has yet to deliver, by time.

    Prints rows of type timer_message, then a summary, which counts all of them, also with --limit.
    slot_timestamp is when the broker takes a message out of its wheel, deliver_timestamp when the
    message is due: before that it is put in again. Those of a delay level are in `schedule ls`.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.look.timer import irregular_files, timer_messages

    moment = system_clock() if now is None else now
    with settings.open() as store, settings.writer("timer_message") as writer:
        settings.note_queues(store)
        settings.note_irregular(irregular_files(store.root, store.config))
        summary = writer.rows(timer_messages(store, moment, topic, limit))
        found = sum(summary[state] for state in _STATES)
        if not found:
            settings.note_version(store, _BY_LEVEL.format("ls"))
    _note_losses(settings, summary)
    lost = summary["overdue"] + summary["gone"]
    return int(bool(lost) or (topic is not None and not found))


_BY_LEVEL = "what waits by a delay level is of `rmqctl schedule {}`."
_STATES = ("pending", "due", "overdue", "rolled", "recalled", "gone")


def _note_losses(settings: Settings, summary: Row) -> None:
    if summary["overdue"]:
        settings.note(
            f"note: {some_are(summary['overdue'], 'message')} overdue: a broker that starts now"
            " passes over what was due before, and never delivers it. `rmqctl timer rebuild` has it"
            " delivered."
        )
    if summary["gone"]:
        settings.note(
            f"note: of {some(summary['gone'], 'message')} the log has nothing any more, or"
            " something else in the place: a broker delivers nothing of that. `rmqctl verify` says"
            " more."
        )


@make(
    "deliver",
    examples=[
        "rmqctl timer deliver --store DIR --broker-conf broker.conf --dry-run",
        "rmqctl timer deliver --store DIR --broker-conf broker.conf",
    ],
    exits=WRITING_EXITS
    | {
        1: "messages were not delivered",
        5: "the store takes no message (such as on a full disk), or is damaged",
    },
)
@click.option("--until", metavar="TIME", type=Time(), help="Due at this time.  [default: now]")
@dry_run_option
@common
def deliver(settings: Settings, until: int | None, dry_run: bool) -> int:
    """Put messages that are due, or overdue, into their real queues.

    Puts the same bytes as a broker. Skips messages with a copy in their topic. Then makes the timer
    anew from the messages that wait. Prints a row of type timer_undelivered for what cannot be
    delivered, then a summary.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.change.timerdelivery import TimerDelivery
    from rmqctl.operations.look.timer import irregular_files

    now = system_clock()
    with settings.open(writable=not dry_run) as store, settings.writer(None) as writer:
        run = TimerDelivery(store, now if until is None else until, now, dry_run=dry_run)
        if dry_run:
            settings.planned_recovery(store, writer)
        files = irregular_files(store.root, store.config)
        with settings.progress("deliver", run.steps, writer, counts=True) as advance:
            summary = writer.rows(run.rows(advance))
        if not summary["due"]:
            settings.note_version(store, _BY_LEVEL.format("deliver"))
        if not summary["kept"]:  # Else the timer was made anew.
            settings.note_irregular(files)
    if run.refused is not None:
        return refused(settings, "", run.refused.status.value, run.refused.reason)
    return int(summary["delivered"] + summary["delivered_before"] != summary["due"])


@make(
    "rebuild",
    examples=[
        "rmqctl timer rebuild --store DIR --dry-run",
        "rmqctl timer rebuild --store DIR --broker-conf broker.conf --yes",
    ],
    exits={
        1: "messages that wait are lost, or may be delivered twice",
        **{code: EXIT_CODES[code] for code in (4, 6)},
    },
)
@_now_option
@click.option("--yes", is_flag=True, help="Consent to the change.")
@dry_run_option
@common
def rebuild(settings: Settings, now: int | None, yes: bool, dry_run: bool) -> int:
    """Make wheel, timer log and check point from the messages.

    The messages of rmq_sys_wheel_timer that the log has and that the timer has not delivered go
    into a new wheel. The next start delivers those that are due, also those that it would have
    skipped, except those with a copy in their topic. Prints a summary. The former files are kept in
    rmqctl-old-<time>/, which `rebuild --purge` removes.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.operations.mend.timer import rebuild_timer

    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other.")
    clock = system_clock()
    if now is not None and now > clock and not dry_run:
        # What comes in until then, and is due by then, would be behind the wheel's clock: lost.
        raise click.UsageError("--now lies in the future, which goes with --dry-run only.")
    moment = clock if now is None else now
    with settings.quiet_progress("timer", counts=True) as progress:
        row = rebuild_timer(
            settings.root,
            settings.config,
            moment,
            consent=yes,
            dry_run=dry_run,
            progress=progress,
        )
    with settings.writer(None) as writer:
        writer.rows([row])
    if row["doubtful"]:
        settings.note(
            f"note: {row['doubtful']} messages that are due may have been delivered before: nothing"
            " tells."
        )
    return int(bool(row["doubtful"] or row["gone"] or row["unreadable"]))


command.add_command(ls)
command.add_command(deliver)
command.add_command(rebuild)
command.sections = {"Inspect (never writes)": ["ls"], "Write": ["deliver", "rebuild"]}
