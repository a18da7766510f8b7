"""``df.write.format("rocketmq").mode("append").save(path)``: a new store from rows.

Tasks encode their rows and set them aside, side by side; then the driver's machine writes the files
of the commit log in parallel, and after them queues and index. Places in the log and in the queues
are those that a broker would have given to the rows in the order of the partitions. The store gets
its name when it is complete: a job that fails leaves nothing, and what a killed one left the next
one to the same path removes. Everything lies beside the store until then, where every node must see
it.

The option ``asStored`` (``true``) says that rows are records of another store, which stay what they
were: a DELAY property delays nothing. :func:`rmqctl.spark.sink.newstore.write_store` does all of
it on Spark.
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
    check_new_store,
    task,
    with_threads,
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
        """``timestamp`` is the store time of all messages, the time of the call by default.

        :raises WriteRefused: the path holds something, or the columns make no messages,
            or the log would lie elsewhere.
        :raises OutputInUse: an import is making a store there.
        """
        if path == Path():
            raise WriteRefused(path="", reason="give its directory to save()")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise WriteRefused(path=str(path), reason="something is there already")
        check_new_store(str(path), schema, config)
        self._path = path = path.absolute()
        # Another job to the same path fails when its directory goes: the later one wins.
        self._staging = path.with_name(path.name + BESIDE)
        place = self._staging / uuid.uuid4().hex
        stored_at = system_clock() if timestamp is None else timestamp
        self._new = NewStore(str(place), str(path), EncodeSettings(config, stored_at, as_stored))
        try:
            # Tasks and commit run in other processes, so the lock cannot be kept.
            os.close(made_anew(self._staging, path))
            place.mkdir()
            self._new.begin()
        except OSError as error:
            raise WriteRefused(path=str(path), reason=str(error)) from error

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task: its rows as a run, which only a commit names."""
        _, name = task()
        return Written(self._new.set_aside(iterator, name))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the store of what the tasks have set aside, and gives it its name.

        :raises WriteRefused: a row is no message, or the disk is full; nothing is left.
        """
        told = [message.told for message in messages if isinstance(message, Written)]
        try:
            if self._new.write_log(told, with_threads):
                self._new.dispatch()
            self._new.finish()
            put_in_place(Path(self._new.root), self._path)
        except WriteRefused:
            raise
        except (OSError, ValueError, RmqctlError) as error:
            raise WriteRefused(path=str(self._path), reason=str(error)) from error
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes what was set aside, also by tasks that did not finish."""
        shutil.rmtree(self._staging, ignore_errors=True)
