"""``rmqctl import``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common
from rmqctl.cli.settings import Settings
from rmqctl.cli.spark_options import (
    LOCAL,
    is_local,
    is_spark_asked,
    spark_options,
    spark_session,
)

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter


@make(
    "import",
    examples=[
        "rmqctl import --store NEW --from /data/messages",
        "rmqctl import --store NEW --from /tmp/orders --broker-conf broker.conf",
        "rmqctl import --store NEW --from rows.ndjson --input ndjson --ignore-body-crc",
    ],
    exits={6: "refused: --store holds something"},
)
@click.option(
    "--from", "source", metavar="PATH", required=True, help="Files, such as export writes."
)
@click.option(
    "--input",
    "kind",
    metavar="FORMAT",
    type=click.Choice(["parquet", "ndjson", "csv"]),
    default="parquet",
    help="parquet (the default), ndjson or csv.",
)
@click.option(
    "--ignore-body-crc",
    is_flag=True,
    help="Also store bodies that do not match body_crc and body_length.",
)
@click.option("--ignore-unknown", is_flag=True, help="Ignore columns that no message has.")
@spark_options(LOCAL)
@common
def command(
    settings: Settings,
    source: str,
    kind: str,
    ignore_body_crc: bool,
    ignore_unknown: bool,
    **options: Any,
) -> int:
    """Make a new store from files of messages, in parallel.

    Columns, or the fields of a line, are those of `put --from`, but for delay_level. Rows of
    export, and of walk, pull, find, index query and message with --body-as, can be given as they
    are; fields that follow from others, or belong to the old store, are ignored. Messages stay what
    they were: a transaction keeps its state, and a DELAY property delays nothing. Offsets, ids and
    store times are the new store's. The store appears when all of it is written.

    Runs on Apache Spark with --master or --conf, and for files that are large, packed or not on
    this machine.
    """
    asked = {"ignore_body_crc": ignore_body_crc, "ignore_unknown": ignore_unknown}
    path = _checked(source, options)
    with settings.writer(vertical=True) as writer:
        messages = None
        if path is not None and not is_spark_asked(options):
            messages = _without_spark(settings, path, kind, asked)
        if messages is None:
            messages = _on_spark(settings, writer, source, path, kind, options, asked)
        writer.summary(store=str(settings.root), messages=messages)
    return 0


def _without_spark(settings: Settings, path: str, kind: str, asked: dict[str, bool]) -> int | None:
    """Imports small files in this process; None: they are Spark's. The same messages get the same
    store from either."""
    from rmqctl.arrow.present import check_arrow

    check_arrow()
    from rmqctl.spark.sink import smallimport

    files = smallimport.small_files(path, kind)
    if files is None:
        return None
    rows = smallimport.read(files, path, kind, **asked)
    return smallimport.load(rows, str(settings.root), settings.config)


def _on_spark(
    settings: Settings,
    writer: RowWriter,
    source: str,
    path: str | None,
    kind: str,
    options: dict[str, Any],
    asked: dict[str, bool],
) -> int:
    if path is not None:
        # Spark takes long to start.
        from rmqctl.spark.session.session import check_spark

        check_spark()
        from rmqctl.spark.sink.firstlook import look

        look(path, kind, **asked)
    with (
        settings.progress("import", 1000, writer, counts=True) as advance,
        spark_session(options, advance, 1000) as spark,
    ):
        from rmqctl.spark.sink import importer

        rows = importer.read(spark, source, kind, **asked)
        return importer.load(rows, str(settings.root), settings.config)


def _checked(source: str, options: dict[str, Any]) -> str | None:
    """The path of files on this machine; None for what a cluster, or a file system of Hadoop's
    settings, calls so: only they know it.

    :raises click.UsageError: nothing on this machine has that name.
    """
    from glob import iglob

    from rmqctl.engine.files.paths import local_path

    path = local_path(source)
    if "://" in path or not is_local(options):
        return None
    # Braces are a pattern of Hadoop's, and none of Python's.
    if not os.path.lexists(path) and "{" not in path and next(iglob(path), None) is None:
        raise click.UsageError(
            f"--from {source}: nothing has that name. Give files of messages, such as `rmqctl "
            "export` writes, or their directory."
        )
    if os.path.lexists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise click.UsageError(
            f"--from {source} is no file and no directory, and of anything else Spark reads "
            "nothing: write what comes from there to a file. `rmqctl put --from -` takes a stream."
        )
    return path
