"""``verify``, ``rebuild``, ``stats``, ``sql``, ``export`` and ``import`` on Spark for programs,
with the same code as the commands.

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
    """One store or several, given as directories, patterns of directories, or URLs.

    :param spark: the session; None: the active one, or a new one on this machine.
    :param broker_conf: the path of a broker.conf, or its text.
    :raises UsageError: a pattern matches nothing. :raises StoreNotFound, NotAStore: there is no
        store. :raises BrokerConfError: the configuration is invalid.
    """
    try:
        names = expand_each([path, *more])
    except ValueError as error:
        raise UsageError(reason=f"{error}. Give the directory of a store.") from error
    for name in names:
        check_store(name)
    # Several patterns may match the same store, which must not be counted twice.
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
    """Makes the new store ``to`` from files of messages, such as ``export`` writes. Returns the
    number of its messages. The store appears complete, or not at all.

    :param format: ``parquet``, ``ndjson`` or ``csv``.
    :raises OutputExists: ``to`` exists already. :raises WriteRefused: a message is invalid.
    :raises UsageError: the files have no topics, or a column that no message has.
    """
    session = _session(spark)
    # Reading changes this setting, and the session belongs to the caller.
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
    """The result of a check: the findings, one row each, with their ``store``; and for each store
    how much was checked."""

    findings: DataFrame
    summaries: dict[str, Summary]

    @property
    def has_errors(self) -> bool:
        return any(one.severities["error"] for one in self.summaries.values())


class Statistics(NamedTuple):
    """The rows of ``rmqctl stats``, in their order, and as data frames by type."""

    spark: SparkSession
    rows: list[Row]

    @property
    def summary(self) -> Row:
        return self.rows[-1]

    def frame(self, kind: str) -> DataFrame:
        """The rows of a type as a data frame: for example ``topic``, ``hour`` or ``unreadable``
        (damaged places by store and physical offset). :raises UsageError: there is no such type."""
        if kind not in _SECTIONS:
            known = ", ".join(_SECTIONS)
            raise UsageError(reason=f"stats has no rows of type {kind}. It has {known}.")
        return frame(self.spark, _SECTIONS[kind], (r for r in self.rows if r["type"] == kind))


class Stores:
    """The stores that were given to :func:`store`. Only ``rebuild`` with ``in_place`` changes a
    store."""

    def __init__(self, spark: SparkSession, places: Sequence[str], broker_conf: str) -> None:
        self.spark = spark
        self.places = list(places)
        self._options = {"brokerConf": broker_conf} if broker_conf else {}
        self._config = broker_config(broker_conf)

    def __repr__(self) -> str:
        return f"<Stores {', '.join(map(repr, self.places))}>"

    def scan(self, *columns: str, structure: str = "commitlog") -> DataFrame:
        """The named columns of a structure (``commitlog``, ``queue`` or ``index``). Without names
        all columns except bodies."""
        return scan(self.spark, self.places, structure, columns or None, **self._options)

    def query(
        self, build: Callable[[DataFrame], DataFrame], structure: str = "commitlog"
    ) -> DataFrame:
        """The data frame that ``build`` makes from the rows of a structure. Only columns that it
        uses are read::

            store(path).query(lambda messages: messages.groupBy("topic").count())

        If the result has all columns, all are read, including bodies. Over Spark Connect the plan
        cannot be examined, so all columns are read: there give the columns to :meth:`scan`.

        :raises UsageError: ``build`` returns no data frame, or there is no such structure.
        """
        from pyspark.sql import DataFrame

        if structure not in STRUCTURES:
            known = ", ".join(STRUCTURES)
            raise UsageError(reason=f"no structure {structure!r}: give one of {known}.")

        # If the query does not read bodies, their CRCs are not checked.
        rows = scan(self.spark, self.places, structure, "*", **self._options, checkCrc="auto")
        made = build(rows)
        if not isinstance(made, DataFrame):
            raise UsageError(
                reason=f"query() takes a function that makes a DataFrame, and it made "
                f"{type(made).__name__}: groupBy().count() is one, count() is a number."
            )
        return made

    def sql(self, query: str) -> DataFrame:
        """The result of a query over the views ``messages``, ``units``, ``index_items`` and
        ``queues``.

        :raises UsageError: Spark cannot parse or analyse the query.
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
        """Counts by topic, queue, tag, hour, producer and size: the ``limit`` largest groups of
        each."""
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
        """Builds ``queues``, ``index`` or ``all`` of one store from its log, into a new directory,
        or in place. In place, the former files are kept beside the new ones.

        :raises UsageError: there are several stores, or it is not given what to build, or where.
        :raises OutputExists: the directory exists already. :raises StoreInUse: another process
            writes to the store.
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
        """Writes messages as files, with a directory for each topic and day. The files appear when
        all of them are complete. ``since`` and ``until`` are store times (epoch milliseconds, both
        inclusive).

        :param format: ``parquet``, ``ndjson`` or ``csv``. :param columns: names, separated by
            commas; None: all.
        :raises OutputExists: ``to`` is not empty. :raises UsageError: there is no such column.
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
    """The name of a file format. :raises UsageError: there is no such format."""
    if format not in SUFFIXES:
        raise UsageError(reason=f"no format {format!r}: give one of {', '.join(SUFFIXES)}.")
    return format
