"""``rmqctl rebuild``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.options import EXIT_CODES, Settings, common, queue_id_option, topic_option
from rmqctl.cli.options import command as make
from rmqctl.cli.spark_options import spark_options

if TYPE_CHECKING:
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
        "rmqctl rebuild all --store DIR --output /tmp/rebuilt --master 'local[*]'",
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
@spark_options()
@common
def command(settings: Settings, what: str, **options: Any) -> int:
    """Write queues and index anew from the commit log.

    They are byte for byte what the broker would have written. With --output the store is only
    read. With --in-place everything is built aside and put in place by renaming; the old files
    stay in rmqctl-old-<time>/ until --purge. Prints rows of type damage for parts of the log that
    cannot be read, then a summary.
    """
    from rmqctl.operations import rebuild

    output, in_place = options["output"], options["in_place"]
    if output is not None and in_place:
        raise click.UsageError("--output and --in-place exclude each other.")
    if output is None and not in_place and not options["purge"]:
        raise click.UsageError("say where: --output DIR or --in-place.")
    plan = rebuild.plan_rebuild(
        settings.root, settings.config, what, options["topic"], options["queue_id"]
    )
    if options["dry_run"]:
        with settings.writer(vertical=True) as writer:
            writer.row(rebuild.plan_row(plan, output, purge=options["purge"]))
        return 0
    if (in_place or options["purge"]) and not options["yes"]:
        rebuild.ask_consent(plan, in_place=in_place, purge=options["purge"])
    damaged = False
    with settings.writer("damage") as writer:
        if output is not None or in_place:
            with settings.progress(f"rebuild {what}", plan.log_bytes, writer) as advance:
                if options["master"] is not None:
                    summary = _on_spark(options, plan, output, advance)
                elif output is not None:
                    summary = rebuild.rebuild_to(plan, output, advance)
                else:
                    summary = rebuild.rebuild_in_place(plan, advance)
            for row in rebuild.damage_rows(summary):
                writer.row(row)
            damaged = bool(summary.damage or summary.refused_topics)
        else:
            summary = rebuild.RebuildSummary()
        purged = rebuild.purge(settings.root) if options["purge"] else []
        writer.summary(**rebuild.summary_row(plan, summary, output, purged))
    narrowed = options["topic"] is not None or options["queue_id"] is not None
    if narrowed and not summary.queues and (output is not None or in_place):
        settings.note("note: the log has no message of such a queue: `rmqctl queues` lists them.")
        return 1
    return int(damaged)


def _on_spark(
    options: dict[str, Any],
    plan: RebuildPlan,
    output: Path | None,
    advance: Callable[[int], None],
) -> RebuildSummary:
    """The same by tasks of Spark: files appear under their names when all of them are whole."""
    from rmqctl.cli.spark_options import spark_session
    from rmqctl.operations import rebuild
    from rmqctl.spark import rebuild as on_spark
    from rmqctl.spark.staging import in_new_directory

    with spark_session(options, advance, plan.log_bytes) as spark:

        def build(plan: RebuildPlan, place: Path, _: object) -> RebuildSummary:
            return rebuild.RebuildSummary(**vars(on_spark.build(spark, plan, place)))

        if output is None:
            return rebuild.rebuild_in_place(plan, build=build)
        with in_new_directory(str(output)) as place:
            return rebuild.rebuild_to(plan, Path(place), build=build)
