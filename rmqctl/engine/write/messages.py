"""The append of a stream of messages, most of them by the compiled kernel.

The kernel takes messages from their iterator itself and reads their fields, as
:mod:`rmqctl.engine.write.compiled` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from rmqctl.engine.settings.clock import system_clock
from rmqctl.engine.write.appended import Stored
from rmqctl.engine.write.bulk import ANY_NUMBER, Message
from rmqctl.engine.write.compiled import CompiledAppender, Place, Stop

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.write.put import MessagePutter


class MessageAppender(CompiledAppender):
    """Appends messages by the kernel."""

    def __init__(
        self, putter: MessagePutter, source: Iterator[Message | None], kernel: ModuleType
    ) -> None:
        super().__init__(putter, source, kernel)
        #: The store's clock. None: it is the system's, which the kernel reads itself.
        self._clock = None if putter.clock is system_clock else putter.clock
        #: How many messages are taken one by one before the kernel is tried again.
        self._careful = 1

    def _fill_plain(self, stored: Stored, limit: int, most: int = ANY_NUMBER) -> Message | None:
        """As in :class:`BulkAppender`, but the kernel stores the messages that it is sure of."""
        self._begin(stored)
        while self._putter.log.write_offset < limit:
            place, before = self._place() if self._is_usual else None, len(stored)
            if place is None:
                return super()._fill_plain(stored, limit, most)
            message = self._take_messages(stored, place, limit)
            if message is None:
                return None
            is_able = len(stored) > before
            self._careful = 1 if is_able else min(2 * self._careful, self._most_records)
            source, self._source = self._source, chain((message,), self._source)
            try:
                special = super()._fill_plain(stored, limit, self._careful)
            finally:
                self._source = source
            is_full = len(stored) >= self._most_records or self._putter.log.write_offset >= limit
            if special is not None or self._pauses or is_full:
                return special
        # A single put went beyond the limit: its record began the next file.
        return None

    def _take_messages(self, stored: Stored, place: Place, limit: int) -> Message | None:
        """Lets the kernel store messages. Returns None when the source pauses or ends, or the bulk
        is full; else the first special message."""
        message: Message | None = None
        try:
            # The first record of a store, and of each queue, was stored by a single put.
            while True:
                place.position, held, stop, _ = self._kernel.append_messages(
                    place.buffer,
                    self._source,
                    message,
                    position=place.position,
                    end=place.reserved,
                    file_from_offset=place.base,
                    most=self._most_records - len(stored),
                    enough=limit - place.base,
                    clock=self._clock,
                    queue=self._admit,
                    room=partial(self._reserve, place),
                    descriptor=place.descriptor,
                )
                if stop == Stop.FAILED:
                    raise held
                if stop in (Stop.END, Stop.FULL):
                    self._pauses = stop == Stop.END
                    return None
                message = held
                if stop == Stop.HOST:
                    self._take(stored, place)
                else:
                    return message
        finally:
            self._take(stored, place)
            # The next messages may be put without the kernel.
            self._forget()
