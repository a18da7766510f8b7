"""``consumerOrderInfo.json``: queues that a group of 5.x pops in order, with the last pop of each.

The group gets a queue's next messages only when all of the last pop are acknowledged or visible
again (``ConsumerOrderInfoManager.OrderInfo#needBlock``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from formats.constants import LONG_MAX, LONG_MIN
from rmqctl.engine.state import brokerjson

CONSUMER_ORDER_INFO = "consumerOrderInfo.json"
#: The most messages of a pop: ``commitOffsetBit`` is a ``long``.
_MOST_MESSAGES = 64


class OrderInfo(NamedTuple):
    """The last pop of a queue. ``queue_offsets`` are its messages. ``acked`` has the indexes of
    acknowledged ones. ``visible`` says when (ms) a queue offset is visible again."""

    topic: str
    group: str
    queue_id: int
    pop_timestamp: int
    invisible_milliseconds: int
    queue_offsets: list[int]
    acked: frozenset[int]
    visible: dict[int, int]

    @property
    def waiting(self) -> list[int]:
        """Queue offsets of messages that are not acknowledged."""
        return [offset for at, offset in enumerate(self.queue_offsets) if at not in self.acked]

    @property
    def blocked_until(self) -> int | None:
        """Time (ms) at which all waiting messages are visible again; None without any."""
        usual = self.pop_timestamp + self.invisible_milliseconds
        return max((self.visible.get(offset, usual) for offset in self.waiting), default=None)


def order_infos(root: Path) -> Iterator[OrderInfo]:
    """The entries of the file as a broker loads it, sorted. Malformed ones are left out
    (:func:`is_order_info`).

    :raises ConfigFileUnreadable: the file is broken, and its ``.bak`` does not help.
    """
    table = brokerjson.table_of(brokerjson.read_config(root, CONSUMER_ORDER_INFO), "table")
    found = []
    for key, queues in table.items():
        owner = brokerjson.topic_and_group(key)
        if owner is None or not isinstance(queues, dict):
            continue
        for number, value in queues.items():
            queue_id = _long(number)
            if queue_id is not None and is_order_info(value):
                found.append(_info(*owner, queue_id, value))
    yield from sorted(found, key=lambda one: one[:3])


def is_order_info(value: Any) -> bool:
    """Whether a value has the fields of an ``OrderInfo``, with the right types."""
    if not isinstance(value, dict):
        return False
    offsets = value.get("o")
    return (
        all(_long(value.get(name, 0)) is not None for name in ("popTime", "i", "cm"))
        and isinstance(offsets, list)
        and 0 < len(offsets) <= _MOST_MESSAGES
        and all(_long(one) is not None for one in offsets)
    )


def _long(value: Any) -> int | None:
    number = brokerjson.whole(value)
    return number if number is not None and LONG_MIN <= number <= LONG_MAX else None


def _info(topic: str, group: str, queue_id: int, value: dict[Any, Any]) -> OrderInfo:
    first, *rest = (_long(one) or 0 for one in value["o"])
    bits = _long(value.get("cm", 0)) or 0
    return OrderInfo(
        topic,
        group,
        queue_id,
        _long(value.get("popTime", 0)) or 0,
        _long(value.get("i", 0)) or 0,
        [first, *(first + one for one in rest)],
        frozenset(at for at in range(len(rest) + 1) if bits >> at & 1),
        brokerjson.offset_table(value.get("ot")),
    )
