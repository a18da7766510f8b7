"""How a page of rows fits into the columns of a terminal.

A table stays a table: where it is too wide, times lose their zone (it is the local one, as in
``--since``) and then their milliseconds, long values are cut, and then columns go that one can do
without. What a number or an identifier says is never cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.cli.text import cell_of, cut, is_number, is_time, title, width

if TYPE_CHECKING:
    from rmqctl.rows import Row

#: Columns between two columns of a table.
GAP = 2
#: What a column is called on a terminal, where that is not the field's name in words.
_HEADINGS = {
    "physical_offset": "log offset",
    "max_physical_offset": "log end",
    "begin_phy_offset": "log from",
    "end_phy_offset": "log to",
    "queue_id": "queue",
    "real_queue_id": "real queue",
    "queue_offset": "offset",
    "consumer_offset": "consumed",
    "total_size": "size",
    "store_timestamp": "stored",
    "newest_store_timestamp": "last stored",
    "next_delivery_timestamp": "next delivery",
    "modified_timestamp": "modified",
    "begin_timestamp": "first stored",
    "end_timestamp": "last stored",
    "delay_ms_up_to": "delay up to",
    "max_hash_slot_num": "slots",
    "max_index_num": "room",
    "time_diff_seconds": "seconds",
    "allocated_bytes": "allocated",
}
#: Texts that may be cut, and the columns that each keeps at least. Names differ at both ends.
_NAMES = {
    "topic": 22,
    "real_topic": 22,
    "group": 22,
    "producer_group": 16,
    "path": 24,
    "store": 16,
    "broker_conf": 16,
    "tag": 8,
    "key": 12,
    "keys": 10,
    "producer": 12,
    "broker": 10,
}
_TEXTS = {
    "properties": 14,
    "body": 12,
    "value": 29,
    "meaning": 30,
    "bytes": 17,
    "reason": 14,
    "expected": 10,
    "found": 10,
    "error": 20,
    "problem": 20,
}
_TIMES = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{3})[+-]\d\d:\d\d(:\d\d)?")
#: What is shown of a time: all of it, without the zone, without milliseconds.
_SHOWN_TIMES = ("", r"\1\2", r"\1")
#: Columns that any text keeps where nothing else helps.
_LEAST = 8


#: Characters of a value that are measured: no terminal is so wide.
_MEASURED = 2000


class Page:
    """The cells of some rows, by the fields that are columns."""

    def __init__(self, names: Sequence[str], rows: Sequence[Row]) -> None:
        self.names = list(names)
        self.numeric = {name: is_number(name, rows) for name in names}
        self._texts = {name: [cell_of(row, name) for row in rows] for name in names}
        self._widths: dict[tuple[str, str], int] = {}

    def texts(self, name: str, times: str) -> list[str]:
        """A column's cells; ``times`` is the replacement of a time, empty for all of it."""
        texts = self._texts[name]
        if times and is_time(name):
            return [_TIMES.sub(times, text) for text in texts]
        return texts

    def width(self, name: str, times: str) -> int:
        """The width of a column's widest cell."""
        key = name, times
        if key not in self._widths:
            texts = self.texts(name, times)
            self._widths[key] = max(width(text[:_MEASURED]) for text in texts)
        return self._widths[key]


class Layout(NamedTuple):
    """A table's columns: the fields, the room of each, and how times are shown."""

    names: list[str]
    widths: list[int]
    numeric: list[bool]
    times: str

    @property
    def width(self) -> int:
        """The columns of the terminal that it takes."""
        return sum(self.widths) + GAP * (len(self.widths) - 1)

    def header(self) -> str:
        cells = self._padded([[heading(name)] for name in self.names])
        return _joined([column[0] for column in cells])

    def rows(self, page: Page, painted: Callable[[str], str]) -> list[str]:
        """The lines of a page; :param painted: gives a severity its colour."""
        texts = []
        for name, room in zip(self.names, self.widths, strict=True):
            column = page.texts(name, self.times)
            if page.width(name, self.times) > room:
                in_the_middle = name in _NAMES
                column = [cut(text, room, in_the_middle=in_the_middle) for text in column]
            texts.append(column)
        cells = self._padded(texts)
        if "severity" in self.names:
            at = self.names.index("severity")
            cells[at] = list(map(painted, cells[at]))
        return [_joined(line) for line in zip(*cells, strict=True)]

    def _padded(self, columns: list[list[str]]) -> list[list[str]]:
        """Cells that fit, each as wide as its column."""
        padded = []
        for texts, room, number in zip(columns, self.widths, self.numeric, strict=True):
            if all(map(str.isascii, texts)):
                side = ">" if number else "<"
                padded.append([f"{text:{side}{room}}" for text in texts])
                continue
            gaps = [" " * (room - width(text)) for text in texts]
            pairs = zip(texts, gaps, strict=True)
            padded.append([gap + text if number else text + gap for text, gap in pairs])
        return padded

    def takes(self, page: Page) -> bool:
        """Whether another page fits as well as the one that this was made for."""
        return all(
            name in _NAMES or name in _TEXTS or page.width(name, self.times) <= room
            for name, room in zip(self.names, self.widths, strict=True)
        )

    def cut(self, page: Page) -> list[str]:
        """The columns in which a value is cut."""
        columns = zip(self.names, self.widths, strict=True)
        return [name for name, room in columns if page.width(name, self.times) > room]


def _joined(cells: Sequence[str]) -> str:
    return (" " * GAP).join(cells).rstrip()


def heading(name: str) -> str:
    """A field's name over a column."""
    return _HEADINGS.get(name) or title(name).replace("_", " ")


def fitted(
    page: Page,
    room: int,
    *,
    spare: Sequence[str],
    narrow: Mapping[str, int],
    whole: bool,
) -> Layout | None:
    """The layout of a page; None when it is no table in ``room`` columns.

    :param spare: columns that may go, the first one first. :param narrow: what texts keep at least,
        where that is not the usual. :param whole: nothing is cut, or goes.
    """
    kept = _NAMES | _TEXTS | dict(narrow)
    if whole:
        return uncut(page, room)
    left = list(page.names)
    for unneeded in (None, *(name for name in spare if name in left)):
        if unneeded is not None:
            left.remove(unneeded)
        for times in _SHOWN_TIMES:
            layout = uncut(page, room, left, times) or (
                _narrowed(page, left, room, times, kept) if times else None
            )
            if layout is not None:
                return layout
    texts = (name for name in left if not page.numeric[name] and not is_time(name))
    return _narrowed(page, left, room, _SHOWN_TIMES[-1], dict.fromkeys(texts, _LEAST))


def uncut(page: Page, room: int, names: list[str] | None = None, times: str = "") -> Layout | None:
    """The layout in which all of a page, or of some of its columns, is shown."""
    names = page.names if names is None else names
    wanted = [max(len(heading(name)), page.width(name, times)) for name in names]
    if sum(wanted) + GAP * (len(names) - 1) > room:
        return None
    return Layout(list(names), wanted, [page.numeric[name] for name in names], times)


def _narrowed(
    page: Page, names: list[str], room: int, times: str, kept: Mapping[str, int]
) -> Layout | None:
    """With long values cut; :param kept: what each column keeps at least of them."""
    wanted, least = [], []
    for name in names:
        title, most = len(heading(name)), page.width(name, times)
        wanted.append(max(title, most))
        least.append(max(title, min(most, kept.get(name, most))))
    more = room - sum(least) - GAP * (len(names) - 1)
    if more < 0:
        return None
    # Who wants little gets it; the others share what is left.
    order = sorted(range(len(names)), key=lambda at: wanted[at] - least[at])
    for number, at in enumerate(order):
        given = min(wanted[at] - least[at], more // (len(order) - number))
        least[at] += given
        more -= given
    return Layout(list(names), least, [page.numeric[name] for name in names], times)
