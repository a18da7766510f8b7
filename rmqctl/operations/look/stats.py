"""stats: messages of one or several stores by topic, queue, tag, hour and more, and keys that
several messages have.

The first pass over each log counts, batch by batch in numpy, and notes the hashes of all keys.
Further ones count the keys whose hashes occur more than once
(:mod:`~rmqctl.operations.look.duplicatekeys`). The rows are those of the same statistics on Spark.
Spark has no bounds; here a store with too many groups, names or keys is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from formats import layouts
from formats.constants import BORNHOST_V6_FLAG
from formats.text import decode_utf8
from rmqctl.engine.log.onward import onward
from rmqctl.engine.record.record import Damage, host_text
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import Ints, take
from rmqctl.engine.scan.properties import tags
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import TooMuchHere
from rmqctl.operations.look.du import MAX_GROUPS, MAX_NAME_BYTES, NameTable, grouped
from rmqctl.operations.look.duplicatekeys import DuplicateKeys
from rmqctl.operations.look.statsrows import (
    Counts,
    LogRange,
    no_file_row,
    store_rows,
    unreadable_row,
)
from rmqctl.operations.progress import Progress
from rmqctl.rows.sections import DELAYS, HOUR, SECTIONS, Waiting
from rmqctl.rows.sums import consumer_groups, place, section_rows, summary

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows import Row

#: The most keys whose hashes are held at once: half a GiB.
MAX_KEYS = 1 << 27
_FIELDS = {field.name: field.offset for field in layouts.RECORD_PREFIX[0].fields}
_BORN_TIMESTAMP, _BORN_ADDRESS = _FIELDS["born_timestamp"], _FIELDS["born_address"]
#: From there to the body the hosts have no say.
_RECONSUME_TIMES = _FIELDS["reconsume_times"] - layouts.RECORD_PREFIX[0].size
_V4_BYTES, _V6_BYTES = 4, 16
_LONG, _INT = np.dtype(">i8"), np.dtype(">i4")
#: A number that no message has: it stands for null.
_NULL = -1 << 62
_FAR = 1 << 61


class StoreToCount(NamedTuple):
    """An open store, its broker's name, and its name in the rows."""

    store: MessageStore
    broker: str
    name: str


def statistics(
    stores: list[StoreToCount], top: int, progress: Progress, waits: Waiting
) -> Iterator[Row]:
    """Rows ``store``, the rows of each section, ``consumer_group``, ``unreadable``,
    ``duplicate_key``, the rows of ``waits``, and ``summary``, whose ``damages`` counts places that
    cannot be read. ``progress`` is called with the bytes read, each log counted twice.

    Stores, and the sections with an order of their own (hour, size, delay), are given whole. Of
    other sections the ``top`` groups with most messages are given, and of unreadable places the
    first ``top``.

    :raises TooMuchHere: there are more groups, names or keys than are held here.
    """
    counts = Counts()
    done = 0
    for one in stores:
        _count(one, counts, top, _behind(progress, done))
        done += _log_bytes(one.store)
    yield from store_rows(counts)
    for section in SECTIONS:
        if section != "broker" or len(stores) > 1:
            yield from section_rows(section, counts, top)
    yield from consumer_groups(counts)[:top]
    yield from sorted(counts.unreadable, key=place)[:top]
    keys = DuplicateKeys(counts.hashes, top)
    keys.count([one.store for one in stores], _behind(progress, done))
    yield from keys.rows()
    yield from waits.rows
    yield summary(len(stores), counts, keys.number, keys.messages, waits)


def _log_bytes(store: MessageStore) -> int:
    return store.max_offset - store.min_offset


def _behind(progress: Progress, before: int) -> Progress:
    return lambda reached: progress(before + reached)


# --- counting ----------------------------------------------------------------------------------


def _count(one: StoreToCount, counts: Counts, top: int, progress: Progress) -> None:
    scanner = Scanner(one.store.commit_log)
    log, places = LogRange(), 0
    counts.logs.append((one, log))
    names = NameTable(MAX_GROUPS, MAX_NAME_BYTES), NameTable(MAX_GROUPS, MAX_NAME_BYTES)
    for irregular in one.store.commit_log.files.irregular:
        if irregular.size < 0:
            counts.damages += 1
            counts.unreadable.append(no_file_row(one.name, irregular.path))
    for entry in onward(one.store.commit_log, scanner.scan):
        if isinstance(entry, Damage):
            counts.damages += 1
            places += 1
            if places <= top:
                counts.unreadable.append(unreadable_row(one.name, entry))
        elif isinstance(entry, Batch):
            log.add(entry)
            _count_batch(entry, one.broker, names, counts)
            progress(entry.end_offset - one.store.min_offset)


def _count_batch(
    batch: Batch, broker: str, names: tuple[NameTable, NameTable], counts: Counts
) -> None:
    data = np.frombuffer(batch.mapped.buffer, np.uint8)
    tag_names, host_names = names
    topics = batch.topics.names
    tag, producer = _tags(batch, tag_names), _producers(batch, host_names)
    born = take(data, batch.position + _BORN_TIMESTAMP, _LONG).astype(np.int64)
    again = take(data, batch.body_position + _RECONSUME_TIMES, _INT)
    counts.reconsumed += int(np.count_nonzero(again > 0))
    counts.hashes.append(batch.key_hash)
    counts.keys += len(batch.key_hash)
    if counts.keys > MAX_KEYS:
        raise TooMuchHere(what=f"{MAX_KEYS} keys")
    tag_text = {number: _text(tag_names, number) for number in np.unique(tag).tolist()}
    host_of = {number: _host(host_names, number) for number in np.unique(producer).tolist()}
    columns: dict[str, tuple[Ints, Callable[[int], Any]]] = {
        "topic": (batch.topic_id, lambda number: topics[number]),
        "queue_id": (batch.queue_id, int),
        "tag": (tag, lambda number: tag_text[number]),
        "hour": (batch.store_timestamp // HOUR * HOUR, int),
        "producer": (producer, lambda number: host_of[number]),
        "body_length_up_to": (_size_classes(batch.body_length), int),
        "delay_ms_up_to": (
            # Beyond these limits a difference may overflow; its class would be the same.
            _delay_classes(
                np.clip(batch.store_timestamp, -_FAR, _FAR) - np.clip(born, -_FAR, _FAR)
            ),
            lambda number: None if number == _NULL else number,
        ),
    }
    counts.add("broker", (broker,), len(batch), int(batch.total_size.sum()))
    for section, keys in SECTIONS.items():
        if section == "broker":
            continue
        for numbers, messages, size in grouped([columns[k][0] for k in keys], batch.total_size):
            group = tuple(columns[k][1](n) for k, n in zip(keys, numbers, strict=True))
            counts.add(section, group, messages, size)


def _tags(batch: Batch, names: NameTable) -> Ints:
    data = np.frombuffer(batch.mapped.buffer, np.uint8)
    row, start, length = tags(data, batch.properties_position, batch.properties_length)
    numbers = np.full(len(batch), _NULL, np.int64)
    numbers[row] = names.numbers(data, start, length)
    return numbers


def _producers(batch: Batch, names: NameTable) -> Ints:
    data = np.frombuffer(batch.mapped.buffer, np.uint8)
    is_v6 = (batch.sys_flag & BORNHOST_V6_FLAG) != 0
    length = np.where(is_v6, _V6_BYTES, _V4_BYTES)
    return names.numbers(data, batch.position + _BORN_ADDRESS, length)


def _text(names: NameTable, number: int) -> str | None:
    return None if number == _NULL else decode_utf8(_stored(names, number))


def _host(names: NameTable, number: int) -> str:
    return host_text(_stored(names, number), 0).rpartition(":")[0]


def _stored(names: NameTable, number: int) -> bytes:
    if number < 0:
        raise TooMuchHere(what=f"{MAX_GROUPS} tags or producers")
    return names.stored[number]


def _size_classes(length: Ints) -> Ints:
    """The least power of two that a length does not exceed."""
    powers = np.int64(1) << np.arange(32, dtype=np.int64)
    classes: Ints = np.where(length <= 0, 0, powers[np.searchsorted(powers, length)])
    return classes


def _delay_classes(delay: Ints) -> Ints:
    """The least limit that a delay does not exceed; null beyond the last one."""
    limits = np.array([*DELAYS, _NULL], np.int64)
    classes: Ints = limits[np.searchsorted(limits[:-1], delay)]
    return classes
