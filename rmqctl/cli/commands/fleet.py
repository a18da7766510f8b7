"""``rmqctl fleet verify``, ``fleet stats`` and ``fleet du``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from formats.constants import INT_MAX
from rmqctl.cli.command import command as make
from rmqctl.cli.command import group
from rmqctl.cli.options import Option, check_spark, without_store
from rmqctl.cli.output import note
from rmqctl.cli.settings import Settings
from rmqctl.cli.signals import stop_signals
from rmqctl.cli.spark_options import spark_options, spark_session
from rmqctl.cli.types import Whole
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.errors import RmqctlError
    from rmqctl.operations.fleet.run import Run
    from rmqctl.operations.fleet.state import State
    from rmqctl.operations.fleet.stores import FleetStore
    from rmqctl.rows import Row
    from rmqctl.rows.fleets import FleetStoreRow

    Found = tuple[int, FleetStoreRow]

#: Threads that read one log, at most, where there are more cores than stores.
_MOST_THREADS = 4
#: Errors told below a table.
_MOST_TOLD = 20


@group(
    "fleet",
    examples=[
        "rmqctl fleet verify --stores '/data/*/store'",
        "rmqctl fleet stats --stores stores.txt --format ndjson",
    ],
)
def command() -> None:
    """Look at many stores: one row each.

    A store that cannot be read gets a row with its error, and does not end the run.
    """


def fleet_options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """What all three verbs take: which stores, how, and where it goes."""
    for option in (
        click.option(
            "--report",
            cls=Option,
            formerly=("--html",),
            metavar="FILE",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Also write one HTML page: stores not read, stores with findings, all stores.",
        ),
        click.option(
            "--again", is_flag=True, help="With --state: look at all stores, changed or not."
        ),
        click.option(
            "--state",
            metavar="DIR",
            type=click.Path(path_type=Path, file_okay=False),
            help="Keep the results here, as Parquet, and skip stores that have not changed since.",
        ),
        click.option(
            "--jobs",
            metavar="N",
            type=Whole(1, INT_MAX),
            help="Stores at a time, each in a process of its own; by default one for each core.",
        ),
        click.option(
            "--broker-conf",
            metavar="FILE",
            type=click.Path(),
            help="Their broker.conf; {name} and {path} stand for the store's. Default: the one "
            "beside each store.",
        ),
        click.option(
            "--stores",
            metavar="FILE|GLOB",
            multiple=True,
            required=True,
            help="A file with a store a line (- reads stdin), a pattern or URL (repeatable).",
        ),
    ):
        function = option(function)
    return without_store(spark_options()(function))


@make(
    "verify",
    examples=[
        "rmqctl fleet verify --stores '/data/*/store'",
        "rmqctl fleet verify --stores stores.txt --broker-conf '/etc/mq/{name}.conf'",
        "rmqctl fleet verify --stores stores.txt --format ndjson --jobs 8",
        "rmqctl fleet verify --stores stores.txt --state DIR --master spark://HOST:7077",
        "rmqctl fleet verify --stores stores.txt --report fleet.html",
    ],
    exits={1: "errors or warnings were found in some store"},
)
@fleet_options
def verify(settings: Settings, **options: Any) -> int:
    """Check every store of a list.

    Prints a row of type fleet_store for each: records, findings by severity, the worst code, the
    range of the log and its times, then a summary. `rmqctl verify` lists the findings of one store.
    The exit status is the worst of all stores.
    """
    return _run(settings, "verify", options)


@make(
    "stats",
    examples=[
        "rmqctl fleet stats --stores '/data/*/store' --json",
        "rmqctl fleet stats --stores stores.txt --format csv",
    ],
    exits={1: "some store has no message, or parts of it cannot be read"},
)
@fleet_options
def stats(settings: Settings, **options: Any) -> int:
    """Count the messages of every store of a list.

    Prints a row of type fleet_store for each: records and their bytes, topics, queues, retries,
    dead letters, damages, the range of the log and its times, then a summary. Stores may be URLs.
    """
    return _run(settings, "stats", options)


@make(
    "du",
    examples=[
        "rmqctl fleet du --stores '/data/*/store'",
        "rmqctl fleet du --stores stores.txt --disk --format csv",
    ],
    exits={1: "damage was met in some store"},
)
@click.option("--disk", is_flag=True, help="Print only the space on disk; no log is read.")
@fleet_options
def du(settings: Settings, disk: bool, **options: Any) -> int:
    """Count the bytes of every store of a list.

    Prints a row of type fleet_store for each: records, damages and blanks of the log, files and
    their space on disk, then a summary. Stores may be URLs.
    """
    return _run(settings, "du", options, reads_log=not disk)


for _one in (verify, stats, du):
    command.add_command(_one)


def _run(settings: Settings, verb: str, options: dict[str, Any], *, reads_log: bool = True) -> int:
    from rmqctl.cli.fleetlist import stores_of
    from rmqctl.operations.fleet.run import Asked, Run
    from rmqctl.operations.fleet.sums import Sums
    from rmqctl.spark.remote.remote import RemoteStore

    if options["report"] is not None:
        from rmqctl.cli.outside import check_place

        check_place(options["report"])
    stores = stores_of(options["stores"], options["broker_conf"])
    _check_outside(settings, options, stores)
    check_spark(options)
    jobs = options["jobs"] or len(os.sched_getaffinity(0))
    threads = max(1, min(jobs // len(stores), _MOST_THREADS))
    sums = Sums(verb)
    with ExitStack() as stack:
        state = _state(options, verb, stack)
        asked = Asked(verb, reads_log, threads, elsewhere=options["master"] is not None)
        writer = stack.enter_context(settings.writer("fleet_store"))
        bar = settings.progress(f"fleet {verb}", len(stores), writer, counts=True)
        advance = stack.enter_context(bar)
        waiting = partial(advance, 0)
        run = Run(stores, asked, RemoteStore, state, again=options["again"], waiting=waiting)
        found = _on_spark(run, options, stack) if options["master"] else _here(run, jobs, stack)
        shown: list[Row] = []
        failed: list[Row] = []
        for row in run.in_order(_counted(found, len(run.rows), advance)):
            sums.add(row)
            writer.row(row)
            if options["report"] is not None:
                shown.append(row)
            if row["error"] is not None:
                failed.append(row)
        _tell(failed, writer)
        if settings.quiet:
            _tell_errors(failed)
        writer.summary(**sums.summary())
        if options["report"] is not None:
            _write_page(options["report"], shown, sums.summary(), verb)
        _tell_unkept(run.unkept)
    return max(sums.exit_code, *(error.exit_code for error in run.unkept), 0)


def _check_outside(settings: Settings, options: dict[str, Any], stores: list[FleetStore]) -> None:
    """:raises click.UsageError: what is written would become a part of one of the stores."""
    from rmqctl.cli.outside import check_outside

    each = [replace(settings, root=Path(one.path), broker_conf=one.broker_conf) for one in stores]
    for name in ("report", "state"):
        if options[name] is not None:
            check_outside(f"--{name}", options[name], each)


def _tell(failed: list[Row], writer: RowWriter) -> None:
    """For the reader of a table, whose columns have no room for sentences."""
    if failed:
        writer.remark("")
        writer.remark("# Stores that could not be read")
    for row in failed[:_MOST_TOLD]:
        writer.remark(f"{row['store']}: {row['error']}")
    if len(failed) > _MOST_TOLD:
        writer.remark(f"… and {len(failed) - _MOST_TOLD} more: --format ndjson has all.")
    if failed:
        writer.remark("")


def _tell_errors(failed: list[Row]) -> None:
    """With -q: no rows tell of them, and errors stand on stderr."""
    for row in failed[:_MOST_TOLD]:
        note(f"error: {row['store']}: {row['error']}")
    if len(failed) > _MOST_TOLD:
        note(f"error: … and {some(len(failed) - _MOST_TOLD, 'store')} more could not be read.")


def _tell_unkept(errors: list[RmqctlError]) -> None:
    if errors:
        many = f"the rows of {len(errors)} stores are not kept, the first because"
        what = "the row of one store is not kept" if len(errors) == 1 else many
        note(f"error: {what}: {errors[0].for_command_line}")


def _write_page(path: Path, rows: list[Row], summary: Row, verb: str) -> None:
    from rmqctl.cli.fleetpage import page
    from rmqctl.cli.html.document import write

    write(path, page(rows, summary, verb))


def _state(options: dict[str, Any], verb: str, stack: ExitStack) -> State | None:
    if options["state"] is None:
        if options["again"]:
            raise click.UsageError("--again needs --state.")
        return None
    from rmqctl.operations.fleet.state import State

    return stack.enter_context(State(options["state"], verb))


def _counted(found: Iterable[Found], done: int, advance: Callable[[int], None]) -> Iterator[Found]:
    """The same, and the bar is told of each beyond those that are ``done``."""
    for number, one in enumerate(found, done + 1):
        yield one
        advance(number)


def _here(run: Run, jobs: int, stack: ExitStack) -> Iterator[Found]:
    """The rows of what is left, by processes of this machine. SIGTERM ends them as Ctrl-C does: the
    default would leave Python's semaphores, and a warning about them."""
    stack.enter_context(stop_signals(signal.default_int_handler))
    from rmqctl.operations.fleet.processes import each
    from rmqctl.spark.procedures.fleettask import looked_at

    return each([one.task for one in run.left], jobs, looked_at)


def _on_spark(run: Run, options: dict[str, Any], stack: ExitStack) -> Iterator[Found]:
    """The same by one session of Spark; where nothing is left there is none."""
    if not run.left:
        return iter(())
    spark = stack.enter_context(spark_session(options))
    from rmqctl.spark.procedures.fleet import each

    return stack.enter_context(closing(each(spark, run.left)))
