"""``rebuild`` on Spark: one task writes each file of a queue, with :class:`ConsumeQueueWriter`.

So a queue that has most of the messages is still many tasks. A queue with a gap, with an offset out
of order, or with an extension cannot be cut into files: one task writes all of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rmqctl.engine.derive.writer import units_lost_in
from rmqctl.engine.files import paths
from rmqctl.engine.queue.extension import ConsumeQueueExtWriter
from rmqctl.engine.queue.queuewriter import ConsumeQueueWriter
from rmqctl.spark.mend.facts import NO_FILE, Gathered, arrow_batches, rows_of, units_of
from rmqctl.spark.mend.rebuildjob import Job, PartNote, attempt_of, prefix_sums, put_in_place
from rmqctl.spark.session.jobs import parallelism, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITTEN = pa.schema([("path", pa.string())])


def write_queues(
    spark: SparkSession,
    gathered: Gathered,
    notes: list[PartNote],
    job: Job,
    topic: str | None,
    queue_id: int | None,
) -> tuple[int, int]:
    """Writes all queues, or those of a topic or queue id. Returns how many units and queues."""
    from pyspark.sql import functions as F

    runs = gathered.facts.where("kind = 'units'")
    if topic is not None:
        runs = runs.where(F.col("topic") == topic)
    if queue_id is not None:
        runs = runs.where(F.col("queue_id") == queue_id)
    queues = _queues(runs)
    counts = queues.agg(F.sum("units"), F.count("*"), F.sum("files")).first()
    units, count, files = (int(value or 0) for value in counts or (0, 0, 0))
    if not count:
        return 0, 0
    lost_before = prefix_sums([note.lost for note in notes])
    tasks = max(1, min(files, 4 * parallelism(spark)))
    hard = queues.where("is_hard").select("topic", "queue_id", "is_hard")
    ordered = (
        runs.join(F.broadcast(hard), ["topic", "queue_id"], "left")
        .withColumn("file_no", F.when(F.col("is_hard"), F.lit(NO_FILE)).otherwise(F.col("file_no")))
        .select("topic", "queue_id", "file_no", "part", "seq", "lost", "data")
        .repartition(tasks, "topic", "queue_id", "file_no")
        .sortWithinPartitions("topic", "queue_id", "file_no", "part", "seq")
    )

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = "topic", "queue_id", "file_no"
        for key, rows in groupby(rows_of(batches), key=lambda row: tuple(row[n] for n in names)):
            topic, queue_id, _ = key
            yield from arrow_batches(
                (
                    Written(str(path))
                    for path in _write_queue(job, topic, queue_id, rows, lost_before)
                ),
                _WRITTEN,
            )

    run(ordered.mapInArrow(write, "path string"))
    return units, count


class Written(NamedTuple):
    path: str


def _queues(runs: DataFrame) -> DataFrame:
    """One row for each queue. ``is_hard``: its runs do not follow each other without gaps."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("topic", "queue_id").orderBy("part", "seq")
    follows = F.lag(F.col("first") + F.col("length")).over(order)
    told = runs.select("topic", "queue_id", "file_no", "part", "seq", "first", "length")
    breaks = (F.col("file_no") == NO_FILE) | (follows.isNotNull() & (follows != F.col("first")))
    return (
        told.select("*", breaks.alias("breaks"))
        .groupBy("topic", "queue_id")
        .agg(
            F.max("breaks").alias("is_hard"),
            F.sum("length").alias("units"),
            F.countDistinct("file_no").alias("files"),
        )
    )


def _write_queue(
    job: Job, topic: str, queue_id: int, rows: Iterable[dict[str, Any]], lost_before: list[int]
) -> Iterator[Path]:
    """Writes one queue, or one file of it, and renames the files into place."""
    attempt = attempt_of(job)
    place = Path(topic) / str(queue_id)
    directories = [paths.CONSUME_QUEUE / place]
    ext = None
    if job.ext_file_size is not None:
        directories.append(paths.CONSUME_QUEUE_EXT / place)
        ext = ConsumeQueueExtWriter(attempt / directories[1], job.ext_file_size, attempt)
    queue = ConsumeQueueWriter(
        attempt / directories[0], topic, queue_id, job.queue_file_size, attempt, ext=ext
    )
    try:
        for row in rows:
            units = units_of(row["data"], job.writes_ext)
            lost = lost_before[row["part"]] + row["lost"]
            queue.put_units(
                units["physical_offset"].astype("i8"),
                units["size"].astype("i8"),
                units["tags_code"].astype("i8"),
                units["queue_offset"].astype("i8"),
                max_gap=units_lost_in(lost),
                store_timestamp=units["ext_timestamp"].astype("i8") if job.writes_ext else None,
            )
        queue.flush()
    finally:
        queue.close()
    for relative in directories:
        if (attempt / relative).is_dir():
            yield from put_in_place(attempt / relative, Path(job.output), relative)
    shutil.rmtree(attempt)
