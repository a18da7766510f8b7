"""``df.write.format("rocketmq").mode("append").save(path)``: a new store from rows.

Tasks put their rows aside, side by side, as Arrow files; then one process appends them in the order
of the partitions, through the engine that ``put`` uses. So places in the log and in the queues are
what a broker would have given, and memory is bounded by one Arrow batch. The store gets its name
when it is complete: a job that fails leaves nothing. What is put aside lies beside the store, where
every node must see it.

Appending is not parallel: a place in the log depends on every message before it.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from formats import constants
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.message import MessageExtBrokerInner, parse_host
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import RmqctlError

#: Columns that a message is made of, with the types they may have; the first two must be there.
COLUMNS = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "queue_id": ("int", "bigint", "smallint", "tinyint"),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "born_timestamp": ("bigint",),
    "born_host": ("string",),
    "store_host": ("string",),
    "reconsume_times": ("int",),
}
_REQUIRED = ("topic", "body")
_OPTIONAL = {
    "queue_id": "queue_id",
    "flag": "flag",
    "born_timestamp": "born_timestamp",
    "reconsume_times": "reconsume_times",
}


class WriteRefused(RmqctlError):
    template = "cannot make the store {path}: {reason}. Nothing was written."


@dataclass
class Written(WriterCommitMessage):
    """What one task has put aside."""

    name: str
    rows: int


class RocketMQWriter(DataSourceArrowWriter):
    """Writes one new store."""

    def __init__(self, path: Path, config: MessageStoreConfig, schema: StructType) -> None:
        """:raises WriteRefused: the path holds something, or the columns make no messages."""
        self._path, self._config = path, config
        if path == Path():
            raise WriteRefused(path="", reason="give its directory to save()")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise WriteRefused(path=str(path), reason="something is there already")
        problem = _schema_problem(schema)
        if problem is not None:
            raise WriteRefused(path=str(path), reason=problem)
        self._staging = path.parent / f".{path.name}.rmqctl-new-{uuid.uuid4().hex[:12]}"
        try:
            self._staging.mkdir(parents=True)
        except OSError as error:
            raise WriteRefused(path=str(path), reason=str(error)) from error

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task: its rows into a file of its own, which only a commit names."""
        context = TaskContext.get()
        place = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        name, rows, sink = f"{place[0]:06d}-{place[1]}.arrow", 0, None
        # Abort takes the directory away, and a late task must not make it again.
        with open(self._staging / name, "xb") as file:
            for batch in iterator:
                sink = sink or pa.ipc.new_stream(file, batch.schema)
                sink.write_batch(batch)
                rows += batch.num_rows
            if sink is not None:
                sink.close()
        return Written(name, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Appends what the tasks have put aside, and gives the store its name.

        :raises WriteRefused: a row is no message, or the disk is full; nothing is left.
        """
        written = [message for message in messages if isinstance(message, Written)]
        try:
            store = self._staging / "store"
            self._append(store, [message.name for message in written if message.rows])
            os.rename(store, self._path)
            descriptor = os.open(self._path.parent, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        except OSError as error:
            raise WriteRefused(path=str(self._path), reason=str(error)) from error
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes what was put aside, also by tasks that did not finish."""
        shutil.rmtree(self._staging, ignore_errors=True)

    def _append(self, root: Path, names: list[str]) -> None:
        with MessageStore(root, self._config, writable=True, create=True) as store:
            for bulk in store.append_stream(self._messages(names), flush=False):
                if bulk.refused is not None:
                    refused = bulk.refused
                    reason = f"a message is refused ({refused.status.value}: {refused.reason})"
                    raise WriteRefused(path=str(self._path), reason=reason)

    def _messages(self, names: list[str]) -> Iterator[MessageExtBrokerInner]:
        now = time.time_ns() // 1_000_000
        for name in names:
            with pa.OSFile(str(self._staging / name)) as file:
                for batch in pa.ipc.open_stream(file):
                    columns = batch.schema.names
                    values = [column.to_pylist() for column in batch.columns]
                    for row in zip(*values, strict=True):
                        yield self._message(dict(zip(columns, row, strict=True)), now)

    def _message(self, row: dict[str, Any], now: int) -> MessageExtBrokerInner:
        """A row as a message. What is null is left to its default."""
        if row["topic"] is None:
            raise WriteRefused(path=str(self._path), reason=f"a row has no topic: {_brief(row)}")
        properties = dict(row.get("properties") or ())
        for column, name in (("tags", constants.PROPERTY_TAGS), ("keys", constants.PROPERTY_KEYS)):
            if row.get(column):
                properties[name] = row[column]
        body = row["body"] if row["body"] is not None else b""
        values: dict[str, Any] = {
            field: row[column] for column, field in _OPTIONAL.items() if row.get(column) is not None
        }
        try:
            for host in ("born_host", "store_host"):
                if row.get(host) is not None:
                    values[host] = parse_host(row[host])
            _check_ranges(properties, values)
        except ValueError as error:
            reason = f"{error}, in the row {_brief(row)}"
            raise WriteRefused(path=str(self._path), reason=reason) from error
        return MessageExtBrokerInner(
            row["topic"],
            body.encode() if isinstance(body, str) else body,
            properties=properties,
            **{"born_timestamp": now} | values,
        )


def _check_ranges(properties: dict[str, str], values: dict[str, Any]) -> None:
    """:raises ValueError: a value that the format cannot hold."""
    if not -(2**31) <= values.get("queue_id", 0) < 2**31:
        raise ValueError(f"queue_id {values['queue_id']} is no int")
    for name, value in properties.items():
        if value is None:
            raise ValueError(f"the property {name!r} is null")
        if any(mark in name + value for mark in _SEPARATORS):
            raise ValueError(f"the property {name!r} holds a separator (0x01 or 0x02)")


_SEPARATORS = (constants.NAME_VALUE_SEPARATOR, constants.PROPERTY_SEPARATOR)


def _schema_problem(schema: StructType) -> str | None:
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in _REQUIRED:
        if name not in types:
            return f"there is no column {name}"
    for name, kind in types.items():
        if name not in COLUMNS:
            return f"column {name} is none of a message: {', '.join(COLUMNS)}; select what is"
        if kind not in COLUMNS[name]:
            return f"column {name} is {kind}, it must be {' or '.join(COLUMNS[name])}"
    return None


def _brief(row: dict[str, Any]) -> str:
    text = str({name: value for name, value in row.items() if name != "body"})
    return text if len(text) <= 200 else text[:200] + "…"
