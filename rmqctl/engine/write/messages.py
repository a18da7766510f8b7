"""The append of a stream of messages: most of them by the compiled kernel.

It takes them from their iterator as it goes, and reads the fields of each, as
:mod:`rmqctl.engine.write.compiled` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.settings.clock import system_clock
from rmqctl.engine.write.appended import Stored
from rmqctl.engine.write.bulk import ANY_NUMBER, Message
from rmqctl.engine.write.compiled import CompiledAppender, Stop

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.write.put import MessagePutter


class MessageAppender(CompiledAppender):
    """Appends messages."""

    def __init__(
        self, putter: MessagePutter, source: Iterator[Message | None], kernel: ModuleType
    ) -> None:
        super().__init__(putter, source, kernel)
        #: None: the kernel looks at the same one itself.
        self._clock = None if putter.clock is system_clock else putter.clock

    def _fill_plain(self, stored: Stored, limit: int, most: int = ANY_NUMBER) -> Message | None:
        """As there; messages that the kernel is sure of are stored by it."""
        self._begin(stored)
        place = self._place() if self._is_usual else None
        if place is None:
            return super()._fill_plain(stored, limit, most)
        message: Message | None = None
        try:
            # A store's first record is that of a single put, as the first one of each queue is.
            while True:
                place.position, held, stop, needed = self._kernel.append_messages(
                    place.buffer,
                    self._source,
                    message,
                    position=place.position,
                    end=place.reserved,
                    file_from_offset=place.base,
                    most=self._most_records - len(stored),
                    enough=limit - place.base,
                    clock=self._clock,
                )
                if stop == Stop.FAILED:
                    raise held
                if stop in (Stop.END, Stop.FULL):
                    self._pauses = stop == Stop.END
                    return None
                message = held
                if stop == Stop.HOST:
                    self._take(stored, place)
                elif not self._can_go_on(place, stop, needed):
                    return message
        finally:
            self._take(stored, place)
            # What comes next may go another way.
            self._forget()
