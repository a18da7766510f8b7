"""The scanner: the one hot loop. Batches of columns from the commit log, and damage.

verify, rebuild, bulk put and Spark consume it. This is the pure one: records are chained in
Python and everything else is numpy over batches; a compiled one can take its place behind the same
:class:`Batch`. Every place that is not a plain record goes through :meth:`CommitLog.step`, so that
both readers of the log agree on what a record is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats import constants, layouts
from formats.derive import dtype_of
from formats.text import decode_utf8, string_hash_code
from rmqctl.engine import propertyscan
from rmqctl.engine.commitlog import CommitLog
from rmqctl.engine.dispatch import Dispatcher
from rmqctl.engine.mappedfile import MappedFile
from rmqctl.engine.paths import topic_directory_problem
from rmqctl.engine.propertyscan import gather
from rmqctl.engine.record import HOSTS_V6_MASK, Blank, Damage, End, Record, crc32, read_entry

Ints = NDArray[np.int64]

BATCH_RECORDS = 16384
BATCH_BYTES = 16 << 20
_HEAD = Struct(">iI")
_PREFIX = {flags: dtype_of(layout) for flags, layout in layouts.RECORD_PREFIX.items()}
_PREFIX_SIZE = {flags: layout.size for flags, layout in layouts.RECORD_PREFIX.items()}
_V1, _V2 = constants.MESSAGE_MAGIC_CODE, constants.MESSAGE_MAGIC_CODE_V2
_WORD = 8
# Random, so that no store can be made whose topics collide.
_FACTORS = np.random.default_rng().integers(1, 2**63, 32, np.uint64) | np.uint64(1)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class TopicTable:
    """Topics seen by a scan: a small number for each, with what dispatch needs of it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._id_by_bytes: dict[bytes, int] = {}
        self._hashes = np.empty(0, np.uint64)
        self._hash_ids = np.empty(0, np.int64)
        self._allowed: list[bool] = []
        self._key_prefix: list[int] = []

    def id_of(self, topic: str) -> int:
        """Number of a topic, given one when it is new."""
        return self._add(topic.encode("utf-8", "surrogateescape"))

    def _add(self, topic: bytes) -> int:
        number = self._id_by_bytes.get(topic)
        if number is None:
            number = self._id_by_bytes[topic] = len(self.names)
            name = decode_utf8(topic)
            self.names.append(name)
            self._allowed.append(topic_directory_problem(name) is None)
            self._key_prefix.append(string_hash_code(name + "#") & 0xFFFFFFFF)
        return number

    def allowed_array(self) -> NDArray[np.bool_]:
        """Whether each topic can be a queue directory."""
        return np.array(self._allowed, bool)

    def key_prefix_array(self) -> NDArray[np.uint32]:
        """``hashCode`` of ``topic#`` for each topic."""
        return np.array(self._key_prefix, np.uint32)

    def lookup(self, data: NDArray[np.uint8], start: Ints, length: Ints) -> Ints:
        """Numbers of the topics at places in ``data``; new ones are added."""
        width = int(length.max())
        rows = gather(data, start, -(-width // _WORD) * _WORD)
        rows = np.where(np.arange(rows.shape[1]) < length[:, None], rows, 0).astype(np.uint8)
        words = rows.view(np.uint64)
        words = (words ^ (words >> np.uint64(32))) * _MIX
        words ^= words >> np.uint64(29)
        hashes = (words * _factors(words.shape[1])).sum(axis=1, dtype=np.uint64)
        hashes += length.astype(np.uint64) * _MIX
        at = np.searchsorted(self._hashes, hashes)
        at[at == len(self._hashes)] = 0
        known = self._hashes[at] == hashes if len(self._hashes) else np.zeros(len(at), bool)
        if not known.all():
            fresh, first = np.unique(hashes[~known], return_index=True)
            rows_at = np.flatnonzero(~known)[first]
            ids = [self._add(rows[r, : length[r]].tobytes()) for r in np.sort(rows_at)]
            by_row = dict(zip(np.sort(rows_at).tolist(), ids, strict=True))
            self._hashes = np.concatenate([self._hashes, fresh])
            fresh_ids = np.array([by_row[int(r)] for r in rows_at], np.int64)
            self._hash_ids = np.concatenate([self._hash_ids, fresh_ids])
            order = np.argsort(self._hashes)
            self._hashes, self._hash_ids = self._hashes[order], self._hash_ids[order]
            at = np.searchsorted(self._hashes, hashes)
        return self._hash_ids[at]


def _factors(count: int) -> NDArray[np.uint64]:
    while len(_FACTORS) < count:
        globals()["_FACTORS"] = np.concatenate([_FACTORS, _FACTORS * _MIX | np.uint64(1)])
    return _FACTORS[:count]


@dataclass(slots=True)
class Batch:
    """Consecutive records of one file as parallel arrays, in log order.

    ``key_row`` and ``key_hash`` are parallel to each other: one entry per index key, rolled back
    records' too. ``crc_matches`` is all true unless the scan checks. ``malformed`` are rows whose
    properties do not parse, ``multi_dispatch_rows`` those that name extra queues.
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

    def __len__(self) -> int:
        return len(self.position)

    @property
    def end_offset(self) -> int:
        return int(self.physical_offset[-1] + self.total_size[-1])

    def record(self, row: int) -> Record:
        """One record in full."""
        entry = read_entry(
            self.mapped.buffer,
            int(self.position[row]),
            self.mapped.size,
            int(self.physical_offset[row]),
        )
        assert isinstance(entry, Record)
        return entry


ScanEntry = Batch | Blank | Damage | End


class Scanner:
    """Scans a log. ``check`` also computes body CRCs and looks for malformed properties;
    ``properties`` can be left out when neither tags codes nor keys are wanted."""

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        *,
        check: bool = False,
        properties: bool = True,
    ) -> None:
        self.log = log
        self.dispatcher = dispatcher
        self.topics = TopicTable()
        self._check = check
        self._properties = properties

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
        while True:
            if number < len(entries) and position >= 0:
                mapped = self.log.files.file(number)
                limit = mapped.size if end is None else min(mapped.size, end - mapped.file_from_offset)
                batch = self._batch(mapped, _chain(mapped, position, limit))
                if batch is not None:
                    yield batch
                    position = batch.end_offset - mapped.file_from_offset
                    continue
            step = self.log.step(number, position)
            if end is not None and step.entry.physical_offset >= end:
                yield End(end)
                return
            assert not isinstance(step.entry, Record), "scanner and walk disagree on a record"
            yield step.entry
            if isinstance(step.entry, End):
                return
            number, position = step.number, step.position

    def _batch(self, mapped: MappedFile, positions: list[int]) -> Batch | None:
        """The longest run of sound records at the head of ``positions``; None when there is none."""
        if not positions:
            return None
        data = np.frombuffer(mapped.buffer, np.uint8)
        fields = _read_fields(data, np.array(positions, np.int64), mapped.file_from_offset)
        if fields is None:
            return None
        fields["topic_id"] = self.topics.lookup(
            data, fields.pop("topic_position"), fields.pop("topic_length")
        )
        count = len(fields["position"])
        matches = np.ones(count, bool)
        if self._check:
            matches = _crc_matches(mapped, fields)
        found = propertyscan.PropertyColumns.empty(count)
        if self._properties:
            found = propertyscan.scan(
                data,
                fields["properties_position"],
                fields["properties_length"],
                self.topics.key_prefix_array()[fields["topic_id"]],
                check=self._check,
            )
        tags_code = found.tags_code
        self._delays(tags_code, found.delay_levels, fields)
        return Batch(
            mapped=mapped,
            topics=self.topics,
            tags_code=tags_code,
            key_row=found.key_row,
            key_hash=found.key_hash,
            crc_matches=matches,
            malformed=found.malformed,
            multi_dispatch_rows=found.multi_dispatch_rows,
            **fields,
        )

    def _delays(self, tags_code: Ints, levels: dict[int, str], fields: dict[str, Ints]) -> None:
        """Puts delivery times in place of the tags codes of delayed messages."""
        if not levels:
            return
        schedule = self.topics.id_of(constants.RMQ_SYS_SCHEDULE_TOPIC)
        topic, stamps = fields["topic_id"], fields["store_timestamp"]
        for row, level in levels.items():
            if topic[row] == schedule:
                tags_code[row] = self.dispatcher.delivery_time(
                    level, int(stamps[row]), int(tags_code[row])
                )


def _chain(mapped: MappedFile, position: int, limit: int) -> list[int]:
    """Positions of records one after the other, by magic and size alone, as far as a batch goes."""
    positions: list[int] = []
    append, unpack, buffer = positions.append, _HEAD.unpack_from, mapped.buffer
    size_limit = mapped.size
    stop = min(limit, position + BATCH_BYTES, size_limit - constants.MIN_RECORD_SIZE + 1)
    while position < stop and len(positions) < BATCH_RECORDS:
        total_size, magic_code = unpack(buffer, position)
        if (
            (magic_code != _V1 and magic_code != _V2)
            or total_size < constants.MIN_RECORD_SIZE
            or position + total_size > size_limit
        ):
            break
        append(position)
        position += total_size
    return positions


def _read_fields(
    data: NDArray[np.uint8], position: Ints, file_from_offset: int
) -> dict[str, Ints] | None:
    """Columns of the records at ``position`` up to the first that is not sound."""
    limit = len(data)
    fixed = _take(data, position, _PREFIX[0])
    sys_flag = fixed["sys_flag"].astype(np.int64)
    hosts = sys_flag & HOSTS_V6_MASK
    store_timestamp = fixed["store_timestamp"].astype(np.int64)
    body_length = fixed["body_length"].astype(np.int64)
    prefix_size = np.full(len(position), _PREFIX_SIZE[0], np.int64)
    sound = np.ones(len(position), bool)
    for flags in np.unique(hosts):
        if flags == 0:
            continue
        rows = np.flatnonzero(hosts == flags)
        size = _PREFIX_SIZE[int(flags)]
        fits = position[rows] + size <= limit
        sound[rows[~fits]] = False
        rows = rows[fits]
        wide = _take(data, position[rows], _PREFIX[int(flags)])
        store_timestamp[rows] = wide["store_timestamp"]
        body_length[rows] = wide["body_length"]
        prefix_size[rows] = size
    np.maximum(body_length, 0, out=body_length)
    is_v2 = fixed["magic_code"] == _V2
    at = position + prefix_size + body_length
    sound &= at + 3 + is_v2 <= limit
    safe = np.where(sound, at, 0)
    topic_length = data[safe].astype(np.int64)
    if is_v2.any():
        wide_length = topic_length << 8 | data[np.minimum(safe + 1, limit - 1)]
        topic_length = np.where(is_v2, wide_length, topic_length)
    topic_position = at + 1 + is_v2
    at = topic_position + topic_length
    longest = np.where(is_v2, 0x7FFF, constants.MAX_TOPIC_LENGTH)
    sound &= (topic_length > 0) & (topic_length <= longest) & (at + 2 <= limit)
    safe = np.where(sound, at, 0)
    properties_length = (data[safe].astype(np.int64) << 8) | data[np.minimum(safe + 1, limit - 1)]
    # Java reads a signed short; a negative length counts as none.
    properties_length[properties_length > 0x7FFF] = 0
    end = at + 2 + properties_length
    sound &= end - position == fixed["total_size"]
    sound &= fixed["physical_offset"] == position + file_from_offset
    count = len(position) if sound.all() else int(np.argmin(sound))
    if count == 0:
        return None
    columns = {
        "position": position,
        "physical_offset": position + file_from_offset,
        "total_size": fixed["total_size"].astype(np.int64),
        "body_crc": fixed["body_crc"].astype(np.int64),
        "queue_id": fixed["queue_id"].astype(np.int64),
        "queue_offset": fixed["queue_offset"].astype(np.int64),
        "sys_flag": sys_flag,
        "store_timestamp": store_timestamp,
        "body_position": position + prefix_size,
        "body_length": body_length,
        "topic_position": topic_position,
        "topic_length": topic_length,
        "properties_position": at + 2,
        "properties_length": properties_length,
    }
    return {name: column[:count] for name, column in columns.items()}


def _take(data: NDArray[np.uint8], position: Ints, dtype: np.dtype[Any]) -> NDArray[np.void]:
    """Structures at arbitrary positions, copied into one array."""
    count = max(len(data) - dtype.itemsize + 1, 0)
    places: NDArray[np.void] = np.ndarray((count,), dtype, data, strides=(1,))
    return places[position]


def _crc_matches(mapped: MappedFile, fields: dict[str, Ints]) -> NDArray[np.bool_]:
    start = fields["body_position"]
    length = fields["body_length"]
    with memoryview(mapped.buffer) as view:
        codes = [
            crc32(view[low:high])
            for low, high in zip(start.tolist(), (start + length).tolist(), strict=True)
        ]
    actual = np.array(codes, np.int64) & 0x7FFFFFFF
    matches: NDArray[np.bool_] = (actual == fields["body_crc"]) | (length == 0)
    return matches
