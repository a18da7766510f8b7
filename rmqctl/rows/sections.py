"""The sections of ``stats``, in both of its engines: what messages are counted by."""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqctl.rows import Row

HOUR = 3_600_000
#: Upper limits of the classes of delay, in milliseconds; what is more is one class.
DELAYS = (0, 1, 10, 100, 1000, 10_000, 60_000, 600_000, HOUR)
#: What a section's rows are grouped by; ``broker`` is for several stores.
SECTIONS: dict[str, tuple[str, ...]] = {
    "broker": ("broker",),
    "topic": ("topic",),
    "queue": ("topic", "queue_id"),
    "tag": ("topic", "tag"),
    "hour": ("hour",),
    "producer": ("producer",),
    "size": ("body_length_up_to",),
    "delay": ("delay_ms_up_to",),
}
#: Sections in the order of their values; the others begin with the most messages.
BY_VALUE = frozenset(("hour", "size", "delay"))
#: Sections that also have the groups of most bytes.
BY_BYTES_TOO = frozenset(("broker", "topic"))


class Waiting(NamedTuple):
    """What waits in the stores, by their queues and `config/`, which only mapped stores tell:
    rows ``due`` and ``half``, and the sums of both, None where a store was not looked at.
    ``problems`` says why, a sentence for each such store."""

    rows: tuple[Row, ...] = ()
    waiting: int | None = None
    pending_halves: int | None = None
    problems: tuple[str, ...] = ()


def most(groups: dict[tuple[Any, ...], list[int]], section: str, top: int) -> list[tuple[Any, ...]]:
    """The groups of a section that are given, of those with messages and bytes each: the ``top``
    of most messages, and where the section wants them those of most bytes; most messages first."""

    def by(measure: int) -> list[tuple[Any, ...]]:
        return sorted(groups, key=lambda group: (-groups[group][measure], *map(order, group)))

    ordered = by(0)
    if section not in BY_BYTES_TOO:
        return ordered[:top]
    given = {*ordered[:top], *by(1)[:top]}
    return [group for group in ordered if group in given]


def order(value: Any) -> tuple[int, Any]:
    """As Spark sorts: null first, texts by their bytes."""
    if value is None:
        return 0, 0
    return 1, value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
