"""The append of a stream of NDJSON lines, most of them by the compiled kernel.

The kernel makes records of many lines in one call, as :mod:`rmqctl.engine.write.compiled` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.record.bodies import undecodable
from rmqctl.engine.record.message import LOCALHOST, Host
from rmqctl.engine.write.appended import Stored
from rmqctl.engine.write.bulk import ANY_NUMBER, Message
from rmqctl.engine.write.compiled import CompiledAppender, Stop

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.write.put import MessagePutter


class LineDefaults(NamedTuple):
    """What messages have of whose fields a line says nothing; hosts are IPv4. Without a topic each
    line must have one."""

    topic: str | None = None
    queue_id: int = 0
    tags: str = ""
    keys: str = ""
    properties: Sequence[tuple[str, str]] = ()
    flag: int = 0
    born_host: Host = LOCALHOST
    store_host: Host = LOCALHOST
    prepared_transaction_offset: int = 0


class Lines:
    """Messages as lines, in blocks of bytes; iterating gives the messages one by one.

    ``block`` is the current block of whole lines, and ``at`` the position of its next line; the
    reader and the appender both move it. What a line leaves out ``defaults`` say, and ``clock`` the
    born time (ms).
    """

    block = b""
    at = 0
    defaults: LineDefaults
    clock: Callable[[], int]

    def has_lines(self) -> bool:
        """Whether the current block has a line; reads the next block when it is used up. A pause,
        the end or an error that this meets comes with the next message instead."""
        raise NotImplementedError

    def taken(self, at: int, lines: int) -> None:
        """Notes that ``lines`` lines of the block were taken, up to position ``at``."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Message | None]:
        raise NotImplementedError


def is_compressed(body: bytes, sys_flag: int) -> bool:
    """Whether a body can be decompressed as its sys flag says, as far as that can be told."""
    return not undecodable(body, sys_flag)


class LineAppender(CompiledAppender):
    """Appends lines by the kernel."""

    def __init__(self, putter: MessagePutter, lines: Lines, kernel: ModuleType) -> None:
        super().__init__(putter, iter(lines), kernel, lines.defaults)
        self._lines = lines
        self._is_peeked = False
        #: How many messages are taken one by one before the kernel is tried again.
        self._careful = 1

    def wait(self) -> bool:
        if not self._is_peeked and self._lines.has_lines():
            return True
        self._is_peeked = self._is_peeked or super().wait()
        return self._is_peeked

    def _fill_plain(self, stored: Stored, limit: int, most: int = ANY_NUMBER) -> Message | None:
        """As in :class:`BulkAppender`, but the kernel stores the lines that it is sure of."""
        self._begin(stored)
        while not self._pauses and len(stored) < self._most_records:
            if not self._is_peeked and self._lines.has_lines() and self._is_usual:
                if self._putter.log.write_offset >= limit:
                    break
                before = len(stored)
                self._take_lines(stored, limit)
                done = len(stored) > before
                self._careful = 1 if done else min(2 * self._careful, self._most_records)
                if len(stored) >= self._most_records or self._putter.log.write_offset >= limit:
                    break
            self._is_peeked = False
            self._forget()
            special = super()._fill_plain(stored, limit, self._careful)
            if special is not None:
                return special
        return None

    def _take_lines(self, stored: Stored, limit: int) -> None:
        """Lets the kernel store lines until there are none for now, the bulk is full, or one is
        special."""
        place = self._place()
        if place is None:
            return
        lines = self._lines
        try:
            while lines.has_lines():
                born, timestamp = lines.clock(), self._putter.clock()
                place.position, at, count, stop, problem = self._kernel.append(
                    place.buffer,
                    lines.block,
                    lines.at,
                    position=place.position,
                    end=place.reserved,
                    file_from_offset=place.base,
                    most=self._most_records - len(stored),
                    enough=limit - place.base,
                    born_timestamp=born,
                    store_timestamp=timestamp,
                    queue=self._admit,
                    room=partial(self._reserve, place),
                    is_compressed=is_compressed,
                    descriptor=place.descriptor,
                )
                lines.taken(at, count)
                if problem is not None:
                    raise problem
                if stop == Stop.HOST:
                    self._take(stored, place)
                elif stop != Stop.END:
                    return
        finally:
            self._take(stored, place)
