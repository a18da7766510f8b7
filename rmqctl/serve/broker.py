"""``Broker``: the server without its sockets. It takes the bytes of connections, and the time, and
returns events, which its caller carries out: that has the sockets, the threads and the clock.

Events have to be carried out in the order in which a call returns them. Nothing here is safe for
threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from formats.remotingcodes import ResponseCode
from rmqctl.engine.record.message import PutMessageResult
from rmqctl.engine.state.brokerjson import TOPICS
from rmqctl.errors import RmqctlError
from rmqctl.serve.connection import Connection, SendsUnderWay
from rmqctl.serve.events import (
    Accessed,
    Append,
    Close,
    Event,
    Job,
    Persist,
    Send,
    Trouble,
    Upkeep,
    Upkept,
)
from rmqctl.serve.ha.holding import Holding
from rmqctl.serve.processors import pull
from rmqctl.serve.processors.access import refusal
from rmqctl.serve.processors.arrivals import arrivals
from rmqctl.serve.processors.checks import Checks
from rmqctl.serve.processors.delivery import Delivery
from rmqctl.serve.processors.pull import Pull
from rmqctl.serve.processors.put import Put
from rmqctl.serve.processors.refused import busy
from rmqctl.serve.processors.request import (
    Call,
    Later,
    NoAnswer,
    Outcome,
    Request,
    Served,
)
from rmqctl.serve.processors.table import KNOWN, processor_of
from rmqctl.serve.services import Services
from rmqctl.serve.state.calls import Calls, Pending
from rmqctl.serve.state.clients import Channel
from rmqctl.serve.state.groups import UnknownGroup
from rmqctl.serve.state.parked import Parked
from rmqctl.serve.state.topics import TooMany
from rmqctl.serve.telling import told_to_clients
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest
from rmqctl.serve.wire.frames import encode_frame
from rmqctl.serve.wire.header import FrameError

__all__ = [
    "Append",
    "Broker",
    "Close",
    "Event",
    "Job",
    "Persist",
    "Send",
    "Trouble",
    "Upkeep",
]

#: Most bytes of unfinished frames of all connections together: sixteen of the longest ones.
MAX_PENDING = 256 << 20
#: ``flushConsumerOffsetInterval`` (ms).
PERSIST_INTERVAL = 5000
_ANSWERS = frozenset(map(int, ResponseCode))


class Broker:
    """All connections of one server.

    :param delivery: delivers delayed messages; None: they are not delivered.
    :param checks: asks producers about their transactions; None: they are not asked.
    :param tells_access: each answer is also an event for an access log.
    """

    def __init__(
        self,
        served: Served,
        delivery: Delivery | None = None,
        checks: Checks | None = None,
        *,
        tells_access: bool = False,
    ) -> None:
        self.served = served
        self._services = Services(delivery, checks)
        #: Requests so far; and how many were answered how, by codes (None: not at all).
        self.requests = 0
        self.answers: Counter[tuple[int, int | None]] = Counter()
        #: The puts that wait for slaves.
        self.holding: Holding[Append] = Holding()
        self._tells_access = tells_access
        self._connections: dict[int, Connection] = {}
        self._sends = SendsUnderWay()
        self._calls: Calls[tuple[Request, Call]] = Calls()
        self._numbers = 0
        self._pending = 0
        self._persisted = 0

    def connected(self, peer: str, local: str, now: int) -> int:
        """Takes in a new connection; returns its number. Addresses are ``host:port``."""
        self._numbers += 1
        channel = Channel(self._numbers, peer, local, last_active=now)
        self._connections[self._numbers] = Connection(channel)
        return self._numbers

    def received(self, number: int, data: bytes, now: int) -> list[Event]:
        """Takes bytes that a connection has sent."""
        connection = self._connections.get(number)
        if connection is None:
            return []
        channel, reader = connection.channel, connection.reader
        channel.last_active = now
        events: list[Event] = []
        before = reader.pending
        try:
            for command in reader.feed(data):
                channel.frame_since = 0
                channel.serialize_type = command.serialize_type
                if command.is_response:
                    self._called(self._calls.answered(number, command.opaque), command, now, events)
                else:
                    self._run(Request(command, channel, now), events)
        except FrameError as error:
            events.append(Close(number, str(error)))
        self._pending += reader.pending - before
        if reader.pending and not channel.frame_since:
            channel.frame_since = now
        if self._pending > MAX_PENDING:
            events.append(self._shed())
        events += connection.next_events()
        return self._with_outgoing(events)

    def _shed(self) -> Close:
        """Closes the connection with the most bytes of an unfinished frame, to spare the others."""
        most = max(self._connections.values(), key=lambda one: one.reader.pending)
        self._pending -= most.reader.pending
        reason = "all connections together hold too much"
        most.reader.give_up(reason)
        return Close(most.channel.number, reason)

    def _run(self, request: Request, events: list[Event]) -> None:
        self.requests += 1
        self._take(request, lambda: self._process(request), events, request.now)

    def _process(self, request: Request) -> Outcome:
        accounts = self.served.accounts
        refused = refusal(accounts, request) if accounts is not None else None
        processor = processor_of(request.command.code, writes=self.served.store.writable)
        return refused or processor(self.served, request)

    def _take(
        self, request: Request, ask: Callable[[], Outcome], events: list[Event], now: int
    ) -> None:
        """Makes events of what a processor returns or raises."""
        command = request.command
        try:
            outcome = ask()
        except (BadRequest, TooMany) as error:
            outcome = command.answer(ResponseCode.SYSTEM_ERROR, str(error))
        except UnknownGroup as error:
            outcome = command.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, str(error))
        except NoAnswer as error:
            events.append(Close(request.channel.number, str(error)))
            self._account(request, None, events, now)
            return
        except (RmqctlError, OSError) as error:
            where = f"request {command.code} of {request.channel.peer}"
            events.append(Trouble(f"{where}: {error}", cause=str(error)))
            outcome = command.answer(ResponseCode.SYSTEM_ERROR, told_to_clients(error))
        if isinstance(outcome, RemotingCommand):
            self._account(request, outcome, events, now)
            if not command.is_oneway:
                events.append(Send(request.channel.number, encode_frame(outcome)))
        elif isinstance(outcome, Later):
            self._begin(Job(request, *outcome), events)
        elif isinstance(outcome, Put):
            work = Append(request, outcome)
            if not self._sends.take(work):
                return self._take(request, lambda: busy(self.served, request), events, now)
            self._begin(work, events)
        elif outcome is not None:
            self._call(request, outcome, events)

    def _begin(self, work: Job | Append, events: list[Event]) -> None:
        """Begins work, or lets it wait until its connection may have more under way."""
        connection = self._connections.get(work.request.channel.number)
        if connection is None or connection.begins(work):
            # The connection has gone: no answer is waited for, but the work still has to be done.
            events.append(work)
        else:
            connection.waiting.append(work)

    def _account(
        self, request: Request, answer: RemotingCommand | None, events: list[Event], now: int
    ) -> None:
        """Counts an answer. All unknown codes are counted as one: a client may send any code as a
        request, and also as an answer to a request of the server."""
        command, code = request.command, None if answer is None else answer.code
        asked = command.code if command.code in KNOWN else -1
        self.answers[asked, code if code is None or code in _ANSWERS else -1] += 1
        if self._tells_access:
            size = 0 if answer is None else len(answer.body)
            at, lasted = self.served.now(), now - request.now
            events.append(Accessed(at, request.channel.peer, command, code, size, lasted))

    def _call(self, request: Request, call: Call, events: list[Event]) -> None:
        """Sends a request to a client, which may take ``call.timeout`` for its answer."""
        opaque, target = call.command.opaque, call.channel.number
        one = Pending(target, opaque, request.now + call.timeout, (request, call))
        if target in self._connections and self._calls.add(one):
            events.append(Send(target, encode_frame(call.command)))
        else:
            self._take(request, lambda: call.then(None, request.now), events, request.now)

    def _called(
        self,
        one: Pending[tuple[Request, Call]] | None,
        answer: RemotingCommand | None,
        now: int,
        events: list[Event],
    ) -> None:
        """Passes a client's answer (None: it gave none) on to the request that waits for it."""
        if one is None:
            return
        request, call = one.call
        connection = self._connections.get(request.channel.number)
        if connection is not None:
            self._take(request, lambda: call.then(answer, now), events, now)
            events += connection.next_events()

    def takes_answers(self, number: int, takes: bool) -> list[Event]:
        """Is told whether the peer reads its answers. While it does not, no work is begun for it,
        and nothing is read from it."""
        connection = self._connections.get(number)
        if connection is None:
            return []
        connection.takes_answers = takes
        return list(connection.next_events())

    def finished(self, work: Job | Append, result: Any, now: int) -> list[Event]:
        """Takes the result of work: of a look at the store, or of messages to be stored; or the
        exception. One that is neither the store's nor the system's is a bug, and raised again."""
        events: list[Event] = []
        if isinstance(work, Append):
            self._sends.end(work)
        if isinstance(work, Append) and isinstance(result, list):
            self._appended(result, now, events)
            if self.holding.hold(work, work.put.messages, result, now):
                return self._with_outgoing(events)
        return events + self._answered(work, result, now)

    def _answered(self, work: Job | Append, result: Any, now: int) -> list[Event]:
        """:meth:`finished`, for work that need not wait for slaves any more."""
        events: list[Event] = []
        connection = self._connections.get(work.request.channel.number)
        if connection is not None:
            connection.jobs -= 1
        elif not work.request.command.is_oneway:
            return events
        then = work.put.then if isinstance(work, Append) else work.then

        def ask() -> Outcome:
            if isinstance(result, BaseException):
                raise result
            return then(result, now)

        self._take(work.request, ask, events, now)
        if connection is not None:
            events += connection.next_events()
        return self._with_outgoing(events)

    def replicated(self, now: int) -> list[Event]:
        """Slaves have reported, or time has gone by: answers the puts whose wait is over."""
        released = self.holding.released(now)
        return [event for one in released for event in self._answered(*one, now)]

    def _appended(self, results: list[PutMessageResult], now: int, events: list[Event]) -> None:
        """Counts stored messages, and wakes the pulls that wait for them."""
        for result in results:
            if result.stored is not None:
                stored = result.stored
                self.served.statistics.count_stored(stored.msg_num, stored.wrote_bytes)
                for place in arrivals(self.served.store, result):
                    events += self.arrived(*place, now)

    def lost(self, number: int) -> list[Event]:
        """A connection is closed, by the peer or here."""
        connection = self._connections.pop(number, None)
        if connection is None:
            return []
        self._pending -= connection.reader.pending
        self.served.parked.lost(number)
        # Oneway requests are carried out: a producer may end a transaction by one, and disconnect.
        events: list[Event] = []
        for work in connection.waiting:
            if work.request.command.is_oneway:
                events.append(work)
            elif isinstance(work, Append):
                self._sends.end(work)
        for group in self.served.clients.lost(connection.channel):
            self.served.notify_members(group)
        for call in self._calls.lost(number):
            self._called(call, None, call.call[0].now, events)
        return self._with_outgoing(events)

    def tick(self, now: int) -> list[Event]:
        """Does what is due by time; to be called about once a second."""
        events: list[Event] = []
        for connection in self._connections.values():
            reason = connection.too_slow(now)
            if reason:
                events.append(Close(connection.channel.number, reason))
        for channel in {one.number: one for one in self.served.clients.expired(now)}.values():
            events.append(Close(channel.number, "no heartbeat for two minutes"))
        self.served.locks.expire(now)
        self.served.statistics.sample(now)
        self.served.statistics.look_at_the_date(self.served.now())
        for call in self._calls.due(now):
            self._called(call, None, now, events)
        for parked in self.served.parked.due(now):
            self._wake(parked, now, events)
        events += self.replicated(now)
        if self.served.store.writable and now - self._persisted >= PERSIST_INTERVAL:
            self._persisted = now
            events += self.unsaved()
        events += self._services.due(now)
        return self._with_outgoing(events)

    def upkept(self, work: Upkeep, result: Upkept | Exception, now: int) -> list[Event]:
        """Takes the result of work that the broker does by itself."""
        stored, troubles = self._services.ended(work, result)
        events: list[Event] = []
        self._appended(stored, now, events)
        events += map(Trouble, troubles)
        if stored:
            # One round may not deliver all that is due, and it is late already.
            events += self._services.due(now)
        return self._with_outgoing(events)

    def arrived(self, topic: str, queue_id: int, end: int, now: int) -> list[Event]:
        """Messages have come into a queue, which now ends at ``end``: the pulls that wait for them
        are tried again (``PullRequestHoldService#notifyMessageArriving``)."""
        events: list[Event] = []
        for parked in self.served.parked.arrived((topic, queue_id), end):
            self._wake(parked, now, events)
        return events

    def unsaved(self) -> list[Event]:
        """Has the offsets written that clients have committed, if the store is written."""
        if not self.served.store.writable:
            return []
        offsets = self.served.offsets
        try:
            text = offsets.text()
        except RmqctlError as error:
            return [Trouble(f"offsets are not written: {error}")]
        return [] if text is None else [Persist(offsets.name, text)]

    def not_persisted(self, name: str) -> None:
        """A file could not be written: it will be tried again."""
        self.served.topics.not_saved() if name == TOPICS else self.served.offsets.not_saved()

    def stop(self, now: int) -> list[Event]:
        """Gives the last answers: those to pulls that wait, and to puts that wait for slaves."""
        self.holding.end()
        self._services.end()
        events = self.replicated(now)
        for parked in self.served.parked.all():
            self._wake(parked, now, events)
        return events

    def _wake(self, parked: Parked[Pull], now: int, events: list[Event]) -> None:
        connection = self._connections.get(parked.channel)
        if connection is not None:
            request = parked.pull.request
            self._take(request, lambda: pull.ask_again(self.served, parked.pull), events, now)
            events += connection.next_events()

    def _with_outgoing(self, events: list[Event]) -> list[Event]:
        """Adds files, which have to be written first, and requests to clients to the events."""
        files, outgoing = self.served.files, self.served.outgoing
        if files:
            events[:0] = [Persist(*file) for file in files]
            files.clear()
        if outgoing:
            events += [Send(channel.number, encode_frame(command)) for channel, command in outgoing]
            outgoing.clear()
        return events
