"""The server on real sockets: loopback, a free port, and peers of every kind."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.serve import readers, sockets
from rmqctl.serve.broker import Broker
from rmqctl.serve.errors import CannotListen, TlsUnusable
from rmqctl.serve.events import Persist
from rmqctl.serve.processors.request import Served
from rmqctl.serve.processors.table import PROCESSORS
from rmqctl.serve.sockets import Server
from rmqctl.serve.tls import tls_context
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from tests import golden_data
from tests.conftest import Golden

Test = Callable[[Server, str, int], Awaitable[None]]
ROUTE = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext_fields={"topic": "orders"})


@pytest.fixture
def run(golden: Golden) -> Iterator[Callable[[Test], list[str]]]:
    """Runs a dialogue with a server of the broker's store; gives what it had to say."""
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        troubles: list[str] = []

        def run(test: Test) -> list[str]:
            async def both() -> None:
                server = Server(Broker(Served.of(store)), troubles.append)
                host, _, port = (await server.listen("127.0.0.1", 0)).rpartition(":")
                running = asyncio.create_task(server.run())
                try:
                    await asyncio.wait_for(test(server, host, int(port)), 60)
                finally:
                    server.stop()
                    await asyncio.wait_for(running, 60)

            asyncio.run(both())
            return troubles

        yield run


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._frames = FrameReader()
        self._got: list[RemotingCommand] = []

    async def answer(self) -> RemotingCommand | None:
        """The next answer; None: the server has closed."""
        while not self._got:
            data = await self._reader.read(65536)
            if not data:
                return None
            self._got += self._frames.feed(data)
        return self._got.pop(0)

    async def ask(self, code: int, **fields: Any) -> RemotingCommand | None:
        texts = {name: str(value) for name, value in fields.items()}
        self.writer.write(encode_frame(RemotingCommand(code, 7, ext_fields=texts)))
        return await self.answer()

    async def is_closed(self) -> bool:
        try:
            return await self.answer() is None
        except ConnectionError:
            return True


@asynccontextmanager
async def peer(host: str, port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


SEND = {
    "a": "p", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0, "i": "TAGS\1a",
}  # fmt: skip
PULL = {
    "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
    "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subVersion": 0,
}  # fmt: skip


def test_clients_are_answered_and_led_to_where_they_came(run: Callable[[Test], list[str]]) -> None:
    async def dialogue(server: Server, host: str, port: int) -> None:
        async with peer(host, port) as one, peer(host, port) as other:
            for client in (one, other):
                answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
                assert answer is not None and f'{{0:"{host}:{port}"}}'.encode() in answer.body
                answer = await client.ask(RequestCode.PULL_MESSAGE, **PULL)
                assert answer is not None and answer.remark == "FOUND"
        assert server.connections == 2

    assert run(dialogue) == []


def test_a_file_that_is_not_written_is_told_once(run: Callable[[Test], list[str]]) -> None:
    """It is tried each five seconds, and a disk is full for a night."""

    async def dialogue(server: Server, host: str, port: int) -> None:
        work = Persist("consumerOffset.json", "{}")
        full, failing = (OSError(n, os.strerror(n)) for n in (errno.ENOSPC, errno.EIO))
        for answer in (full, full, None, full, failing, failing):
            server.written(work, answer)

    assert [text.rpartition("] ")[2] for text in run(dialogue)] == [
        "No space left on device",
        "No space left on device",
        "Input/output error",
    ]


def test_a_pull_that_waits_is_answered_at_the_stop(run: Callable[[Test], list[str]]) -> None:
    answers: list[RemotingCommand | None] = []

    async def dialogue(server: Server, host: str, port: int) -> None:
        async def wait() -> None:
            async with peer(host, port) as one:
                answers.append(
                    await one.ask(RequestCode.PULL_MESSAGE, **PULL | {"queueOffset": 124})
                )

        waiting = asyncio.create_task(wait())
        while not len(server.broker.served.parked):
            await asyncio.sleep(0.01)
        server.stop()
        await waiting

    assert run(dialogue) == []
    assert [answer.code for answer in answers if answer] == [ResponseCode.PULL_NOT_FOUND]


def test_nonsense_closes_its_own_connection_only(run: Callable[[Test], list[str]]) -> None:
    async def dialogue(server: Server, host: str, port: int) -> None:
        async with peer(host, port) as good, peer(host, port) as bad:
            bad.writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            assert await bad.is_closed()
            assert await good.ask(RequestCode.GET_BROKER_CLUSTER_INFO) is not None

    assert run(dialogue) == []


def test_who_wants_to_know_hears_who_comes_and_who_is_cut_off(
    run: Callable[[Test], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def dialogue(server: Server, host: str, port: int) -> None:
        monkeypatch.setattr(server, "detail", told.append)
        async with peer(host, port) as bad:
            bad.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await bad.is_closed()
        while len(told) < 3:
            await asyncio.sleep(0.01)

    assert run(dialogue) == []
    address = told[0].removesuffix(" has come")
    cut = f"{address} is cut off: a frame of 1195725860 bytes, of which at most 16777216 may be"
    assert told == [f"{address} has come", cut, f"{address} has gone"]


def test_connections_that_the_system_refuses_are_told_once(
    run: Callable[[Test], list[str]],
) -> None:
    """asyncio tries each a thousand times a second, and says so each time."""

    async def dialogue(server: Server, host: str, port: int) -> None:
        error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        for _ in range(3):
            context = {"message": "socket.accept() out of system resource", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    (told,) = run(dialogue)
    assert told == (
        "socket.accept() out of system resource: Too many open files. "
        "Raise the limit of open files (`ulimit -n`)."
    )


def test_a_bug_ends_one_connection_and_is_told(
    run: Callable[[Test], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(PROCESSORS, RequestCode.GET_ROUTEINFO_BY_TOPIC, breaks)

    async def dialogue(server: Server, host: str, port: int) -> None:
        async with peer(host, port) as good, peer(host, port) as bad:
            bad.writer.write(encode_frame(ROUTE))
            assert await bad.is_closed()
            assert await good.ask(RequestCode.GET_BROKER_CLUSTER_INFO) is not None

    assert run(dialogue) == ["a bug in rmqctl: ZeroDivisionError: oops"]


def test_who_asks_much_at_once_gets_all_answers(run: Callable[[Test], list[str]]) -> None:
    """More than one connection may have under way, and than the event loop looks at at once."""

    async def dialogue(server: Server, host: str, port: int) -> None:
        fields = {name: str(value) for name, value in PULL.items()} | {"sysFlag": "4"}
        async with peer(host, port) as one:
            for count in (readers.QUICK_ONES, 5 * readers.AT_ONCE + 1):
                asked = [
                    RemotingCommand(
                        RequestCode.PULL_MESSAGE, n, ext_fields=fields | {"queueOffset": str(n)}
                    )
                    for n in range(count)
                ]
                one.writer.write(b"".join(map(encode_frame, asked)))
                # The first ones are taken by threads, in any order.
                found = [answer for _ in asked if (answer := await one.answer()) is not None]
                assert {
                    answer.opaque: answer.ext_fields["nextBeginOffset"] for answer in found
                } == {n: str(min(n + 32, 124)) for n in range(count)}

    assert run(dialogue) == []


def test_who_takes_no_answers_is_read_no_more(run: Callable[[Test], list[str]]) -> None:
    """Ten thousand pulls of 60 KiB: without a bound they would become 600 MB."""

    async def dialogue(server: Server, host: str, port: int) -> None:
        own = socket.create_connection((host, port))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        own.setblocking(False)
        fields = {name: str(value) for name, value in PULL.items()}
        asked = encode_frame(RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields))
        loop = asyncio.get_running_loop()
        flood = asyncio.create_task(loop.sock_sendall(own, asked * 10_000))
        async with peer(host, port) as good:
            requests = -1
            while requests != server.broker.requests:
                requests = server.broker.requests
                await asyncio.sleep(0.2)
                assert await good.ask(RequestCode.GET_BROKER_CLUSTER_INFO) is not None
                requests += 1
            assert requests < 5000
            assert sum(one.unsent for one in server._peers.values()) < sockets.MAX_UNSENT
        flood.cancel()
        own.close()

    assert run(dialogue) == []


def test_many_send_at_once_and_flushes_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 20)
    sent = flushes = 0
    served: list[Broker] = []

    async def send(host: str, port: int, number: int) -> None:
        nonlocal sent
        async with peer(host, port) as one:
            for _ in range(20):
                sent += 1
                answer = await one.ask(RequestCode.SEND_MESSAGE_V2, **SEND | {"e": number % 4})
                assert answer is not None and answer.code == 0

    async def all_of_them(store: WritableStore) -> None:
        server = Server(Broker(Served.of(store)), print)
        served.append(server.broker)
        host, _, port = (await server.listen("127.0.0.1", 0)).rpartition(":")
        running = asyncio.create_task(server.run())
        await asyncio.gather(*(send(host, int(port), number) for number in range(16)))
        server.stop()
        await running

    with MessageStore(tmp_path / "store", config, writable=True, create=True) as store:
        flush = store.flush_structures

        def counted(what: Any) -> Any:
            nonlocal flushes
            flushes += 1
            # A disk takes its time: until what was sent meanwhile is there.
            ends = time.monotonic() + 60
            while served and served[0].requests < sent and time.monotonic() < ends:
                time.sleep(0.001)
            return flush(what)

        monkeypatch.setattr(store, "flush_structures", counted)
        asyncio.run(all_of_them(store))
        for queue_id in range(4):
            queue = store.consume_queue("orders", queue_id)
            assert queue is not None and queue.max_offset == 80
    assert flushes < 320 / 2


def test_a_server_that_stops_begins_nothing(run: Callable[[Test], list[str]]) -> None:
    """Those who go on sending would keep it from its end."""

    async def dialogue(server: Server, host: str, port: int) -> None:
        async with peer(host, port) as client:
            assert await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO) is not None
            asked = server.broker.requests
            server.stop()
            (one,) = server._peers.values()
            one.data_received(encode_frame(ROUTE))
            assert server.broker.requests == asked
            assert await client.is_closed()

    assert run(dialogue) == []


def test_there_are_so_many_connections_and_no_more(
    run: Callable[[Test], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dialogue(server: Server, host: str, port: int) -> None:
        monkeypatch.setattr(server, "_most", 2)
        async with peer(host, port) as one:
            async with peer(host, port) as two:
                for client in (one, two):
                    assert await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO) is not None
                for _ in range(2):
                    async with peer(host, port) as three:
                        assert await three.is_closed()
            while len(server._peers) > 1:
                await asyncio.sleep(0.01)
            async with peer(host, port) as again:
                assert await again.ask(RequestCode.GET_BROKER_CLUSTER_INFO) is not None

    assert run(dialogue) == [
        "connections beyond 2 are cut off. Raise the limit of open files (`ulimit -n`)"
    ]


@pytest.mark.parametrize(
    ("limits", "raised", "room"),
    [
        ((1024, 1 << 20), 10_512, 10_000),
        ((1024, 4096), 4096, 3584),
        ((600, 700), 700, 350),
        ((65_536, 65_536), None, 10_000),
        ((1024, resource.RLIM_INFINITY), 10_512, 10_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 10_000),
    ],
)
def test_there_is_room_for_the_stores_own_files(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: int | None, room: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: asked.append(new))
    assert sockets.make_room() == room
    assert asked == ([] if raised is None else [(raised, limits[1])])


def test_a_port_that_is_taken_is_named(golden: Golden, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, MessageStore(golden("basic")) as store:
        port = taken.getsockname()[1]

        async def listen() -> None:
            await Server(Broker(Served.of(store)), print).listen("127.0.0.1", port)

        with pytest.raises(
            CannotListen, match=f"cannot listen on 127.0.0.1:{port}: Address already in use\\."
        ):
            asyncio.run(listen())


def test_who_asks_at_the_vip_port_is_led_to_the_other(golden: Golden) -> None:
    """Two ports with one between are free now and then only: some are tried."""

    async def dialogue(store: MessageStore) -> None:
        server = Server(Broker(Served.of(store)), pytest.fail)
        for _ in range(50):
            with socket.create_server(("127.0.0.1", 0)) as one:
                port = one.getsockname()[1]
            try:
                address = await server.listen("127.0.0.1", port, has_vip_port=True)
                break
            except CannotListen:
                continue
        running = asyncio.create_task(server.run())
        async with peer("127.0.0.1", port - sockets.VIP_PORT_DISTANCE) as client:
            answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            assert answer is not None and f'{{0:"{address}"}}'.encode() in answer.body
        server.stop()
        await asyncio.wait_for(running, 60)

    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        asyncio.run(dialogue(store))


def test_clients_speak_tls_and_no_other_word_is_heard(
    golden: Golden, certificate: tuple[Path, Path]
) -> None:
    async def dialogue(store: MessageStore) -> None:
        server = Server(Broker(Served.of(store)), pytest.fail)
        address = await server.listen("127.0.0.1", 0, tls=tls_context(*certificate))
        running = asyncio.create_task(server.run())
        port = int(address.rpartition(":")[2])
        trusting = ssl.create_default_context(cafile=certificate[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        client = Peer(reader, writer)
        answer = await client.ask(RequestCode.PULL_MESSAGE, **PULL)
        assert answer is not None and answer.remark == "FOUND"
        async with peer("127.0.0.1", port) as plain:
            plain.writer.write(encode_frame(ROUTE))
            assert await plain.is_closed()
        writer.close()
        server.stop()
        await asyncio.wait_for(running, 60)

    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        asyncio.run(dialogue(store))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_who_begins_tls_and_never_ends_it_takes_no_descriptors(
    golden: Golden, certificate: tuple[Path, Path]
) -> None:
    """Nobody is told of a connection before its handshake has ended."""

    async def dialogue(store: MessageStore) -> None:
        server = Server(Broker(Served.of(store)), pytest.fail, 3)
        address = await server.listen("127.0.0.1", 0, tls=tls_context(*certificate))
        running = asyncio.create_task(server.run())
        port = int(address.rpartition(":")[2])
        trusting = ssl.create_default_context(cafile=certificate[0])
        for _ in range(5):
            # Handshakes that end leave room for others.
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            writer.close()
            while server.count:
                await asyncio.sleep(0.01)
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(peer("127.0.0.1", port)) for _ in range(4)]
            assert await asyncio.wait_for(peers[3].is_closed(), 60)
        server.stop()
        await asyncio.wait_for(running, 60)

    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        asyncio.run(dialogue(store))


def test_what_tls_cannot_be_spoken_with_is_said(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    nothing = tmp_path / "nothing.pem"
    for cert, key in ((nothing, certificate[1]), (certificate[0], nothing), certificate[::-1]):
        with pytest.raises(TlsUnusable):
            tls_context(cert, key)
    nothing.write_bytes(b"-----BEGIN CERTIFICATE-----\n\xff\n")
    with pytest.raises(TlsUnusable, match=r"nothing\.pem"):
        tls_context(nothing, certificate[1])
