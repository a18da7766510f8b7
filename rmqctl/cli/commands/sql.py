"""``rmqctl sql``."""

from __future__ import annotations

from typing import Any

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.spark_options import (
    LOCAL,
    SparkSettings,
    is_local,
    output_options,
    several_stores,
    spark_options,
    spark_session,
)


@make(
    "sql",
    examples=[
        "rmqctl sql --store DIR 'SELECT topic, count(*) FROM messages GROUP BY topic'",
        "rmqctl sql --store '/data/*/store' --format ndjson 'SELECT * FROM queues'",
        "rmqctl sql --store DIR --output /tmp/q 'SELECT * FROM units WHERE size > 4096'",
    ],
    exits={1: "the result has no row", 6: "refused: --output holds something"},
)
@click.argument("query", metavar="SELECT")
@click.option("--output", metavar="DIR", help="Write Parquet into this new directory instead.")
@spark_options(LOCAL)
@output_options
@several_stores
def command(
    settings: SparkSettings, query: str, output: str | None, format: str, **options: Any
) -> int:
    """Query one or several stores in SQL.

    The views are messages (the log), units (what the queues hold), index_items and queues. Their
    columns are the fields of `rmqctl walk` and `rmqctl queues`, store and broker; rows whose status
    is damage are places that cannot be read. Runs on Apache Spark, on this machine unless --master
    says otherwise. Bodies are shown as Base64.
    """
    if output is not None:
        settings.check_outside("--output", output)
    if is_local(options):
        from rmqctl.spark.report.views import check_views

        check_views(query)
    count, source = 0, settings.source_options
    with (
        settings.writer(format, "row", bulk=True) as writer,
        settings.settings().progress("sql", 1000, writer, counts=True) as advance,
        spark_session(options, advance, 1000) as spark,
    ):
        from rmqctl.spark.report import sql
        from rmqctl.spark.session.staging import in_new_directory

        result = sql.query(spark, query, settings.stores, source)
        if output is not None:
            with in_new_directory(output) as place:
                result.write.mode("errorifexists" if place == output else "overwrite").parquet(
                    place
                )
            writer.summary(output=output)
            return 0
        for row in sql.plain(result):
            writer.row(row)
            count += 1
        if not count:
            writer.columns(["type", *result.columns])
        writer.summary(rows=count)
    return int(not count)
