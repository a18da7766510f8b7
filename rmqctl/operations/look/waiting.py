"""The messages that wait in a store: delayed ones by the hour in which they are due, and pending
half messages by producer group. As with ``schedule ls`` and ``transaction ls``, the queues and
``config/`` tell them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from formats import constants
from formats.constants import INT_MAX, PROPERTY_PRODUCER_GROUP
from rmqctl.engine.queue.consumequeue import Unit, is_ext_addr
from rmqctl.engine.services import schedule
from rmqctl.errors import ConfigFileUnreadable
from rmqctl.operations.look.du import MAX_GROUPS
from rmqctl.operations.look.halves import PENDING, halves
from rmqctl.rows.sections import HOUR, Waiting, order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.rows.onspark import DueStatsRow, HalfStatsRow

_TOPIC = constants.RMQ_SYS_SCHEDULE_TOPIC
#: How many units are read at once (1.25 MiB).
_UNITS_AT_ONCE = 1 << 16
#: The beginning of the year 10000 (ms since the epoch): no message is due then.
_NEVER = 253_402_300_800_000


class _Found:
    """The sums of all stores: messages and bytes by hour, and by producer group, each group with
    the time of its oldest message."""

    def __init__(self) -> None:
        self.due: dict[int | None, list[int]] = {}
        self.halves: dict[str | None, HalfStatsRow] = {}

    def add_due(self, hour: int | None, messages: int, size: int) -> None:
        # Only a hostile store has more hours than the bound: no broker delays for years.
        known = hour in self.due or len(self.due) < MAX_GROUPS
        counts = self.due.setdefault(hour if known else None, [0, 0])
        counts[0] += messages
        counts[1] += size


def waiting(stores: Iterable[MessageStore], top: int) -> Waiting:
    """All rows ``due``, and the rows ``half`` of the ``top`` groups with most messages. A store
    whose ``config/`` cannot be read is named as a problem, and the sum is unknown then."""
    found, problems = _Found(), []
    is_known = [True, True]
    for store in stores:
        for part, look in enumerate((_delayed, _pending)):
            try:
                look(store, found)
            except ConfigFileUnreadable as error:
                is_known[part] = False
                problems.append(str(error))
    halves_found = sorted(
        found.halves.values(),
        key=lambda row: (-row["messages"], order(row["producer_group"])),
    )
    return Waiting(
        (*_due_rows(found), *halves_found[:top]),
        sum(counts[0] for counts in found.due.values()) if is_known[0] else None,
        sum(row["messages"] for row in halves_found) if is_known[1] else None,
        tuple(dict.fromkeys(problems)),
    )


def _due_rows(found: _Found) -> Iterable[DueStatsRow]:
    for hour in sorted(found.due, key=lambda hour: (hour is None, hour or 0)):
        messages, size = found.due[hour]
        yield {"type": "due", "hour": hour, "messages": messages, "bytes": size}


def _delayed(store: MessageStore, found: _Found) -> None:
    """Adds the delayed messages of every level, from the offset at which a broker goes on."""
    offsets = schedule.load_delay_offsets(store.root).table
    for where in store.queues.directories_of(_TOPIC):
        level = where.queue_id + 1
        queue = store.consume_queue(_TOPIC, where.queue_id)
        if queue is None:
            continue
        start = schedule.first_to_deliver(offsets.get(level), queue)
        while start < queue.max_offset:
            units = queue.window(start, min(_UNITS_AT_ONCE, queue.max_offset - start))
            if not len(units):
                break
            _add_units(found, units, _times(store, level, queue, units))
            start += len(units)


def _times(
    store: MessageStore, level: int, queue: ConsumeQueue, units: NDArray[np.void]
) -> NDArray[np.int64]:
    """The delivery time (ms) of each unit."""
    times = units["tags_code"].astype(np.int64)
    if queue.ext is not None:
        for at in (times <= constants.MAX_ADDR).nonzero()[0].tolist():
            unit = Unit._make(units[at].item())
            if is_ext_addr(unit.tags_code):
                times[at] = schedule.deliver_timestamp(store, level, queue, unit)
    return times


def _add_units(found: _Found, units: NDArray[np.void], times: NDArray[np.int64]) -> None:
    filled = (units["size"] == INT_MAX) & (units["physical_offset"] == 0)
    sizes, times = units["size"][~filled].astype(np.int64), times[~filled]
    hours = np.where((times > 0) & (times < _NEVER), times // HOUR, -1)
    values, group = np.unique(hours, return_inverse=True)
    messages = np.bincount(group.reshape(-1), minlength=len(values)).tolist()
    # Exact: a window has far less than 2^53 bytes.
    total = np.bincount(group.reshape(-1), sizes, len(values)).astype(np.int64).tolist()
    for hour, count, size in zip(values.tolist(), messages, total, strict=True):
        found.add_due(None if hour < 0 else hour * HOUR, count, size)


def _pending(store: MessageStore, found: _Found) -> None:
    for half in halves(store):
        if half.state != PENDING:
            continue
        record = half.record
        group = record.properties.get(PROPERTY_PRODUCER_GROUP)
        row = found.halves.setdefault(
            group,
            {
                "type": "half",
                "producer_group": group,
                "messages": 0,
                "bytes": 0,
                "oldest_born_timestamp": record.born_timestamp,
            },
        )
        row["messages"] += 1
        row["bytes"] += record.total_size
        row["oldest_born_timestamp"] = min(row["oldest_born_timestamp"], record.born_timestamp)
