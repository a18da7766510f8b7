"""What ``stats`` has counted, and the rows that become of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from formats.constants import INT_MAX, RETRY_GROUP_TOPIC_PREFIX
from rmqctl.engine.state.topicconfig import DLQ_GROUP_TOPIC_PREFIX
from rmqctl.errors import TooMuchHere
from rmqctl.operations.look.du import MAX_GROUPS
from rmqctl.rows.sections import BY_VALUE, SECTIONS, Waiting, most, order

if TYPE_CHECKING:
    from rmqctl.engine.record.record import Damage
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.operations.look.stats import StoreToCount
    from rmqctl.rows import Row
    from rmqctl.rows.onspark import (
        ConsumerGroupStatsRow,
        StatsSummary,
        StoreStatsRow,
        UnreadableStatsRow,
    )

Group = tuple[Any, ...]


class LogRange:
    """Messages and bytes of one store, and from when to when they were stored."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, batch: Batch) -> None:
        self.messages += len(batch)
        self.bytes += int(batch.total_size.sum())
        first, last = int(batch.store_timestamp.min()), int(batch.store_timestamp.max())
        self.first = first if self.first is None else min(first, self.first)
        self.last = last if self.last is None else max(last, self.last)


class Counts:
    """Messages and bytes by section and group."""

    def __init__(self) -> None:
        self.sections: dict[str, dict[Group, list[int]]] = {name: {} for name in SECTIONS}
        self.logs: list[tuple[StoreToCount, LogRange]] = []
        self.unreadable: list[Row] = []
        self.reconsumed = self.damages = 0
        self.hashes: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        self.keys = 0

    def add(self, section: str, group: Group, messages: int, size: int) -> None:
        groups = self.sections[section]
        counts = groups.get(group)
        if counts is None:
            if len(groups) >= MAX_GROUPS:
                raise TooMuchHere(what=f"{MAX_GROUPS} groups of section {section}")
            counts = groups[group] = [0, 0]
        counts[0] += messages
        counts[1] += size


def store_rows(counts: Counts) -> Iterator[StoreStatsRow]:
    for one, log in sorted(counts.logs, key=lambda pair: pair[0].name):
        yield {
            "type": "store",
            "store": one.name,
            "broker": one.broker,
            "messages": log.messages,
            "bytes": log.bytes,
            "first_store_timestamp": log.first,
            "last_store_timestamp": log.last,
            "file_reserved_hours": one.store.config.file_reserved_time,
        }


def unreadable_row(store: str, damage: Damage) -> UnreadableStatsRow:
    return {
        "type": "unreadable",
        "store": store,
        "physical_offset": damage.physical_offset,
        "length": min(damage.length, INT_MAX),
        "reason": damage.reason,
    }


def place(row: Row) -> tuple[str, int]:
    return row["store"], row["physical_offset"]


def consumer_groups(counts: Counts) -> list[ConsumerGroupStatsRow]:
    """Groups with retries or dead letters, those with most of both first."""
    rows: dict[str, ConsumerGroupStatsRow] = {}
    for (topic,), (messages, size) in counts.sections["topic"].items():
        is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        if not is_retry and not topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
            continue
        group = topic.split("%", 2)[2]
        row = rows.setdefault(group, _no_retries(group))
        row["retries" if is_retry else "dead_letters"] += messages
        row["messages"] += messages
        row["bytes"] += size
    return sorted(rows.values(), key=lambda row: (-row["messages"], order(row["group"])))


def _no_retries(group: str) -> ConsumerGroupStatsRow:
    return {
        "type": "consumer_group",
        "group": group,
        "retries": 0,
        "dead_letters": 0,
        "messages": 0,
        "bytes": 0,
    }


def section_rows(section: str, counts: Counts, top: int) -> Iterator[Row]:
    groups = counts.sections[section]
    if section in BY_VALUE:
        # Null, of which there is one, comes last.
        ordered = sorted(groups, key=lambda group: (group[0] is None, group[0] or 0))
    else:
        ordered = most(groups, section, top)
    for group in ordered:
        messages, size = groups[group]
        names = dict(zip(SECTIONS[section], group, strict=True))
        yield {"type": section, **names, "messages": messages, "bytes": size}


def summary(
    stores: int, counts: Counts, duplicate_keys: int, duplicates: int, waits: Waiting
) -> StatsSummary:
    """``duplicates`` messages have one of ``duplicate_keys`` keys that others have too."""
    topics = counts.sections["topic"]
    messages = sum(count for count, _ in topics.values())

    def part(prefix: str) -> int:
        return sum(count for (name,), (count, _) in topics.items() if name.startswith(prefix))

    retries, dead_letters = part(RETRY_GROUP_TOPIC_PREFIX), part(DLQ_GROUP_TOPIC_PREFIX)
    return {
        "type": "summary",
        "stores": stores,
        "messages": messages,
        "bytes": sum(size for _, size in topics.values()),
        "topics": len(topics),
        "queues": len(counts.sections["queue"]),
        "retries": retries,
        "dead_letters": dead_letters,
        "reconsumed": counts.reconsumed,
        "retry_rate": round(retries / messages, 6) if messages else 0.0,
        "dead_letter_rate": round(dead_letters / messages, 6) if messages else 0.0,
        "damages": counts.damages,
        "duplicate_keys": duplicate_keys,
        "messages_with_duplicate_key": duplicates,
        "waiting": waits.waiting,
        "pending_halves": waits.pending_halves,
    }
