"""Makes columns of messages from lines of NDJSON, which have the same fields as for
``put --from``, or from rows with those columns."""

from __future__ import annotations

from base64 import b64encode
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
_NAMES = tuple(SCHEMA.names)
_HOSTS = ("born_host", "store_host")
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 10_000, 64 << 20


class LineRefused(UsageError):
    """A line, or row, of an input file is not a message. ``place`` is its number, if that can be
    told (:func:`_place_of`)."""

    exit_code = 5
    template = "{path}, {place}: {reason}. Correct it, or leave it out."


@dataclass(frozen=True)
class LineReader:
    """Makes columns from lines or rows. It is sent to the tasks. The options are those of ``put
    --from``."""

    ignore_body_crc: bool = False
    ignore_unknown: bool = False

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Columns of messages, from batches with ``value`` (a line), ``path`` (its file) and
        ``topic`` (by the name of the directory). :raises LineRefused: a line is not a message."""
        yield from _in_batches(self._of_lines(batches))

    def of_rows(self, rows: Iterable[Row], path: str) -> Iterator[pa.RecordBatch]:
        """Columns of messages, from the rows of a file that has columns. A body may be bytes.
        :raises LineRefused: a row is not a message."""
        yield from _in_batches(self._of_rows(rows, path))

    def _of_lines(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        for batch in batches:
            lines = batch.column("value").cast(pa.binary()).to_pylist()
            paths, topics = (batch.column(name).to_pylist() for name in ("path", "topic"))
            for line, path, topic in zip(lines, paths, topics, strict=True):
                try:
                    given = _given(line)
                    row = None if given is None else self._message(given, topic)
                except NotAMessage as error:
                    shown = local_path(unquote(path))
                    raise _refused(error, shown, _place_of(line, shown)) from None
                if row is not None:
                    yield row

    def _of_rows(self, rows: Iterable[Row], path: str) -> Iterator[Row]:
        for number, given in enumerate(rows, 1):
            if type(given.get("body")) is bytes:
                body = b64encode(given["body"]).decode()
                given = {**given, "body": body, "body_encoding": "base64"}
            try:
                row = self._message(given)
            except NotAMessage as error:
                raise _refused(error, path, f"row {number}") from None
            if row is not None:
                yield row

    def _message(self, given: Row, topic: str | None = None) -> Row | None:
        """The columns of a message; None for a row of another type. ``topic`` is that of messages
        without one. :raises NotAMessage: the row is wrong."""
        if fields.is_other_row(given, ignore_unknown=self.ignore_unknown):
            return None
        values = fields.checked(given, ignore_unknown=self.ignore_unknown)
        if values.get("delay_level"):
            raise NotAMessage("delay_level is for `rmqctl put`: an import delays nothing")
        row = {name: values.get(name) for name in _NAMES}
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


def _given(line: bytes) -> Row | None:
    """The fields of a line; None if it is empty. :raises NotAMessage: it is no JSON object."""
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
    return given


def _in_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    taken: list[Row] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += len(row["body"])
        if len(taken) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield pa.RecordBatch.from_pylist(taken, SCHEMA)
            taken, size = [], 0
    if taken:
        yield pa.RecordBatch.from_pylist(taken, SCHEMA)


def _refused(error: NotAMessage, path: str, place: str) -> LineRefused:
    taken = f" ({error.ignored_by} is for such lines)" if error.ignored_by else ""
    return LineRefused(path=path, place=place, reason=f"{error}{taken}")


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
