"""Makes columns of messages from lines of NDJSON, which have the same fields as for
``put --from``."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from rmqctl.engine.files.paths import local_path
from rmqctl.engine.record import fields
from rmqctl.engine.record.fields import NotAMessage
from rmqctl.errors import UsageError

Row = dict[str, Any]
#: The columns that are made of a line: those of a message, and those for the order of an export.
SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "queue_id": pa.int32(),
        "flag": pa.int32(),
        "sys_flag": pa.int32(),
        "born_timestamp": pa.int64(),
        "born_host": pa.string(),
        "store_host": pa.string(),
        "reconsume_times": pa.int32(),
        "prepared_transaction_offset": pa.int64(),
        "tags": pa.string(),
        "keys": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "body": pa.binary(),
        "store": pa.string(),
        "physical_offset": pa.int64(),
    }
)
DDL = (
    "topic string, queue_id int, flag int, sys_flag int, born_timestamp bigint, born_host string, "
    "store_host string, reconsume_times int, prepared_transaction_offset bigint, tags string, "
    "keys string, properties map<string,string>, body binary, store string, physical_offset bigint"
)
_HOSTS = ("born_host", "store_host")
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 10_000, 64 << 20


class LineRefused(UsageError):
    """A line of an input file is not a message. A task finds this, except for the first line.

    ``place`` is its number, if that can be told (:func:`_place_of`)."""

    exit_code = 5
    template = "{path}, {place}: {reason}. Correct the line, or leave it out."


@dataclass(frozen=True)
class LineReader:
    """Makes columns from lines. It is sent to the tasks. The options are those of ``put
    --from``."""

    ignore_body_crc: bool = False
    ignore_unknown: bool = False

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Columns of messages, from batches with ``value`` (a line), ``path`` (its file) and
        ``topic`` (by the name of the directory). :raises LineRefused: a line is not a message."""
        rows: list[Row] = []
        size = 0
        for batch in batches:
            lines = batch.column("value").cast(pa.binary()).to_pylist()
            paths, topics = (batch.column(name).to_pylist() for name in ("path", "topic"))
            for line, path, topic in zip(lines, paths, topics, strict=True):
                try:
                    row = self._row(line, topic)
                except NotAMessage as error:
                    shown = local_path(unquote(path))
                    taken = f" ({error.ignored_by} is for such lines)" if error.ignored_by else ""
                    raise LineRefused(
                        path=shown, place=_place_of(line, shown), reason=f"{error}{taken}"
                    ) from None
                if row is None:
                    continue
                rows.append(row)
                size += len(row["body"])
                if len(rows) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
                    yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                    rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)

    def _row(self, line: bytes, topic: str | None) -> Row | None:
        """The row of a line; None if the line is empty, or a row of another type."""
        # A byte order mark can only be at the start of a file. In other lines it is no JSON.
        line = line.removeprefix(BOM_UTF8)
        if not line or line.isspace():
            return None
        try:
            given = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise NotAMessage(f"not JSON: {error}") from None
        if type(given) is not dict:
            raise NotAMessage(f"not a JSON object but {fields.spelled(given)}")
        if fields.is_other_row(given, ignore_unknown=self.ignore_unknown):
            return None
        values = fields.checked(given, ignore_unknown=self.ignore_unknown)
        if values.get("delay_level"):
            raise NotAMessage("delay_level is for `rmqctl put`: an import delays nothing")
        row = {name: values.get(name) for name in SCHEMA.names}
        row |= {name: given.get(name) for name in _HOSTS}
        row["topic"] = values.get("topic", topic)
        if row["topic"] is None:
            raise NotAMessage("the field topic is missing")
        row["body"] = fields.body_of(values, ignore_body_crc=self.ignore_body_crc)
        sys_flag = values.get("sys_flag", 0) | values.get("transaction", 0)
        row["sys_flag"] = fields.plain_sys_flag(values, sys_flag)
        offset, store = given.get("physical_offset"), given.get("store")
        row["physical_offset"] = offset if type(offset) is int and offset >> 63 == 0 else None
        row["store"] = store if type(store) is str else None
        return row


def _place_of(line: bytes, path: str) -> str:
    """Which line of a file it is, counted from 1. Spark gives lines without their numbers, and
    parts of a file to several tasks: so the file is read until the line comes. An earlier line of
    the same bytes is refused as well."""
    try:
        with open(path, "rb") as file:
            for number, other in enumerate(file, 1):
                if other.removesuffix(b"\n") == line:
                    return f"line {number}"
    except OSError:
        pass  # It is in object storage.
    return "a line"
