"""Stores as a whole: what ``verify``, ``rebuild``, ``stats``, ``sql``, ``export`` and ``import`` do
on Spark, without a command line, and by the same code.

    from rmqctl.spark import store
    store("/data/rocketmq/store").verify().findings.groupBy("code").count().show()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import UsageError
from rmqctl.operations.verify import inparts
from rmqctl.rows import Row, onspark
from rmqctl.rows.columns import STRUCTURES
from rmqctl.rows.exported import SUFFIXES, Exported, exported_columns
from rmqctl.rows.sections import Waiting
from rmqctl.spark.mend import verify
from rmqctl.spark.procedures import fewstats, rebuilding
from rmqctl.spark.procedures.frames import frame
from rmqctl.spark.remote.stores import check_store, expand_each
from rmqctl.spark.report import export, sql, stats
from rmqctl.spark.session.failures import failures_told
from rmqctl.spark.session.jobs import at_once
from rmqctl.spark.session.staging import is_remote
from rmqctl.spark.sink import importer
from rmqctl.spark.source.datasource import broker_config, scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.operations.mend.rebuild import RebuildSummary
    from rmqctl.operations.verify import Finding, Summary

_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"
_SECTIONS: dict[str, type] = {
    kind.heading.partition(" ")[0]: kind.row
    for kind in onspark.KINDS
    if kind.heading.endswith("(stats)") and "summary" not in kind.heading
}


def store(
    path: str, *more: str, spark: SparkSession | None = None, broker_conf: str = ""
) -> Stores:
    """A store, or several: directories, patterns of them, or URLs.

    :param spark: the session; else the active one, or a new one on this machine.
    :param broker_conf: a broker.conf, by its path or its text.
    :raises UsageError: a pattern matches nothing. :raises StoreNotFound, NotAStore: there is none.
    :raises BrokerConfError: the configuration is none.
    """
    try:
        names = expand_each([path, *more])
    except ValueError as error:
        raise UsageError(reason=f"{error}. Give the directory of a store.") from error
    for name in names:
        check_store(name)
    # Patterns may mean a store twice, and nothing is to be counted twice.
    places = list(
        dict.fromkeys(name if is_remote(name) else str(Path(name).absolute()) for name in names)
    )
    broker_config(broker_conf)
    return Stores(_session(spark), places, broker_conf)


def import_messages(
    source: str,
    to: str,
    *,
    format: str = "parquet",
    ignore_body_crc: bool = False,
    ignore_unknown: bool = False,
    spark: SparkSession | None = None,
    broker_conf: str = "",
) -> int:
    """Makes the new store ``to`` of files of messages, as ``export`` writes them; how many there
    are. It appears whole, or not at all.

    :param format: ``parquet``, ``ndjson`` or ``csv``.
    :raises OutputExists: there is something. :raises WriteRefused: a message is none.
    :raises UsageError: they have no topic, or a column is none of a message.
    """
    session = _session(spark)
    # Reading sets it, and the session is the caller's.
    usual = session.conf.get(_INFERENCE) or "true"
    try:
        with failures_told():
            rows = importer.read(
                session,
                source,
                _known(format),
                ignore_body_crc=ignore_body_crc,
                ignore_unknown=ignore_unknown,
            )
            return importer.load(rows, to, broker_config(broker_conf))
    finally:
        session.conf.set(_INFERENCE, usual)


class Verified(NamedTuple):
    """What a check found: the findings, one row each with the ``store`` that it is of, and what was
    looked at, by store."""

    findings: DataFrame
    summaries: dict[str, Summary]

    @property
    def has_errors(self) -> bool:
        return any(one.severities["error"] for one in self.summaries.values())


class Statistics(NamedTuple):
    """Rows of ``rmqctl stats``: in their order, and as data frames by type."""

    spark: SparkSession
    rows: list[Row]

    @property
    def summary(self) -> Row:
        return self.rows[-1]

    def frame(self, kind: str) -> DataFrame:
        """The rows of a type, such as ``topic``, ``hour`` or ``unreadable`` (the damaged places, by
        store and physical offset). :raises UsageError: there is no such type."""
        if kind not in _SECTIONS:
            known = ", ".join(_SECTIONS)
            raise UsageError(reason=f"stats has no rows of type {kind}. It has {known}.")
        return frame(self.spark, _SECTIONS[kind], (r for r in self.rows if r["type"] == kind))


class Stores:
    """What :func:`store` names. Only ``rebuild`` with ``in_place`` changes a store."""

    def __init__(self, spark: SparkSession, places: Sequence[str], broker_conf: str) -> None:
        self.spark = spark
        self.places = list(places)
        self._options = {"brokerConf": broker_conf} if broker_conf else {}
        self._config = broker_config(broker_conf)

    def __repr__(self) -> str:
        return f"<Stores {', '.join(map(repr, self.places))}>"

    def scan(self, *columns: str, structure: str = "commitlog") -> DataFrame:
        """The wanted columns of a structure (``commitlog``, ``queue`` or ``index``); those without
        bodies when none is named."""
        return scan(self.spark, self.places, structure, columns or None, **self._options)

    def query(
        self, build: Callable[[DataFrame], DataFrame], structure: str = "commitlog"
    ) -> DataFrame:
        """What ``build`` makes of a structure's rows, reading only the columns that it names::

            store(path).query(lambda messages: messages.groupBy("topic").count())

        A result with all columns reads all, bodies too. Over Spark Connect, where no plan can be
        looked at, all are read: give :meth:`scan` the columns there.

        :raises UsageError: it makes no data frame, or there is no such structure.
        """
        from pyspark.sql import DataFrame

        if structure not in STRUCTURES:
            known = ", ".join(STRUCTURES)
            raise UsageError(reason=f"no structure {structure!r}: give one of {known}.")

        # Bodies that the query does not read are not checked either.
        rows = scan(self.spark, self.places, structure, "*", **self._options, checkCrc="auto")
        made = build(rows)
        if not isinstance(made, DataFrame):
            raise UsageError(
                reason=f"query() takes a function that makes a DataFrame, and it made "
                f"{type(made).__name__}: groupBy().count() is one, count() is a number."
            )
        return made

    def sql(self, query: str) -> DataFrame:
        """A query over the views ``messages``, ``units``, ``index_items`` and ``queues``.

        :raises UsageError: Spark does not understand it.
        """
        with failures_told():
            return sql.query(self.spark, query, self.places, self._options)

    def verify(self) -> Verified:
        """Checks log, queues, index and checkpoint against each other.

        :raises UsageError: a store is a URL.
        """

        def check(root: Path) -> tuple[list[Finding], Summary]:
            with failures_told():
                return verify.verify(self.spark, root, self._config, inparts)

        summaries, rows = {}, []
        with at_once(self.spark, check, [(one,) for one in self._roots("verify")]) as checks:
            for place, checked in zip(self.places, checks, strict=True):
                found, summaries[place] = checked.result()
                rows += [(place, *one) for one in found]
        return Verified(self.spark.createDataFrame(rows, verify.FINDING_DDL), summaries)

    def stats(self, limit: int = 20) -> Statistics:
        """Counts by topic, queue, tag, hour, producer, size: the ``limit`` largest of each."""
        waits = Waiting() if any(map(is_remote, self.places)) else self._waiting(limit)
        here = fewstats.counted_here(self.places, self._config, limit, waits)
        if here is not None:
            return Statistics(self.spark, here)
        with failures_told():
            rows = stats.statistics(self.spark, self.places, self._options, limit, waits)
            return Statistics(self.spark, list(rows))

    def rebuild(
        self, what: str = "all", *, output: str | None = None, in_place: bool = False
    ) -> RebuildSummary:
        """Builds ``queues``, ``index`` or ``all`` of one store from its log, into a new directory
        or in place; the former files are kept beside the store's then.

        :raises UsageError: there are several stores, or it is not said what, or where to.
        :raises OutputExists: there is something. :raises StoreLocked: somebody writes the store.
        """
        from rmqctl.operations.mend.rebuildplan import plan_rebuild

        if len(self.places) > 1:
            raise UsageError(reason="rebuild takes one store: name them one by one.")
        if (output is None) != in_place:
            raise UsageError(reason="a rebuild needs either output=DIRECTORY or in_place=True.")
        if what not in ("queues", "index", "all"):
            raise UsageError(reason=f"rebuild makes queues, index or all, not {what!r}.")
        (root,) = self._roots("rebuild")
        plan = plan_rebuild(root, self._config, what)
        return rebuilding.run(self.spark, plan, None if output is None else Path(output))

    def export(
        self,
        to: str,
        *,
        format: str = "parquet",
        columns: str | None = None,
        topic: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> Exported:
        """Writes messages as files, a directory a topic and day, which appear when all of them are
        whole. The store times ``since`` and ``until`` are epoch milliseconds, both included.

        :param format: ``parquet``, ``ndjson`` or ``csv``. :param columns: names with commas; None:
            all.
        :raises OutputExists: ``to`` holds something. :raises UsageError: there is no such column.
        """
        try:
            wanted = exported_columns(columns)
        except ValueError as error:
            raise UsageError(reason=str(error)) from error
        kind = _known(format)
        with failures_told():
            rows = export.selected(
                self.spark,
                self.places,
                self._options,
                wanted,
                topic=topic,
                since=since,
                until=until,
            )
            return export.export(rows, wanted, to, kind)

    def _roots(self, verb: str) -> list[Path]:
        for place in self.places:
            if is_remote(place):
                raise UsageError(
                    reason=f"{verb} maps a store's files, and {place} has none here: copy it to a "
                    "file system that every node sees, and name the directory."
                )
        return [Path(place) for place in self.places]

    def _waiting(self, limit: int) -> Waiting:
        from rmqctl.engine.messagestore import MessageStore
        from rmqctl.operations.look.waiting import waiting

        with ExitStack() as stack:
            opened = (MessageStore(root, self._config) for root in self._roots("stats"))
            return waiting([stack.enter_context(one) for one in opened], limit)


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    return spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _known(format: str) -> str:
    """:raises UsageError: there is no such format of files."""
    if format not in SUFFIXES:
        raise UsageError(reason=f"no format {format!r}: give one of {', '.join(SUFFIXES)}.")
    return format
