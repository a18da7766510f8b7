"""A scanner's batch: consecutive records as parallel arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.record import Record, read_entry
from rmqctl.engine.scan.columns import Ints
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.errors import ReadersDisagree


@dataclass(slots=True)
class Batch:
    """Consecutive records of one file as parallel arrays, in log order.

    A column has one item per record: shape ``(len(batch),)`` and int64, except ``crc_matches``,
    which is bool, and all true unless the scan checks. Positions count bytes in the file. Lengths
    are in bytes; a negative one in a record becomes 0. ``tags_code`` is the hash of the tags,
    sign-extended.

    ``key_row`` (int64, ascending) and ``key_hash`` (int32) are parallel to each other, with one
    item per index key, also of rolled back records. Keys of a record are in the order of its index
    items. The key of its tags, which only a scan with ``indexes_tags`` gives, is marked: its hash
    is complemented, and so negative. ``malformed`` are the rows whose properties do not parse, and
    ``multi_dispatch_rows`` the rows that name extra queues: both int64, ascending. ``delay_levels``
    maps rows to the text of their DELAY property, from which dispatch takes a delayed message's
    time (:func:`~rmqctl.engine.dispatch.batches.unit_batch`).

    ``odd_port_rows`` are the rows with an invalid port of a host, and ``property_crc_rows`` those
    that may end with a checksum (:mod:`~rmqctl.engine.scan.recordcrc`): both int64, ascending; None
    if the backend has not looked for them. ``new_topics`` is for the backend, until it settles the
    batch.
    """

    mapped: MappedFile
    topics: TopicTable
    position: Ints
    physical_offset: Ints
    total_size: Ints
    body_crc: Ints
    queue_id: Ints
    queue_offset: Ints
    sys_flag: Ints
    store_timestamp: Ints
    body_position: Ints
    body_length: Ints
    topic_id: Ints
    properties_position: Ints
    properties_length: Ints
    tags_code: Ints
    key_row: Ints
    key_hash: NDArray[np.int32]
    crc_matches: NDArray[np.bool_]
    malformed: Ints
    multi_dispatch_rows: Ints
    delay_levels: dict[int, str]
    odd_port_rows: Ints | None = None
    property_crc_rows: Ints | None = None
    new_topics: tuple[int, list[bytes]] | None = None

    def __len__(self) -> int:
        return len(self.position)

    @property
    def end_offset(self) -> int:
        return int(self.physical_offset[-1] + self.total_size[-1])

    def where(self, keep: NDArray[np.bool_]) -> Batch:
        """The records for which ``keep`` (bool, one item per record) is true, without keys, delay
        levels and everything else that is noted by row."""
        empty = np.empty(0, np.int64)
        values = {
            name: value[keep] if name in _BY_RECORD else value
            for name in _FIELDS
            for value in [getattr(self, name)]
        }
        values |= dict.fromkeys(("key_row", "malformed", "multi_dispatch_rows"), empty)
        values |= {"key_hash": empty.astype(np.int32), "delay_levels": {}}
        return Batch(**values | {"odd_port_rows": None, "property_crc_rows": None})

    def record(self, row: int) -> Record:
        """One record in full; :raises ReadersDisagree: the reference finds none there."""
        entry = read_entry(
            self.mapped.buffer,
            int(self.position[row]),
            self.mapped.size,
            int(self.physical_offset[row]),
        )
        if not isinstance(entry, Record):
            raise ReadersDisagree(physical_offset=entry.physical_offset)
        return entry


_FIELDS = [field.name for field in fields(Batch)]
_BY_RECORD = frozenset(_FIELDS) - {
    "mapped",
    "topics",
    "key_row",
    "key_hash",
    "malformed",
    "multi_dispatch_rows",
    "delay_levels",
    "odd_port_rows",
    "property_crc_rows",
    "new_topics",
}
