"""The sections of ``stats``, on Spark and in its own process: by what messages are counted."""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqctl.rows import Row

HOUR = 3_600_000
#: Upper limits (ms, inclusive) of the classes of delay. Longer delays are one more class.
DELAYS = (0, 1, 10, 100, 1000, 10_000, 60_000, 600_000, HOUR)
#: By which fields the rows of a section are grouped. ``broker`` is only for several stores.
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
#: Sections whose rows are ordered by their value. The others begin with the most messages.
BY_VALUE = frozenset(("hour", "size", "delay"))
#: Sections that have the groups with the most bytes as well as those with the most messages.
BY_BYTES_TOO = frozenset(("broker", "topic"))


class Waiting(NamedTuple):
    """The delayed and the half messages that wait in the stores, by their queues and ``config/``.
    Only stores in directories can tell them. ``rows`` are rows ``due`` and ``half``. ``waiting``
    and ``pending_halves`` count the messages; None if a store could not tell. ``problems`` says
    why, in a sentence for each such store."""

    rows: tuple[Row, ...] = ()
    waiting: int | None = None
    pending_halves: int | None = None
    problems: tuple[str, ...] = ()


def most(groups: dict[tuple[Any, ...], list[int]], section: str, top: int) -> list[tuple[Any, ...]]:
    """The groups of a section that are printed, those with the most messages first: the ``top``
    ones by messages and, for sections in ``BY_BYTES_TOO``, also the ``top`` ones by bytes.
    ``groups`` maps each group to its messages and bytes."""

    def by(measure: int) -> list[tuple[Any, ...]]:
        return sorted(groups, key=lambda group: (-groups[group][measure], *map(order, group)))

    ordered = by(0)
    if section not in BY_BYTES_TOO:
        return ordered[:top]
    given = {*ordered[:top], *by(1)[:top]}
    return [group for group in ordered if group in given]


def order(value: Any) -> tuple[int, Any]:
    """A sort key that gives Spark's order: null first, texts by their UTF-8 bytes."""
    if value is None:
        return 0, 0
    return 1, value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
