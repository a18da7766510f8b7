"""One connection of a server, and what it may have under way."""

from __future__ import annotations

from collections import deque

from rmqctl.serve.events import Append, Event, Job, Reading
from rmqctl.serve.state.clients import Channel
from rmqctl.serve.wire.frames import FrameReader

#: Nothing received for so long (ms) closes a connection (``serverChannelMaxIdleTimeSeconds``).
MAX_IDLE = 120_000
#: So long (ms) a frame may take from its first byte to its last: a peer that sends one byte a
#: minute holds memory, and harms nobody else.
MAX_FRAME_TIME = 60_000
#: Looks at the store that one connection may have under way; others wait, and no more is read of it
#: then. Each may hold an answer of 256 KiB that the peer does not take.
MAX_JOBS = 16
#: Likewise of sends, which hold what has come: one flush serves many of them.
MAX_APPENDS = 64

#: Sends of all connections that may wait for the disk, and bytes of them: more are told that the
#: system is busy (``sendThreadPoolQueueCapacity``; the bytes are sixteen of the longest frames).
MAX_SENDS, MAX_SEND_BYTES = 10_000, 256 << 20


class Connection:
    """A connection: its channel, the bytes of an unfinished frame, and what it has under way.
    ``takes_answers`` is false while its peer does not take what was sent."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.reader = FrameReader()
        self.jobs = 0
        self.waiting: deque[Job | Append] = deque()
        self.takes_answers = True
        self.is_read = True

    def too_slow(self, now: int) -> str | None:
        """Why it is to be closed, of a peer that says nothing, or too little."""
        if now - self.channel.last_active > MAX_IDLE:
            return "nothing was received for two minutes"
        if self.channel.frame_since and now - self.channel.frame_since > MAX_FRAME_TIME:
            return "a frame takes too long"
        return None

    def begins(self, work: Job | Append) -> bool:
        """Whether work can begin now, which counts it; else it has to wait."""
        most = MAX_APPENDS if isinstance(work, Append) else MAX_JOBS
        if self.waiting or not self.takes_answers or self.jobs >= most:
            return False
        self.jobs += 1
        return True

    def next_events(self) -> list[Event]:
        """The jobs that can begin now, and whether to read on."""
        if not self.waiting and self.takes_answers and self.is_read:
            # As most of the time.
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
        """Whether there is room for one more; one alone there always is."""
        size = self._size + len(work.request.command.body)
        if self._count and (self._count >= MAX_SENDS or size > MAX_SEND_BYTES):
            return False
        self._count, self._size = self._count + 1, size
        return True

    def end(self, work: Append) -> None:
        self._count -= 1
        self._size -= len(work.request.command.body)
