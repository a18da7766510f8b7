"""The scanner: the one hot loop. Batches of columns from the commit log, and damage.

verify, rebuild, bulk put and Spark consume it. What it does with the bytes of a file is a backend's
(:mod:`rmqctl.engine.scan.backend`): the pure one, or a compiled one that says the same. Every place
that is not a plain record goes through :meth:`CommitLog.step`, so that both readers of the log
agree on what a record is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine.files.holes import Aside, whole
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.record.record import BLANK, Blank, Damage, End, Record
from rmqctl.engine.scan.backend import ScanBackend, chosen
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import LONGEST, Bytes, Ints, gather
from rmqctl.engine.scan.properties import PropertyColumns, unusual_delays
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning

__all__ = ["Batch", "ScanEntry", "Scanner", "TopicTable", "gather"]

#: So far around what it takes a batch's columns reach: the longest texts are gathered in rows of
#: this width.
_AROUND = 2 * LONGEST


ScanEntry = Batch | Blank | Damage | End


class Scanner:
    """Scans a log. ``check`` also computes body CRCs and looks for malformed properties;
    ``properties`` can be left out when neither tags codes nor keys are wanted: of them a check then
    looks at delay levels only. ``backend`` is the one that :mod:`rmqctl.kernel` chooses, unless it
    is given."""

    def __init__(
        self,
        log: CommitLog,
        *,
        check: bool = False,
        properties: bool = True,
        tuning: ScanTuning = DEFAULT,
        backend: ScanBackend | None = None,
    ) -> None:
        self.log = log
        self.topics = TopicTable()
        self._check = check
        self._properties = properties
        self._tuning = tuning
        self._backend = backend or chosen()

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[ScanEntry]:
        """Batches, blanks and damage from ``start`` (a record's start; None: the log's first)
        up to ``end``, closed by :class:`End`: the order and places of :meth:`CommitLog.walk`.
        """
        entries = self.log.files.entries
        number = 0 if start is None else self.log.files.index_of(start)
        if number < 0 or not entries:
            yield End(max(start or 0, self.log.min_offset))
            return
        position = 0 if start is None else start - entries[number].file_from_offset
        least, most = self._tuning.window_bytes
        window = least
        appended: tuple[int, int] | None = None
        while True:
            if number < len(entries) and position >= 0:
                mapped = self.log.files.file(number)
                limit = mapped.size if end is None else end - mapped.file_from_offset
                reached = position
                for batch in self._window(mapped, position, min(limit, position + window)):
                    yield batch
                    reached = batch.end_offset - mapped.file_from_offset
                if reached > position:
                    mapped.forget(position, reached)
                    position = reached
                    window = min(2 * window, most)
                    continue
            window = least
            if end is not None and position >= 0 and self.log.offset_of(number, position) >= end:
                yield End(end)
                return
            step = self.log.step(number, position)
            if end is not None and step.entry.physical_offset >= end:
                yield End(end)
                return
            if isinstance(step.entry, Record):
                # A broker has appended it behind the window's look, which is taken again.
                if appended == (number, position):
                    raise AssertionError("scanner and walk disagree on a record")
                appended = number, position
                continue
            yield step.entry
            if isinstance(step.entry, End):
                return
            number, position = step.number, step.position

    def _window(self, mapped: MappedFile, position: int, limit: int) -> Iterator[Batch]:
        """Batches of the sound records that stand behind each other from ``position`` on."""
        mapped.load(position, limit)
        seen = whole(mapped, position - _AROUND, limit + _AROUND)
        data = np.frombuffer(seen.buffer, np.uint8)
        first = mapped.file_from_offset
        positions = self._backend.chain(data, position, limit, first, self._tuning)
        if len(positions):
            mapped.load_entry(int(positions[-1]))
            seen = _with_last_record(mapped, seen, position, int(positions[-1]), limit)
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

    def _batch(self, mapped: MappedFile, data: Bytes, fields: dict[str, Ints]) -> Batch:
        fields["topic_id"] = self.topics.lookup(
            data, fields.pop("topic_position"), fields.pop("topic_length")
        )
        count = len(fields["position"])
        found = PropertyColumns.empty(count)
        if self._properties:
            found = self._backend.properties(
                data,
                fields["properties_position"],
                fields["properties_length"],
                self.topics.key_prefix_array()[fields["topic_id"]],
                self._tuning,
                check=self._check,
            )
        elif self._check:
            found.delay_levels = self._unusual_delays(data, fields)
        return Batch(
            mapped=mapped,
            topics=self.topics,
            tags_code=found.tags_code,
            key_row=found.key_row,
            key_hash=found.key_hash,
            crc_matches=self._crc_matches(data, fields) if self._check else np.ones(count, bool),
            malformed=found.malformed,
            multi_dispatch_rows=found.multi_dispatch_rows,
            delay_levels=found.delay_levels,
            **fields,
        )

    def _unusual_delays(self, data: Bytes, fields: dict[str, Ints]) -> dict[int, str]:
        """Row → level of delayed messages whose level needs a look."""
        schedule = self.topics.id_of(constants.RMQ_SYS_SCHEDULE_TOPIC)
        rows = np.flatnonzero(fields["topic_id"] == schedule)
        if not len(rows):
            return {}
        places = (fields[name][rows] for name in ("properties_position", "properties_length"))
        found = unusual_delays(data, *places)
        return {int(rows[number]): level for number, level in found.items()}

    def _crc_matches(self, data: Bytes, fields: dict[str, Ints]) -> NDArray[np.bool_]:
        length = fields["body_length"]
        codes = self._backend.body_crcs(data, fields["body_position"], length, self._tuning)
        stored = fields["body_crc"]
        # An empty body is not checked, as in the engine.
        matches: NDArray[np.bool_] = ((codes & np.uint32(0x7FFFFFFF)) == stored) | (length == 0)
        return matches


def _with_last_record(
    mapped: MappedFile, seen: MappedFile, start: int, last: int, limit: int
) -> MappedFile:
    """What stands for a window that began at ``start``, with its last record, at ``last``, which
    may reach beyond ``limit``."""
    total_size, _ = BLANK.unpack_from(seen.buffer, last)
    end = last + total_size + _AROUND
    if end <= limit + _AROUND:
        return seen
    if isinstance(seen, Aside):
        seen.add(mapped, limit, min(end, mapped.size))
        return seen
    return whole(mapped, start - _AROUND, end)
