"""``spark.read.format("rocketmq")``: log, queues and index of one or several stores as rows.

The options are declared in :mod:`rmqctl.spark.source.options`. Only the requested columns are made.
The path may be a glob, or a list separated by commas, also of URLs
(``s3://bucket/broker-*/store``, see :mod:`rmqctl.spark.remote.remote`).

``where`` (JSON, see :func:`rmqctl.spark.source.pushdown.encode`) skips splits and records that
cannot match. Rows that do not match may still be returned.

Spark does not tell a Python source which columns a query needs. Its filter pushdown, at least up to
4.3, applies the filters of one query to every later query of the same DataFrame, and so loses rows.
Therefore each query gets its own read of what it uses (:mod:`rmqctl.spark.source.rules`). Where
that is not possible, :func:`scan` takes columns and filters.

Spark uses separate processes to name a source, to make it and to plan a read, and each of them
imports this module. So numpy, Arrow and pandas are imported only where they are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from rmqctl.engine.files import paths
from rmqctl.engine.log.times import CLOCK_SLACK
from rmqctl.engine.settings.logdirectories import is_spread
from rmqctl.engine.settings.storeconfig import (
    MessageStoreConfig,
    load_broker_conf,
    parse_broker_conf,
)
from rmqctl.rows.columns import ddl
from rmqctl.spark.remote.stores import expand, expand_each
from rmqctl.spark.session.ownpython import (
    pass_over_imported,
    send_code_to_streams,
    use_own_python,
)
from rmqctl.spark.session.staging import is_remote
from rmqctl.spark.source import options, pushdown, split
from rmqctl.spark.source.options import ONE_STORE, wanted_columns
from rmqctl.spark.source.rules import install_rules

NAME = "rocketmq"


def scan(
    spark: SparkSession,
    path: str | Sequence[str],
    structure: str = "commitlog",
    columns: Iterable[str] | str | None = None,
    where: Iterable[pushdown.Condition] | str = (),
    **options: str,
) -> DataFrame:
    """The wanted columns of a structure. Registers the source if necessary.

    ``path`` is one text, as for ``load``, or a list of stores. ``columns`` is a list of names, or
    one text as in the option (``*``: all).

    ``where`` has conditions such as ``("topic", "=", "orders")``, all of which must hold, or their
    text as made by ``pushdown.encode``. They are used to skip splits (by physical offset, by queue
    and queue offset, by store time), queues and index files, and are checked for every row. Their
    columns need not be among the wanted ones.

    :raises ValueError: there is no such structure, column or comparison.
    """
    from pyspark.sql.functions import col

    conditions = pushdown.parse(where if isinstance(where, str) else pushdown.encode(where))
    structure = structure.lower()
    wanted = wanted_columns(structure, columns)
    # Arrow batches without columns have no number of rows.
    read = list(dict.fromkeys([*wanted, *(name for name, _, _ in conditions)])) or [
        "physical_offset"
    ]
    frame = _unjudged(spark, path, structure, read, conditions, options)
    for name, comparison, value in conditions:
        frame = frame.where(pushdown.judge(col(name), comparison, value))
    return frame if wanted == read else frame.select(*wanted)


def scan_with_damage(
    spark: SparkSession,
    path: Sequence[str],
    columns: Iterable[str],
    where: Iterable[pushdown.Condition],
    options: dict[str, str],
) -> DataFrame:
    """:func:`scan` of logs for messages that match, and for all damage in what is read, which may
    have been such messages. The columns are the wanted ones and some more."""
    from pyspark.sql.functions import col

    conditions = pushdown.parse(pushdown.encode(where))
    read = list(dict.fromkeys([*columns, "status", *(name for name, _, _ in conditions)]))
    frame = _unjudged(spark, path, "commitlog", read, conditions, options)
    for name, comparison, value in conditions:
        holds = pushdown.judge(col(name), comparison, value)
        frame = frame.where(holds | (col("status") == "damage"))
    return frame


def _unjudged(
    spark: SparkSession,
    path: str | Sequence[str],
    structure: str,
    read: list[str],
    conditions: list[pushdown.Condition],
    options: dict[str, str],
) -> DataFrame:
    """What a scan reads. Conditions are only used to skip, not checked."""
    from rmqctl.spark.session.jobs import parallelism

    spark.dataSource.register(RocketMQDataSource)
    install_rules(spark)
    schema = ddl(structure, read)
    reader = spark.read.format(NAME).option("structure", structure)
    reader = reader.option("parallelism", parallelism(spark)).options(**options)
    if conditions:
        reader = reader.option("where", pushdown.encode(conditions))
    if isinstance(path, str):
        return reader.schema(schema).load(path)
    return reader.schema(schema).option("paths", json.dumps(list(path))).load()


class RocketMQDataSource(DataSource):
    """The data source ``rocketmq``."""

    @classmethod
    def name(cls) -> str:
        # Spark calls this when the source is registered, before it determines the workers' Python.
        use_own_python()
        send_code_to_streams()
        session = SparkSession.getActiveSession()
        if session is not None:
            install_rules(session)
        return NAME

    def schema(self) -> str:
        return ddl(self._structure, wanted_columns(self._structure, self.options.get("columns")))

    def reader(self, schema: StructType) -> DataSourceReader:
        options.check(self.options, "b")
        settings = self._settings()
        bounds = options.bounds(self.options, settings.structure, is_stream=False)
        if len(settings.stores) > 1 and (bounds.first_offsets or bounds.last_offsets):
            raise ValueError(ONE_STORE)
        return RocketMQReader(settings, schema, bounds)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options.check(self.options, "s")
        settings = self._settings()
        if any(map(is_remote, settings.stores)):
            raise ValueError(
                "a stream follows files that a broker writes, on file systems that every node "
                "sees: objects are read with spark.read"
            )
        from rmqctl.spark.source.stream import RocketMQStreamReader

        following = options.following(self.options, settings.structure)
        return RocketMQStreamReader(settings, schema, self.options["path"], following)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options.check(self.options, "w")
        path = self.options.get("path", "")
        if overwrite:
            raise ValueError('a store is never overwritten: mode("append") adds to it')
        config = broker_config(self.options.get("brokerConf", ""))
        as_stored = options.flag(self.options, "asStored")
        place = Path(paths.local_path(path))
        from rmqctl.spark.sink.appender import APP_ID, VERSION, RocketMQAppender, is_there
        from rmqctl.spark.sink.writer import RocketMQWriter

        app_id = self.options.get(APP_ID, "")
        if bool(app_id) != (VERSION in self.options):
            raise ValueError(f"a job that is to be put once needs both, {APP_ID} and {VERSION}")
        if is_remote(path):
            raise ValueError("a store is files that are mapped: give its directory to save()")
        if not path or not (app_id or is_there(place)):
            return RocketMQWriter(place, config, schema, as_stored=as_stored)
        version = options.number(self.options, VERSION, -1) if app_id else None
        if version is not None and version < 0:
            raise ValueError(f"option {VERSION} is a number from 0 on: others count as put already")
        return RocketMQAppender(
            place, config, schema, as_stored=as_stored, app_id=app_id, version=version
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options.check(self.options, "t")
        if overwrite:
            raise ValueError('messages are appended: write the stream with outputMode("append")')
        path = paths.local_path(self.options.get("path", ""))
        if not path or is_remote(path):
            raise ValueError("no store: give its directory to start()")
        from rmqctl.spark.sink.appender import RocketMQStreamAppender, stream_name

        return RocketMQStreamAppender(
            Path(path),
            broker_config(self.options.get("brokerConf", "")),
            schema,
            stream_name(self.options),
            as_stored=options.flag(self.options, "asStored"),
        )

    @property
    def _structure(self) -> str:
        structure: str = self.options.get("structure", "commitlog").lower()
        return structure

    def _settings(self) -> split.ReadSettings:
        given = self.options
        path, several = given.get("path", ""), given.get("paths", "")
        if not (path or several):
            raise ValueError("no path: give the store's directory to load()")
        # Spark's encoding of load([…]), in which a comma is a part of a name.
        names = json.loads(several) if several else None
        stores = expand_each(names) if names else expand(path)
        config = broker_config(given.get("brokerConf", ""))
        if is_spread(config) and (len(stores) > 1 or any(map(is_remote, stores))):
            raise ValueError(
                "storePathCommitLog lists the directories of one store on this machine: read it "
                "alone, or give a broker.conf without that line"
            )
        return split.ReadSettings(
            structure=self._structure,
            stores=stores,
            config=config,
            check_crc=options.check_crc(given),
            split_bytes=options.size(given, "splitBytes", split.SPLIT_BYTES),
            clock_slack=options.number(given, "clockSlackMs", CLOCK_SLACK),
            min_partitions=options.number(given, "minPartitions", 0),
            fails_on_loss=options.flag(given, "failOnDataLoss"),
            parallelism=options.number(given, "parallelism", 0),
        )


def broker_config(text: str) -> MessageStoreConfig:
    """The configuration of a ``broker.conf``, which is given as a path or as its text."""
    if not text:
        return MessageStoreConfig()
    is_path = "=" not in text or os.path.isfile(text)
    return load_broker_conf(text) if is_path else parse_broker_conf(text)


class RocketMQReader(DataSourceReader):
    """Reads splits as Arrow batches. It is sent to the executors, so it has only plain values."""

    def __init__(
        self,
        settings: split.ReadSettings,
        schema: StructType,
        bounds: pushdown.Bounds | None = None,
    ) -> None:
        from rmqctl.spark.source.schema import batch_schema

        self._settings = settings
        self._schema = batch_schema(settings, schema)
        self._bounds = bounds or pushdown.Bounds()

    def partitions(self) -> list[InputPartition]:
        from rmqctl.spark.source import splits
        from rmqctl.spark.source.packs import packed

        return packed(splits.plan(self._settings, self._bounds), self._settings)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from rmqctl.spark.source import splits

        pass_over_imported()
        for one in split.splits_of(partition):
            yield from splits.read(one, self._settings, self._bounds, self._schema)
