"""The sockets of the server: asyncio between the network and a :class:`Broker`.

One thread has the sockets and the broker; a few more threads look at the store. A peer that reads
nothing, sends nothing or sends nonsense costs no more than the limits here allow, and does not
disturb others.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from rmqctl.engine.files.openfiles import allow_open_files
from rmqctl.serve.broker import Broker
from rmqctl.serve.errors import CannotListen
from rmqctl.serve.events import (
    Accessed,
    Append,
    Close,
    Event,
    Job,
    Persist,
    Reading,
    Send,
    Upkeep,
    Upkept,
    joined,
)
from rmqctl.serve.listening import named
from rmqctl.serve.readers import Readers
from rmqctl.serve.telling import Seldom, if_somebody_listens
from rmqctl.serve.tls import Handshakes
from rmqctl.serve.writer import Work, Writer

if TYPE_CHECKING:
    import ssl

_TICK_SECONDS = 0.5
#: Most connections: a new one beyond them is closed at once. A client has one for all its groups.
MAX_CONNECTIONS = 10_000
#: Descriptors that the store needs beside the connections, above all for its files.
_OWN_FILES = 512
_MORE_FILES = ". Raise the limit of open files (`ulimit -n`)"
#: Most unsent bytes of one peer (16 answers of 256 KiB, and those of the largest message), and of
#: all peers together. Beyond them a connection is cut.
MAX_UNSENT = 32 << 20
MAX_UNSENT_OF_ALL = 512 << 20
#: From the VIP port to the one that clients are told (``MixAll#brokerVIPChannel``).
VIP_PORT_DISTANCE = 2
#: Seconds that a peer may take for the handshake of TLS.
_HANDSHAKE_SECONDS = 10.0
#: Seconds that a closed connection gets for its last answers, and a stop for work under way.
_LAST_SECONDS = 5.0


def make_room() -> int:
    """Raises the limit of open files as far as the system allows, and returns how many connections
    fit. With more of them, connections would wait, and the store could open no file."""
    wanted = MAX_CONNECTIONS + _OWN_FILES
    allowed = allow_open_files(wanted)
    if allowed is None or allowed >= wanted:
        return MAX_CONNECTIONS
    return max(allowed - _OWN_FILES, allowed // 2)


def now() -> int:
    """Milliseconds of a clock that is never set back."""
    return time.monotonic_ns() // 1_000_000


class Server:
    """A broker on the network.

    :param trouble: is called with a sentence that the operator should read.
    :param most: connections at a time.
    :param detail: is called with a sentence about each peer that connects or is cut off.
    """

    def __init__(
        self,
        broker: Broker,
        trouble: Callable[[str], None],
        most: int = MAX_CONNECTIONS,
        detail: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._most = most
        self.detail = if_somebody_listens(detail)
        #: Is called with each request that was answered, if the broker gives such events.
        self.accessed: Callable[[Accessed], None] = lambda one: None
        self.broker = broker
        self.trouble = if_somebody_listens(trouble)
        #: Connections so far.
        self.connections = 0
        #: Called when messages were stored.
        self.stored: list[Callable[[], None]] = []
        self._seldom = Seldom(self.trouble, now)
        self._peers: dict[int, _Peer] = {}
        self._handshakes = Handshakes(int(_HANDSHAKE_SECONDS * 1000))
        self._readers = Readers(self._looked)
        self._writer = Writer(broker.served.store, self.written)
        self._stopped = asyncio.Event()
        self._listeners: list[asyncio.Server] = []

    async def listen(
        self,
        host: str,
        port: int,
        *,
        has_vip_port: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> str:
        """Accepts connections from now on; returns the address, with the port chosen for 0.

        :param has_vip_port: also listen at the port two below (``fastRemotingServer``): old clients
            use it, and slaves when they ask for the topics.
        :param tls: only TLS is spoken.
        :raises CannotListen: the system refuses.
        """
        listener = await self._listen(host, port, 0, tls)
        self._listeners = [listener]
        address = listener.sockets[0].getsockname()
        if has_vip_port:
            vip_port = address[1] - VIP_PORT_DISTANCE
            try:
                self._listeners.append(await self._listen(host, vip_port, VIP_PORT_DISTANCE, tls))
            except CannotListen:
                listener.close()
                raise
        return address_text(address)

    async def _listen(
        self, host: str, port: int, distance: int, tls: ssl.SSLContext | None
    ) -> asyncio.Server:
        """:param distance: from this port to the one that clients are told."""
        loop = asyncio.get_running_loop()
        with named(host, port):
            return await loop.create_server(
                lambda: self._peer(distance, speaks_tls=tls is not None),
                host,
                port,
                backlog=1024,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else _HANDSHAKE_SECONDS,
            )

    def _peer(self, distance: int, *, speaks_tls: bool) -> _Peer:
        """The protocol of a new connection. If this raises, asyncio drops the connection."""
        if speaks_tls:
            if len(self._peers) + self._handshakes.count(now()) >= self._most:
                raise ConnectionAbortedError
            self._handshakes.begin(now())
        return _Peer(self, distance)

    async def run(self) -> None:
        """Serves until :meth:`stop`, then ends cleanly: it accepts no more connections, completes
        the work under way, and sends the last answers."""
        assert self._listeners
        asyncio.get_running_loop().set_exception_handler(self._seldom.of_asyncio)
        self._writer.start()
        try:
            while not self._stopped.is_set():
                self._tick()
                try:
                    await asyncio.wait_for(self._stopped.wait(), _TICK_SECONDS)
                except TimeoutError:
                    continue
        finally:
            for listener in self._listeners:
                listener.close()
            await self._finish()

    @property
    def count(self) -> int:
        """Connections now."""
        return len(self._peers)

    def stop(self) -> None:
        self._stopped.set()

    async def _finish(self) -> None:
        self.do(self.broker.stop(now()))
        end = now() + int(_LAST_SECONDS * 1000)
        await self._readers.drain(_LAST_SECONDS)
        # Messages that were sent are stored and answered, however long the disk takes.
        await self._writer.drain()
        # A file that cannot be written now is not tried again, so that is told.
        self._seldom.over()
        self.do(self.broker.unsaved())
        await self._writer.drain()
        self._writer.end()
        for peer in list(self._peers.values()):
            peer.close()
        while self._peers and now() < end:
            await asyncio.sleep(0.01)
        for peer in list(self._peers.values()):
            peer.cut()
        self._readers.end()

    def _tick(self) -> None:
        self.do(self.broker.tick(now()))
        if trouble := self._writer.trouble():
            self.trouble(trouble)
        unsent = {number: peer.unsent for number, peer in self._peers.items()}
        if sum(unsent.values()) > MAX_UNSENT_OF_ALL:
            self._peers[max(unsent, key=lambda number: unsent[number])].cut()
        for peer in list(self._peers.values()):
            peer.cut_if_overdue()

    # --- events of peers, and what the broker wants done -------------------------------------

    def arrived(self, peer: _Peer, local: str, remote: str) -> int | None:
        """Takes in a new connection; returns its number. None: there are too many."""
        self._handshakes.end()
        if self._stopped.is_set():
            return None
        if len(self._peers) >= self._most:
            step = _MORE_FILES if self._most < MAX_CONNECTIONS else ""
            self._seldom.met("connections", f"connections beyond {self._most} are cut off{step}")
            return None
        self.connections += 1
        number = self.broker.connected(remote, local, now())
        self._peers[number] = peer
        return number

    def lost(self, number: int) -> None:
        self._peers.pop(number, None)
        self.do(self.broker.lost(number))

    def received(self, number: int, data: bytes) -> None:
        """Takes bytes of a peer. When the server stops they are ignored: peers that go on sending
        would keep it from ending."""
        if not self._stopped.is_set():
            self.take(number, partial(self.broker.received, number, data, now()))

    def take(self, number: int, ask: Callable[[], list[Event]]) -> None:
        """Asks the broker about one connection, and does what it wants."""
        self.do(self._events(number, ask))

    def _events(self, number: int, ask: Callable[[], list[Event]]) -> list[Event]:
        """Asks the broker about one connection. A bug is told, and ends this connection only."""
        try:
            return ask()
        except Exception as error:
            self.trouble(f"a bug in rmqctl: {type(error).__name__}: {error}")
            peer = self._peers.get(number)
            if peer is not None:
                peer.cut()
            return []

    def do(self, events: list[Event]) -> None:
        jobs: list[Job] = []
        for event in joined(events) if len(events) > 1 else events:
            if isinstance(event, Job):
                jobs.append(event)
            elif isinstance(event, (Send, Close, Reading)):
                peer = self._peers.get(event.channel)
                if peer is not None:
                    peer.do(event)
            elif isinstance(event, (Append, Persist, Upkeep)):
                self._writer.put(event)
            elif isinstance(event, Accessed):
                self.accessed(event)
            else:
                self._seldom.met(event.cause or event.text, event.text)
        if jobs:
            # After all other events: quick jobs end at once, and their answers must come later.
            self._readers.take(*jobs)

    def written(self, work: Work, answer: object) -> None:
        """Takes the result of work of the writer."""
        if isinstance(work, Append):
            number = work.request.channel.number
            self._tell_refused(answer)
            self.take(number, lambda: self.broker.finished(work, answer, now()))
        elif isinstance(work, Upkeep):
            result = cast("Upkept | Exception", answer)
            self.take(0, lambda: self.broker.upkept(work, result, now()))
        elif isinstance(answer, Exception):
            self._seldom.going_on(work.name, f"{work.name} is not written: {answer}")
            self.broker.not_persisted(work.name)
        else:
            self._seldom.over(work.name)
        if isinstance(work, Append | Upkeep):
            for tell in self.stored:
                tell()

    def _tell_refused(self, answer: object) -> None:
        """Tells that the disk takes no messages. Producers alone hear of it otherwise."""
        for result in answer if isinstance(answer, list) else ():
            if result.status.is_of_store and result.reason:
                self._seldom.met("messages", f"messages are refused: {result.reason}")

    def _looked(self, looked: list[tuple[Job, object]]) -> None:
        events: list[Event] = []
        for job, result in looked:
            events += self._events(
                job.request.channel.number, partial(self.broker.finished, job, result, now())
            )
        self.do(events)


class _Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: Server, distance: int) -> None:
        self._server = server
        self._distance = distance
        self._number: int | None = None
        self._transport: asyncio.Transport | None = None
        self._closed_at: int | None = None
        self._remote = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        own = transport.get_extra_info("socket")
        if own is not None and own.family in (socket.AF_INET, socket.AF_INET6):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port, *_ = transport.get_extra_info("sockname")
        local = address_text((host, port + self._distance))
        self._remote = address_text(transport.get_extra_info("peername"))
        self._number = self._server.arrived(self, local, self._remote)
        if self._number is None:
            self._server.detail(f"{self._remote} is cut off: there are too many connections")
            self._transport.abort()
        else:
            self._server.detail(f"{self._remote} has come")

    def connection_lost(self, error: Exception | None) -> None:
        if self._number is not None:
            self._server.detail(f"{self._remote} has gone")
            self._server.lost(self._number)

    def data_received(self, data: bytes) -> None:
        if self._number is not None and self._closed_at is None:
            self._server.received(self._number, data)

    def pause_writing(self) -> None:
        self._takes_answers(False)

    def resume_writing(self) -> None:
        self._takes_answers(True)

    def _takes_answers(self, takes: bool) -> None:
        if self._number is not None:
            self._server.do(self._server.broker.takes_answers(self._number, takes))

    # --- what the broker wants done ----------------------------------------------------------

    @property
    def unsent(self) -> int:
        """Bytes that the peer has not read yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def do(self, event: Send | Close | Reading) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if isinstance(event, Send):
            self._transport.write(event.data)
            if self.unsent > MAX_UNSENT:
                self.cut()
        elif isinstance(event, Close):
            if self._closed_at is None:
                self._server.detail(f"{self._remote} is cut off: {event.reason}")
            self.close()
        elif event.goes_on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        """Closes the connection when all answers are sent."""
        if self._closed_at is None and self._transport is not None:
            self._closed_at = now()
            self._transport.close()

    def cut(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def cut_if_overdue(self) -> None:
        if self._closed_at is not None and now() - self._closed_at > _LAST_SECONDS * 1000:
            self.cut()


def address_text(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """``host:port``, as RocketMQ writes it; IPv6 in brackets."""
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"
