"""``rmqctl export``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.cli.settings import Settings
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.exported import Exported

#: The formats that the ending of a name stands for.
_MEANT = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
}


@make(
    "export",
    examples=[
        "rmqctl export --store DIR --output /data/messages",
        "rmqctl export --output /tmp/orders --topic orders --since -2h --format ndjson",
        "rmqctl export --store '/data/*/store' --output s3a://bucket/m --master yarn",
        "rmqctl export --store DIR --output /data/bodies --columns store,topic,body",
        "rmqctl export --store DIR --output /data/plain-store --format store",
    ],
    exits={
        1: "done, but parts of the log are damaged and left out, a body is not what was stored, or "
        "nothing matched",
        6: "refused: --output holds something",
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
    type=click.Choice(["parquet", "ndjson", "csv", "store"]),
    default="parquet",
    help="Of the files: parquet (the default), ndjson, csv, or those of a store.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--columns", metavar="A,B,…", help="Only these columns.")
@topic_option()
@time_range
@spark_options()
@several_stores
def command(
    settings: SparkSettings,
    to: str,
    kind: str,
    as_json: bool,
    columns: str | None,
    **options: Any,
) -> int:
    """Write messages as Parquet, NDJSON, CSV or a new store.

    There is a directory for each topic and day. Columns are the fields of `rmqctl walk commitlog
    --body-as base64`; lines of NDJSON go into `rmqctl put --from -` as they are. The directory
    appears when all of it is written. Damage is counted whatever --topic says; with --since and
    --until only log files that may hold such messages are read. Parquet needs pyarrow. Runs on
    Apache Spark with --master, and where a store or DIR is a URL, with the same rows. The stores
    are only read.

    --format store makes a store of all messages, in which the records follow each other: what a
    broker in no DLedger group starts on, with the messages of a member of one. Queue offsets stay,
    and with them the progress of consumers; physical offsets and offset message ids do not.
    """
    settings.check_outside("--output", to)
    meant = _MEANT.get(Path(to).suffix, kind)
    if meant != kind:
        settings.settings().note(
            f"note: {to} becomes a directory of {kind}: --format {meant} writes {meant}."
        )
    if kind == "store":
        return _as_store(settings, to, as_json, columns, options)
    from rmqctl.engine.files.paths import local_path
    from rmqctl.rows.exported import exported_columns

    try:
        wanted = exported_columns(columns)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    places = (*settings.named, local_path(to))
    with_spark = options["master"] or options["conf"] or any("://" in one for one in places)
    with settings.writer("json" if as_json else "table") as writer:
        if with_spark:
            master = options["master"] or LOCAL
            done = _on_spark(settings, writer, to, kind, wanted, options | {"master": master})
        else:
            done = _here(settings, writer, to, kind, wanted, options)
        writer.summary(output=to, format=kind, **done.row())
    mismatches = settings.settings().note_bodies(done.row())
    return int(bool(done.damages) or mismatches or not done.messages)


def _as_store(
    settings: SparkSettings, to: str, as_json: bool, columns: str | None, options: dict[str, Any]
) -> int:
    chosen = ("topic", "since", "until", "master", "conf")
    given = [name for name in chosen if options[name] not in (None, {})]
    if given or columns or len(settings.named) > 1 or "://" in settings.named[0] + to:
        raise click.UsageError(
            "--format store takes all messages of one store in a directory: leave "
            "--topic, --since, --until, --columns and --master out."
        )
    from rmqctl.operations.mend.plainstore import write_plain_store

    one, place = settings.settings(store=settings.named[0]), Path(to)
    with settings.writer("json" if as_json else "table") as writer:
        with one.progress("export", one.log_bytes(), writer) as advance:
            done = write_plain_store(one.root, one.config, place, advance)
        writer.summary(output=to, format="store", **done.row())
    one.note_uncommitted()
    mismatches = one.note_bodies(done.row())
    return int(bool(done.damages) or mismatches or not done.messages)


def _opened(one: Settings) -> MessageStore:
    """The store, of which the log alone is read, and the notes on what is odd about it.

    :raises NotAFile: messages may lie behind a link that leads nowhere.
    """
    store = one.open(every_queue=False)
    store.commit_log.files.check_regular(links_only=True)
    one.note_uncommitted()
    return store


def _here(
    settings: SparkSettings,
    writer: RowWriter,
    to: str,
    kind: str,
    columns: list[str],
    options: dict[str, Any],
) -> Exported:
    from rmqctl.engine.files.paths import local_path
    from rmqctl.engine.scan.choice import Choice
    from rmqctl.operations.look.export import StoreToExport, export
    from rmqctl.rows.columns import source_of

    choice = Choice(options["topic"], options["since"], options["until"])
    with ExitStack() as stack:
        stores = []
        for name in settings.named:
            one = settings.settings(store=name)
            given = one.config.broker_name if len(settings.named) == 1 else ""
            source = source_of(str(one.root.absolute()), given)
            store = stack.enter_context(_opened(one))
            stores.append(StoreToExport(store, source))
        size = sum(one.store.max_offset - one.store.min_offset for one in stores)
        advance = stack.enter_context(settings.settings().progress("export", size, writer))
        done = export(stores, columns, Path(local_path(to)), kind, choice, advance)
        if not done.messages and len(stores) == 1:
            settings.settings().note_absent_topic(stores[0].store, choice.topic)
        return done


def _on_spark(
    settings: SparkSettings,
    writer: RowWriter,
    to: str,
    kind: str,
    columns: list[str],
    options: dict[str, Any],
) -> Exported:
    source = settings.source_options
    for name in settings.named:
        if "://" not in name:
            _opened(settings.settings(store=name)).close()
    with (
        settings.settings().progress("export", 1000, writer, counts=True) as advance,
        spark_session(options, advance, 1000) as spark,
    ):
        from rmqctl.spark.report import export

        rows = export.selected(
            spark,
            settings.stores,
            source,
            columns,
            topic=options["topic"],
            since=options["since"],
            until=options["until"],
        )
        return export.export(rows, columns, to, kind)
