"""The HA port: asyncio between slaves and a :class:`~rmqctl.serve.ha.master.Master`.

A slave that reads nothing, sends nothing or sends nonsense costs one read of the log and does not
disturb others: a frame is read from the log when the one before has been sent.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from rmqctl.errors import RmqctlError
from rmqctl.serve.events import Append
from rmqctl.serve.ha.holding import Held, Holding
from rmqctl.serve.ha.master import LogRange, Master, Network
from rmqctl.serve.listening import named
from rmqctl.serve.sockets import address_text, now

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.engine.store import Store
    from rmqctl.serve.ha.master import Frame
    from rmqctl.serve.sockets import Server

#: Seconds between two looks at a log of which no growth is reported (``allWaitForRunning(100)``).
_LOOK_SECONDS = 0.1
#: Seconds between two checks that a slave still reports.
_HOUSEKEEPING_SECONDS = 1.0
_READ_SIZE = 1 << 12
#: Most bytes of log that are sent to a slave and not read by it.
_MAX_UNSENT = 1 << 20
#: Most reasons that are told as troubles.
_MOST_TOLD = 100
_NO_DIGITS = str.maketrans("", "", "0123456789")


def sendable(store: Store) -> LogRange:
    """The range of a store's log that may be sent. Of a store that is written it ends where the log
    is on disk."""
    from rmqctl.engine.messagestore import WritableStore

    if isinstance(store, WritableStore):
        return LogRange(store.commit_log.min_offset, store.commit_log.flushed_where)
    return LogRange(store.commit_log.min_offset, store.max_offset)


def has_unsent(store: Store) -> bool:
    """Whether a store with ASYNC_FLUSH has more log than may be sent: it may take ten seconds until
    that is flushed, and a put waits only three seconds for a slave."""
    from rmqctl.engine.messagestore import WritableStore

    if not isinstance(store, WritableStore):
        return False
    return store.writer.flusher.answers_first and store.writer.flusher.behind > 0


def read_frame(store: Store, frame: Frame) -> bytes:
    """A frame's bytes. Any thread may call it. :raises NoRecordAt: the log has a gap there."""
    if not frame.size:
        return frame.head
    mapped, position = store.commit_log.locate(frame.physical_offset)
    return frame.head + mapped.read(position, frame.size)


class HaServer:
    """The slaves of a server.

    :param allowed: the networks that they may connect from; empty: any.
    """

    def __init__(self, server: Server, allowed: tuple[Network, ...] = ()) -> None:
        store = server.broker.served.store
        self._server = server
        self._store = store
        self.master: Master[Held[Append]] = Master(
            lambda: sendable(store), store.commit_log.file_size, store.config, allowed
        )
        server.broker.holding = Holding(self.master)
        server.stored.append(self._log_has_grown)
        #: Where slaves connect, with the port that was chosen for 0.
        self.address = ""
        #: Slaves so far.
        self.slaves = 0
        self._grown: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self._pool = ThreadPoolExecutor(2, "rmqctl-ha")
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Accepts slaves from now on. :raises CannotListen: the system refuses."""
        with named(host, port, "--ha-listen"):
            self._listener = await asyncio.start_server(self._serve, host, port, limit=_READ_SIZE)
        name = self._listener.sockets[0].getsockname()
        self._server.broker.served.ha_port = name[1]
        self.address = address_text(name)

    async def close(self) -> None:
        """Closes all connections. Slaves connect again when there is a master."""
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pool.shutdown(cancel_futures=True)

    def _log_has_grown(self) -> None:
        for grown in self._grown.values():
            grown.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one slave until its connection ends."""
        self.slaves += 1
        number, peername = self.slaves, writer.get_extra_info("peername")
        peer = address_text(peername)
        refusal = self.master.connected(number, peername[0], now())
        if refusal:
            self._tell(peername[0], f"slave {peer} is refused: {refusal}")
            writer.transport.abort()
            return
        self._server.detail(f"slave {peer} has come")
        writer.transport.set_write_buffer_limits(high=_MAX_UNSENT)
        self._grown[number] = asyncio.Event()
        own = asyncio.current_task()
        assert own is not None
        self._tasks.add(own)
        tasks = [
            asyncio.ensure_future(self._listen_to(number, reader)),
            asyncio.ensure_future(self._feed(number, writer)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._tell(peername[0], f"slave {peer} is cut off: {next(iter(done)).result()}")
        except asyncio.CancelledError:
            # The server stops. Raised on, asyncio would print it as an error of the stream.
            self._server.detail(f"slave {peer} is left")
        finally:
            for task in tasks:
                task.cancel()
            self.master.lost(number)
            del self._grown[number]
            self._tasks.discard(own)
            writer.transport.abort()

    async def _listen_to(self, number: int, reader: asyncio.StreamReader) -> str:
        """Takes the slave's reports; returns why that ended."""
        while True:
            try:
                data = await asyncio.wait_for(reader.read(_READ_SIZE), _HOUSEKEEPING_SECONDS)
            except TimeoutError:
                if number in self.master.silent(now()):
                    return "it has not reported for 20 seconds"
                continue
            except OSError as error:
                return error.strerror or str(error)
            refusal = self.master.received(number, data, now())
            self._server.do(self._server.broker.replicated(now()))
            if refusal or not data:
                return refusal or "it has closed the connection"
            self._grown[number].set()

    async def _feed(self, number: int, writer: asyncio.StreamWriter) -> str:
        """Sends the log; returns why that ended."""
        loop = asyncio.get_running_loop()
        grown = self._grown[number]
        while True:
            frame = self.master.next_frame(number, now())
            if frame is None and has_unsent(self._store):
                flush = cast("WritableStore", self._store).flush_log
                # The writer tells about a disk that fails.
                with suppress(RmqctlError):
                    await loop.run_in_executor(self._pool, flush)
                frame = self.master.next_frame(number, now())
            if frame is None:
                grown.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(grown.wait(), _LOOK_SECONDS)
                continue
            try:
                data = await loop.run_in_executor(self._pool, read_frame, self._store, frame)
                writer.write(data)
                await writer.drain()
            except RmqctlError as error:
                self._server.trouble(f"the log cannot be sent: {error}")
                return "the log cannot be read there"
            except OSError as error:
                return error.strerror or str(error)

    def _tell(self, host: str, text: str) -> None:
        """Tells each host and reason once as a trouble, then as a detail: a slave connects again
        every five seconds."""
        _, _, reason = text.partition(": ")
        known = f"{host} {reason.translate(_NO_DIGITS)}"
        if known in self._told or len(self._told) >= _MOST_TOLD:
            self._server.detail(text)
        else:
            self._told.add(known)
            self._server.trouble(text)
