"""One connection of a server, and the bounds of its work under way."""

from __future__ import annotations

from collections import deque

from rmqctl.serve.events import Append, Event, Job, Reading
from rmqctl.serve.state.clients import Channel
from rmqctl.serve.wire.frames import FrameReader

#: Nothing received for so long (ms) closes a connection (``serverChannelMaxIdleTimeSeconds``).
MAX_IDLE = 120_000
#: Milliseconds that a frame may take from its first byte to its last. Without a bound a peer that
#: sends a byte a minute would hold memory.
MAX_FRAME_TIME = 60_000
#: Jobs that one connection may have under way. Others wait, and meanwhile nothing is read from it.
#: Each job may hold an answer of 256 KiB that the peer does not read.
MAX_JOBS = 16
#: The same bound for sends, which hold the bytes that came: one flush serves many of them.
MAX_APPENDS = 64

#: Most sends of all connections that may wait for the disk, and most bytes of them (sixteen of the
#: longest frames). Others are answered that the system is busy (``sendThreadPoolQueueCapacity``).
MAX_SENDS, MAX_SEND_BYTES = 10_000, 256 << 20


class Connection:
    """A connection: its channel, the bytes of an unfinished frame, and its work under way.
    ``takes_answers`` is false while the peer does not read its answers."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.reader = FrameReader()
        self.jobs = 0
        self.waiting: deque[Job | Append] = deque()
        self.takes_answers = True
        self.is_read = True

    def too_slow(self, now: int) -> str | None:
        """Why the connection of a slow peer is to be closed; None: it is not."""
        if now - self.channel.last_active > MAX_IDLE:
            return "nothing was received for two minutes"
        if self.channel.frame_since and now - self.channel.frame_since > MAX_FRAME_TIME:
            return "a frame takes too long"
        return None

    def begins(self, work: Job | Append) -> bool:
        """Whether work can begin now; if so it is counted, else it has to wait."""
        most = MAX_APPENDS if isinstance(work, Append) else MAX_JOBS
        if self.waiting or not self.takes_answers or self.jobs >= most:
            return False
        self.jobs += 1
        return True

    def next_events(self) -> list[Event]:
        """The work that can begin now, and whether to go on reading."""
        if not self.waiting and self.takes_answers and self.is_read:
            # The usual case.
            return []
        events: list[Event] = []
        while self.waiting and self.takes_answers:
            is_append = isinstance(self.waiting[0], Append)
            if self.jobs >= (MAX_APPENDS if is_append else MAX_JOBS):
                break
            self.jobs += 1
            events.append(self.waiting.popleft())
        goes_on = self.takes_answers and not self.waiting
        if goes_on is not self.is_read:
            self.is_read = goes_on
            events.append(Reading(self.channel.number, goes_on))
        return events


class SendsUnderWay:
    """Sends of all connections that are not stored yet, and bytes of their bodies."""

    def __init__(self) -> None:
        self._count = self._size = 0

    def take(self, work: Append) -> bool:
        """Whether there is room for one more, which is then counted. A single one always fits."""
        size = self._size + len(work.request.command.body)
        if self._count and (self._count >= MAX_SENDS or size > MAX_SEND_BYTES):
            return False
        self._count, self._size = self._count + 1, size
        return True

    def end(self, work: Append) -> None:
        self._count -= 1
        self._size -= len(work.request.command.body)
