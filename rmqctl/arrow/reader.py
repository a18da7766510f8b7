"""Messages of a log as Arrow record batches, one after the other; only the last one is held.

The columns are those of :mod:`rmqctl.rows.columns`. Bodies are checked if they, or ``status``, are
wanted. Damage is a row if ``status`` is wanted; otherwise the caller is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rmqctl.arrow.arrays import arrow_schema, damage_batch, message_batch
from rmqctl.engine.log.times import stretches
from rmqctl.engine.record.record import Damage, Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.bodycrc import body_crcs
from rmqctl.engine.scan.choice import Choice
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.rows.columns import Source, default_names

if TYPE_CHECKING:
    from rmqctl.engine.files.mappedfile import MappedFile
    from rmqctl.engine.log.commitlog import CommitLog

_STRUCTURE = "commitlog"
#: A batch of records that are read one by one has so many records, or bytes, at most.
_AT_ONCE, _BYTES_AT_ONCE = 4096, 16 << 20
_CRC_MASK = 0x7FFFFFFF

#: Called with damage that no row tells; and with the number of bodies in a batch that do not agree
#: with their CRC.
OnDamage = Callable[[Damage], None]
OnMismatch = Callable[[int], None]


def message_schema(columns: Iterable[str] | None = None) -> pa.Schema:
    """The schema of some columns; None: of all but ``body``.

    :raises ValueError: there is no such column, or none is wanted.
    """
    names = default_names(_STRUCTURE) if columns is None else list(dict.fromkeys(columns))
    if not names:
        raise ValueError("no column is wanted: a table has one at least")
    return arrow_schema(_STRUCTURE, names)


def log_batches(
    log: CommitLog,
    schema: pa.Schema,
    source: Source,
    choice: Choice,
    on_damage: OnDamage,
    on_mismatch: OnMismatch,
    *,
    end: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The chosen messages of a log in its order, up to ``end``, read by the scanner."""
    tells_status = "status" in schema.names
    scanner = Scanner(log, check=_is_checked(schema), properties=False)
    parts = stretches(log, choice.since, choice.until, end)
    for entry in chain.from_iterable(scanner.scan(*part) for part in parts):
        if isinstance(entry, Batch):
            batch = choice.of(entry)
            if batch is not None:
                yield _told(batch, schema, source, on_mismatch)
        elif isinstance(entry, Damage):
            if tells_status:
                yield damage_batch(entry, schema, source)
            else:
                on_damage(entry)


def record_batches(
    log: CommitLog,
    records: Iterable[Record],
    schema: pa.Schema,
    source: Source,
    on_mismatch: OnMismatch,
) -> Iterator[pa.RecordBatch]:
    """Records that were read one by one, in their order."""
    topics = TopicTable()
    run: list[Record] = []
    number = end = -1
    size = 0
    for record in records:
        file = log.files.index_of(record.physical_offset)
        is_full = len(run) >= _AT_ONCE or size >= _BYTES_AT_ONCE
        # A batch has ascending records of one file.
        if run and (is_full or file != number or record.physical_offset < end):
            batch = _batch_of(log.files.file(number), run, topics, checks=_is_checked(schema))
            yield _told(batch, schema, source, on_mismatch)
            run, size = [], 0
        run.append(record)
        size += record.total_size
        number, end = file, record.physical_offset + record.total_size
    if run:
        batch = _batch_of(log.files.file(number), run, topics, checks=_is_checked(schema))
        yield _told(batch, schema, source, on_mismatch)


def _is_checked(schema: pa.Schema) -> bool:
    return not {"body", "status"}.isdisjoint(schema.names)


def _told(
    batch: Batch, schema: pa.Schema, source: Source, on_mismatch: OnMismatch
) -> pa.RecordBatch:
    mismatches = len(batch) - int(np.count_nonzero(batch.crc_matches))
    if mismatches and "status" not in schema.names:
        on_mismatch(mismatches)
    return message_batch(batch, schema, source)


def _batch_of(
    mapped: MappedFile, records: list[Record], topics: TopicTable, *, checks: bool
) -> Batch:
    """Ascending records of one file as a batch of the scanner, without what properties tell."""

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([getattr(record, name) for record in records], np.int64)

    place, size = column("physical_offset"), column("total_size")
    body_position, body_length = column("body_position"), column("body_length")
    body_crc = column("body_crc")
    properties_length = np.array([len(one.properties_bytes) for one in records], np.int64)
    position = place - mapped.file_from_offset
    matches = np.ones(len(records), bool)
    if checks:
        codes = body_crcs(np.frombuffer(mapped.buffer, np.uint8), body_position, body_length)
        # An empty body is not checked, as in the engine.
        matches = ((codes & np.uint32(_CRC_MASK)) == body_crc) | (body_length == 0)
    nothing = np.empty(0, np.int64)
    return Batch(
        mapped=mapped,
        topics=topics,
        position=position,
        physical_offset=place,
        total_size=size,
        body_crc=body_crc,
        queue_id=column("queue_id"),
        queue_offset=column("queue_offset"),
        sys_flag=column("sys_flag"),
        store_timestamp=column("store_timestamp"),
        body_position=body_position,
        body_length=body_length,
        topic_id=np.array([topics.number_of(record.topic_bytes) for record in records], np.int64),
        # They stand at the end of a record.
        properties_position=position + size - properties_length,
        properties_length=properties_length,
        tags_code=np.zeros(len(records), np.int64),
        key_row=nothing,
        key_hash=nothing.astype(np.int32),
        crc_matches=matches,
        malformed=nothing,
        multi_dispatch_rows=nothing,
        delay_levels={},
    )
