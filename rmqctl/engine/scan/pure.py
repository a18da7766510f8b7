"""The pure backend of the scanner: numpy over batches. It is the reference for other backends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.record import BLANK
from rmqctl.engine.scan import bodycrc, properties
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.chain import chain, read_fields
from rmqctl.engine.scan.columns import Bytes, Ints
from rmqctl.engine.scan.framed import framed_chain
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.properties import PropertyColumns, delays_to_look_at
from rmqctl.engine.scan.seen import window_seen, with_last_record
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import ScanTuning


class PureBackend:
    """The single steps for a window; :class:`PureReader` puts them together."""

    name = "pure"
    chain = staticmethod(chain)
    read_fields = staticmethod(read_fields)
    properties = staticmethod(properties.scan)
    body_crcs = staticmethod(bodycrc.body_crcs)

    def reader(
        self,
        topics: TopicTable,
        tuning: ScanTuning,
        *,
        check: bool,
        properties: bool,
        plain: PlainWanted | None = None,
    ) -> PureReader:
        return PureReader(self, topics, tuning, check=check, properties=properties)


class PureReader:
    """:class:`~rmqctl.engine.scan.backend.WindowReader` in numpy."""

    runs_ahead = False

    def __init__(
        self,
        backend: PureBackend,
        topics: TopicTable,
        tuning: ScanTuning,
        *,
        check: bool,
        properties: bool,
    ) -> None:
        self._backend = backend
        self._topics = topics
        self._tuning = tuning
        self._check = check
        self._properties = properties

    def batches(
        self, mapped: MappedFile, position: int, limit: int, stays: bool
    ) -> Iterator[Batch]:
        mapped.load(position, limit)
        seen = window_seen(mapped, position, limit)
        data = np.frombuffer(seen.buffer, np.uint8)
        first = mapped.file_from_offset
        follow = framed_chain if mapped.framed else self._backend.chain
        positions = follow(data, position, limit, first, self._tuning)
        if len(positions):
            last = int(positions[-1])
            mapped.load_entry(last)
            end = last + BLANK.unpack_from(seen.buffer, last)[0]
            seen = with_last_record(mapped, seen, position, limit, end)
        data = np.frombuffer(seen.buffer, np.uint8)
        for at in range(0, len(positions), self._tuning.batch_records):
            chained = positions[at : at + self._tuning.batch_records]
            fields = self._backend.read_fields(data, chained, first)
            if fields is None:
                return
            mapped.load(limit, int(fields["position"][-1] + fields["total_size"][-1]))
            yield self._batch(seen, data, fields)
            if len(fields["position"]) < len(chained):
                return

    def settle(self, batch: Batch | Plain) -> None:
        """Does nothing: topics get their numbers together with the batch."""

    def _batch(self, mapped: MappedFile, data: Bytes, fields: dict[str, Ints]) -> Batch:
        fields["topic_id"] = self._topics.lookup(
            data, fields.pop("topic_position"), fields.pop("topic_length")
        )
        count = len(fields["position"])
        found = PropertyColumns.empty(count)
        if self._properties:
            tags_prefix = self._topics.tags_prefix_array()
            found = self._backend.properties(
                data,
                fields["properties_position"],
                fields["properties_length"],
                self._topics.key_prefix_array()[fields["topic_id"]],
                self._tuning,
                check=self._check,
                tags_prefix=None if tags_prefix is None else tags_prefix[fields["topic_id"]],
            )
        elif self._check:
            found.delay_levels = delays_to_look_at(data, self._topics, fields)
        return Batch(
            mapped=mapped,
            topics=self._topics,
            tags_code=found.tags_code,
            key_row=found.key_row,
            key_hash=found.key_hash,
            crc_matches=self._crc_matches(data, fields) if self._check else np.ones(count, bool),
            malformed=found.malformed,
            multi_dispatch_rows=found.multi_dispatch_rows,
            delay_levels=found.delay_levels,
            new_topics=None,
            **fields,
        )

    def _crc_matches(self, data: Bytes, fields: dict[str, Ints]) -> NDArray[np.bool_]:
        length = fields["body_length"]
        codes = self._backend.body_crcs(data, fields["body_position"], length, self._tuning)
        stored = fields["body_crc"]
        # An empty body is not checked, as in the engine.
        matches: NDArray[np.bool_] = ((codes & np.uint32(0x7FFFFFFF)) == stored) | (length == 0)
        return matches
