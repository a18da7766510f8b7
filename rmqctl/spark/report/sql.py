"""SQL over the views ``messages``, ``units``, ``index_items`` and ``queues``.

The views have all columns, but a query reads only those that it uses
(:mod:`rmqctl.spark.source.rules`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services.anyqueue import opened_queue, queue_directories
from rmqctl.errors import UsageError
from rmqctl.spark.remote.remote import RemoteStore
from rmqctl.spark.report.views import NAMES, VIEWS, no_view
from rmqctl.spark.session.jobs import is_connect, parallelism
from rmqctl.spark.session.staging import is_remote
from rmqctl.spark.source.datasource import broker_config, scan
from rmqctl.spark.source.split import ReadSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField

_UNKNOWN_VIEW = re.compile(r"TABLE_OR_VIEW_NOT_FOUND\].*?(`[^\n]*?`) cannot be found", re.DOTALL)
_QUEUES = (
    "topic string, queue_id bigint, min_offset bigint, max_offset bigint, "
    "max_physical_offset bigint, messages bigint, store string, broker string"
)


class _Queue(NamedTuple):
    """A row of ``queues``: the columns of :data:`_QUEUES`."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_physical_offset: int
    messages: int
    store: str
    broker: str


def query(spark: SparkSession, text: str, stores: list[str], options: dict[str, str]) -> DataFrame:
    """The result of a query over the views of the stores. Afterwards the views are removed, and
    views of the session with the same names are restored. Over Spark Connect the views of the
    stores stay, because a query is analysed again when it runs.

    :raises UsageError: the query names a view that does not exist.
    """
    from pyspark.errors import AnalysisException

    with _put_back(spark, NAMES):
        _queues(spark, stores, options).createOrReplaceTempView("queues")
        for view, structure in VIEWS.items():
            # If the query does not read bodies, their CRCs are not checked.
            rows = scan(spark, stores, structure, "*", **options, checkCrc="auto")
            rows.createOrReplaceTempView(view)
        try:
            return spark.sql(text)
        except AnalysisException as error:
            unknown = _UNKNOWN_VIEW.search(str(error))
            if unknown is None:
                raise
            raise no_view(unknown[1].replace("`", "")) from error


@contextmanager
def _put_back(spark: SparkSession, names: Sequence[str]) -> Iterator[None]:
    """Restores the temporary views of these names when the context is left."""
    if is_connect(spark):
        yield
        return
    # Spark's public catalog must not be used: it would create its warehouse, a directory, here.
    known = spark._jsparkSession.sessionState().catalog()
    before = {name: spark.table(name) for name in names if known.getTempView(name).isDefined()}
    try:
        yield
    finally:
        for name in names:
            spark.catalog.dropTempView(name)
        for name, frame in before.items():
            frame.createOrReplaceTempView(name)


def _queues(spark: SparkSession, stores: list[str], options: dict[str, str]) -> DataFrame:
    """One row for each queue, made by tasks when a query needs them: there may be more queues than
    the driver should hold, or open. For URLs they are made from the units: so units behind the end
    of the log count, and a queue without units has no row."""
    from pyspark.sql import functions as F

    settings = ReadSettings("queue", stores, broker_config(options.get("brokerConf", "")))
    local = [store for store in stores if not is_remote(store)]
    rows = _local_queues(spark, local, settings)
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "size"]
    for url in stores:
        if not is_remote(url):
            continue
        units = scan(spark, url, "queue", [*columns, "status"], (), **options)
        log_min = RemoteStore(url).log().min_offset
        counted = (
            units.where((F.col("status") != "damage") & (F.col("physical_offset") >= log_min))
            .groupBy("topic", F.col("queue_id").cast("bigint").alias("queue_id"))
            .agg(
                F.min("queue_offset").alias("min_offset"),
                (F.max("queue_offset") + 1).alias("max_offset"),
                F.max_by(F.col("physical_offset") + F.col("size"), "queue_offset").alias(
                    "max_physical_offset"
                ),
            )
            .withColumn("messages", F.col("max_offset") - F.col("min_offset"))
        )
        source = settings.source(url)
        rows = rows.unionAll(
            counted.withColumns({"store": F.lit(source.store), "broker": F.lit(source.broker)})
        )
    return rows


def _local_queues(spark: SparkSession, stores: list[str], settings: ReadSettings) -> DataFrame:
    """The queues of stores in directories. Each task takes the queues of one store that the hash of
    their names assigns to it, so it does not matter if other queues come or go meanwhile."""
    from rmqctl.spark.mend.facts import arrow_batches, rows_of

    tasks = parallelism(spark)
    shares = [(store, first, tasks) for store in stores for first in range(tasks)]

    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        from rmqctl.arrow.arrays import ARROW_TYPES

        kinds = (ARROW_TYPES[column.rpartition(" ")[2]] for column in _QUEUES.split(", "))
        schema = pyarrow.schema(list(zip(_Queue._fields, kinds, strict=True)))
        for row in rows_of(batches):
            store, first, step = shares[int(row["id"])]
            yield from arrow_batches(_queue_rows(store, first, step, settings), schema)

    return spark.range(0, len(shares), 1, max(len(shares), 1)).mapInArrow(told, _QUEUES)


def _queue_rows(root: str, first: int, step: int, settings: ReadSettings) -> Iterator[_Queue]:
    from rmqctl.spark.mend.facts import text_of

    with MessageStore(Path(root), settings.config) as store:
        for where in queue_directories(store):
            if crc32(os.fsencode(f"{where.topic}/{where.queue_id}")) % step != first:
                continue
            with opened_queue(store, where.topic, where.queue_id) as queue:
                if queue is None:
                    continue
                row = _Queue(
                    text_of(where.topic),
                    where.queue_id,
                    queue.min_offset,
                    queue.max_offset,
                    queue.max_physical_offset,
                    queue.messages,
                    *settings.source(root),
                )
            yield row


def plain(result: DataFrame) -> Iterator[dict[str, Any]]:
    """A result as rows of the command line, with one partition at a time in memory. Bytes are
    Base64, times ISO 8601 in UTC, and values that JSON cannot express are as Spark writes them.

    :raises UsageError: two columns have the same name, or one is called ``type``.
    """
    names = ["type", *result.columns]
    for name in names:
        if names.count(name) > 1:
            reason = f"a row would have two fields {name}: give the column another name with AS."
            raise UsageError(reason=reason)
    # Columns are renamed to numbers: their names may have any characters, or differ only in case.
    numbered = result.toDF(*map(str, range(len(result.columns))))
    shown = numbered.select(*(_shown(field) for field in numbered.schema))
    kinds = [field.dataType for field in shown.schema]
    for row in shown.toLocalIterator():
        values = (_plain(value, kind) for value, kind in zip(row, kinds, strict=True))
        yield dict(zip(names, ("row", *values), strict=True))


def _shown(field: StructField) -> Column:
    """A column in a form that PySpark can return. It has no Python values for some types, nor for
    times that are outside the calendar in this process's time zone."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    column = F.col(field.name)
    if isinstance(field.dataType, T.TimestampType):
        return F.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx").alias(field.name)
    plain = (T.StringType, T.BinaryType, T.BooleanType, T.NumericType, T.NullType, T.DateType)
    nested = (T.ArrayType, T.MapType, T.StructType)
    if isinstance(field.dataType, (*plain, *nested, T.TimestampNTZType)):
        return column
    return column.cast("string").alias(field.name)


def _plain(value: Any, kind: DataType) -> Any:
    from base64 import b64encode

    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if value is None:
        return None
    if isinstance(kind, StructType):
        pairs = zip(kind.fields, value, strict=True)
        return {field.name: _plain(inner, field.dataType) for field, inner in pairs}
    if isinstance(kind, ArrayType):
        return [_plain(inner, kind.elementType) for inner in value]
    if isinstance(kind, MapType):
        return {
            str(_plain(name, kind.keyType)): _plain(inner, kind.valueType)
            for name, inner in value.items()
        }
    if isinstance(kind, TimestampType):
        # PySpark returns it without a zone, in this process's time zone.
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode("ascii")
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if isinstance(value, bool | int | float | str) else str(value)
