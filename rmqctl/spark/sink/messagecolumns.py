"""Makes records from the columns of a batch of rows.

A record consists of fixed-size fields, body, topic and properties. Each of these is made as one
column, and Arrow joins them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from formats import constants, layouts
from formats.derive import dtype_of
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.record.message import LOCALHOST, Host, parse_host
from rmqctl.engine.scan.columns import Ints
from rmqctl.spark.sink.propertytext import property_texts

#: The columns of a message, with the types that they may have. The first two are required.
COLUMNS = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "queue_id": ("int", "bigint", "smallint", "tinyint"),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "sys_flag": ("int",),
    "born_timestamp": ("bigint",),
    "born_host": ("string",),
    "store_host": ("string",),
    "reconsume_times": ("int",),
    "prepared_transaction_offset": ("bigint",),
    "body_crc": ("int",),
}
REQUIRED = ("topic", "body")
SINGLE = {"tags": constants.PROPERTY_TAGS, "keys": constants.PROPERTY_KEYS}
HOSTS = {"born_host": "born", "store_host": "store"}
NUMBERS = (
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)
#: The version of the records that are made here: that of 4.9.3.
_TAIL = layouts.TAIL[constants.MESSAGE_MAGIC_CODE]
_TOPIC_LENGTH, _PROPERTIES_LENGTH = (
    np.dtype(f">{length.code}") for length in (_TAIL.topic_length, _TAIL.properties_length)
)
_PREFIX = {flags: dtype_of(layout) for flags, layout in layouts.RECORD_PREFIX.items()}
BYTES = pa.large_binary()
_NOTHING = pa.scalar(b"", BYTES)
INT_LIMIT = constants.INT_MAX + 1


class MessageColumns:
    """The columns of a batch, with defaults for null or absent values. ``is_odd`` marks rows that
    must be encoded one by one. ``size`` has the sizes (bytes) of the records of all others."""

    def __init__(
        self, batch: pa.RecordBatch, timestamp: int, special: set[str], dropped: set[str]
    ) -> None:
        self._given = {
            name: batch.column(at) for at, name in enumerate(batch.schema.names) if name in COLUMNS
        }
        self._count: int = batch.num_rows
        self._timestamp = timestamp
        self.is_odd = np.zeros(self._count, bool)
        self._topics()
        self.number = {name: self._integers(name) for name in NUMBERS}
        self.is_odd |= (self.number["queue_id"] < 0) | (self.number["queue_id"] >= INT_LIMIT)
        kind = np.zeros(self._count, np.int64)
        self._hosts: dict[str, tuple[list[Host], Ints]] = {}
        for name, flag in zip(
            HOSTS, (constants.BORNHOST_V6_FLAG, constants.STOREHOSTADDRESS_V6_FLAG), strict=True
        ):
            hosts, code = self._hosts[name] = self._parsed_hosts(name)
            kind += np.array(
                [flag * (len(address) == constants.IPV6_SIZE) for address, _ in hosts], np.int64
            )[code]
        self._kind = kind
        self._body = self._bytes("body")
        single = {
            property_name: self._given[name]
            for name, property_name in SINGLE.items()
            if name in self._given
        }
        texts = property_texts(
            self._given.get("properties"), single, self._count, special=special, dropped=dropped
        )
        self._properties = texts.data
        self.is_odd |= texts.is_odd
        self._body_length = _lengths(self._body)
        self.properties_length = _lengths(self._properties)
        self.is_odd |= self.properties_length > _TAIL.properties_length.limit
        self.size = self._body_length + self.properties_length + _PROPERTIES_LENGTH.itemsize
        self.size += np.array([len(tail) for tail in self._tails], np.int64)[self.topic_code]
        prefix_size = np.zeros(constants.HOST_V6_MASK + 1, np.int64)
        prefix_size[list(_PREFIX)] = [dtype.itemsize for dtype in _PREFIX.values()]
        self.size += prefix_size[kind]

    def __len__(self) -> int:
        return self._count

    def changed_body(self) -> int | None:
        """The number of a row whose body does not match its ``body_crc``; None if there is no such
        row, or no such column. As in RocketMQ, empty bodies are not checked."""
        if "body_crc" not in self._given:
            return None
        column = self._given["body_crc"]
        told = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        is_told = column.is_valid().to_numpy(zero_copy_only=False)
        differs = is_told & (told != _crcs(self._body)) & (self._body_length > 0)
        return int(np.argmax(differs)) if differs.any() else None

    def row(self, number: int) -> dict[str, Any]:
        """One row as a dict, to be encoded by itself."""
        row = {name: column[number].as_py() for name, column in self._given.items()}
        row["body"] = self._body[number].as_py()
        return row

    def records(self, rows: Ints, queue_offset: Ints) -> tuple[pa.Array, Ints]:
        """The records of plain rows, and their sizes (bytes)."""
        parts, order = [], []
        for kind in np.unique(self._kind[rows]).tolist():
            at = np.flatnonzero(self._kind[rows] == kind)
            parts.append(self._records_of(kind, rows[at], queue_offset[at]))
            order.append(at)
        if len(parts) == 1:
            return parts[0], self.size[rows]
        if not parts:
            return pa.array([], BYTES), self.size[rows]
        back = np.argsort(np.concatenate(order))
        return pa.concat_arrays(parts).take(pa.array(back)), self.size[rows]

    def _records_of(self, kind: int, rows: Ints, queue_offset: Ints) -> pa.Array:
        is_all = len(rows) == self._count
        body, properties = (
            column if is_all else column.take(pa.array(rows))
            for column in (self._body, self._properties)
        )
        prefix = np.zeros(len(rows), _PREFIX[kind])
        for name in NUMBERS:
            prefix[name] = self.number[name][rows]
        prefix["total_size"] = self.size[rows]
        prefix["magic_code"] = constants.MESSAGE_MAGIC_CODE
        prefix["body_crc"] = _crcs(body)
        prefix["queue_offset"] = queue_offset
        prefix["sys_flag"] |= kind
        prefix["store_timestamp"] = self._timestamp
        prefix["body_length"] = self._body_length[rows]
        for name, which in HOSTS.items():
            hosts, code = self._hosts[name]
            width = _PREFIX[kind][f"{which}_address"].itemsize
            addresses = np.array(
                [host[0].ljust(width, b"\0")[:width] for host in hosts], f"V{width}"
            )
            prefix[f"{which}_address"] = addresses[code[rows]]
            prefix[f"{which}_port"] = np.array([host[1] for host in hosts], np.int64)[code[rows]]
        tails = pa.array(self._tails, BYTES).take(pa.array(self.topic_code[rows]))
        lengths = self.properties_length[rows].astype(_PROPERTIES_LENGTH)
        return pc.binary_join_element_wise(
            _fixed(prefix), body, tails, _fixed(lengths), properties, _NOTHING
        )

    def _topics(self) -> None:
        """Sets ``topics`` (by number), ``topic_code`` (the number for each row), and the bytes of
        topics as they are in records."""
        topic = self._given["topic"].dictionary_encode()
        self.topics: list[str] = [*topic.dictionary.to_pylist(), ""]
        code = topic.indices.fill_null(len(self.topics) - 1)
        self.topic_code: Ints = code.to_numpy(zero_copy_only=False).astype(np.int64)
        names = [name.encode() for name in self.topics]
        allowed = [
            len(name) <= _TAIL.topic_length.limit and topic_directory_problem(text) is None
            for name, text in zip(names, self.topics, strict=True)
        ]
        self._tails = [
            _TOPIC_LENGTH.type(len(name)).tobytes() + name if good else b""
            for name, good in zip(names, allowed, strict=True)
        ]
        self.is_odd |= ~np.array(allowed)[self.topic_code]

    def _integers(self, name: str) -> Ints:
        default = self._timestamp if name == "born_timestamp" else 0
        if name not in self._given:
            return np.full(self._count, default, np.int64)
        values = self._given[name].cast(pa.int64()).fill_null(default)
        numbers: Ints = values.to_numpy(zero_copy_only=False)
        return numbers & ~constants.HOST_V6_MASK if name == "sys_flag" else numbers

    def _parsed_hosts(self, name: str) -> tuple[list[Host], Ints]:
        """The distinct hosts of a column, and for each row the number of its host. Rows with an
        invalid host are odd, and have the default host here."""
        if name not in self._given:
            return [LOCALHOST], np.zeros(self._count, np.int64)
        column = self._given[name].dictionary_encode()
        hosts, good = [LOCALHOST], [True]
        for text in column.dictionary.to_pylist():
            try:
                hosts.append(parse_host(text))
                good.append(True)
            except ValueError:
                hosts.append(LOCALHOST)
                good.append(False)
        code: Ints = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(False) + 1
        self.is_odd |= ~np.array(good)[code]
        return hosts, code

    def _bytes(self, name: str) -> pa.Array:
        return self._given[name].cast(BYTES).fill_null(b"")


def _lengths(column: pa.Array) -> Ints:
    lengths: Ints = pc.binary_length(column).to_numpy(zero_copy_only=False)
    return lengths


def _crcs(bodies: pa.Array) -> Ints:
    """The CRC-32 of each body, & 0x7FFFFFFF; 0 for an empty body."""
    edges = np.frombuffer(bodies.buffers()[1], np.int64)[bodies.offset :][: len(bodies) + 1]
    with memoryview(bodies.buffers()[2] or b"") as data:
        ends = edges.tolist()
        codes = [crc32(data[low:high]) for low, high in pairwise(ends)]
    return np.array(codes, np.int64) & 0x7FFFFFFF


def _fixed(values: NDArray[Any]) -> pa.Array:
    """The items of an array as fixed-size binary values."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    kind = pa.binary(values.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(values), buffers).cast(BYTES)
