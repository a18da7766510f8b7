"""``rmqctl verify``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import jobs_of, jobs_option, report_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.spark_options import (
    SparkSettings,
    output_options,
    several_stores,
    spark_options,
)
from rmqctl.cli.types import OFFSET, Length

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.cli.storepage.making import Making
    from rmqctl.errors import RmqctlError
    from rmqctl.operations.verify import Finding, Summary


#: What ``--only`` may name, in the order in which it is told.
_STRUCTURES = ("commitlog", "queues", "index", "checkpoint", "timer")


@make(
    "verify",
    examples=[
        "rmqctl verify --store DIR",
        "rmqctl verify --store DIR --broker-conf broker.conf --format ndjson",
        "rmqctl verify --store DIR -q && echo sound",
        "rmqctl verify --store DIR --only queues --only index",
        "rmqctl verify --store DIR --max-duration 1h30m --format ndjson",
        "rmqctl verify --store DIR --report store.html",
        "rmqctl verify --store DIR --master 'local[*]' --output /tmp/findings",
        "rmqctl verify --store '/data/*/store' --master spark://HOST:7077 --json",
    ],
    exits={1: "errors or warnings were found", 6: "refused: --output holds something"},
)
@click.option("--output", metavar="DIR", help="With --master: findings as Parquet as well.")
@click.option(
    "--only",
    metavar="STRUCTURE",
    multiple=True,
    type=click.Choice(_STRUCTURES),
    help="Check commitlog, queues, index, checkpoint or timer only (repeatable).",
)
@click.option(
    "--max-duration",
    metavar="DURATION",
    type=Length(),
    help="Stop reading the log after this time (90s, 10m, 1h30m), and say where to continue.",
)
@click.option(
    "--resume-from",
    metavar="OFFSET",
    type=OFFSET,
    help="Begin at this physical offset: where --max-duration has stopped.",
)
@report_option
@jobs_option
@spark_options()
@output_options
@several_stores
def command(settings: SparkSettings, format: str, output: str | None, **options: Any) -> int:
    """Check a whole store, and name what is wrong.

    Log, queues, index, checkpoint and directories are checked against each other. Prints rows of
    type finding, then a summary; a table begins with the verdict and the worst findings, and ends
    with the commands for them. Damage never ends the check, and nothing is changed; it works beside
    a running broker. Severity info is worth knowing and does not count for the exit status. With
    --only the log is read as well, but without its bodies unless it is checked; findings elsewhere
    are not reported. A log that takes hours is checked in stretches, with --max-duration and
    --resume-from, which find what one check finds; the first checks what needs no read of the log,
    and the last what needs its end: units and items that point past it, and the checkpoint.
    --report writes a page for a browser that needs no network: the log as a strip with what is
    wrong and what a start would delete, the queues, the index, and the next commands. With --master
    the same findings are sorted by place, and there may be several stores: findings then say which,
    and each store has a row of type store. That row has the error of a store that cannot be
    checked; when the others are done, the command ends with that error.
    """
    from rmqctl.cli.findings import FindingsReport
    from rmqctl.operations.verify import Finding, Summary

    stores = settings.mapped_stores("verify", format, options["master"])
    _check_master(output, options)
    if output is not None:
        settings.check_outside("--output", output)
    part = Part(options["max_duration"], options["resume_from"])
    jobs = jobs_of(options)
    making = _page(stores, options["report"])
    also = None if making is None else making.add
    total, failure = Summary(), None
    with (
        settings.writer(format, "finding") as writer,
        FindingsReport(writer, is_table=format == "table", also=also) as report,
        stores[0].progress("verify", sum(one.log_bytes() for one in stores), writer) as advance,
    ):
        if options["master"] is None:
            everything = _here(stores[0], advance, jobs, options["only"], part)
        else:
            everything = _on_spark(stores, output, options, advance)
        for one, found in everything:
            named = {"store": str(one.root)} if len(stores) > 1 else {}
            if isinstance(found, Finding):
                report.add(found, one, **named)
            elif isinstance(found, Summary):
                total = found if len(stores) == 1 else _added(total, found)
                if named:
                    report.row({"type": "store", **named, **found.row(), "error": None})
            else:
                failure = failure or found
                report.row({"type": "store", **named, "error": found.for_command_line})
        asked = options["only"]
        some = set(asked) < set(_STRUCTURES)
        only = [name for name in _STRUCTURES if some and name in asked]
        report.finish(_summary(total, stores), _looked_at(total), only, part.named(total))
        part.note(stores[0], total)
        if making is not None:
            with making.progress(writer) as read:
                making.after_check(report.verdict, total.records, read)
    if failure is not None:
        raise failure
    return int(not total.is_clean)


def _check_master(output: str | None, options: dict[str, Any]) -> None:
    """:raises click.UsageError: an option is given that is not for this way of checking."""
    if output is not None and options["master"] is None:
        raise click.UsageError("--output needs --master.")
    for name in ("only", "max_duration", "resume_from"):
        if options[name] not in (None, ()) and options["master"] is not None:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} and --master exclude each other: Spark checks all.")


def _summary(total: Summary, stores: list[Settings]) -> dict[str, object]:
    """The summary's fields; of several logs offsets say nothing."""
    shown = total.row()
    if len(stores) > 1:
        shown = {"stores": len(stores), **shown}
        del shown["min_offset"], shown["max_offset"]
    return shown


def _page(stores: list[Settings], path: Path | None) -> Making | None:
    """What makes the page; None where none is wanted."""
    if path is None:
        return None
    if len(stores) > 1:
        raise click.UsageError("--report is of one store: name one with --store.")
    from rmqctl.cli.storepage.making import Making

    return Making(stores[0], path, "verify")


class Part(NamedTuple):
    """A stretch of a log: how long to read it (milliseconds), and where to begin."""

    max_duration: int | None
    resume_from: int | None

    def clock(self) -> Callable[[], bool]:
        """Tells whether the time is over, from now on."""
        if self.max_duration is None:
            return lambda: False
        end = time.monotonic() + self.max_duration / 1000
        return lambda: time.monotonic() >= end

    def named(self, summary: Summary) -> str:
        """What the verdict is of; empty: of the whole log."""
        begin, end = self.resume_from, summary.next_offset
        if begin is None and end is None:
            return ""
        start = summary.min_offset if begin is None else max(begin, summary.min_offset)
        return f"the log from {start} to {summary.max_offset}"

    def note(self, settings: Settings, summary: Summary) -> None:
        """Says how to go on."""
        if summary.next_offset is not None:
            settings.note(
                f"note: the time was over at {summary.next_offset}; what lies behind it has not "
                f"been checked: go on with --resume-from {summary.next_offset}."
            )


Found = tuple[Settings, "Finding | Summary | RmqctlError"]


def _here(
    settings: Settings,
    advance: Callable[[int], None],
    jobs: int,
    only: tuple[str, ...],
    part: Part,
) -> Iterator[Found]:
    from rmqctl.operations.verify import verify

    found = verify(
        settings.root,
        settings.config,
        advance,
        jobs=jobs,
        only=only,
        resume_from=part.resume_from,
        is_over=part.clock(),
    )
    for one in found:
        yield settings, one


def _on_spark(
    stores: list[Settings],
    output: str | None,
    options: dict[str, Any],
    advance: Callable[[int], None],
) -> Iterator[Found]:
    """Several stores at the same time, in one session; what is found comes in their order."""
    from rmqctl.cli.spark_options import spark_session
    from rmqctl.errors import RmqctlError
    from rmqctl.operations.verify import inparts

    told: list[Found] = []
    with spark_session(options, advance, sum(one.log_bytes() for one in stores)) as spark:
        from rmqctl.spark.mend import verify
        from rmqctl.spark.session.failures import failures_told
        from rmqctl.spark.session.jobs import at_once

        def check(one: Settings) -> tuple[list[Finding], Summary]:
            with failures_told():
                return verify.verify(spark, one.root, one.config, inparts)

        with at_once(spark, check, [(one,) for one in stores]) as checks:
            for one, checked in zip(stores, checks, strict=True):
                try:
                    found, summary = checked.result()
                except RmqctlError as error:
                    if len(stores) == 1:
                        raise
                    told.append((one, error))
                    continue
                told += [*((one, finding) for finding in found), (one, summary)]
        if output is not None:
            verify.write_findings(spark, _rows(told), output)
    yield from told


def _rows(told: list[Found]) -> list[tuple[object, ...]]:
    """The rows of the Parquet files: store, fields of the finding, command line."""
    from rmqctl.cli.advice import command_line
    from rmqctl.operations.verify import Finding

    return [
        (str(one.root), *found, command_line(found, str(one.root), one.broker_conf))
        for one, found in told
        if isinstance(found, Finding)
    ]


def _looked_at(total: Summary) -> str:
    from rmqctl.cli.findings import counted

    return counted(message=total.records, queue=total.queues, index_file=total.index_files)


def _added(total: Summary, one: Summary) -> Summary:
    """Two stores' counts; offsets of several logs say nothing together."""
    from dataclasses import replace

    return replace(
        total,
        records=total.records + one.records,
        blanks=total.blanks + one.blanks,
        queues=total.queues + one.queues,
        units=total.units + one.units,
        index_files=total.index_files + one.index_files,
        index_items=total.index_items + one.index_items,
        severities=total.severities + one.severities,
    )
