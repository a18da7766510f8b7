"""``rmqctl import``."""

from __future__ import annotations

from typing import Any

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common
from rmqctl.cli.settings import Settings
from rmqctl.cli.spark_options import LOCAL, spark_options, spark_session


@make(
    "import",
    examples=[
        "rmqctl import --store NEW --from /data/messages",
        "rmqctl import --store NEW --from /tmp/orders --input ndjson --broker-conf broker.conf",
    ],
)
@click.option(
    "--from", "source", metavar="PATH", required=True, help="Files, as export writes them."
)
@click.option(
    "--input",
    "kind",
    metavar="FORMAT",
    type=click.Choice(["parquet", "ndjson", "csv"]),
    default="parquet",
    help="parquet (the default), ndjson or csv.",
)
@spark_options(LOCAL)
@common
def command(settings: Settings, source: str, kind: str, **options: Any) -> int:
    """Make a new store from files of messages, in parallel.

    Columns are topic, queue_id, tags, keys, properties, body or body_base64, flag, sys_flag,
    born_timestamp, born_host, store_host, reconsume_times and prepared_transaction_offset; others
    are passed over. Messages stay what they were: a transaction keeps its state, and a DELAY
    property delays nothing. Offsets, ids and store times are the new store's. The store appears
    when all of it is written.
    """
    with (
        settings.writer(vertical=True) as writer,
        settings.progress("import", 1000, writer) as advance,
        spark_session(options, advance, 1000) as spark,
    ):
        from rmqctl.spark.sink import importer

        rows = importer.read(spark, source, kind)
        messages = importer.load(rows, str(settings.root), settings.config)
        writer.summary(store=str(settings.root), messages=messages)
    return 0
