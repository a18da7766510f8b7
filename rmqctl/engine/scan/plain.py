"""Plain records: those with nothing special for a check or for dispatch.

Most logs have only plain records, and making a row of columns for each is most of the work of
reading them. So a backend may pass over them: it counts them, and notes their units and index keys
as they are stored. All other records come in a :class:`~rmqctl.engine.scan.batch.Batch`.

A record is plain if its topic is valid text and can be a directory, it is not rolled back, its
queue id and queue offset are in range (unless it is prepared, and so has no unit), and its
properties name neither a delay nor further queues. With ``check`` its body must also be
uncompressed and match its CRC, its properties must parse and not end with a checksum, its hosts
must have valid ports, and its store time must be plausible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.scan.columns import Ints
from rmqctl.engine.scan.topics import TopicTable

if TYPE_CHECKING:
    from rmqctl.kernel import _kernel


class PlainWanted(NamedTuple):
    """What is noted for plain records that are passed over."""

    units: bool = False
    keys: bool = False


@dataclass(slots=True)
class Plain:
    """Consecutive plain records of one file, at the physical offsets ``[physical_offset,
    end_offset)``.

    ``newest_timestamp`` (ms) is their newest store time, at least 0; ``last_offset`` is the place
    of the last one. ``units`` is how many units they have; the kernel's ``runs`` are these units.
    Once the stretch is settled, ``numbers`` (int64) maps the topic numbers in ``runs`` to those of
    the scan. ``key_hash`` (int32, marked as in :class:`~rmqctl.engine.scan.batch.Batch`),
    ``key_offset`` and ``key_timestamp`` (int64: physical offsets, and store times in ms) are
    parallel, with one item per index key, in the order of index items.
    """

    topics: TopicTable
    physical_offset: int
    end_offset: int
    records: int
    units: int
    newest_timestamp: int
    last_offset: int
    runs: _kernel.Runs
    numbers: Ints
    key_hash: NDArray[np.int32]
    key_offset: Ints
    key_timestamp: Ints
    new_topics: tuple[int, list[bytes]] | None

    @classmethod
    def of(cls, topics: TopicTable, file_from_offset: int, taken: _kernel.PlainPart) -> Plain:
        """Makes it from the kernel's result for a part of a file."""
        (start, reached), thread, new, counts, runs, key_hash, offsets, stamps = taken
        records, units, newest_timestamp, last_offset = counts
        return cls(
            topics=topics,
            physical_offset=file_from_offset + start,
            end_offset=file_from_offset + reached,
            records=records,
            units=units,
            newest_timestamp=newest_timestamp,
            last_offset=last_offset,
            runs=runs,
            numbers=np.empty(0, np.int64),
            key_hash=np.frombuffer(memoryview(key_hash), np.int32),
            key_offset=np.frombuffer(memoryview(offsets), np.int64),
            key_timestamp=np.frombuffer(memoryview(stamps), np.int64),
            new_topics=(thread, new),
        )

    def without_keys(self) -> Plain:
        """The same without keys, whose memory can be reused for the next part."""
        none = np.empty(0, np.int64)
        return replace(self, key_hash=np.empty(0, np.int32), key_offset=none, key_timestamp=none)
