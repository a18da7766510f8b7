"""Encodes rows as commit log records, as ``putMessage`` does before a record has its place.

Most rows are plain, and are encoded batch by batch. All others go through the engine's own
``encode``, and so do rows that are refused. So there is one definition of what can be stored, and
of the error messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from formats import constants
from rmqctl.engine.dispatch.multi import add_queue_offsets, multi_queue_names, names_queues
from rmqctl.engine.dispatch.rules import NO_UNIT, Dispatcher
from rmqctl.engine.files.paths import check_topic_directory
from rmqctl.engine.record.bodies import body_problem
from rmqctl.engine.record.form import room_of
from rmqctl.engine.record.message import (
    NOT_IN_PROPERTIES,
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    encode,
    parse_host,
)
from rmqctl.engine.scan.columns import Ints
from rmqctl.engine.scan.sorting import stable_order
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.write.assemble import ROW, Rows
from rmqctl.engine.write.checks import check_message
from rmqctl.errors import TopicNotAllowed
from rmqctl.spark.sink.messagecolumns import (
    BYTES,
    HOSTS,
    INT_LIMIT,
    NUMBERS,
    SINGLE,
    MessageColumns,
)


class RowRefused(ValueError):
    """A row is not a message that can be stored. The text says why."""


@dataclass(frozen=True)
class EncodeSettings:
    """How rows become records. ``timestamp`` (ms) is the store time of all, and the born time of
    rows without one. With ``as_stored`` the rows are records of another store, and stay as they
    were: DELAY delays nothing, and only rows that had offsets in further queues get such
    offsets."""

    config: MessageStoreConfig
    timestamp: int
    as_stored: bool = False


class Encoded(NamedTuple):
    """The records of a batch, one behind the other, and what a run needs to know of each."""

    data: memoryview
    rows: Rows


class _Odd(NamedTuple):
    """A message that is encoded by itself, and the further queues in which it gets offsets. None:
    its properties stay as they are."""

    encoded: EncodedMessage
    multi: list[tuple[str, int]] | None


class RowEncoder:
    """Encodes the rows of one run, batch by batch. ``queues`` and ``counts`` are for all of the
    run."""

    def __init__(self, settings: EncodeSettings) -> None:
        self._settings = settings
        self._config = settings.config
        self._dispatcher = Dispatcher(settings.config)
        self._number: dict[tuple[str, int], int] = {}
        self.counts: list[int] = []

    @property
    def queues(self) -> list[tuple[str, int]]:
        return list(self._number)

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """The records of a batch. :raises RowRefused: a row is not a message."""
        try:
            columns = MessageColumns(batch, self._settings.timestamp, self._special, self._dropped)
            changed = columns.changed_body()
            if changed is not None:
                raise RowRefused(
                    "a body is not what was stored, by its body_crc (without that column it is "
                    f"stored as it is), in the row {_brief(columns.row(changed))}"
                )
            return self._encode(columns)
        except UnicodeDecodeError as error:
            raise RowRefused(f"a text is not UTF-8: {error}") from error

    def messages(self, batch: pa.RecordBatch) -> Iterator[MessageExtBrokerInner]:
        """The rows as messages, unchecked.

        :raises RowRefused: a value is invalid for its field.
        """
        columns = MessageColumns(batch, self._settings.timestamp, self._special, self._dropped)
        for number in range(len(columns)):
            row = columns.row(number)
            try:
                yield replace(self._message_of(row), was_stored=self._settings.as_stored)
            except ValueError as error:
                raise RowRefused(f"{error}, in the row {_brief(row)}") from error

    @property
    def _special(self) -> set[str]:
        """The names of properties with which a message is not plain."""
        multi = {constants.PROPERTY_INNER_MULTI_DISPATCH}
        if self._settings.as_stored:
            return multi
        return {constants.PROPERTY_DELAY_TIME_LEVEL} | multi

    @property
    def _dropped(self) -> set[str]:
        """The names of properties that are left out: the checksum of a record depends on its
        place."""
        return {constants.PROPERTY_CRC32} if self._settings.as_stored else set()

    def _encode(self, columns: MessageColumns) -> Encoded:
        is_odd = columns.is_odd | (columns.size > min(self._config.max_message_size, self._room))
        if self._config.enable_multi_dispatch:
            # check_message says which messages may be stored without properties.
            is_odd |= columns.properties_length == 0
        if not self._settings.as_stored:
            is_odd |= columns.number["sys_flag"] & constants.COMPRESSED_FLAG != 0
        plain = np.flatnonzero(~is_odd)
        odd = {int(row): self._message(columns.row(int(row))) for row in np.flatnonzero(is_odd)}
        queue = np.full(len(columns), -1, np.int64)
        queue[plain] = self._queue_numbers(columns, plain)
        for row, one in odd.items():
            if _has_unit(one.encoded.sys_flag):
                message = one.encoded.message
                queue[row] = self._queue_number(message.topic, message.queue_id)
        multi = {
            row: [self._queue_number(*name) for name in one.multi]
            for row, one in odd.items()
            if one.multi
        }
        offset, multi_offsets = self._count(queue, multi)
        records, size = columns.records(plain, offset[plain])
        if odd:
            sizes = np.empty(len(columns), np.int64)
            alone = [
                self._record(one, int(offset[row]), multi_offsets.get(row, []))
                for row, one in odd.items()
            ]
            sizes[plain], sizes[list(odd)] = size, [len(record) for record in alone]
            order = np.argsort(np.concatenate([plain, np.array(list(odd), np.int64)]))
            records = pa.concat_arrays([records, pa.array(alone, BYTES)]).take(pa.array(order))
            size = sizes
        rows = np.zeros(len(columns), ROW)
        rows["size"], rows["queue"] = size, queue
        rows["is_multi"][list(multi)] = True
        # The result of a join always begins at 0 of its buffer.
        data = memoryview(records.buffers()[2] or b"")[: int(size.sum())]
        return Encoded(data, rows)

    # --- places in queues ----------------------------------------------------------------

    def _queue_numbers(self, columns: MessageColumns, rows: Ints) -> Ints:
        """The numbers of the queues of plain rows; -1 for a record that has no unit."""
        code = columns.topic_code[rows] * INT_LIMIT + columns.number["queue_id"][rows]
        known, at = np.unique(code, return_inverse=True)
        numbers = [
            self._queue_number(columns.topics[one // INT_LIMIT], one % INT_LIMIT)
            for one in known.tolist()
        ]
        kind = columns.number["sys_flag"][rows] & constants.TRANSACTION_TYPE_MASK
        return np.where(np.isin(kind, NO_UNIT), -1, np.array(numbers, np.int64)[at])

    def _queue_number(self, topic: str, queue_id: int) -> int:
        number = self._number.setdefault((topic, queue_id), len(self._number))
        if number == len(self.counts):
            self.counts.append(0)
        return number

    def _count(self, queue: Ints, multi: dict[int, list[int]]) -> tuple[Ints, dict[int, list[int]]]:
        """The queue offsets of the rows, counted from the start of the run, and those in further
        queues."""
        if multi:
            return self._count_one_by_one(queue, multi)
        shifted = queue + 1
        order = stable_order(shifted)
        counts = np.bincount(shifted, minlength=len(self.counts) + 1)
        ranks = np.empty(len(queue), np.int64)
        before = np.concatenate([[0], np.cumsum(counts)[:-1]])
        ranks[order] = np.arange(len(queue)) - before[shifted[order]]
        known = np.array([0, *self.counts], np.int64)
        self.counts = (known + counts)[1:].tolist()
        return np.where(queue < 0, 0, ranks + known[shifted]), {}

    def _count_one_by_one(
        self, queue: Ints, multi: dict[int, list[int]]
    ) -> tuple[Ints, dict[int, list[int]]]:
        offsets, multi_offsets = [], {}
        counts = self.counts
        for row, number in enumerate(queue.tolist()):
            offsets.append(counts[number] if number >= 0 else 0)
            further = multi.get(row, ())
            if further:
                multi_offsets[row] = [counts[other] for other in further]
            if number >= 0:
                # A message that names a queue twice counts there once.
                for one in {number, *further}:
                    counts[one] += 1
        return np.array(offsets, np.int64), multi_offsets

    # --- one by one ----------------------------------------------------------------------

    def _record(self, one: _Odd, offset: int, multi_offsets: list[int]) -> bytes:
        encoded = one.encoded
        if one.multi is not None:
            message = add_queue_offsets(encoded.message, multi_offsets)
            again = encode(message, self._config.max_message_size)
            if isinstance(again, PutMessageResult) or again.size > self._room:
                reason = "with the offsets of its further queues the message is too long"
                raise RowRefused(f"a message of topic {message.topic} is refused: {reason}")
            encoded = again
        return encoded.record(offset, 0, self._settings.timestamp)

    def _message(self, row: dict[str, Any]) -> _Odd:
        """A row as a checked message."""
        try:
            message = self._message_of(row)
            if not self._settings.as_stored:
                problem = body_problem(message.body, message.sys_flag)
                if problem:
                    raise ValueError(problem)
            encoded = check_message(
                message,
                self._config,
                self._dispatcher,
                self._config.mapped_file_size_commit_log,
                as_stored=self._settings.as_stored,
            )
            if isinstance(encoded, PutMessageResult):
                raise ValueError(f"a message is refused ({encoded.status.value}: {encoded.reason})")
            return _Odd(encoded, self._multi_queues(encoded.message))
        except TopicNotAllowed as error:
            raise RowRefused(str(error).rstrip(".")) from error
        except ValueError as error:
            raise RowRefused(f"{error}, in the row {_brief(row)}") from error

    @property
    def _room(self) -> int:
        return room_of(self._config.mapped_file_size_commit_log)

    def _multi_queues(self, message: MessageExtBrokerInner) -> list[tuple[str, int]] | None:
        """The further queues in which the record gets offsets. None: it is not rewritten."""
        if not names_queues(message):
            return None
        names = multi_queue_names(message)
        if self._settings.as_stored:
            found = self._dispatcher.named_queues(message.properties, message.queue_id)
            for name, _, _ in found:
                check_topic_directory(name)
            # Only a record with an offset for each name gets new offsets.
            if not names or len(found) != len(names):
                return None
        elif not self._config.enable_multi_dispatch:
            return None
        number = message.queue_id
        return [(name, self._dispatcher.multi_queue_id(name, number)) for name in names]

    def _message_of(self, row: dict[str, Any]) -> MessageExtBrokerInner:
        """A row as a message. Null fields get their defaults. :raises ValueError: a value is
        invalid for its field."""
        if row["topic"] is None:
            raise ValueError("a row has no topic")
        properties = dict(row.get("properties") or ())
        for column, name in SINGLE.items():
            if row.get(column):
                properties[name] = row[column]
        for name in self._dropped:
            properties.pop(name, None)
        for name, value in properties.items():
            if value is None:
                raise ValueError(f"the property {name!r} is null")
            if any(mark in name + value for mark in NOT_IN_PROPERTIES):
                raise ValueError(f"the property {name!r} holds a separator (0x01, 0x02) or a NUL")
        values = {name: row[name] for name in NUMBERS if row.get(name) is not None}
        if not -INT_LIMIT <= values.get("queue_id", 0) < INT_LIMIT:
            raise ValueError(f"queue_id {values['queue_id']} is no int")
        hosts = {name: parse_host(row[name]) for name in HOSTS if row.get(name) is not None}
        message = MessageExtBrokerInner(
            row["topic"],
            row["body"] or b"",
            properties=properties,
            **{"born_timestamp": self._settings.timestamp} | values | hosts,
        )
        return replace(message, sys_flag=message.sys_flag & ~constants.HOST_V6_MASK)


def _has_unit(sys_flag: int) -> bool:
    return sys_flag & constants.TRANSACTION_TYPE_MASK not in NO_UNIT


def _brief(row: dict[str, Any]) -> str:
    text = str({name: value for name, value in row.items() if name != "body"})
    return text if len(text) <= 200 else text[:200] + "…"
