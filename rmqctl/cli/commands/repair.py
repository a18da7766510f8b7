"""``rmqctl repair``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.command import EXIT_CODES
from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, dry_run_option, jobs_of, jobs_option
from rmqctl.cli.pasted import pasteable
from rmqctl.cli.settings import Settings

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.operations.repair.apply import Repaired
    from rmqctl.operations.repair.model import Plan

#: Command lines that are shown of what is left with one code.
_SHOWN_COMMANDS = 5
#: Steps of one action that say what they change below a table.
_SHOWN_STEPS = 10


@make(
    "repair",
    examples=[
        "rmqctl repair --store DIR --plan plan.json",
        "rmqctl repair --store DIR --apply plan.json --dry-run",
        "rmqctl repair --store DIR --apply plan.json --yes",
        "rmqctl repair --store DIR --resume",
        "rmqctl repair --store DIR --undo --yes",
    ],
    exits={
        1: "--plan: something is left that no step mends; --resume, --undo: there is no repair",
        4: EXIT_CODES[4],
        6: "refused: needs consent (--yes), or the store is not as the plan says",
    },
)
@click.option(
    "--plan",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Check the store, and write a plan to this new file.",
)
@click.option(
    "--apply",
    "source",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Do what the plan in this file says; needs --yes.",
)
@click.option("--resume", is_flag=True, help="Complete a repair that was interrupted.")
@click.option("--undo", is_flag=True, help="Take back an interrupted repair, or else the last one.")
@click.option("--yes", is_flag=True, help="Consent to --apply, and to --undo of what was done.")
@dry_run_option
@jobs_option
@common
def command(
    settings: Settings,
    target: Path | None,
    source: Path | None,
    resume: bool,
    undo: bool,
    yes: bool,
    dry_run: bool,
    jobs: int | None,
) -> int:
    """Repair a store by a plan that can be taken back.

    --plan looks at everything that verify, lint and config check look at, and writes down as JSON
    what can be mended: queues, index and checkpoint from the log, the timer of 5.x from its
    messages, a torn tail, a last log file that is too short, files that do not belong there, a file
    of config/ from its .bak, offsets outside their queues. Each step says what it changes and what
    it sacrifices. You may remove whole steps from the file. The store is only read. For a damaged
    log use `rmqctl salvage`.

    --apply compares the store with the plan, builds everything beside it, and then puts it in
    place; what was there stays in rmqctl-backup-<time>/ in the store. After a kill or a full disk
    --resume completes the repair, and --undo takes it back; until then no other command writes to
    the store.

    Prints rows of type repair_step, with --plan also rows of type left, then a summary.
    """
    ways = [target is not None, source is not None, resume, undo]
    if sum(ways) != 1:
        raise click.UsageError("give one of --plan FILE, --apply FILE, --resume and --undo.")
    if dry_run and (yes or source is None):
        raise click.UsageError("--dry-run is for --apply without --yes.")
    if yes and target is not None:
        raise click.UsageError("--plan changes nothing: --yes is for --apply, when it was read.")
    threads = jobs_of({"jobs": jobs, "master": None})
    if target is not None:
        return _plan(settings, target, threads)
    if source is not None:
        return _apply(settings, source, threads, yes=yes, dry_run=dry_run)
    return _resume(settings, threads) if resume else _undo(settings, yes=yes)


def _plan(settings: Settings, target: Path, jobs: int) -> int:
    from rmqctl.cli.advice import line_for
    from rmqctl.cli.outside import check_outside, check_place
    from rmqctl.errors import OutputExists
    from rmqctl.operations.repair import rows
    from rmqctl.operations.repair.plan import make_plan
    from rmqctl.operations.repair.planfile import plan_text, write_new

    check_outside("--plan", target, [settings])
    if target.is_symlink() or target.exists():
        raise OutputExists(path=str(target))
    check_place(target)
    settings.note_in_use(
        settings.root, "a plan that is made while a broker writes does not fit when it has stopped."
    )
    with settings.writer("repair_step") as writer:
        total = settings.log_bytes()
        with settings.progress("repair: check", total, writer) as advance:
            plan = make_plan(settings.root, settings.config, advance, jobs=jobs)
        write_new(target, plan_text(plan))
        left = len(plan.left) + plan.left_out
        writer.remark(_verdict(len(plan.steps), left))
        _print_steps(writer, list(rows.planned(plan)))
        _print_left(settings, writer, plan)
        writer.summary(**rows.summary(str(target), rows.PLANNED, len(plan.steps), left, None))
        if plan.steps:
            writer.remark("Nothing is changed yet. What the plan says is done by:")
            for consent in ("--dry-run", "--yes"):
                words = ("repair", "--apply", str(target), consent)
                writer.command(line_for(words, str(settings.root), settings.broker_conf))
    return int(left > 0)


def _verdict(steps: int, left: int) -> str:
    if not steps and not left:
        return "OK: nothing is to be repaired"
    mended = "1 step" if steps == 1 else f"{steps} steps"
    others = "1 finding is" if left == 1 else f"{left} findings are"
    return f"{mended}; {others} left that no step mends" if left else mended


def _print_steps(writer: RowWriter, steps: list[Any]) -> None:
    """The rows, and below a table what each step says of itself; of many like each other the first
    ones do."""
    for row in steps:
        writer.row(row)
    told: Counter[str] = Counter()
    for row in steps:
        told[row["action"]] += 1
        if told[row["action"]] <= _SHOWN_STEPS:
            writer.remark(f"{row['step']}: {row['changes']} Sacrifices: {row['sacrifices']}")
    for action, count in told.items():
        if count > _SHOWN_STEPS:
            writer.remark(
                f"… and {count - _SHOWN_STEPS} more steps {action}: the plan has them all."
            )


def _print_left(settings: Settings, writer: RowWriter, plan: Plan) -> None:
    """Rows, or below a table each code once, with the first command lines for it. Where something
    else comes first the finding's own command would do what the plan does not, and harm."""
    from rmqctl.cli.advice import FLUSH, REPAIR_PLAN, command_line, command_of, line_for
    from rmqctl.operations.repair.rows import left_row
    from rmqctl.operations.verify.findings import RECORDS_WAIT

    by_code: dict[tuple[str, str], list[str | None]] = {}
    for left in plan.left:
        command = None
        if left.why == left.found.advice and command_of(left.found) is not REPAIR_PLAN:
            command = command_line(left.found, str(settings.root), settings.broker_conf)
        if left.why == RECORDS_WAIT:
            command = line_for(FLUSH.words, str(settings.root), settings.broker_conf)
        if settings.format == "table":
            by_code.setdefault((left.found.code, left.why), []).append(command)
        else:
            writer.row(left_row(left, command))
    for (code, why), commands in by_code.items():
        times = f" ({len(commands)} times)" if len(commands) > 1 else ""
        lines = list(dict.fromkeys(filter(None, commands)))[:_SHOWN_COMMANDS]
        writer.remark(f"left: {code}{times}: {why if lines else pasteable(why)}")
        for line in lines:
            writer.command(line)


def _apply(settings: Settings, source: Path, jobs: int, *, yes: bool, dry_run: bool) -> int:
    from rmqctl.engine.files.unfinished import check_not_amid_repair
    from rmqctl.operations.repair import apply, rows
    from rmqctl.operations.repair.planfile import read_plan

    plan = read_plan(source)
    check_not_amid_repair(settings.root)
    if not yes:
        apply.check_plan(settings.root, settings.config, plan)
        if not dry_run:
            apply.ask_consent(plan)
    with settings.writer("repair_step") as writer:
        if dry_run or not plan.steps:
            _print_steps(writer, list(rows.planned(plan)))
            writer.summary(**rows.summary(str(source), rows.PLANNED, len(plan.steps), None, None))
            return 0
        with (
            _told_if_cut_off(settings),
            settings.progress("repair", settings.log_bytes(), writer) as advance,
        ):
            done = apply.apply(settings.root, settings.config, plan, advance, jobs=jobs)
        _print_done(settings, writer, done, str(source))
    return 0


def _resume(settings: Settings, jobs: int) -> int:
    from rmqctl.operations.repair import apply

    with settings.writer("repair_step") as writer:
        with (
            _told_if_cut_off(settings),
            settings.progress("repair", settings.log_bytes(), writer) as advance,
        ):
            done = apply.resume(settings.root, settings.config, advance, jobs=jobs)
        _print_done(settings, writer, done, None)
    return 0


def _undo(settings: Settings, *, yes: bool) -> int:
    from rmqctl.operations.repair import apply
    from rmqctl.operations.repair.errors import UndoNeedsConsent

    def ask(backup: Path) -> None:
        if not yes:
            raise UndoNeedsConsent(
                reason=f"repair --undo takes back the repair that {backup.name} is of."
            )

    with settings.writer("repair_step") as writer:
        with _told_if_cut_off(settings):
            done = apply.undo(settings.root, settings.config, ask)
        _print_done(settings, writer, done, None)
    return 0


@contextmanager
def _told_if_cut_off(settings: Settings) -> Iterator[None]:
    """A context in which a Ctrl-C that interrupts the repair of the store is reported."""
    try:
        yield
    except KeyboardInterrupt:
        from rmqctl.engine.files.unfinished import is_amid_repair

        if is_amid_repair(settings.root):
            settings.note(
                "note: the repair was interrupted: some of the store is old, some new. `rmqctl "
                "repair --resume` completes it, `rmqctl repair --undo` takes it back."
            )
        raise


def _print_done(settings: Settings, writer: RowWriter, done: Repaired, plan: str | None) -> None:
    from rmqctl.cli.advice import line_for
    from rmqctl.operations.repair import rows

    for row in rows.step_rows(done.steps, done.state):
        writer.row(row)
    backup = None if done.backup is None else done.backup.name
    writer.summary(**rows.summary(plan, done.state, len(done.steps), None, backup))
    if backup is not None:
        writer.remark("What was replaced is kept. Look whether all is well, or take it back:")
        for words in (("verify",), ("repair", "--undo", "--yes")):
            writer.command(line_for(words, str(settings.root), settings.broker_conf))
