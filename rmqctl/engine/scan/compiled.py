"""The scanner's backend that makes its batches by the compiled kernel (``rmqctl/kernel``).

Here is the part that the kernel does not know: files that are loaded piece by piece or have holes,
the numbers of topics, and numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from formats.text import decode_utf8
from rmqctl.engine.files.holes import is_whole
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import Ints
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.properties import delays_to_look_at
from rmqctl.engine.scan.seen import window_seen, with_last_record
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.errors import CannotRead

if TYPE_CHECKING:
    from rmqctl.kernel import _kernel

#: Bytes of a part of a window, and the most parts that are read at once.
_PART_BYTES, _MOST_PARTS = 1 << 22, 4
#: The same when records are passed over; and records of a part when their units or keys are noted:
#: the consumer has some work with each.
_PASSED_BYTES, _MOST_PASSED, _NOTED_RECORDS = 1 << 20, 64, 1 << 14
#: Average bytes of a record from which on a map is cheaper than reading, if bodies are not needed.
_MAPPED_RECORD = 1 << 9
#: Fewest bytes that are read in full from a record on that is not plain.
_CLOSELY = 1 << 18


class CompiledBackend:
    """The backend by the compiled module's scanner."""

    name = "compiled"

    def __init__(self, kernel: type[_kernel.Scanner]) -> None:
        self._kernel = kernel

    def reader(
        self,
        topics: TopicTable,
        tuning: ScanTuning,
        *,
        check: bool,
        properties: bool,
        plain: PlainWanted | None = None,
    ) -> CompiledReader:
        return CompiledReader(self._kernel, topics, tuning, check, properties, plain)


class CompiledReader:
    """:class:`~rmqctl.engine.scan.backend.WindowReader` of the kernel.

    One call of the kernel reads one window, without the interpreter's lock; Ctrl-C works between
    two calls. A window is read in parts, as many at a time as there are threads, and each part is a
    batch. The number of threads changes nothing else, not even the numbers of topics.
    """

    runs_ahead = True

    def __init__(
        self,
        kernel: type[_kernel.Scanner],
        topics: TopicTable,
        tuning: ScanTuning,
        check: bool,
        properties: bool,
        plain: PlainWanted | None,
    ) -> None:
        self._plain = plain
        self._closely = _CLOSELY
        self._scanner = kernel(
            check=check,
            properties=properties,
            indexes_tags=topics.indexes_tags,
            threads=tuning.threads,
        )
        self._topics = topics
        self._most_rows, self._most_bytes = tuning.batch_records, tuning.batch_bytes
        self._threads = tuning.threads
        self._check = check
        self._looks_at_delays = check and not properties
        #: For each thread: the numbers of topics (int64), by the thread's own numbers.
        self._numbers: list[Ints] = [np.empty(0, np.int64)] * tuning.threads
        # At first room for few rows: it must be filled with zeros, and damage may follow soon.
        self._room = self._least_room = min(tuning.first_records, self._most_rows)
        #: Average bytes of a record; 0: not known yet.
        self._record_bytes = 0
        #: Average bytes of a record that was passed over; 0: not known yet.
        self._passed_bytes = 0

    def batches(
        self, mapped: MappedFile, position: int, limit: int, stays: bool
    ) -> Iterator[Batch | Plain]:
        if self._plain is None:
            yield from self._columns(mapped, position, limit)
            return
        while position < limit:
            begin = position
            for stretch in self._passed(mapped, position, limit, self._plain, stays):
                yield stretch
                position = stretch.end_offset - mapped.file_from_offset
            if position - begin > self._closely:
                self._closely = _CLOSELY
            # Something here is not plain: reads some records in full, and more if that goes on.
            end = min(position + self._closely, limit)
            for batch in self._columns(mapped, position, end):
                yield batch
                position = batch.end_offset - mapped.file_from_offset
            if position < end:
                return
            self._closely = min(2 * self._closely, _PART_BYTES)

    def _passed(
        self, mapped: MappedFile, position: int, limit: int, wanted: PlainWanted, stays: bool
    ) -> Iterator[Plain]:
        """Passes over plain records from ``position`` on, up to the first record that is not plain,
        the first behind ``limit``, or a hole. The file is read, or its map used if it ``stays``, or
        if records are large and nobody looks at their bodies."""
        mapped.load(position, limit)
        is_whole(mapped, position, limit)
        first, hole = mapped.whole
        hole = min(hole, mapped.size)  # The file may have grown meanwhile.
        if not first <= position < hole:
            return
        limit = min(limit, hole)
        places = limit, hole, mapped.file_from_offset
        part = _PASSED_BYTES
        if wanted.units or wanted.keys:
            part = min(max(_NOTED_RECORDS * self._passed_bytes, part), _PART_BYTES)
        parts = min(max((limit - position) // part, 1), _MOST_PASSED)
        starts = [position]
        if parts > 1:
            starts = self._scanner.starts(mapped.buffer, position, *places, parts)
        is_mapped = stays or (not self._check and self._passed_bytes >= _MAPPED_RECORD)
        where = mapped.buffer, -1 if is_mapped else mapped.descriptor, starts, *places
        try:
            found = self._scanner.plain(*where, units=wanted.units, keys=wanted.keys)
        except OSError as error:
            raise CannotRead(path=str(mapped.path), reason=error.strerror) from error
        for taken in found:
            stretch = Plain.of(self._topics, mapped.file_from_offset, taken)
            if stretch.records:
                length = stretch.end_offset - stretch.physical_offset
                self._passed_bytes = length // stretch.records
                yield stretch

    def _columns(self, mapped: MappedFile, position: int, limit: int) -> Iterator[Batch]:
        """Batches of all records (see :class:`~rmqctl.engine.scan.backend.WindowReader`)."""
        mapped.load(position, limit)
        seen, readable = window_seen(mapped, position, limit), limit
        begin = position
        while position < limit:
            end, room, parts = self._plan(position, limit)
            places = position, end, readable, mapped.file_from_offset
            starts = self._scanner.starts(seen.buffer, *places, parts) if parts > 1 else [position]
            for at in range(0, len(starts), self._threads):
                own = starts[at : at + self._threads]
                stop = starts[at + len(own)] if at + len(own) < len(starts) else end
                position, needed, goes_on, ints, found = self._scanner.fill(
                    seen.buffer, own, stop, readable, mapped.file_from_offset, room
                )
                yield from self._batches(seen, ints, found, room)
                if needed and position > begin and self._plain is None:
                    # The last record ends behind the window, and becomes the first of the next one:
                    # a batch of one record would cost as much as one of thousands.
                    return
                if needed:
                    # The window's only record, sound so far.
                    mapped.load(readable, needed)
                    seen = with_last_record(mapped, seen, position, readable, needed)
                    readable = needed
                elif not goes_on:
                    return
                if position != stop:
                    break  # The next part does not begin there.

    def _batches(
        self, seen: MappedFile, ints: bytearray, found: list[_kernel.Taken], room: int
    ) -> Iterator[Batch]:
        columns = np.frombuffer(ints, np.int64).reshape(-1, len(_NAMES), room)
        for own, taken in zip(columns, found, strict=False):
            count = taken[2]
            if count:
                batch = self._batch(seen, own[:, :count], taken)
                self._record_bytes = int(batch.total_size.sum()) // count
                yield batch
            if count == room:
                self._room = min(4 * self._room, self._most_rows)
            elif count < self._room // 8:
                self._room = min(max(self._room // 2, self._least_room), self._most_rows)

    def _plan(self, position: int, limit: int) -> tuple[int, int, int]:
        """The position to read to, the rows of each part to make room for, and how many parts."""
        if not self._record_bytes:
            return limit, self._room, 1
        part = min(self._record_bytes * self._most_rows * 7 // 8, self._most_bytes)
        parts = min(max((limit - position) // part, 1), _MOST_PARTS)
        room = min(part * 9 // 8 // self._record_bytes + 1, self._most_rows)
        if room > self._room:
            return limit, self._room, 1
        return min(limit, position + parts * part), room, parts

    def _batch(self, mapped: MappedFile, ints: Ints, taken: _kernel.Taken) -> Batch:
        thread, new, count, matches, key_row, key_hash, *others, delays = taken
        malformed, multi, odd_ports, property_crcs = map(_ints, others)
        return Batch(
            mapped=mapped,
            topics=self._topics,
            key_row=_ints(key_row),
            key_hash=np.frombuffer(key_hash, np.int32),
            crc_matches=np.frombuffer(matches, bool) if self._check else np.ones(count, bool),
            malformed=malformed,
            multi_dispatch_rows=multi,
            delay_levels={row: decode_utf8(level) for row, level in delays},
            odd_port_rows=odd_ports if self._check else None,
            property_crc_rows=property_crcs if self._check else None,
            new_topics=(thread, new),
            **dict(zip(_NAMES, ints, strict=True)),
        )

    def settle(self, batch: Batch | Plain) -> None:
        """See :class:`~rmqctl.engine.scan.backend.WindowReader`."""
        assert batch.new_topics is not None
        thread, new = batch.new_topics
        if new:
            numbers = [self._topics.number_of(topic) for topic in new]
            self._numbers[thread] = np.append(self._numbers[thread], np.array(numbers, np.int64))
        if isinstance(batch, Plain):
            batch.numbers, batch.new_topics = self._numbers[thread], None
            return
        batch.topic_id = self._numbers[thread][batch.topic_id]
        batch.new_topics = None
        if self._looks_at_delays:
            data = np.frombuffer(batch.mapped.buffer, np.uint8)
            columns = {name: getattr(batch, name) for name in _NAMES}
            batch.delay_levels = delays_to_look_at(data, self._topics, columns)


def _ints(taken: bytearray) -> Ints:
    return np.frombuffer(taken, np.int64)


#: The kernel's columns of whole numbers, in their order (``INT_COLUMNS`` in src/scan/columns.rs).
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
