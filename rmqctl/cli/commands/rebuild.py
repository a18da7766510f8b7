"""``rmqctl rebuild``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli import tofiles
from rmqctl.cli.command import EXIT_CODES
from rmqctl.cli.command import command as make
from rmqctl.cli.options import dry_run_option, jobs_of, jobs_option, queue_id_option, topic_option
from rmqctl.cli.settings import Settings
from rmqctl.cli.spark_options import (
    SparkSettings,
    output_options,
    several_stores,
    spark_options,
    spark_session,
)

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.errors import RmqctlError
    from rmqctl.operations.mend.rebuild import RebuildPlan, RebuildSummary

_EXITS = {1: "done, but damage was left out, or no queue matched"} | {
    code: EXIT_CODES[code] for code in (4, 6)
}


@make(
    "rebuild",
    examples=[
        "rmqctl rebuild all --store DIR --output /tmp/rebuilt",
        "rmqctl rebuild queues --store DIR --topic orders --in-place --yes",
        "rmqctl rebuild index --broker-conf broker.conf --in-place --dry-run",
        "rmqctl rebuild all --store DIR --purge --yes",
        "rmqctl rebuild all --store DIR --missing",
        "rmqctl rebuild queues --store DIR --to-file-queues --in-place --dry-run",
        "rmqctl rebuild all --store DIR --output /tmp/rebuilt --master 'local[*]'",
        "rmqctl rebuild all --store '/data/*/store' --in-place --yes --master yarn",
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
@dry_run_option
@click.option(
    "--purge",
    is_flag=True,
    help="Remove old files that rebuilds have kept, and what killed ones had built.",
)
@click.option("--missing", is_flag=True, help="Add only what is missing in the store.")
@tofiles.conversion_options
@jobs_option
@spark_options()
@output_options
@several_stores
def command(settings: SparkSettings, format: str, what: str, **options: Any) -> int:
    """Write queues and index anew from the commit log.

    They are byte for byte what the broker would have written. With enableConsumeQueueExt in the
    broker.conf, or files in consumequeue_ext/, queues get their extension, without the bit maps of
    a broker's filters.

    With --output the store is only read. With --in-place everything is built aside and put in place
    by renaming; the old files stay in rmqctl-old-<time>/ until --purge. The store is then brought
    in order as by a broker's start; a note says if that takes units away. With --missing, queues
    and index get only what they lack, and the summary counts it. Batch queues (5.x) are made anew
    with all queues, but not with --missing or --master.

    With --to-file-queues a store of storeType=defaultRocksDB gets file queues, made from the log,
    and the JSON files of config/, made from its databases of topics, groups and offsets; the
    databases go to rmqctl-old-<time>/. Reading them needs the extra rocksdb; --from-log-alone does
    not read them; --min-offset then says where queues continue whose messages have all left the
    log.

    Prints rows of type damage for parts of the log that cannot be read, then a summary. With
    --master there may be several stores: each is built below a directory of its broker's name in
    --output, and has a row of type store. That row has the error of a store that fails; when the
    others are done, the command ends with that error.
    """
    stores = settings.mapped_stores("rebuild", format, options["master"])
    tofiles.check_options(what, options, len(stores))
    if options["to_file_queues"]:
        return tofiles.convert_to_files(stores[0], options, jobs_of(options))
    if what != "index" and (options["missing"] or options["master"] is not None):
        _note_batch_queues(stores)
    if options["missing"]:
        _check_missing(options, len(stores))
        return _add_missing(stores[0], what, jobs_of(options), dry_run=options["dry_run"])
    _check_place(options)
    if options["output"] is not None:
        settings.check_outside("--output", options["output"])
    options["jobs"] = jobs_of(options)
    plans = _plans(stores, what, options)
    if options["in_place"]:
        _check_in_place(plans)
    outputs = _outputs(plans, options["output"])
    for one in stores if _writes(options) else ():
        one.note_irregular_log()
    _note_overruled(stores[0], plans)
    if options["dry_run"]:
        found = _print_plans(stores[0], plans, outputs, options)
        return _told_of_queues(stores[0], options["topic"], found=found)
    if not options["yes"]:
        _ask_consent(plans, in_place=options["in_place"], purge=options["purge"])
    return _rebuild(stores[0], what, plans, outputs, options)


def _note_batch_queues(stores: list[Settings]) -> None:
    """Says which stores have queues that neither --missing nor --master makes."""
    from rmqctl.engine.state.laterversions import batch_topics

    for settings in stores:
        if batch_topics(settings.root):
            settings.note(
                f"note: the batch queues (5.x) of {settings.root} stay as they are: `rmqctl "
                "verify` says whether they lack anything, and `rmqctl rebuild queues --in-place`, "
                "without --missing and --master, makes them anew."
            )


def _check_missing(options: dict[str, Any], stores: int) -> None:
    """:raises click.UsageError: another option, or a second store, which have no meaning then."""
    for name, why in (
        ("in_place", "it adds to the queues and the index where they are"),
        ("output", "it adds to the store's own queues and index"),
        ("purge", "it replaces nothing, and keeps nothing old"),
        ("topic", "it adds to all queues that lack something"),
        ("queue_id", "it adds to all queues that lack something"),
        ("master", "it is one pass in this process"),
    ):
        if options[name] not in (None, False):
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"leave {option} out of rebuild --missing: {why}.")
    if stores > 1:
        raise click.UsageError("rebuild --missing takes one store at a time.")


def _check_place(options: dict[str, Any]) -> None:
    """:raises click.UsageError: nothing says where to build, or what is said contradicts itself."""
    if options["output"] is not None and options["in_place"]:
        raise click.UsageError("--output and --in-place exclude each other.")
    if options["output"] is None and not options["in_place"] and not options["purge"]:
        raise click.UsageError("say where: --output DIR or --in-place.")
    for name in ("topic", "queue_id"):
        if not _writes(options) and options[name] is not None:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"leave {option} out of rebuild --purge: it removes all old files, and builds "
                "nothing."
            )


def _plans(stores: list[Settings], what: str, options: dict[str, Any]) -> list[RebuildPlan]:
    from rmqctl.operations.mend.rebuild import plan_rebuild

    return [
        plan_rebuild(one.root, one.config, what, options["topic"], options["queue_id"])
        for one in stores
    ]


def _check_in_place(plans: list[RebuildPlan]) -> None:
    """:raises UnsupportedStore: nobody writes such a store, nor plans to.
    :raises CommitLogMissing: queues would be replaced by none."""
    from rmqctl.engine.state.laterversions import check_understood
    from rmqctl.operations.mend.rebuild import check_has_log

    for plan in plans:
        check_understood(plan.root, plan.config, log_stays=True)
        check_has_log(plan)


def _note_overruled(settings: Settings, plans: list[RebuildPlan]) -> None:
    """Says where the queues that are there count more than the broker.conf."""
    for plan in plans:
        if plan.queues and plan.config.overruled:
            settings.note(
                f"note: the queues in {plan.root} were written with the opposite of what "
                f"broker.conf says of {' and '.join(plan.config.overruled_names)}; they are built "
                "as they were written."
            )


def _print_plans(
    settings: Settings,
    plans: list[RebuildPlan],
    outputs: list[Path | None],
    options: dict[str, Any],
) -> bool:
    """Prints them; whether one finds a queue of those asked for."""
    from rmqctl.operations.mend.rebuild import finds_queue, plan_row

    with settings.writer(vertical=True) as writer:
        for plan, target in zip(plans, outputs, strict=True):
            writer.row(plan_row(plan, target, purge=options["purge"]))
    return not _narrows(options) or any(map(finds_queue, plans))


def _ask_consent(plans: list[RebuildPlan], *, in_place: bool, purge: bool) -> None:
    """:raises NeedsConsent: something would be replaced or removed."""
    from rmqctl.operations.mend.rebuild import ask_consent

    for plan in plans if in_place or purge else ():
        ask_consent(plan, in_place=in_place, purge=purge)


def _rebuild(
    settings: Settings,
    what: str,
    plans: list[RebuildPlan],
    outputs: list[Path | None],
    options: dict[str, Any],
) -> int:
    total = sum(plan.log_bytes for plan in plans)
    work = list(zip(plans, outputs, strict=True))
    with settings.writer("damage", heading="damage (rebuild)") as writer:
        done = _Done(settings, writer, several=len(plans) > 1)
        with (
            settings.progress(f"rebuild {what}", total, writer) as advance,
            _builder(options, work if _writes(options) else [], total, advance) as build,
        ):
            for plan, target in work:
                done.add(plan, target, build, purge=options["purge"])
        done.summary(options["output"])
    if done.failure is not None:
        raise done.failure
    if _narrows(options) and not done.queues:
        return _told_of_queues(settings, options["topic"], found=False)
    return int(done.damaged)


def _writes(options: dict[str, Any]) -> bool:
    """Whether something is built; with --purge alone old files are only removed."""
    return options["output"] is not None or options["in_place"]


def _narrows(options: dict[str, Any]) -> bool:
    """Whether queues are written, and not all of them."""
    return _writes(options) and (options["topic"] is not None or options["queue_id"] is not None)


def _told_of_queues(settings: Settings, topic: str | None, *, found: bool) -> int:
    """The exit code by whether a queue is, or would be, written of those asked for. A note says if
    there is none, and whether the topic is an unknown one: most such names are mistyped."""
    if found:
        return 0
    with settings.open(every_queue=False) as store:
        is_told = settings.note_absent_topic(store, topic)
    if not is_told:
        settings.note("note: the log has no message of such a queue: `rmqctl queues` lists them.")
    return 1


def _add_missing(settings: Settings, what: str, jobs: int, *, dry_run: bool) -> int:
    """rebuild --missing."""
    from rmqctl.operations.look.rows import damage_row
    from rmqctl.operations.mend.missing import add_missing, summary_row
    from rmqctl.operations.mend.rebuild import plan_rebuild

    root, config = settings.root, settings.config
    total = plan_rebuild(root, config, what).log_bytes
    with settings.writer("damage", heading="damage (rebuild)") as writer:
        with settings.progress(f"rebuild {what} --missing", total, writer) as advance:
            if dry_run:
                with settings.open() as store:
                    settings.planned_recovery(store, writer)
            summary = add_missing(root, config, what, advance, dry_run=dry_run, jobs=jobs)
        for damage in summary.damage:
            writer.row(damage_row(damage))
        writer.summary(**summary_row(what, summary))
    settings.note_out_of_place(root, summary.out_of_place)
    return int(bool(summary.damage))


def _outputs(plans: list[RebuildPlan], output: Path | None) -> list[Path | None]:
    """Where each store's files go: several go below directories of their brokers' names.

    :raises UsageError: two would go to the same directory.
    """
    if output is None or len(plans) == 1:
        return [output] * len(plans)
    from rmqctl.rows.columns import broker_of

    names = [broker_of(str(plan.root.absolute())) for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(
                f"several of the stores are of a broker {name!r} by their paths, and would go to "
                f"{output / name}: rebuild them one by one."
            )
    return [output / name for name in names]


#: Rebuilds a plan into a directory, or in place (None).
Build = Callable[["RebuildPlan", "Path | None"], "RebuildSummary"]


@contextmanager
def _builder(
    options: dict[str, Any],
    work: list[tuple[RebuildPlan, Path | None]],
    total: int,
    advance: Callable[[int], None],
) -> Iterator[Build]:
    """What rebuilds the plans, if any: this process, or Spark in one session, where all are begun
    at once."""
    from rmqctl.operations.mend import rebuild

    if not work:
        yield lambda plan, target: rebuild.RebuildSummary()
    elif options["master"] is None:
        yield (
            lambda plan, target: (
                rebuild.rebuild_in_place(plan, advance, jobs=options["jobs"])
                if target is None
                else rebuild.rebuild_to(plan, target, advance, jobs=options["jobs"])
            )
        )
    else:
        with spark_session(options, advance, total) as spark:
            from rmqctl.spark.procedures import rebuilding
            from rmqctl.spark.session.jobs import at_once

            with at_once(spark, functools.partial(rebuilding.run, spark), work) as begun:
                builds = {plan.root: one for (plan, _), one in zip(work, begun, strict=True)}
                yield lambda plan, target: builds[plan.root].result()


class _Done:
    """What is done, as rows."""

    def __init__(self, settings: Settings, writer: RowWriter, *, several: bool) -> None:
        self._settings = settings
        self.failure: RmqctlError | None = None
        self.damaged = False
        self.queues = 0
        self._writer = writer
        self._several = several
        self._rows: list[dict[str, Any]] = []

    def add(self, plan: RebuildPlan, output: Path | None, build: Build, *, purge: bool) -> None:
        """Rebuilds one store. :raises RmqctlError: it is the only one, and fails."""
        from rmqctl.errors import RmqctlError
        from rmqctl.operations.mend import rebuild

        named = {"store": str(plan.root)} if self._several else {}
        try:
            summary = build(plan, output)
            purged = rebuild.purge(plan.root) if purge else []
        except RmqctlError as error:
            if not self._several:
                raise
            self.failure = self.failure or error
            self._writer.row({"type": "store", **named, "error": error.for_command_line})
            return
        self._settings.note_completion(plan.root, summary)
        for row in rebuild.damage_rows(summary):
            self._writer.row({"type": row["type"], **named, **row})
        self.damaged |= bool(summary.damage or summary.refused_topics)
        self._settings.note_out_of_place(plan.root, summary.out_of_place)
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
