"""The writers that Spark calls for ``df.write.format("rocketmq").mode("append").save(path)`` to an
existing store, and for ``df.writeStream``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rmqctl.engine.files import paths
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.spark.session.staging import is_remote
from rmqctl.spark.sink.append import NAMELESS, Appending, Aside, Transaction, transaction_name
from rmqctl.spark.sink.encode import EncodeSettings
from rmqctl.spark.sink.newstore import WriteRefused, check_columns, task

APP_ID, VERSION = "txnAppId", "txnVersion"


@dataclass
class Written(WriterCommitMessage):
    """The result of one task."""

    told: Aside


class _Appender:
    """The common part of a batch job and a stream."""

    def __init__(
        self,
        path: Path,
        config: MessageStoreConfig,
        schema: StructType,
        app_id: str,
        as_stored: bool,
    ) -> None:
        """Makes the store if it does not exist.

        :raises WriteRefused: the columns cannot be messages. :raises NotAStore: the path is not a
            store. :raises StoreInUse: a broker, or another writer, uses it. :raises CannotWrite: no
            file can be written to it.
        """
        check_columns(str(path), schema)
        # A job that was killed while it made the store has left a lock, and perhaps an abort.
        left = {paths.LOCK, paths.ABORT}
        if not path.exists() or (path.is_dir() and {one.name for one in path.iterdir()} <= left):
            MessageStore(path, config, writable=True, create=True).close()
        paths.check_store(path)
        self.run = uuid.uuid4().hex
        self.app_id = app_id
        name = transaction_name(app_id) if app_id else NAMELESS + self.run
        settings = EncodeSettings(config, system_clock(), as_stored)
        self.appending = Appending(str(path.absolute()), name, settings)
        self.appending.begin()

    def set_aside(self, batches: Iterator[pa.RecordBatch]) -> Written:
        _, name = task()
        return Written(self.appending.set_aside(batches, f"{self.run}-{name}"))

    def put(self, messages: list[WriterCommitMessage | None], version: int | None) -> None:
        """Puts the messages of all tasks.

        :raises WriteRefused: a row was not a message; nothing was put.
        """
        told = _told(messages)
        for one in told:
            if one.refused:
                self.appending.abandon(told)
                raise WriteRefused(path=self.appending.root, reason=one.refused)
        transaction = Transaction(self.app_id, version) if version is not None else None
        self.appending.put(told, transaction)

    def abandon(self, messages: list[WriterCommitMessage | None]) -> None:
        self.appending.abandon(_told(messages))


class RocketMQAppender(DataSourceArrowWriter):
    """Appends the rows of one job.

    :param app_id: if given with ``version``, the job is put exactly once, whatever is killed, and
        however often it is run; empty: it is put each time.
    """

    def __init__(
        self,
        path: Path,
        config: MessageStoreConfig,
        schema: StructType,
        *,
        as_stored: bool = False,
        app_id: str = "",
        version: int | None = None,
    ) -> None:
        self._appender = _Appender(path, config, schema, app_id, as_stored)
        self._version = version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._appender.set_aside(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        try:
            self._appender.put(messages, self._version)
        finally:
            if self._version is None:
                self._appender.appending.remove()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._version is None:
            self._appender.appending.remove()
        else:
            self._appender.abandon(messages)


class RocketMQStreamAppender(DataSourceStreamArrowWriter):
    """Appends the batches of a stream, each exactly once, by its number."""

    def __init__(
        self,
        path: Path,
        config: MessageStoreConfig,
        schema: StructType,
        app_id: str,
        *,
        as_stored: bool = False,
    ) -> None:
        self._appender = _Appender(path, config, schema, app_id, as_stored)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._appender.set_aside(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._appender.put(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._appender.abandon(messages)


def stream_name(options: Mapping[str, str]) -> str:
    """The name of a stream, which restarts keep: ``txnAppId``, or else the id in its checkpoint.

    :raises ValueError: it has neither.
    """
    given = options.get(APP_ID, "")
    if given:
        return given
    checkpoint = paths.local_path(options.get("checkpointLocation", ""))
    unknown = ValueError(
        f"nothing says which stream this is after a restart: give option {APP_ID} a name of its "
        "own, or option checkpointLocation a directory that the driver sees"
    )
    if not checkpoint or is_remote(checkpoint):
        raise unknown
    try:
        name = json.loads(Path(checkpoint, "metadata").read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unknown from error
    return str(name)


def is_there(path: Path) -> bool:
    """Whether a path already has a store, so that rows are appended. Its log may be elsewhere."""
    return any((path / name).exists() for name in (paths.COMMIT_LOG, paths.CHECKPOINT))


def _told(messages: list[WriterCommitMessage | None]) -> list[Aside]:
    return [one.told for one in messages if isinstance(one, Written)]
