"""Converts batches of the scanner to Arrow record batches. Only the wanted columns are built."""

from __future__ import annotations

import dataclasses
from binascii import hexlify
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from formats import layouts
from formats.constants import HOST_V6_MASK, INT_MAX
from formats.derive import dtype_of
from rmqctl.arrow.properties import MAP, CompiledProperties, PropertyEntries, ragged, texts
from rmqctl.engine.record.record import Damage, host_text
from rmqctl.engine.record.status import BODY_CRC_MISMATCH, OK, UNCHECKED
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.buffers import Buffers, column_buffers
from rmqctl.engine.scan.columns import Bytes, Ints, take
from rmqctl.rows.columns import STRUCTURES, Source

_PREFIX = {flags: dtype_of(layout) for flags, layout in layouts.RECORD_PREFIX.items()}
_UTC = pa.timestamp("us", tz="UTC")
_PORT_SIZE = 4
#: A column that repeats one text is kept for the next batch if it has at most so many bytes.
_MOST_KEPT_BYTES = 4 << 20

ARROW_TYPES: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": _UTC,
    "map<string,string>": MAP,
}


def arrow_schema(structure: str, names: Iterable[str]) -> pa.Schema:
    """The Arrow schema of some columns. :raises ValueError: the structure has no such column."""
    known = {column.name: column.type for column in STRUCTURES[structure]}
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise ValueError(f"{structure} has no column {name!r}, but {', '.join(known)}")
    return pa.schema([(name, ARROW_TYPES[known[name]]) for name in wanted])


class MessageColumns:
    """The columns of a batch of records; ``names`` are the wanted ones. The compiled kernel makes
    most of them. The others, or all without the kernel, are made here when they are asked for."""

    def __init__(
        self, batch: Batch, source: Source, names: Sequence[str], *, checked: bool
    ) -> None:
        self._batch = batch
        self._checked = checked
        self._source = source
        self._data = np.frombuffer(batch.mapped.buffer, np.uint8)
        self._compiled = column_buffers(batch, self._data, names)
        self._odd: CompiledProperties | None = None

    def column(self, name: str) -> pa.Array:
        """One column by its name."""
        kind = _KINDS[name]
        buffers = self._compiled.get(name)
        if buffers is not None:
            return self._of_kernel(name, kind, buffers)
        made = _MADE.get(name)
        if made is not None:
            return made(self)
        if name in _IN_BATCH:
            return pa.array(getattr(self._batch, name), kind)
        return pa.array(self._field(name).astype(np.int64), kind)

    def _of_kernel(self, name: str, kind: pa.DataType, buffers: Buffers) -> pa.Array:
        """A column over the kernel's buffers, without a copy."""
        if name == "properties":
            return self._decoded(buffers).maps(buffers)
        if name == "tags_code":
            return pa.array(self._decoded(buffers).tags_codes(buffers))
        if len(buffers) > 1:
            return texts(buffers, kind)
        return pa.Array.from_buffers(kind, len(self._batch), [None, pa.py_buffer(buffers[0])])

    def _decoded(self, buffers: Buffers) -> CompiledProperties:
        if self._odd is None:
            batch, odd_rows = self._batch, np.frombuffer(buffers[-1], np.int64)
            places = batch.properties_position, batch.properties_length
            self._odd = CompiledProperties(self._data, *places, odd_rows)
        return self._odd

    @cached_property
    def _rows_by_hosts(self) -> list[tuple[Ints | slice, NDArray[Any]]]:
        """The rows with each kind of hosts, and their record prefixes."""
        hosts, position = self._batch.sys_flag & HOST_V6_MASK, self._batch.position
        kind = int(hosts[0])
        if (hosts == kind).all():
            return [(slice(None), take(self._data, position, _PREFIX[kind]))]
        return [
            (rows, take(self._data, position[rows], _PREFIX[int(flags)]))
            for flags in np.unique(hosts)
            for rows in [np.flatnonzero(hosts == flags)]
        ]

    def _field(self, name: str) -> NDArray[Any]:
        """A field of the record prefix, for all rows."""
        values = np.empty(len(self._batch), np.int64)
        for rows, prefix in self._rows_by_hosts:
            values[rows] = prefix[name]
        return values

    def topic(self) -> pa.Array:
        names = pa.array(self._batch.topics.names, pa.string())
        return names.take(pa.array(self._batch.topic_id))

    def born_time(self) -> pa.Array:
        return times(self._field("born_timestamp"))

    def store_time(self) -> pa.Array:
        return times(self._batch.store_timestamp)

    def born_host(self) -> pa.Array:
        return self._hosts("born")

    def store_host(self) -> pa.Array:
        return self._hosts("store")

    def _hosts(self, which: str) -> pa.Array:
        """The text of each row's host. Few hosts send many messages, so each text is made once."""
        told: list[str] = []
        code = np.empty(len(self._batch), np.int64)
        for rows, prefix in self._rows_by_hosts:
            raw = _host_bytes(prefix, which)
            count, width = raw.shape
            # Those of IPv4 fill a word, and words are compared faster than bytes.
            kind = pa.int64() if width == 8 else pa.binary(width)
            known = pa.Array.from_buffers(
                kind, count, [None, pa.py_buffer(raw)]
            ).dictionary_encode()
            hosts = known.dictionary.view(pa.binary(width)).to_pylist()
            code[rows] = known.indices.to_numpy() + len(told)
            told += [
                host_text(host[:-4], int.from_bytes(host[-4:], "big", signed=True))
                for host in hosts
            ]
        if len(told) == 1:
            return _repeated(told[0], len(self._batch))
        return pa.array(told, pa.string()).take(pa.array(code))

    def msg_id(self) -> pa.Array:
        """The offset message id: address, port and physical offset in hexadecimal digits."""
        parts, order = [], []
        numbers = np.arange(len(self._batch))
        for rows, prefix in self._rows_by_hosts:
            host = _host_bytes(prefix, "store")
            offsets = self._batch.physical_offset[rows].astype(">i8").view(np.uint8).reshape(-1, 8)
            octets = np.concatenate([host, offsets], axis=1)
            digits = hexlify(octets.data).upper()
            edges = np.arange(0, len(digits) + 1, 2 * octets.shape[1], dtype=np.int32)
            buffers = [None, pa.py_buffer(edges), pa.py_buffer(digits)]
            parts.append(pa.Array.from_buffers(pa.string(), len(octets), buffers))
            order.append(numbers[rows])
        if len(parts) == 1:
            return parts[0]
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order))))

    @cached_property
    def _properties(self) -> PropertyEntries:
        batch = self._batch
        return PropertyEntries(self._data, batch.properties_position, batch.properties_length)

    def tags_code(self) -> pa.Array:
        """The hash of the tags, as ``walk commitlog`` shows it. A delayed message has it, too; only
        its queue unit has the delivery time instead."""
        return pa.array(self._properties.tags_codes())

    def properties(self) -> pa.Array:
        return self._properties.maps()

    def body(self) -> pa.Array:
        return ragged(self._data, self._batch.body_position, self._batch.body_length)

    def status(self) -> pa.Array:
        if not self._checked or self._batch.crc_matches.all():
            return _repeated(OK if self._checked else UNCHECKED, len(self._batch))
        states = pa.array([OK, BODY_CRC_MISMATCH], pa.string())
        return states.take(pa.array((~self._batch.crc_matches).astype(np.int64)))

    def damage(self) -> pa.Array:
        return _repeated(None, len(self._batch))

    def store(self) -> pa.Array:
        return _repeated(self._source.store, len(self._batch))

    def broker(self) -> pa.Array:
        return _repeated(self._source.broker, len(self._batch))


_KINDS = {column.name: ARROW_TYPES[column.type] for column in STRUCTURES["commitlog"]}
#: Columns that a method of their name makes. Of the others, a batch has some as arrays, and the
#: rest are fields of the record's prefix.
_MADE: dict[str, Callable[[MessageColumns], pa.Array]] = {
    name: getattr(MessageColumns, name) for name in _KINDS if hasattr(MessageColumns, name)
}
_IN_BATCH = {field.name for field in dataclasses.fields(Batch)} - set(_MADE)


def message_batch(
    batch: Batch, schema: pa.Schema, source: Source, *, checked: bool = True
) -> pa.RecordBatch:
    """The records of a batch in a schema's columns. ``checked``: the scan has checked bodies."""
    names = schema.names
    columns = MessageColumns(batch, source, names, checked=checked)
    made = [columns.column(name) for name in names]
    rows = pa.RecordBatch.from_arrays(made, names)
    # Given a schema, Arrow compares it in Python, field by field: 16 µs of 25 columns.
    return rows if rows.schema.equals(schema) else pa.record_batch(made, schema=schema)


def damage_batch(damage: Damage, schema: pa.Schema, source: Source) -> pa.RecordBatch:
    """A damaged stretch as one row."""
    text = f"{damage.reason}: expected {damage.expected}, found {damage.found}"
    return problem_batch(
        schema,
        source,
        text,
        physical_offset=damage.physical_offset,
        # A missing file may be longer than an int says.
        total_size=min(damage.length, INT_MAX),
    )


def problem_batch(schema: pa.Schema, source: Source, text: str, **where: object) -> pa.RecordBatch:
    """A place that cannot be read as one row; ``where`` are the columns that name the place."""
    row = {"status": "damage", "damage": text, **source._asdict(), **where}
    return rows_batch([row], schema)


def rows_batch(rows: Iterable[dict[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    """A few rows as a batch; columns that a row lacks are null."""
    table = [{name: row.get(name) for name in schema.names} for row in rows]
    return pa.RecordBatch.from_pylist(table, schema=schema)


def times(milliseconds: Ints) -> pa.Array:
    """Milliseconds as timestamps; those outside the calendar are null."""
    limit = 253_402_300_799_999  # The last millisecond of the year 9999.
    inside = (milliseconds >= -62_135_596_800_000) & (milliseconds <= limit)
    if inside.all():
        return pa.array(milliseconds * 1000).cast(_UTC)
    return pa.array(np.where(inside, milliseconds, 0) * 1000, mask=~inside).cast(_UTC)


def _repeated(text: str | None, count: int) -> pa.Array:
    """A column of one text, or of nulls, which is kept for later batches."""
    room = 1 << (count - 1).bit_length()
    if len(text or "") * room > _MOST_KEPT_BYTES:
        return _repeats(text, count)
    return _kept_repeats(text, room).slice(0, count)


def _repeats(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


_kept_repeats = lru_cache(maxsize=16)(_repeats)


def _host_bytes(prefix: NDArray[Any], which: str) -> Bytes:
    """Address and port of each record as bytes: shape ``(rows, 8 or 20)``."""
    # The port follows the address.
    fields = prefix.dtype.fields
    assert fields is not None
    start, end = fields[f"{which}_address"][1], fields[f"{which}_port"][1] + _PORT_SIZE
    width = end - start
    raw = prefix.getfield(np.dtype((np.void, width)), start)
    return np.ascontiguousarray(raw).view(np.uint8).reshape(-1, width)
