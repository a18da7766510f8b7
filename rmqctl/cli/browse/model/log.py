"""The log around a place, entry by entry, including damage. Its entries are not counted: they are
read forwards and backwards from that place, when they are shown."""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING

from formats.constants import PROPERTY_KEYS
from rmqctl.cli.browse.model.lines import (
    DIM,
    ERROR,
    PAGE_AT_ONCE,
    Column,
    Line,
    Place,
    Stop,
    go_on,
)
from rmqctl.cli.browse.model.messages import place_of, preview
from rmqctl.cli.browse.model.shown import size, to_the_second
from rmqctl.engine.record.record import Blank, Damage, End, Record
from rmqctl.operations.look.places import entries_before, entry_around, log_offset_at_time

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened
    from rmqctl.engine.record.record import Entry

#: How many lines the bounds are beyond the known ones.
_AHEAD = 200
#: How many entries are kept, on both sides of those that are shown.
_MOST = 20_000


class _Window:
    """The known entries of the log: ``entries`` by number, from ``low`` to ``high``. Number 0 is
    the one at ``anchor``. ``is_start`` says that it starts exactly there."""

    def __init__(self, anchor: int) -> None:
        self.anchor = anchor
        self.is_start = False
        self.entries: dict[int, Entry] = {}
        self.low = self.high = 0
        self.begins = self.ends = False

    def next_offset(self) -> int:
        if not self.entries:
            return self.anchor
        return _end_of(self.entries[self.high - 1])

    def first_offset(self) -> int:
        return self.entries[self.low].physical_offset if self.entries else self.anchor

    def add_after(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.entries[self.high] = entry
            self.high += 1
        while len(self.entries) > _MOST:
            del self.entries[self.low]
            self.low += 1
            self.begins = False

    def add_before(self, entries: list[Entry]) -> None:
        for entry in reversed(entries):
            self.low -= 1
            self.entries[self.low] = entry
        while len(self.entries) > _MOST:
            self.high -= 1
            del self.entries[self.high]
            self.ends = False


def _end_of(entry: Entry) -> int:
    if isinstance(entry, End):
        return entry.physical_offset
    length = entry.length if isinstance(entry, Damage) else entry.total_size
    return entry.physical_offset + length


class Log:
    """The log around any physical offset, or from a time on; without both, the end of the log."""

    def __init__(
        self, opened: Opened, physical_offset: int | None = None, time: int | None = None
    ) -> None:
        self._store = opened.store
        self._wanted = physical_offset
        self._time = time
        self._window = _Window(0)
        self._reading = threading.Lock()
        self.columns: tuple[Column, ...] = ()
        self.noun = "entries"
        self.is_endless = True
        self.at_once = PAGE_AT_ONCE

    def prepare(self, stop: Stop) -> None:
        if self._time is not None:
            self._wanted = log_offset_at_time(self._store, self._time)
        self.go_to(self._store.max_offset if self._wanted is None else self._wanted)
        self.columns = (
            Column("offset", max(len(str(self._store.max_offset)), 8), right=True),
            Column("size", 9, right=True),
            Column("stored", 19, rank=1),
            Column("what", 20, grows=1),
        )

    def go_to(self, physical_offset: int) -> int:
        """Goes to another place. Returns the number of its line."""
        self._window = _Window(physical_offset)
        return 0

    def bounds(self) -> tuple[int, int]:
        window = self._window
        return (
            window.low - (0 if window.begins else _AHEAD),
            window.high + (0 if window.ends else _AHEAD),
        )

    def first(self) -> int:
        return self.go_to(self._store.min_offset)

    def last(self) -> int:
        return self.go_to(self._store.max_offset)

    def load(self, low: int, high: int, stop: Stop) -> dict[int, Line]:
        window = self._window
        with self._reading:
            if not window.is_start:
                window.anchor, window.is_start = entry_around(self._store, window.anchor), True
            while window.high < high and not window.ends:
                go_on(stop)
                self._read_on(window, high - window.high)
            while window.low > low and not window.begins:
                go_on(stop)
                self._read_back(window, window.low - low)
            lines = {}
            for number in range(low, high):
                go_on(stop)
                if number in window.entries:
                    lines[number] = self._line(number, window.entries[number])
            return lines

    def _read_on(self, window: _Window, count: int) -> None:
        walked = self._store.commit_log.walk(window.next_offset())
        entries = list(islice(walked, count))
        window.add_after(entries)
        window.ends = not entries or isinstance(entries[-1], End)

    def _read_back(self, window: _Window, count: int) -> None:
        entries = entries_before(self._store, window.first_offset(), count)
        window.add_before(entries)
        window.begins = len(entries) < count

    def where(self, number: int) -> str:
        entry = self._window.entries.get(number)
        if entry is None:
            return ""
        start, end = self._store.min_offset, self._store.max_offset
        share = (entry.physical_offset - start) * 100 // max(end - start, 1)
        return f"offset {entry.physical_offset}, {min(share, 100)} % of the log"

    def _line(self, number: int, entry: Entry) -> Line:
        at = str(entry.physical_offset)
        place = Place(entry.physical_offset, number=number)
        if isinstance(entry, Record):
            return self._message(at, place_of(entry)._replace(number=number), entry)
        if isinstance(entry, Blank):
            return Line((at, size(entry.total_size), "", "blank: the rest of the file"), DIM, place)
        if isinstance(entry, Damage):
            why = f"{entry.reason}: expected {entry.expected}, found {entry.found}"
            return Line((at, size(entry.length), "", f"DAMAGE {why}"), ERROR, place, why)
        rest = f", {size(entry.residue)} behind it are not zero" if entry.residue else ""
        return Line((at, "", "", f"end of the log{rest}"), DIM, Place(number=number))

    def _message(self, at: str, place: Place, record: Record) -> Line:
        keys = record.properties.get(PROPERTY_KEYS, "")
        what = f"{record.topic} {record.queue_id}@{record.queue_offset}"
        body = preview(self._store, record)
        cells = (
            at,
            size(record.total_size),
            to_the_second(record.store_timestamp),
            " ".join(part for part in (body.mark, what, keys, body.text) if part),
        )
        return Line(cells, ERROR if body.note else "", place, body.note)
