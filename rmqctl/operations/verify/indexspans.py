"""Neighbouring items without keys, and neighbouring keys without items: one finding each. And how
items are compared with keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.dispatch.batches import KeyBatch


@dataclass(slots=True)
class SurplusItems:
    """Neighbouring items of one kind that no key asks for; ``position`` (bytes in the file) and
    ``physical_offset`` are those of the first."""

    code: str
    path: str
    position: int
    physical_offset: int
    count: int = 1


@dataclass(slots=True)
class Gap:
    """Consecutive keys of the log that have no item; ``first`` and ``last`` are the physical
    offsets of their records."""

    first: int
    last: int
    keys: int


def matching_items(keys: KeyBatch, done: int, items: NDArray[np.void]) -> int:
    """How many of ``items`` have, in order, the hashes and physical offsets of the keys from row
    ``done`` on."""
    end = done + len(items)
    same = (items["key_hash"] == keys.key_hash[done:end]) & (
        items["physical_offset"] == keys.physical_offset[done:end]
    )
    return len(same) if same.all() else int(np.argmin(same))
