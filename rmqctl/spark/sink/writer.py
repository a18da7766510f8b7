"""``df.write.format("rocketmq").mode("append").save(path)``: makes a new store from rows.

Tasks encode their rows in parallel and write them as runs. Then the driver's machine writes the
files of the commit log in parallel, and after them queues and index. Physical offsets and queue
offsets are those that a broker would give to the rows in the order of the partitions. The store is
built in a directory beside ``path``, which every node must see, and is renamed when it is complete.
A job that fails leaves nothing. What a killed job has left is removed by the next job with the same
path.

With the option ``asStored`` (``true``) the rows are records of another store, and stay as they
were: a DELAY property delays nothing. :func:`rmqctl.spark.sink.newstore.write_store` does all steps
on Spark.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqctl.engine.files.durable import put_in_place
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.spark.session.staging import BESIDE, made_anew
from rmqctl.spark.sink.encode import EncodeSettings
from rmqctl.spark.sink.newstore import (
    NewStore,
    SetAside,
    WriteRefused,
    check_columns,
    check_new_store,
    task,
)

__all__ = ["RocketMQWriter", "WriteRefused"]


@dataclass
class Written(WriterCommitMessage):
    """What one task has set aside."""

    told: SetAside


class RocketMQWriter(DataSourceArrowWriter):
    """Writes one new store."""

    def __init__(
        self,
        path: Path,
        config: MessageStoreConfig,
        schema: StructType,
        *,
        as_stored: bool = False,
        timestamp: int | None = None,
    ) -> None:
        """``timestamp`` (ms) is the store time of all messages; by default the time of the call.

        :raises WriteRefused: the path is not empty, the columns cannot be messages, or the
            configuration puts the log elsewhere.
        :raises OutputInUse: an import is making a store there.
        """
        if path == Path():
            raise WriteRefused(path="", reason="give its directory to save()")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise WriteRefused(path=str(path), reason="something is there already")
        check_new_store(str(path), config)
        check_columns(str(path), schema)
        self._path = path = path.absolute()
        # An earlier job with the same path fails when its directory is removed: the later one wins.
        self._staging = path.with_name(path.name + BESIDE)
        place = self._staging / uuid.uuid4().hex
        stored_at = system_clock() if timestamp is None else timestamp
        self._new = NewStore(str(place), str(path), EncodeSettings(config, stored_at, as_stored))
        try:
            # Tasks and commit run in other processes, so this process cannot keep the lock.
            os.close(made_anew(self._staging, path))
            place.mkdir()
            self._new.begin()
        except OSError as error:
            raise WriteRefused(path=str(path), reason=str(error)) from error

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one task as a run. It only counts if its name is committed."""
        _, name = task()
        return Written(self._new.set_aside(iterator, name))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the store from the runs of the tasks, and renames it.

        :raises WriteRefused: a row is not a message, or the disk is full. Nothing is left.
        """
        told = [message.told for message in messages if isinstance(message, Written)]
        try:
            self._new.complete(told)
            put_in_place(Path(self._new.root), self._path)
        except WriteRefused:
            raise
        except (OSError, ValueError, RmqctlError) as error:
            raise WriteRefused(path=str(self._path), reason=str(error)) from error
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes all runs, also those of tasks that did not finish."""
        shutil.rmtree(self._staging, ignore_errors=True)
