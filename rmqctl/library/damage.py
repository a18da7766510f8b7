"""What cannot be read, told as Python tells such things: as a warning."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.engine.record.record import Damage


class DamageWarning(UserWarning):
    """A part of the store cannot be read, and the messages that were there are passed over.

    ``warnings.simplefilter("error", rmqctl.DamageWarning)`` makes an exception of it.
    """


def warn_of_damage(text: str) -> None:
    """Warns in the name of the loop over the messages."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals["__name__"]):
        level, frame = level + 1, frame.f_back
    warnings.warn(DamageWarning(text), stacklevel=level)


def warn_of_log(damage: Damage) -> None:
    """Warns of a stretch of the log."""
    warn_of_damage(
        f"{damage.length} bytes of the log at physical offset {damage.physical_offset} are no "
        f"record: {damage.reason}"
    )


def _is_ours(module: str) -> bool:
    return module.startswith("rmqctl.") or module == "heapq"
