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
_PLACE = 28  # where a record holds its own physical offset


class Client(End):
    """A client that has one connection at a time, and sends one request at a time."""

    #: Milliseconds between an answer and the next request: one of these is drawn each time.
    pauses: tuple[int, ...] = (5, 20, 60)

    def __init__(self, world: World, server: Server, name: str) -> None:
        self.world, self.server, self.name = world, server, name
        self._steps = 0
        self._link: Link | None = None
        self._reader = FrameReader()
        self._opaque = 0
        self._asked_at = 0

    def next_request(self) -> RemotingCommand | None:
        """The request to send now; None: there is nothing to ask for a while."""
        raise NotImplementedError

    def answered(self, answer: RemotingCommand) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The connection ended before the last request was answered."""

    def step_after(self, delay: int) -> None:
        """Has the next step happen after ``delay`` ms, in place of one that was planned before."""
        self._steps += 1
        number = self._steps
        self.world.after(delay, lambda: self.step() if number == self._steps else None)

    def _step_soon(self) -> None:
        self.step_after(self.world.chance.choice(self.pauses))

    def step(self) -> None:
        """Sends the next request, unless the answer to the last one has not come yet."""
        world = self.world
        if self._asked_at and world.now - self._asked_at > 5_000:
            # A real client closes the connection, too, when an answer takes too long.
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
            # An answer, or the end of the connection, makes the next step earlier.
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
    """Sends ``count`` messages, each once; ``acked`` has those that the server has acknowledged and
    that must therefore not be lost: queue, queue offset and physical offset by body."""

    #: Long ones, so that messages are sent during all the time in which faults happen.
    pauses = (5, 100, 700)

    def __init__(self, world: World, server: Server, name: str, count: int) -> None:
        super().__init__(world, server, name)
        self._left = count
        self._sent = 0
        self.acked: dict[bytes, tuple[int, int, int]] = {}
        #: The same for delayed messages: the physical offset at which each waits, by body.
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
            # The id is the broker's address, and behind it this.
            physical_offset = int(fields["msgId"][16:], 16)
            place = int(fields["queueId"]), int(fields["queueOffset"]), physical_offset
            if self._is_delayed:
                self.delayed[self._body] = physical_offset
            else:
                self.acked[self._body] = place
            if self.server.master.is_sync:
                # A slave had the message on disk before it was acknowledged.
                assert self.server.master.acked > 0

    def forget(self, safe_to: int) -> None:
        """Expects messages no longer that were not on disk when the power failed: each may be lost
        or not."""
        self.acked = {body: place for body, place in self.acked.items() if place[2] < safe_to}
        self.delayed = {body: place for body, place in self.delayed.items() if place < safe_to}


class Consumer(Client):
    """Consumes one queue. ``seen`` are the bodies it was given, by queue offset."""

    def __init__(self, world: World, server: Server, queue_id: int) -> None:
        super().__init__(world, server, f"consumer-{queue_id}")
        self._queue = {"consumerGroup": "g", "topic": TOPIC, "queueId": str(queue_id)}
        self._next: int | None = None
        self._committed = 0
        self._asks = ""
        self.seen: dict[int, bytes] = {}
        self._places: dict[int, int] = {}

    def crash(self) -> None:
        """Ends, and begins as a new process of the same group, which goes on at the offset that the
        broker has for it."""
        if self._link is not None:
            self._link.cut()
        self._close()
        self._next = None

    def forget(self, safe_to: int) -> None:
        """Forgets lost messages, too (:meth:`Producer.forget`): others may get their queue
        offsets."""
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
                # Messages come in order, and none is left out.
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
        # An offset beyond what was consumed would have a message passed over.
        assert offset <= len(self.seen), f"{self.name} begins at {offset}, behind what it has seen"
        self._next = self._committed = offset


def records(data: bytes) -> Iterator[tuple[Record, bytes]]:
    """The records in the body of an answer, each with its message's body."""
    at = 0
    while at < len(data):
        size, _ = BLANK.unpack_from(data, at)
        place = int.from_bytes(data[at + _PLACE : at + _PLACE + 8], "big")
        record = read_entry(data, at, at + size, place)
        assert isinstance(record, Record), record
        body_at = record.body_position
        yield record, data[body_at : body_at + record.body_length]
        at += size
