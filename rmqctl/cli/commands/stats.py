"""``rmqctl stats``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.command import command as make
from rmqctl.cli.options import Option
from rmqctl.cli.spark_options import (
    LOCAL,
    SparkSettings,
    output_options,
    several_stores,
    spark_options,
    spark_session,
)
from rmqctl.cli.types import Whole

if TYPE_CHECKING:
    from rmqctl.rows import Row
    from rmqctl.rows.sections import Waiting


_TITLES = {
    "store": "Stores: from when to when their messages are, and how long a broker keeps them",
    "broker": "Brokers",
    "topic": "Topics",
    "queue": "Queues",
    "tag": "Tags",
    "hour": "Messages by the hour in which they were stored",
    "producer": "Producer hosts",
    "size": "Body sizes",
    "delay": "Delays from born to stored",
    "consumer_group": "Retries and dead letters by consumer group",
    "unreadable": "Places that cannot be read",
    "duplicate_key": "Keys that several messages have",
    "due": "Delayed messages that wait, by the hour in which they are due",
    "half": "Pending half messages by producer group",
}


@make(
    "stats",
    examples=[
        "rmqctl stats --store DIR --report stats.html",
        "rmqctl stats --store '/data/broker-*/store' --json",
        "rmqctl stats --store A --store B --master spark://HOST:7077 --format ndjson",
        "rmqctl stats --store 's3://backups/broker-*/store' --report stats.html",
    ],
    exits={1: "the stores have no message, or parts of them cannot be read"},
)
@click.option(
    "--report",
    "html",
    cls=Option,
    formerly=("--html",),
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write one HTML page, with charts.",
)
@click.option(
    "--limit",
    "top",
    cls=Option,
    formerly=("--top",),
    metavar="N",
    type=Whole(1, 100_000),
    default=20,
    show_default=True,
    help="Topics, queues, tags, producers, keys shown.",
)
@spark_options()
@output_options
@several_stores
def command(
    settings: SparkSettings, html: Path | None, top: int, format: str, **options: Any
) -> int:
    """Count messages by topic, queue, tag, hour, producer, size.

    Also body sizes, delays from born to stored, keys that several messages have, retries and dead
    letters by group, waiting delayed messages and pending half messages, of one or several stores;
    on Apache Spark with --master, with the same rows. Prints rows of types store, broker (of
    several stores), topic, queue, tag, hour, producer, size, delay, consumer_group, unreadable,
    duplicate_key, due and half, then a summary. A page opens without network.
    """
    if html is not None:
        from rmqctl.cli.outside import check_place

        check_place(html)
        settings.check_outside("--report", html)
    with_spark = options["master"] or options["conf"] or any("://" in one for one in settings.named)
    if with_spark:
        rows = _on_spark(settings, top, options | {"master": options["master"] or LOCAL})
    else:
        rows = _here(settings, top)
    if html is not None:
        from rmqctl.cli.html.document import write
        from rmqctl.cli.statspage import page
        from rmqctl.spark.remote.urls import shown

        names = [shown(store) for store in settings.stores]
        title = ", ".join(names) if len(names) < 4 else f"{len(names)} stores"
        write(html, page(rows, title, top))
    _print(settings, rows, format)
    return int(not rows[-1]["messages"] or bool(rows[-1]["damages"]))


def _here(settings: SparkSettings, top: int) -> list[Row]:
    from rmqctl.operations.look.stats import StoreToCount, statistics
    from rmqctl.operations.look.waiting import waiting
    from rmqctl.rows.columns import broker_of

    given = settings.settings().config.broker_name if len(settings.named) == 1 else ""
    with ExitStack() as stack:
        stores = [
            StoreToCount(stack.enter_context(one.open()), given or broker_of(name), name)
            for one in (settings.settings(store=name) for name in settings.named)
            for name in [str(one.root.absolute())]
        ]
        waits = waiting([one.store for one in stores], top)
        _note_problems(settings, waits)
        size = 2 * sum(one.store.max_offset - one.store.min_offset for one in stores)
        writer = stack.enter_context(settings.writer("table"))
        advance = stack.enter_context(settings.settings().progress("stats", size, writer))
        return list(statistics(stores, top, advance, waits))


def _on_spark(settings: SparkSettings, top: int, options: dict[str, Any]) -> list[Row]:
    source = settings.source_options
    waits = _waiting(settings, top)
    with (
        settings.writer("table") as quiet,
        settings.settings().progress("stats", 1000, quiet, counts=True) as advance,
        spark_session(options, advance, 1000) as spark,
    ):
        from rmqctl.spark.procedures.fewstats import counted_here
        from rmqctl.spark.report.stats import statistics
        from rmqctl.spark.source.datasource import broker_config

        config = broker_config(source.get("brokerConf", ""))
        here = counted_here(settings.stores, config, top, waits)
        return here or list(statistics(spark, settings.stores, source, top, waits))


def _waiting(settings: SparkSettings, top: int) -> Waiting:
    """What the queues and ``config/`` tell, which are mapped here; of URLs nothing is known."""
    from rmqctl.operations.look.waiting import waiting
    from rmqctl.rows.sections import Waiting

    if any("://" in name for name in settings.named):
        return Waiting()
    with ExitStack() as stack:
        opened = (settings.settings(store=name).open() for name in settings.named)
        waits = waiting([stack.enter_context(store) for store in opened], top)
    _note_problems(settings, waits)
    return waits


def _note_problems(settings: SparkSettings, waits: Waiting) -> None:
    for problem in waits.problems:
        settings.settings().note(f"note: what waits is not counted: {problem}")


def _print(settings: SparkSettings, rows: list[Row], format: str) -> None:
    """All rows as one; in a table each section has its own title and header."""
    summary = {name: value for name, value in rows[-1].items() if name != "type"}
    if format != "table":
        with settings.writer(format) as writer:
            for row in rows[:-1]:
                writer.row(row)
            writer.summary(**summary)
        return
    for kind in dict.fromkeys(row["type"] for row in rows[:-1]):
        with settings.writer(format, kind) as writer:
            writer.remark(f"# {_TITLES[kind]}")
            for row in rows:
                if row["type"] == kind:
                    writer.row(row)
            writer.remark("")
    with settings.writer(format) as writer:
        writer.summary(**summary)
