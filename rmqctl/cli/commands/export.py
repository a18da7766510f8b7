"""``rmqctl export``."""

from __future__ import annotations

from typing import Any

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import Option, time_range, topic_option
from rmqctl.cli.spark_options import (
    LOCAL,
    SparkSettings,
    several_stores,
    spark_options,
    spark_session,
)


@make(
    "export",
    examples=[
        "rmqctl export --store DIR --output /data/messages",
        "rmqctl export --store DIR --output /tmp/orders --topic orders --since -2h --format ndjson",
        "rmqctl export --store '/data/*/store' --output s3a://bucket/m --columns store,topic,body",
    ],
    exits={
        1: "done, but parts of the log are damaged and left out, a body is not what was stored, or "
        "nothing matched"
    },
)
@click.option(
    "--output",
    "to",
    cls=Option,
    formerly=("--to",),
    metavar="DIR",
    required=True,
    help="A new directory.",
)
@click.option(
    "--format",
    "kind",
    metavar="FORMAT",
    type=click.Choice(["parquet", "ndjson", "csv"]),
    default="parquet",
    help="Of the files: parquet (the default), ndjson or csv.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--columns", metavar="A,B,…", help="Only these columns.")
@topic_option()
@time_range
@spark_options(LOCAL)
@several_stores
def command(
    settings: SparkSettings,
    to: str,
    kind: str,
    as_json: bool,
    columns: str | None,
    **options: Any,
) -> int:
    """Write messages as Parquet, NDJSON or CSV files.

    There is a directory for each topic and day. Columns are the fields of `rmqctl walk commitlog
    --body`. The directory appears when all of it is written. Runs on Apache Spark, on this machine
    unless --master says otherwise. The stores are only read.
    """
    source = settings.source_options
    with (
        settings.writer("json" if as_json else "table") as writer,
        settings.settings().progress("export", 1000, writer, counts=True) as advance,
        spark_session(options, advance, 1000) as spark,
    ):
        from rmqctl.spark.report import export

        wanted = export.check_columns(columns)
        rows = export.selected(
            spark,
            settings.stores,
            source,
            wanted,
            topic=options["topic"],
            since=options["since"],
            until=options["until"],
        )
        done = export.export(rows, wanted, to, kind)
        writer.summary(output=to, format=kind, **done.row())
    mismatches = settings.settings().note_bodies(done.row())
    return int(bool(done.damages) or mismatches or not done.messages)
