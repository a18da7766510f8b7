"""Producers and consumers: what they send, get and remember."""

from __future__ import annotations

from collections.abc import Iterator

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.record.record import BLANK, Record, read_entry
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from tests.simulation.master import Server
from tests.simulation.world import End, Link, World

TOPIC, QUEUES = "orders", 2
_PLACE = 28  # of a record's own offset


class Client(End):
    """A connection at a time, and one request at a time."""

    #: Milliseconds between an answer and the next request, one of them each time.
    pauses: tuple[int, ...] = (5, 20, 60)

    def __init__(self, world: World, server: Server, name: str) -> None:
        self.world, self.server, self.name = world, server, name
        self._steps = 0
        self._link: Link | None = None
        self._reader = FrameReader()
        self._opaque = 0
        self._asked_at = 0

    def next_request(self) -> RemotingCommand | None:
        """What to ask now; None: nothing for a while."""
        raise NotImplementedError

    def answered(self, answer: RemotingCommand) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """No answer came to what was asked last."""

    def step_after(self, delay: int) -> None:
        """The next step is then, and none before."""
        self._steps += 1
        number = self._steps
        self.world.after(delay, lambda: self.step() if number == self._steps else None)

    def _step_soon(self) -> None:
        self.step_after(self.world.chance.choice(self.pauses))

    def step(self) -> None:
        """Asks the next thing, unless an answer is still waited for."""
        world = self.world
        if self._asked_at and world.now - self._asked_at > 5_000:
            # As a client does that waits too long: it closes the connection.
            assert self._link is not None
            self._link.cut()
            self._close()
        if self._link is None:
            self._link = self.server.connect(self)
            self._reader = FrameReader()
        if self._link is not None and not self._asked_at:
            request = self.next_request()
            if request is not None:
                self._opaque += 1
                numbered = RemotingCommand(
                    request.code, self._opaque, ext_fields=request.ext_fields, body=request.body
                )
                self._asked_at = world.now
                self._link.send(self, encode_frame(numbered))
        if self._asked_at:
            # Unless an answer comes, or the connection ends.
            self.step_after(1000)
        else:
            self._step_soon()

    def received(self, data: bytes) -> None:
        for command in list(self._reader.feed(data)):
            if command.is_response and command.opaque == self._opaque and self._asked_at:
                self._asked_at = 0
                self.answered(command)
                self._step_soon()

    def closed(self) -> None:
        if self._link is not None and not self._link.is_open:
            self._close()

    def _close(self) -> None:
        self._link = None
        if self._asked_at:
            self._asked_at = 0
            self.lost()
            self._step_soon()


class Producer(Client):
    """Sends ``count`` messages, each once; ``acked`` has those that are stored for certain: queue,
    queue offset and physical offset by body."""

    #: All the time that there is trouble.
    pauses = (5, 100, 700)

    def __init__(self, world: World, server: Server, name: str, count: int) -> None:
        super().__init__(world, server, name)
        self._left = count
        self._sent = 0
        self.acked: dict[bytes, tuple[int, int, int]] = {}
        #: Likewise those that come later: where each waits in the log, by body.
        self.delayed: dict[bytes, int] = {}
        self._body = b""
        self._is_delayed = False

    def next_request(self) -> RemotingCommand | None:
        if not self._left:
            return None
        self._left -= 1
        self._sent += 1
        filler = b"." * self.world.chance.choice((1, 100, 700))
        self._body = f"{self.name}-{self._sent}".encode() + filler
        self._is_delayed = self.world.chance.random() < 0.2
        delay = f"\2DELAY\1{self.world.chance.choice((1, 2))}" if self._is_delayed else ""
        fields = {
            "a": "p", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "f": "0", "g": "5", "h": "0",
            "e": str(self.world.chance.randrange(QUEUES)), "j": "0",
            "i": f"KEYS\1k{self._sent % 5}\2TAGS\1a{delay}",
        }  # fmt: skip
        return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=self._body)

    def answered(self, answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.SUCCESS:
            fields = answer.ext_fields
            # Behind the broker's address.
            physical_offset = int(fields["msgId"][16:], 16)
            place = int(fields["queueId"]), int(fields["queueOffset"]), physical_offset
            if self._is_delayed:
                self.delayed[self._body] = physical_offset
            else:
                self.acked[self._body] = place
            if self.server.master.is_sync:
                # Some slave had it on disk before this was said.
                assert self.server.master.acked > 0

    def forget(self, safe_to: int) -> None:
        """Messages that were not on disk when the power failed: they may be there or not."""
        self.acked = {body: place for body, place in self.acked.items() if place[2] < safe_to}
        self.delayed = {body: place for body, place in self.delayed.items() if place < safe_to}


class Consumer(Client):
    """Consumes one queue. ``seen`` are the bodies by queue offset."""

    def __init__(self, world: World, server: Server, queue_id: int) -> None:
        super().__init__(world, server, f"consumer-{queue_id}")
        self._queue = {"consumerGroup": "g", "topic": TOPIC, "queueId": str(queue_id)}
        self._next: int | None = None
        self._committed = 0
        self._asks = ""
        self.seen: dict[int, bytes] = {}
        self._places: dict[int, int] = {}

    def crash(self) -> None:
        """A new process of the same group: it goes on where the broker says."""
        if self._link is not None:
            self._link.cut()
        self._close()
        self._next = None

    def forget(self, safe_to: int) -> None:
        """:meth:`Producer.forget`: other messages may come to the places of those."""
        lost = [n for n in self.seen if self._places[n] >= safe_to]
        for queue_offset in lost:
            del self.seen[queue_offset]
        if lost:
            self.crash()

    def next_request(self) -> RemotingCommand | None:
        if self._next is None:
            self._asks = "offset"
            return RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=self._queue)
        if self._next > self._committed and self.world.chance.random() < 0.5:
            self._asks, self._committed = "commit", self._next
            more = {"commitOffset": str(self._next)}
            fields = self._queue | more
            return RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        self._asks = "pull"
        more = {
            "queueOffset": str(self._next), "maxMsgNums": "8", "sysFlag": "6", "commitOffset": "0",
            "suspendTimeoutMillis": "800", "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        return RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=self._queue | more)

    def answered(self, answer: RemotingCommand) -> None:
        if self._asks == "offset":
            self._told_offset(answer)
        elif self._asks == "pull" and answer.code == ResponseCode.SUCCESS:
            for record, body in records(answer.body):
                # In order, none left out.
                assert record.queue_offset == self._next
                assert self.seen.setdefault(record.queue_offset, body) == body
                self._places[record.queue_offset] = record.physical_offset
                self._next = record.queue_offset + 1
        elif self._asks == "pull":
            moved = ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.code not in moved or self._next == 0, answer

    def _told_offset(self, answer: RemotingCommand) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return
        offset = int(answer.ext_fields["offset"])
        # Never beyond what was consumed: a message would be passed over.
        assert offset <= len(self.seen), f"{self.name} begins at {offset}, behind what it has seen"
        self._next = self._committed = offset


def records(data: bytes) -> Iterator[tuple[Record, bytes]]:
    """The records of an answer, and their bodies."""
    at = 0
    while at < len(data):
        size, _ = BLANK.unpack_from(data, at)
        place = int.from_bytes(data[at + _PLACE : at + _PLACE + 8], "big")
        record = read_entry(data, at, at + size, place)
        assert isinstance(record, Record), record
        body_at = record.body_position
        yield record, data[body_at : body_at + record.body_length]
        at += size
