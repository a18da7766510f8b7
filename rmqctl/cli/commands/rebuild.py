"""``rmqctl rebuild``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.options import EXIT_CODES, Settings, queue_id_option, topic_option
from rmqctl.cli.options import command as make
from rmqctl.cli.spark_options import (
    SparkSettings,
    output_options,
    several_stores,
    spark_options,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.cli.output import RowWriter
    from rmqctl.errors import RmqctlError
    from rmqctl.operations.rebuild import RebuildPlan, RebuildSummary

_EXITS = {1: "done, but damage was left out, or no queue matched"} | {
    code: EXIT_CODES[code] for code in (4, 6)
}


@make(
    "rebuild",
    examples=[
        "rmqctl rebuild all --store DIR --output /tmp/rebuilt",
        "rmqctl rebuild queues --store DIR --topic orders --in-place --yes",
        "rmqctl rebuild index --store DIR --broker-conf broker.conf --in-place --dry-run",
        "rmqctl rebuild all --store DIR --purge --yes",
        "rmqctl rebuild all --store DIR --missing",
        "rmqctl rebuild all --store DIR --output /tmp/rebuilt --master 'local[*]'",
        "rmqctl rebuild all --store '/data/*/store' --in-place --yes --master spark://HOST:7077",
    ],
    exits=_EXITS,
)
@click.argument("what", metavar="queues|index|all", type=click.Choice(["queues", "index", "all"]))
@topic_option()
@queue_id_option()
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Build below this new directory.",
)
@click.option("--in-place", is_flag=True, help="Build aside, then swap; needs --yes.")
@click.option("--yes", is_flag=True, help="Consent to --in-place and --purge.")
@click.option("--dry-run", is_flag=True, help="Print the plan and do nothing.")
@click.option("--purge", is_flag=True, help="Remove the old files that rebuilds have kept.")
@click.option("--missing", is_flag=True, help="Add to the store what is missing, and no more.")
@spark_options()
@output_options
@several_stores
def command(settings: SparkSettings, format: str, what: str, **options: Any) -> int:
    """Write queues and index anew from the commit log.

    They are byte for byte what the broker would have written. With enableConsumeQueueExt in the
    broker.conf, or files in consumequeue_ext/, queues get their extension, without the bit maps of
    a broker's filters; --master refuses such a store.

    With --output the store is only read. With --in-place everything is built aside and put in place
    by renaming; the old files stay in rmqctl-old-<time>/ until --purge. With --missing queues and
    index that lag behind the log, or are not there, get what they lack, and the summary counts it.

    Prints rows of type damage for parts of the log that cannot be read, then a summary. With
    --master there may be several stores: each is built below a directory of its broker's name in
    --output, and has a row of type store. One that fails is told there, and ends the command with
    its error when the others are done.
    """
    from rmqctl.operations import rebuild

    stores = settings.mapped_stores("rebuild", format, options["master"])
    output, in_place = options["output"], options["in_place"]
    if options["missing"]:
        others = ("output", "in_place", "purge", "master", "topic", "queue_id")
        if len(stores) > 1 or any(options[name] not in (None, False) for name in others):
            raise click.UsageError("--missing goes with one store, and only with --dry-run.")
        return _add_missing(stores[0], what, dry_run=options["dry_run"])
    if output is not None and in_place:
        raise click.UsageError("--output and --in-place exclude each other.")
    if output is None and not in_place and not options["purge"]:
        raise click.UsageError("say where: --output DIR or --in-place.")
    plans = [
        rebuild.plan_rebuild(one.root, one.config, what, options["topic"], options["queue_id"])
        for one in stores
    ]
    for plan in plans if options["master"] is not None else ():
        if plan.queues and plan.consume_queue_ext_file_size is not None:
            raise click.UsageError(
                f"--master writes no consume queue extension, and {plan.root} has one "
                "(enableConsumeQueueExt): leave --master out."
            )
    outputs = _outputs(plans, output)
    if options["dry_run"]:
        with stores[0].writer(vertical=True) as writer:
            for plan, place in zip(plans, outputs, strict=True):
                writer.row(rebuild.plan_row(plan, place, purge=options["purge"]))
        return 0
    if in_place or options["purge"]:
        for plan in plans if not options["yes"] else ():
            rebuild.ask_consent(plan, in_place=in_place, purge=options["purge"])
    with stores[0].writer("damage") as writer:
        done = _Done(writer, several=len(plans) > 1)
        total = sum(plan.log_bytes for plan in plans)
        with (
            stores[0].progress(f"rebuild {what}", total, writer) as advance,
            _builder(options, total, advance, writes=output is not None or in_place) as build,
        ):
            for plan, place in zip(plans, outputs, strict=True):
                done.add(plan, place, build, purge=options["purge"])
        done.summary(output)
    if done.failure is not None:
        raise done.failure
    narrowed = options["topic"] is not None or options["queue_id"] is not None
    if narrowed and not done.queues and (output is not None or in_place):
        stores[0].note("note: the log has no message of such a queue: `rmqctl queues` lists them.")
        return 1
    return int(done.damaged)


def _add_missing(settings: Settings, what: str, *, dry_run: bool) -> int:
    """rebuild --missing."""
    from rmqctl.operations.missing import add_missing, summary_row
    from rmqctl.operations.rebuild import plan_rebuild
    from rmqctl.operations.rows import damage_row

    config = settings.config
    total = plan_rebuild(settings.root, config, what).log_bytes
    with settings.writer("damage") as writer:
        with settings.progress(f"rebuild {what} --missing", total, writer) as advance:
            summary = add_missing(settings.root, config, what, advance, dry_run=dry_run)
        for damage in summary.damage:
            writer.row(damage_row(damage))
        writer.summary(**summary_row(what, summary))
    return int(bool(summary.damage))


def _outputs(plans: list[RebuildPlan], output: Path | None) -> list[Path | None]:
    """Where each store's files go: several go below directories of their brokers' names.

    :raises UsageError: two would go to the same place.
    """
    if output is None or len(plans) == 1:
        return [output] * len(plans)
    from rmqctl.spark.columns import broker_of

    names = [broker_of(str(plan.root.absolute())) for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(
                f"several of the stores are of a broker {name!r} by their paths, and would go to "
                f"{output / name}: rebuild them one by one."
            )
    return [output / name for name in names]


#: Rebuilds a plan at a place, or in place.
Build = Callable[["RebuildPlan", "Path | None"], "RebuildSummary"]


@contextmanager
def _builder(
    options: dict[str, Any], total: int, advance: Callable[[int], None], *, writes: bool
) -> Iterator[Build]:
    """What rebuilds, here or on Spark, in one session for all stores."""
    from rmqctl.operations import rebuild

    if not writes:
        yield lambda plan, place: rebuild.RebuildSummary()
    elif options["master"] is None:
        yield (
            lambda plan, place: (
                rebuild.rebuild_in_place(plan, advance)
                if place is None
                else rebuild.rebuild_to(plan, place, advance)
            )
        )
    else:
        with spark_session(options, advance, total) as spark:
            yield functools.partial(_on_spark, spark)


def _on_spark(spark: SparkSession, plan: RebuildPlan, output: Path | None) -> RebuildSummary:
    """The same by tasks of Spark: files appear under their names when all of them are whole."""
    from rmqctl.operations import rebuild
    from rmqctl.spark import rebuild as on_spark
    from rmqctl.spark.staging import in_new_directory

    def build(plan: RebuildPlan, place: Path, _: object) -> RebuildSummary:
        return rebuild.RebuildSummary(**vars(on_spark.build(spark, plan, place)))

    if output is None:
        return rebuild.rebuild_in_place(plan, build=build)
    with in_new_directory(str(output)) as place:
        return rebuild.rebuild_to(plan, Path(place), build=build)


class _Done:
    """What is done, as rows."""

    def __init__(self, writer: RowWriter, *, several: bool) -> None:
        self.failure: RmqctlError | None = None
        self.damaged = False
        self.queues = 0
        self._writer = writer
        self._several = several
        self._rows: list[dict[str, Any]] = []

    def add(self, plan: RebuildPlan, output: Path | None, build: Build, *, purge: bool) -> None:
        """Rebuilds one store. :raises RmqctlError: it is the only one, and fails."""
        from rmqctl.errors import RmqctlError
        from rmqctl.operations import rebuild

        named = {"store": str(plan.root)} if self._several else {}
        try:
            summary = build(plan, output)
            purged = rebuild.purge(plan.root) if purge else []
        except RmqctlError as error:
            if not self._several:
                raise
            self.failure = self.failure or error
            self._writer.row({"type": "store", **named, "error": str(error)})
            return
        for row in rebuild.damage_rows(summary):
            self._writer.row({"type": row.pop("type"), **named, **row})
        self.damaged |= bool(summary.damage or summary.refused_topics)
        self.queues += summary.queues
        told = rebuild.summary_row(plan, summary, output, purged)
        self._rows.append(told)
        if self._several:
            self._writer.row({"type": "store", **named, **told, "error": None})

    def summary(self, output: Path | None) -> None:
        """The last row: of one store its own, of several their sums."""
        if not self._several:
            self._writer.summary(**self._rows[0])
            return
        counts = ("records", "queues", "units", "index_items", "damages")
        self._writer.summary(
            output=str(output) if output is not None else "in place",
            rebuilt=len(self._rows),
            **{name: sum(row[name] for row in self._rows) for name in counts},
        )
