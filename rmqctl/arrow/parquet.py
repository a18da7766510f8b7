"""Parquet files of messages, in one directory for each topic and day."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqctl.arrow.arrays import arrow_schema, message_batch
from rmqctl.engine.scan.batch import Batch
from rmqctl.rows.columns import Source
from rmqctl.rows.exported import BASE64, SUFFIXES, file_columns

#: Yields the directories of a batch, each with the rows that go there.
Partitions = Callable[[Batch], Iterator[tuple[str, Any]]]
#: How many bytes are held before they are written, each file's share as a row group.
_HELD_BYTES = 64 << 20
#: How many files are open at once; nothing can be added to a file that was closed.
_OPEN = 256


class ParquetFiles:
    """Parquet files below ``directory``. Rows of all topics together wait in memory until there are
    enough of them for row groups of a good size; then all are written."""

    def __init__(self, directory: Path, columns: list[str], partitions: Partitions) -> None:
        self._directory = directory
        self._partitions = partitions
        self._columns = file_columns(columns, "parquet")
        read = dict.fromkeys("body" if name == BASE64 else name for name in self._columns)
        self._read = arrow_schema("commitlog", read)
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._open: dict[str, tuple[pq.ParquetWriter, pa.OSFile]] = {}
        self._files: dict[str, int] = {}

    def write(self, batch: Batch, source: Source) -> None:
        """Adds the messages of a batch, in its order. :raises OSError: the disk failed."""
        rows = message_batch(batch, self._read, source)
        for directory, chosen in self._partitions(batch):
            part = rows.take(pa.array(chosen)) if len(chosen) < len(rows) else rows
            self._held.setdefault(directory, []).append(part)
            self._held_bytes += part.nbytes
        if self._held_bytes >= _HELD_BYTES:
            self._write_held()

    def _write_held(self) -> None:
        for directory, parts in self._held.items():
            table = self._named(pa.Table.from_batches(parts))
            self._writer(directory, table.schema).write_table(table, row_group_size=len(table))
        self._held, self._held_bytes = {}, 0

    def _named(self, table: pa.Table) -> pa.Table:
        """The columns in the order in which they were asked for."""
        if BASE64 in self._columns:
            texts = [b64encode(body).decode() for body in table["body"].to_pylist()]
            table = table.append_column(BASE64, pa.array(texts, pa.string()))
        return table.select(self._columns)

    def _writer(self, directory: str, schema: pa.Schema) -> pq.ParquetWriter:
        writer, file = self._open.pop(directory, (None, None))
        if writer is None:
            if len(self._open) >= _OPEN:
                self._close(next(iter(self._open)))
            number = self._files[directory] = self._files.get(directory, -1) + 1
            place = self._directory / directory
            place.mkdir(parents=True, exist_ok=True)
            path = place / f"part-{number:05d}{SUFFIXES['parquet']}"
            # Opened here: names that are no UTF-8 pyarrow takes as bytes alone.
            file = pa.OSFile(os.fsencode(path), "wb")
            try:
                writer = pq.ParquetWriter(file, schema)
            except BaseException:
                file.close()
                raise
        self._open[directory] = writer, file  # The last one used is the last one closed.
        return writer

    def close(self) -> None:
        """Writes the rows that still wait. :raises OSError: the disk failed."""
        self._write_held()
        self.abandon()

    def abandon(self) -> None:
        """Closes the files without writing the rows that wait."""
        with ExitStack() as each:  # One that cannot be written keeps no other one open.
            for directory in self._open:
                each.callback(self._close, directory)

    def _close(self, directory: str) -> None:
        writer, file = self._open.pop(directory)
        with file:
            writer.close()
