"""The compiled kernel behind the scanner: the same batches, made by ``rmqctl/kernel``.

What is here is what the kernel does not know: files that come piece by piece or have holes, the
topics' numbers, and numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from formats.text import decode_utf8
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import Ints
from rmqctl.engine.scan.properties import delays_to_look_at
from rmqctl.engine.scan.seen import window_seen, with_last_record
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import ScanTuning

if TYPE_CHECKING:
    from rmqctl.kernel import _kernel


class CompiledBackend:
    """Windows by the compiled module's scanner."""

    name = "compiled"

    def __init__(self, kernel: type[_kernel.Scanner]) -> None:
        self._kernel = kernel

    def reader(
        self, topics: TopicTable, tuning: ScanTuning, *, check: bool, properties: bool
    ) -> CompiledReader:
        scanner = self._kernel(topics.number_and_prefix, check=check, properties=properties)
        looks_at_delays = check and not properties
        return CompiledReader(scanner, topics, tuning.batch_records, check, looks_at_delays)


class CompiledReader:
    """:class:`~rmqctl.engine.scan.backend.WindowReader` of the kernel.

    One call of the kernel looks at one window, without the interpreter's lock: Ctrl-C is heard
    between two of them.
    """

    def __init__(
        self,
        scanner: _kernel.Scanner,
        topics: TopicTable,
        batch_records: int,
        check: bool,
        looks_at_delays: bool,
    ) -> None:
        self._scanner = scanner
        self._topics = topics
        self._batch_records = batch_records
        self._check = check
        self._looks_at_delays = looks_at_delays

    def batches(self, mapped: MappedFile, position: int, limit: int) -> Iterator[Batch]:
        mapped.load(position, limit)
        seen, readable = window_seen(mapped, position, limit), limit
        self._scanner.clear()  # Who stopped in the middle of a batch has left its rows.
        while position < limit:
            reached, needed = self._scanner.fill(
                seen.buffer, position, limit, readable, mapped.file_from_offset, self._batch_records
            )
            if needed:
                # The window's last record: so far it is one.
                mapped.load(readable, needed)
                seen = with_last_record(mapped, seen, position, readable, needed)
                position, readable = reached, needed
                continue
            rows = len(self._scanner)
            if rows:
                yield self._batch(seen)
            if rows < self._batch_records:
                return
            position = reached

    def _batch(self, mapped: MappedFile) -> Batch:
        taken = self._scanner.take()
        ints, matches, key_row, key_hash, malformed, multi, odd_ports, property_crcs, delays = taken
        columns = dict(zip(_NAMES, map(_ints, ints), strict=True))
        count = len(columns["position"])
        delay_levels = {row: decode_utf8(level) for row, level in delays}
        if self._looks_at_delays:
            data = np.frombuffer(mapped.buffer, np.uint8)
            delay_levels = delays_to_look_at(data, self._topics, columns)
        return Batch(
            mapped=mapped,
            topics=self._topics,
            key_row=_ints(key_row),
            key_hash=np.frombuffer(key_hash, np.int32),
            crc_matches=np.frombuffer(matches, bool) if self._check else np.ones(count, bool),
            malformed=_ints(malformed),
            multi_dispatch_rows=_ints(multi),
            delay_levels=delay_levels,
            odd_port_rows=_ints(odd_ports) if self._check else None,
            property_crc_rows=_ints(property_crcs) if self._check else None,
            **columns,
        )


def _ints(taken: bytearray) -> Ints:
    return np.frombuffer(taken, np.int64)


#: The kernel's columns of whole numbers, in their order (``INT_COLUMNS`` in src/columns.rs).
_NAMES = (
    "position",
    "physical_offset",
    "total_size",
    "body_crc",
    "queue_id",
    "queue_offset",
    "sys_flag",
    "store_timestamp",
    "body_position",
    "body_length",
    "topic_id",
    "properties_position",
    "properties_length",
    "tags_code",
)
