"""Damage is told as a Python warning."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.engine.record.record import Damage

#: How many warnings one loop gives: Python keeps the text of each, and a log may be full of damage.
_MOST = 100


class DamageWarning(UserWarning):
    """A part of the store cannot be read; its messages are passed over.

    ``warnings.simplefilter("error", rmqctl.DamageWarning)`` makes an exception of it.
    """


class DamageTeller:
    """Warns of the damage that one loop over messages meets. The warning names the line of that
    loop."""

    def __init__(self) -> None:
        self._told = 0

    def of_log(self, damage: Damage) -> None:
        """Warns of a stretch of the log that is no record."""
        self.tell(
            f"{damage.length} bytes of the log at physical offset {damage.physical_offset} are no "
            f"record: {damage.reason}"
        )

    def of_queue(self, topic: str, queue_id: int, unread: list[int]) -> None:
        """Warns of unreadable messages of a queue: at one queue offset, or from one to another."""
        offsets = " to ".join(str(offset) for offset in unread)
        self.tell(
            f"the messages of {topic!r} queue {queue_id} at queue offset {offsets} cannot be read"
        )

    def of_bodies(self, count: int) -> None:
        """Warns of bodies in a batch that do not agree with their CRC, and are given all the
        same."""
        self.tell(
            f"{count} bodies of a batch are not what was stored: the column status names them"
        )

    def tell(self, text: str) -> None:
        if self._told < _MOST:
            _warn(text)
        elif self._told == _MOST:
            _warn(f"there is more damage than these {_MOST} places: verify() names all")
        self._told += 1


def _warn(text: str) -> None:
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals["__name__"]):
        level, frame = level + 1, frame.f_back
    warnings.warn(DamageWarning(text), stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.startswith("rmqctl.") or module == "heapq"
