"""The counts of ``stats`` over logs that this process maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from formats.constants import INT_MAX
from rmqctl.engine.files.paths import NOT_REGULAR
from rmqctl.errors import NotAFile, TooMuchHere
from rmqctl.operations.look.du import MAX_GROUPS
from rmqctl.rows.sums import Group, Sums

if TYPE_CHECKING:
    from rmqctl.engine.record.record import Damage
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.operations.look.stats import StoreToCount
    from rmqctl.rows.onspark import StoreStatsRow, UnreadableStatsRow


class LogRange:
    """Messages and bytes of one store, and the range of their store times."""

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


class Counts(Sums):
    """The sums, and what two passes over the logs need. The groups of a section are bounded."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[tuple[StoreToCount, LogRange]] = []
        self.hashes: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        self.keys = 0

    def add(self, section: str, group: Group, messages: int, size: int) -> None:
        """:raises TooMuchHere: there are more groups than are held."""
        groups = self.sections[section]
        if group not in groups and len(groups) >= MAX_GROUPS:
            raise TooMuchHere(what=f"{MAX_GROUPS} groups of section {section}")
        super().add(section, group, messages, size)


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


def no_file_row(store: str, path: Path) -> UnreadableStatsRow:
    """The row of what has the name of a log file and is none."""
    reason = str(NotAFile(path=str(path), reason=NOT_REGULAR))
    return {
        "type": "unreadable",
        "store": store,
        "physical_offset": None,
        "length": None,
        "reason": reason,
    }


def unreadable_row(store: str, damage: Damage) -> UnreadableStatsRow:
    return {
        "type": "unreadable",
        "store": store,
        "physical_offset": damage.physical_offset,
        "length": min(damage.length, INT_MAX),
        "reason": damage.reason,
    }
