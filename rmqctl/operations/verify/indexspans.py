"""Neighbouring items without keys, and neighbouring keys without items: one finding each."""

from __future__ import annotations

from dataclasses import dataclass


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
