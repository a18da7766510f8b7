"""Searches the log for a text: the keys, the other properties and the bodies of every message.

Each batch of the scanner is searched as bytes at once, and the place of a hit tells its record and
field. Only compressed bodies are searched one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from formats.constants import COMPRESSED_FLAG, PROPERTY_UNIQ_KEY
from rmqctl.engine.dispatch.rules import message_keys
from rmqctl.engine.log.onward import onward
from rmqctl.engine.log.times import stretches
from rmqctl.engine.record.bodies import DEFAULT_LIMIT, decompress
from rmqctl.engine.record.record import Damage, Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.choice import Choice
from rmqctl.engine.scan.scanner import Scanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.engine.messagestore import MessageStore

UNIQUE_KEY, KEY, PROPERTY, BODY = "unique-key", "key", "property", "body"


@dataclass(slots=True)
class TextSearch:
    """What to look for, and counts of the search.

    ``needle`` are the bytes of ``text``. Only messages of the ``choice`` count. ``damages`` counts
    stretches that cannot be read. ``unread_bodies`` counts compressed bodies that could not be
    decompressed, or have more than ``decompress_limit`` bytes. ``scanned_bytes`` are the bytes of
    the log that were read; files that clearly hold no message of the times are not read.
    """

    text: str
    choice: Choice
    decompress_limit: int = DEFAULT_LIMIT
    scanned_bytes: int = 0
    damages: int = 0
    unread_bodies: int = 0

    @property
    def needle(self) -> bytes:
        # The bytes of the command line, even where they are no UTF-8.
        return self.text.encode("utf-8", "surrogateescape")

    def run(
        self, store: MessageStore, progress: Callable[[int], None]
    ) -> Iterator[tuple[Record, str]]:
        """The messages that hold the text, in log order, each with the first of these that holds
        it: :data:`UNIQUE_KEY`, :data:`KEY` (it is one of KEYS), :data:`PROPERTY` (anywhere in the
        properties) or :data:`BODY`. With each message, ``scanned_bytes`` goes up to it.
        ``progress`` is called with the distance of the search from the log's start."""
        log = store.commit_log
        scanner = Scanner(log, properties=False)
        for start, end in stretches(log, self.choice.since, self.choice.until):
            before = self.scanned_bytes - (store.min_offset if start is None else start)
            deleted = log.deleted_bytes
            for entry in onward(log, scanner.scan, start, end):
                reached = entry.end_offset if isinstance(entry, Batch) else entry.physical_offset
                if isinstance(entry, Damage):
                    self.damages += 1
                passed = before + deleted - log.deleted_bytes
                if isinstance(entry, Batch):
                    for record, where in self._in_batch(store, entry):
                        self.scanned_bytes = passed + record.physical_offset
                        yield record, where
                self.scanned_bytes = passed + reached
                progress(reached - store.min_offset)

    def _in_batch(self, store: MessageStore, batch: Batch) -> Iterator[tuple[Record, str]]:
        shown = self.choice.mask(batch)
        if not shown.any():
            return
        compressed = (batch.sys_flag & COMPRESSED_FLAG) != 0
        in_properties, in_body = self._rows_with_hits(batch, compressed)
        in_properties &= shown
        in_body &= shown
        for row in np.flatnonzero(in_properties | in_body | (shown & compressed)).tolist():
            record = batch.record(row)
            if in_properties[row]:
                yield record, self._in_properties(record)
            elif in_body[row] or self._in_compressed(store, record):
                yield record, BODY

    def _rows_with_hits(
        self, batch: Batch, compressed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], ...]:
        """Which rows have the text in their properties, and which in an uncompressed body."""
        low, high = int(batch.position[0]), int(batch.position[-1] + batch.total_size[-1])
        hits = np.fromiter(batch.mapped.occurrences(self.needle, low, high), np.int64)
        row = np.searchsorted(batch.position, hits, "right") - 1
        found = []
        for start, length in (
            (batch.properties_position, batch.properties_length),
            (batch.body_position, np.where(compressed, 0, batch.body_length)),
        ):
            inside = (hits >= start[row]) & (hits + len(self.needle) <= (start + length)[row])
            rows = np.zeros(len(batch), bool)
            rows[row[inside]] = True
            found.append(rows)
        return tuple(found)

    def _in_properties(self, record: Record) -> str:
        properties = record.properties
        if properties.get(PROPERTY_UNIQ_KEY) == self.text:
            return UNIQUE_KEY
        return KEY if self.text in message_keys(properties) else PROPERTY

    def _in_compressed(self, store: MessageStore, record: Record) -> bool:
        body = decompress(store.body(record), record.sys_flag, self.decompress_limit).data
        if body is None:
            self.unread_bodies += 1
            return False
        return self.needle in body
