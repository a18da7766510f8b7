"""A rebuild whose files are made by tasks of Spark. The plan, the swap and the summary are the same
as without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files.durable import sync_directories
from rmqctl.operations.mend import rebuild
from rmqctl.operations.mend.endedqueues import keep_ended_queues
from rmqctl.operations.mend.filetimes import date_queue_files
from rmqctl.spark.mend import rebuild as on_spark
from rmqctl.spark.session.failures import failures_told
from rmqctl.spark.session.staging import noted_if_given_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.operations.mend.rebuildplan import RebuildPlan


def run(spark: SparkSession, plan: RebuildPlan, output: Path | None) -> rebuild.RebuildSummary:
    """Rebuilds into the new directory ``output``, or in place (None). Files get their names only
    when all of them are complete.

    :raises RmqctlError: as ``rebuild_to`` and ``rebuild_in_place``. :raises SparkFailed: a job
        failed.
    """

    def build(plan: RebuildPlan, target: Path, _: object = None) -> rebuild.RebuildSummary:
        with failures_told():
            summary = rebuild.RebuildSummary(**vars(on_spark.build(spark, plan, target)))
        summary.queues += keep_ended_queues(plan, target)
        date_queue_files(plan, target)
        sync_directories(target)
        return summary

    def build_aside(plan: RebuildPlan, target: Path, _: object) -> rebuild.RebuildSummary:
        with noted_if_given_up(target):
            return build(plan, target)

    # Tasks do not make batch queues: these stay as they are.
    plan = replace(plan, batch_queue_file_size=None)
    if output is None:
        return rebuild.rebuild_in_place(plan, build=build)
    return rebuild.rebuild_to(plan, output, build=build_aside)
