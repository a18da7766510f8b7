"""A dry run of lines by the compiled kernel, which makes their records in memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats.constants import LONG_MAX
from rmqctl.engine.record.form import room_of
from rmqctl.engine.write.compiled import Stop, kernel_appender
from rmqctl.engine.write.lines import is_compressed

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.write.lines import Lines

#: Most records, and bytes of records, that are made at once.
_MOST, _RECORDS = 1 << 13, 1 << 20


class DryLines:
    """Passes over the lines of messages that a store would surely take: plain ones, in queues of
    which a message was checked before."""

    def __init__(
        self, config: MessageStoreConfig, file_size: int, lines: Lines, kernel: ModuleType
    ) -> None:
        """:param file_size: bytes of a log file."""
        self._lines = lines
        self._kernel = kernel_appender(config, kernel, lines.defaults)
        # What no log file has room for does not fit here, either.
        self._records = bytearray(min(_RECORDS, room_of(file_size)))
        #: The queues that were admitted, by the kernel's numbers.
        self._queues: list[tuple[str, int]] = []

    def admit(self, topic: str, queue_id: int) -> None:
        """A message of this queue was checked, and would be stored."""
        number = self._kernel.admit(topic, queue_id, 0, LONG_MAX)
        if number == len(self._queues):
            self._queues.append((topic, queue_id))

    def take(self) -> Iterator[tuple[str, int]]:
        """The queues of the next messages, up to one that must be checked, or to what comes instead
        of a line."""
        lines = self._lines
        while lines.has_lines():
            _, at, count, stop, problem = self._kernel.append(
                self._records,
                lines.block,
                lines.at,
                position=0,
                end=len(self._records),
                file_from_offset=0,
                most=_MOST,
                enough=len(self._records),
                born_timestamp=lines.clock(),
                store_timestamp=0,
                is_compressed=is_compressed,
            )
            lines.taken(at, count)
            columns, *_ = self._kernel.taken()
            for number in memoryview(columns).cast("q")[:count]:
                yield self._queues[number]
            if problem is not None:
                raise problem
            if not count or stop in (Stop.UNSURE, Stop.QUEUE):
                return
