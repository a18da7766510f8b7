"""Plain records: those of which a check has nothing to say, and dispatch nothing to ask.

Most logs hold nothing else, and a row of columns for each is most of the work of reading them. So a
backend that can passes over them: it says how many there were, and notes their units and index keys
as they are stored. Every other record still comes in a :class:`~rmqctl.engine.scan.batch.Batch`.

A record is plain when its topic is a text that can be a directory, it is not rolled back, its queue
id and offset are in range (unless it is only prepared, and has no unit), and its properties name
neither a delay nor further queues. One that is checked has also a body with the right checksum that
is not compressed, properties that parse and do not end with a checksum, hosts with ports, and a
store time that a clock may have shown.
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
    """What is noted of plain records."""

    units: bool = False
    keys: bool = False


@dataclass(slots=True)
class Plain:
    """Consecutive plain records of one file, which lie at ``[physical_offset, end_offset)``.

    ``newest_timestamp`` (ms) is their newest store time, 0 at least; ``last_offset`` is where the
    last of them lies. ``units`` counts their units, which are ``runs``: the kernel's, with the
    topics' numbers of ``numbers`` (int64) once the stretch is settled. ``key_hash`` (int32),
    ``key_offset`` and ``key_timestamp`` (int64: physical offsets and store times, ms) are parallel:
    one item per index key, in the order of the index's items.
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
        """What the kernel says of a part of a file."""
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
        """The same for who waits for more units: the memory of its keys is for the next part's."""
        none = np.empty(0, np.int64)
        return replace(self, key_hash=np.empty(0, np.int32), key_offset=none, key_timestamp=none)
