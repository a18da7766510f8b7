"""Lines of text of many records at once, made by the compiled kernel.

A line is what a command prints of a message. The kernel makes lines of plain records. It stops at
everything else (damage, a blank, a text that is no UTF-8): that is one ordinary entry of the walk,
and the caller makes a row of it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol

from formats.text import encode_utf8
from rmqctl.engine.files.holes import is_whole
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE, ConsumeQueue
from rmqctl.engine.read.getmessage import GetMessageResult, ReadableStore, TransferLimits

if TYPE_CHECKING:
    from rmqctl.kernel._kernel import Memory

#: Most bytes of a file for one call of the kernel, which Ctrl-C cannot end.
_WINDOW = 16 << 20
_UNITS_AT_ONCE = 1 << 13
#: Units that are read for a first pull. Lines of more hardly fit into its room, unless most have
#: other tags.
_PULL_UNITS = 1 << 10
#: Bytes of lines that are made at once: few at first, so the first lines come soon.
_LEAST_ROOM, _MOST_ROOM = 1 << 14, 1 << 20
#: The same for pulls: small enough to stay in the processor's cache until the next call.
_PULL_ROOM = 1 << 19
#: A cell of a line: its name, and its fixed text as the line has it; None: it comes from the
#: record.
Cell = tuple[str, bytes | None]


class Lines(NamedTuple):
    """Lines of ``messages`` messages (or units). ``mismatches`` of them have a body that does not
    match its CRC. The walk goes on at ``end_offset``, a physical offset or a queue offset:
    everything before it is in the lines or not wanted."""

    data: memoryview
    messages: int
    mismatches: int
    end_offset: int
    columns: tuple[str, ...]


class WantedLines(NamedTuple):
    """Which lines are wanted, and what they look like.

    ``form`` is ``ndjson`` or ``csv`` as printed, or one of them with ``-file`` as exported.
    ``body`` is the spelling of bodies. ``checks``: bodies are compared with their CRC.
    ``decompresses``: messages with compressed bodies become no line here. ``since`` and ``until``
    are store times (ms), both inclusive; None is no limit.
    """

    form: str
    cells: tuple[Cell, ...]
    body: str = "base64"
    decompresses: bool = False
    checks: bool = False
    topic: bytes | None = None
    queue_id: int | None = None
    since: int | None = None
    until: int | None = None


#: Lines, how many they are, and how many bodies do not match their CRC.
_Made = tuple["Memory", int, int]
#: Lines; how many keys they are of; how many items with these keys' hashes belong to other keys;
#: and for each key without a message: its number, the bytes of lines before it, the messages before
#: it, and the items with its hash.
KeyLines = tuple[_Made, int, int, list[tuple[int, int, int, int]]]


class LineMaker(Protocol):
    """The kernel's ``Lines``."""

    def log(
        self,
        buffer: object,
        position: int,
        limit: int,
        readable: int,
        file_from_offset: int,
        most: int,
        room: int,
    ) -> tuple[tuple[Memory, int, int], int]: ...

    def pull(
        self,
        units: object,
        first: int,
        queue: tuple[int, int],
        buffer: object,
        places: tuple[int, int],
        file_from_offset: int,
        limits: tuple[int, int, int, tuple[int, int], tuple[int, int], int],
        tags: tuple[list[int], list[bytes]] | None,
        most: int,
        room: int,
    ) -> tuple[_Made, int, tuple[_Made, int] | None]: ...

    def at(
        self, buffer: object, places: object, readable: int, file_from_offset: int
    ) -> tuple[Memory, int, int]: ...


def line_maker(wanted: WantedLines) -> LineMaker | None:
    """The kernel's maker of such lines. None: there is no kernel, or it does not know one of the
    columns."""
    from rmqctl import kernel

    module = kernel.module()
    if module is None:
        return None
    unknown = {name for name, always in wanted.cells if always is None} - {*module.LINE_COLUMNS}
    if unknown:
        return None
    form, cells, body, *others = wanted
    maker: LineMaker = module.Lines(form, cells, body, **dict(zip(_NAMED, others, strict=True)))
    return maker


_NAMED = WantedLines._fields[3:]


class LinesOfLog:
    """Lines of the plain records of a log, for :meth:`CommitLog.walk`. The caller sets ``most`` to
    the number of lines that it still wants."""

    def __init__(self, maker: LineMaker, wanted: WantedLines) -> None:
        self.most = 0
        self._maker = maker
        self._room = _LEAST_ROOM
        self._columns = tuple(name for name, _ in wanted.cells)

    def __call__(self, mapped: MappedFile, position: int, limit: int) -> Lines | None:
        """Lines of the plain records from ``position`` on that begin before ``limit``; None without
        any. Never reads the file's holes."""
        low, high = mapped.whole
        if not low <= position < high:
            is_whole(mapped, position, position + 1)
            low, high = mapped.whole
            if not low <= position < high:
                return None
        readable = min(high, mapped.size, position + _WINDOW)
        mapped.load(position, readable)
        (data, count, mismatches), reached = self._maker.log(
            mapped.buffer,
            position,
            max(limit, 0),
            readable,
            mapped.file_from_offset,
            self.most,
            self._room,
        )
        if reached == position:
            return None
        self._room = min(2 * self._room, _MOST_ROOM)
        end_offset = mapped.file_from_offset + reached
        return Lines(memoryview(data), count, mismatches, end_offset, self._columns)


class LinesOfPulls:
    """Lines of the messages that pulls of a queue give, answer by answer: only of plain answers
    after which a pull goes on."""

    def __init__(
        self,
        maker: LineMaker,
        wanted: WantedLines,
        store: ReadableStore,
        limits: TransferLimits,
        message_filter: TagFilter,
    ) -> None:
        self._maker = maker
        self._columns = tuple(name for name, _ in wanted.cells)
        self._store, self._limits = store, limits
        self._units = _PULL_UNITS
        #: Lines of the next answers that are made already, and the queue offset at which they
        #: begin.
        self._following: tuple[int, Lines] | None = None
        self._tags: tuple[list[int], list[bytes]] | None = None
        if message_filter.codes is not None:
            tags = [encode_utf8(tag) for tag in message_filter.tags]
            self._tags = sorted(message_filter.codes), tags

    def __call__(self, queue: ConsumeQueue, offset: int, most: int) -> Lines | None:
        """Lines of at most ``most`` messages from a queue offset on; the pull goes on at their
        ``end_offset``. None when the next answer is not plain."""
        limits, log_end = self._limits, self._store.max_offset
        if (known := self._following) is not None:
            self._following = None
            # Only if another answer follows behind them.
            if known[0] == offset and known[1].messages < most:
                return known[1]
        if most < limits.max_msg_nums or not queue.min_offset <= offset < queue.max_offset:
            return None
        units = queue.stored(offset, max(self._units, limits.units))
        if len(units) < UNIT_SIZE:
            return None
        place, _, _ = UNIT.unpack_from(units)
        mapped = self._store.commit_log.files.find(place) if place >= 0 else None
        if mapped is None:
            return None
        position = place - mapped.file_from_offset
        if not is_whole(mapped, position, position + 1):
            return None
        made, following, more = self._maker.pull(
            units,
            offset,
            (queue.end_of_file(offset), queue.max_offset),
            mapped.buffer,
            mapped.whole,
            mapped.file_from_offset,
            limits.told(log_end),
            self._tags,
            most,
            _PULL_ROOM,
        )
        end = following if more is None else more[1]
        self._units = min(max(2 * (end - offset), _PULL_UNITS), _UNITS_AT_ONCE)
        if following <= offset:
            return None
        if more is not None and end > following:
            self._following = following, self._lines(*more)
        return self._lines(made, following)

    def of_answer(self, answer: GetMessageResult) -> Lines | None:
        """Lines of the records of one answer. None: one is not plain, or they lie in several log
        files."""
        records = answer.records
        mapped = self._store.commit_log.files.find(records[0].physical_offset) if records else None
        if mapped is None:
            return None
        start = mapped.file_from_offset
        places = array("q", [record.physical_offset - start for record in records])
        made = self._maker.at(mapped.buffer, places.tobytes(), mapped.size, start)
        if made[1] < len(records):
            return None
        return self._lines(made, answer.next_begin_offset)

    def _lines(self, made: _Made, following: int) -> Lines:
        data, count, mismatches = made
        return Lines(memoryview(data), count, mismatches, following, self._columns)


#: The texts of a unit's line before each number (queue offset, physical offset, size, tags code),
#: and behind the last.
UnitParts = tuple[bytes, bytes, bytes, bytes, bytes]


class LinesOfUnits:
    """Lines of the units of one queue that point into ``[start, end)`` of the log and stand before
    queue offset ``end_offset``. The caller sets ``most`` to the number of lines that it still
    wants.
    """

    def __init__(
        self,
        parts: UnitParts,
        columns: tuple[str, ...],
        start: int | None,
        end: int | None,
        end_offset: int,
    ) -> None:
        self.most = 0
        self._parts, self._columns = parts, columns
        self._places = start, end
        self._end_offset = end_offset

    def __call__(self, queue: ConsumeQueue, start: int, end: int) -> Lines | None:
        """Lines of the units in ``[start, end)`` of one queue file, up to the first that was never
        written. None: there is no kernel, or the first unit was never written."""
        from rmqctl import kernel

        module = kernel.module()
        if module is None:
            return None
        units = queue.stored(start, min(end, self._end_offset, start + _UNITS_AT_ONCE) - start)
        data, count, seen = module.unit_lines(units, start, self._parts, self.most, *self._places)
        if not seen:
            return None
        return Lines(memoryview(data), count, 0, start + seen, self._columns)
