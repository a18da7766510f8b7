"""The counts of ``stats``, on Spark and in its own process, and the rows that are made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from formats.constants import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqctl.rows.sections import BY_VALUE, SECTIONS, Waiting, most, order

if TYPE_CHECKING:
    from rmqctl.rows import Row
    from rmqctl.rows.onspark import ConsumerGroupStatsRow, StatsSummary

Group = tuple[Any, ...]


class Sums:
    """Counts of a run of ``stats``.

    ``sections`` maps section and group to ``[messages, bytes]``. ``unreadable`` has rows for places
    that cannot be read, ``damages`` counts all of these. ``reconsumed`` counts messages that a
    consumer has sent back.
    """

    def __init__(self) -> None:
        self.sections: dict[str, dict[Group, list[int]]] = {name: {} for name in SECTIONS}
        self.unreadable: list[Row] = []
        self.reconsumed = self.damages = 0

    def add(self, section: str, group: Group, messages: int, size: int) -> None:
        counts = self.sections[section].setdefault(group, [0, 0])
        counts[0] += messages
        counts[1] += size


def place(row: Row) -> tuple[str, bool, int]:
    """The sort key of what cannot be read in a store; what has no offset comes first."""
    offset = row["physical_offset"]
    return row["store"], offset is not None, offset or 0


def consumer_groups(sums: Sums) -> list[ConsumerGroupStatsRow]:
    """Rows of the consumer groups that have retries or dead letters. Those with the most come
    first."""
    rows: dict[str, ConsumerGroupStatsRow] = {}
    for (topic,), (messages, size) in sums.sections["topic"].items():
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


def section_rows(section: str, sums: Sums, top: int) -> Iterator[Row]:
    groups = sums.sections[section]
    if section in BY_VALUE:
        # The group null, of which a section has at most one, comes last.
        ordered = sorted(groups, key=lambda group: (group[0] is None, group[0] or 0))
    else:
        ordered = most(groups, section, top)
    for group in ordered:
        messages, size = groups[group]
        names = dict(zip(SECTIONS[section], group, strict=True))
        yield {"type": section, **names, "messages": messages, "bytes": size}


def summary(
    stores: int, sums: Sums, duplicate_keys: int, duplicates: int, waits: Waiting
) -> StatsSummary:
    """The summary. ``duplicate_keys`` is how many keys several messages of a topic have,
    ``duplicates`` how many messages have one of them, counted once for each such key."""
    topics = sums.sections["topic"]
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
        "queues": len(sums.sections["queue"]),
        "retries": retries,
        "dead_letters": dead_letters,
        "reconsumed": sums.reconsumed,
        "retry_rate": round(retries / messages, 6) if messages else 0.0,
        "dead_letter_rate": round(dead_letters / messages, 6) if messages else 0.0,
        "damages": sums.damages,
        "duplicate_keys": duplicate_keys,
        "messages_with_duplicate_key": duplicates,
        "waiting": waits.waiting,
        "pending_halves": waits.pending_halves,
    }
