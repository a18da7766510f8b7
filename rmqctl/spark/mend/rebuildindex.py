"""``rebuild`` on Spark: one task writes each index file. The counts of keys in the parts of the log
say which keys it gets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from formats.geometry import Geometry
from rmqctl.engine.files import paths
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.header import IndexHeader, first_header
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.errors import InternalError
from rmqctl.spark.mend.facts import Gathered, arrow_batches, keys_of, rows_of
from rmqctl.spark.mend.rebuildjob import Job, PartNote, attempt_of, prefix_sums, put_in_place


def write_index(gathered: Gathered, notes: list[PartNote], job: Job) -> None:
    """Writes all index files, each in one task, with the engine's own writer."""
    from pyspark.sql import functions as F

    geometry = job.config.index_geometry
    capacity = geometry.index_num - 1
    counts = [note.keys for note in notes]
    before, total = prefix_sums(counts), sum(counts)
    records = sum(note.records for note in notes)
    if not records:
        return
    files = -(-total // capacity)
    newest_record = max(note.last_record for note in notes)
    newest_key = max(note.last_key for note in notes)
    # A file is made by the first record, and by the first record behind a full file, even if these
    # have no keys.
    has_empty_last = total % capacity == 0 and (not total or newest_record > newest_key)
    names = _index_names(files + has_empty_last)
    os.makedirs(Path(job.output) / paths.INDEX, exist_ok=True)
    last_item: dict[int, IndexHeader] = {}
    if files:

        def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for row in rows_of(batches):
                start = before[row["part"]] + row["first"]
                yield from arrow_batches(_pieces(row["data"], start, capacity), _PIECES)

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for file_no, rows in groupby(rows_of(batches), key=lambda row: row["file_no"]):
                end = _write_index_file(job, names[file_no], geometry, file_no * capacity, rows)
                yield _end_row(file_no, end)

        pieces = gathered.facts.where("kind = 'keys'").mapInArrow(cut, _PIECES_DDL)
        placed = (
            pieces.where(F.col("file_no") < files)
            .repartitionById(files, F.col("file_no").cast("int"))
            .sortWithinPartitions("file_no", "start")
        )
        ends = placed.mapInArrow(write, _ENDS_DDL).collect()
        newest = max(ends, key=lambda row: row["file_no"])
        last_item[files - 1] = IndexHeader(0, newest["timestamp"], 0, newest["offset"], 0, 1)
    if has_empty_last:
        head = first_header(last_item.get(files - 1)).pack()
        path = Path(job.output) / paths.INDEX / names[files]
        MappedFile.create(Path(job.output), path, geometry.file_size, head=head).close()


_PIECES = pa.schema([("file_no", pa.int64()), ("start", pa.int64()), ("data", pa.binary())])
_PIECES_DDL = "file_no bigint, start bigint, data binary"
_ENDS_DDL = "file_no bigint, timestamp bigint, offset bigint"


class Piece(NamedTuple):
    file_no: int
    start: int
    data: bytes


def _pieces(data: bytes, start: int, capacity: int) -> Iterator[Piece]:
    """Cuts keys where index files end. The last key of a file also goes to the next file, because
    the time of that one's first item counts from it."""
    size = 20
    count, at = len(data) // size, 0
    while at < count:
        file_no = (start + at) // capacity
        end = min(count, (file_no + 1) * capacity - start)
        yield Piece(file_no, start + at, data[at * size : end * size])
        if start + end == (file_no + 1) * capacity:
            yield Piece(file_no + 1, start + end - 1, data[(end - 1) * size : end * size])
        at = end


def _end_row(file_no: int, header: IndexHeader) -> pa.RecordBatch:
    values = [[file_no], [header.end_timestamp], [header.end_phy_offset]]
    return pa.record_batch(
        [pa.array(value, pa.int64()) for value in values], ["file_no", "timestamp", "offset"]
    )


def _write_index_file(
    job: Job, name: str, geometry: Geometry, first_item: int, rows: Iterable[dict[str, Any]]
) -> IndexHeader:
    """Writes one file from its keys in order. They are preceded by the last key of the file
    before."""
    attempt = attempt_of(job)
    file: IndexFileWriter | None = None
    previous: IndexHeader | None = None
    try:
        for row in rows:
            keys = keys_of(row["data"]).unmarked()
            if row["start"] < first_item:
                stamp, offset = int(keys.store_timestamp[0]), int(keys.physical_offset[0])
                previous = IndexHeader(0, stamp, 0, offset, 0, 1)
                continue
            if file is None:
                head = first_header(previous).pack()
                mapped = MappedFile.create(attempt, attempt / name, geometry.file_size, head=head)
                file = IndexFileWriter(mapped, geometry)
            taken = file.put_key_batch(keys, 0)
            if taken < len(keys.key_hash):
                raise InternalError(reason=f"the index file {name} was planned too small")
        if file is None:
            raise InternalError(reason=f"the index file {name} was planned without keys")
        header = file.header
        file.flush()
    finally:
        if file is not None:
            file.close()
    for _ in put_in_place(attempt, Path(job.output), Path(paths.INDEX)):
        pass
    attempt.rmdir()
    return header


def _index_names(count: int) -> list[str]:
    """Names made from the current local time, at least one millisecond apart, which the engine
    expects."""
    first = int(datetime.now().strftime("%Y%m%d%H%M%S%f")[:17])
    return [str(first + number) for number in range(count)]
