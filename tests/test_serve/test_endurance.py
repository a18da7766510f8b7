"""What takes minutes of ``serve``: a million frames that are none, a hundred thousand requests with
hostile fields, ten thousand peers that say nothing, and clients that go on for long."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, SerializeType
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.operations.verify import Finding, verify
from rmqctl.serve.processors.request import Served
from rmqctl.serve.processors.table import PROCESSORS, WRITERS
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from rmqctl.serve.wire.header import FrameError
from tests import seeds
from tests.test_serve.dialogue import Dialogue
from tests.test_serve.test_reading import SOUND as ASKED
from tests.test_serve.test_sending import CONFIG, NOW, TOPIC
from tests.test_serve.test_sending import SOUND as SENT

FRAMES, REQUESTS, PEERS = 1_000_000, 100_000, 9_900
#: Of a soak; RMQCTL_SOAK says another number.
SOAK_SECONDS = 600
#: More is growth: the allocator's own rounding, and a few caches that fill, are less.
_ROOM = 16 << 20


def lots() -> random.Random:
    return random.Random(seeds.seed())


# --- frames ---------------------------------------------------------------------------------------


def sound_frames() -> list[bytes]:
    texts = {name: str(value) for name, value in (ASKED | SENT).items()}
    return [
        encode_frame(
            RemotingCommand(code, 7, ext_fields=texts, body=b"x" * 40, serialize_type=kind)
        )
        for code in (RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2)
        for kind in SerializeType
    ]


def mutilated(frame: bytes, chance: random.Random) -> bytes:
    """A frame with some other bytes, cut, or longer; or none at all."""
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(100))
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        # The lengths come first, and are what matters most.
        end = chance.choice((8, 30, len(data)))
        data[chance.randrange(end)] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    if chance.random() < 0.2:
        del data[chance.randrange(len(data)) :]
    return bytes(data)


@pytest.mark.nightly
def test_a_million_frames_that_may_be_none() -> None:
    """Each is commands, or no frame, or not yet one; and nothing of it stays."""
    chance, sound = lots(), sound_frames()
    refused = held = 0
    for number in range(FRAMES):
        if number == FRAMES // 10:
            tracemalloc.start()
        reader = FrameReader()
        data = mutilated(chance.choice(sound), chance)
        try:
            for _ in reader.feed(data):
                pass
        except FrameError:
            refused += 1
        held += reader.pending > 0
        assert reader.pending <= len(data)
        if number == FRAMES // 5:
            # Tracing costs ten times what it watches.
            growth, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert growth < 1 << 20
    assert refused > FRAMES // 10 and held > FRAMES // 100


# --- requests ---------------------------------------------------------------------------------


def hostile(chance: random.Random) -> Any:
    return chance.choice(
        (
            lambda: chance.choice((0, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**64)),
            lambda: chance.randint(-5, 200),
            lambda: chance.choice(("", " ", "orders", "%RETRY%g", "../../etc", "\x1b[31m", "\x00")),
            lambda: chance.choice(
                ("TAGS\1a", "a\1b\2", "DELAY\x0118", "DELAY\x0199", "1e9", "NaN")
            ),
            lambda: chance.choice(("SQL92", "TAG", "a > 1", "((((", "a || b", "true", "٣")),
            lambda: "x" * chance.choice((127, 128, 255, 256, 32_767, 32_768, 70_000)),
            lambda: chance.randbytes(chance.randrange(20)).decode("latin-1"),
        )
    )()


@pytest.mark.nightly
def test_a_hundred_thousand_requests_with_hostile_fields(tmp_path: Path) -> None:
    """Each is answered, waits, or closes its connection; the store stays sound."""
    chance, root = lots(), tmp_path / "store"
    codes = sorted({*PROCESSORS, *WRITERS})
    fields = ASKED | SENT
    with WritableStore(root, CONFIG, create=True, clock=lambda: NOW) as store:
        (root / "config").mkdir(exist_ok=True)
        topics = json.dumps({"topicConfigTable": {"orders": TOPIC}})
        (root / "config/topics.json").write_text(topics)
        dialogue = Dialogue(Served.of(store, broker_name="b", cluster_name="c"))
        client = dialogue.client()
        for number in range(REQUESTS):
            changed = {name: hostile(chance) for name in chance.sample(sorted(fields), 3)}
            body = chance.choice((b"", b"{}", b"[[[", b'{"mqSet":[1]}', chance.randbytes(60)))
            code = chance.choice(codes) if chance.random() < 0.95 else chance.randint(-1, 400)
            client.send(code, body, **fields | changed)
            assert dialogue.troubles == [], (code, changed, body)
            client.answers.clear()
            if number % 1000 == 999:
                dialogue.wait(1000)
            if client.closed or number % 50 == 49:
                dialogue.do(dialogue.broker.lost(client.number))
                del dialogue.clients[client.number]
                client = dialogue.client(chance.choice(list(SerializeType)))
        dialogue.do(dialogue.broker.lost(client.number))
        assert len(dialogue.served.parked) == 0
    found = {one.code for one in verify(root, CONFIG) if isinstance(one, Finding)}
    # Who says falsely that a body is compressed is believed by a broker, too.
    assert found <= {"message-not-decodable"}


# --- a server in a process of its own -------------------------------------------------------------


class Serving:
    """``rmqctl serve`` on a new store, and how much memory is its own."""

    def __init__(self, process: subprocess.Popen[bytes], place: tuple[str, int]) -> None:
        self.place = place
        self._process = process

    def memory(self) -> int:
        """Bytes that no file is behind."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) << 10

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120)


@contextmanager
def serving(base: Path) -> Iterator[Serving]:
    root, said = base / "store", base / "said"
    MessageStore(root, writable=True, create=True).close()
    command = [sys.executable, "-m", "rmqctl", "serve", "--listen", "127.0.0.1:0"]
    line = [*command, "--store", str(root), "--format", "ndjson"]
    with (
        said.open("wb") as errors,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            assert process.stdout is not None
            host, _, port = json.loads(process.stdout.readline())["address"].rpartition(":")
            yield Serving(process, (host, int(port)))
        finally:
            process.kill()
    assert "Traceback" not in said.read_text()


class Peer:
    """One connection that waits for each answer."""

    def __init__(self, place: tuple[str, int]) -> None:
        self._reader = FrameReader()
        self._socket = socket.create_connection(place, 120)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        self._socket.sendall(encode_frame(RemotingCommand(code, 1, ext_fields=texts, body=body)))
        while True:
            data = self._socket.recv(1 << 16)
            assert data, "the connection was closed"
            for answer in self._reader.feed(data):
                return answer


@pytest.mark.nightly
def test_ten_thousand_peers_that_say_nothing(tmp_path: Path) -> None:
    """Others do not notice them; and when they are gone nothing is left of them."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < PEERS + 1000:
        pytest.skip(f"a process may open {most} files here, and {PEERS} connections are wanted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with serving(tmp_path) as server:
        before, memory = server.descriptors(), server.memory()
        with ExitStack() as silent:
            for _ in range(PEERS):
                silent.enter_context(socket.create_connection(server.place, 120))
            with Peer(server.place) as one:
                for _ in range(100):
                    assert one.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
            assert server.descriptors() >= before + PEERS
            # Thirty kilobytes each: what is promised of a thousand peers that speak is 300 MB.
            assert server.memory() - memory < 300 << 20
        end = time.monotonic() + 120
        while server.descriptors() > before + 1:
            assert time.monotonic() < end, "connections are left"
            time.sleep(0.05)
        assert server.stop() == 0


class Traffic:
    """Clients that send and pull, and come and go, until they are told to stop."""

    def __init__(self, place: tuple[str, int]) -> None:
        self.sent = self.pulled = 0
        self.problems: list[BaseException] = []
        self._place = place
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(4)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self, queue_id: int) -> None:
        try:
            offset = 0
            while not self._done.is_set():
                with Peer(self._place) as own:
                    offset = self._talk(own, queue_id, offset)
        except BaseException as problem:
            self.problems.append(problem)

    def _talk(self, own: Peer, queue_id: int, offset: int) -> int:
        """Two hundred messages, each of which is pulled then; where the next one will be."""
        fields: dict[str, Any] = {
            "a": "p",
            "b": "orders",
            "c": "TBW102",
            "d": 4,
            "f": 0,
            "g": 5,
            "h": 0,
        }
        mine: dict[str, Any] = {"topic": "orders", "queueId": queue_id, "consumerGroup": "workers"}
        for _ in range(200):
            if self._done.is_set():
                break
            told = own.ask(
                RequestCode.SEND_MESSAGE_V2, b"x" * 100, **fields, e=queue_id, i="KEYS\1k"
            )
            assert told.code == 0, told.remark
            self.sent += 1
            pull: dict[str, Any] = {
                "queueOffset": offset,
                "maxMsgNums": 32,
                "sysFlag": 4,
                "commitOffset": 0,
            }
            more: dict[str, Any] = {"suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
            got = own.ask(RequestCode.PULL_MESSAGE, **mine, **pull, **more)
            assert got.code == 0, got.remark
            assert int(got.ext_fields["nextBeginOffset"]) == offset + 1
            offset += 1
            self.pulled += 1
        own.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **mine, commitOffset=offset)
        return offset


@pytest.mark.nightly
def test_a_soak_without_growth(tmp_path: Path) -> None:
    """Memory and descriptors are after the second half what they were before it."""
    seconds = int(os.environ.get("RMQCTL_SOAK", SOAK_SECONDS))
    with serving(tmp_path) as server:
        traffic = Traffic(server.place)
        try:
            seen = []
            for _ in range(2):
                most = 0
                end = time.monotonic() + seconds / 2
                while time.monotonic() < end and not traffic.problems:
                    time.sleep(min(1, seconds / 20))
                    most = max(most, server.memory())
                seen.append((most, server.descriptors(), traffic.sent))
        finally:
            traffic.stop()
        assert traffic.problems == []
        print(f"memory, descriptors, messages of each half: {seen}")
        assert server.stop() == 0
    (before, descriptors, _), (after, descriptors_after, sent) = seen
    assert after - before < _ROOM, seen
    # Four come and go, and a file of the log, of a queue or of the index may have come.
    assert descriptors_after - descriptors < 30, seen
    assert traffic.pulled == traffic.sent >= sent > 0
    with MessageStore(tmp_path / "store") as store:
        queues = [store.consume_queue("orders", n) for n in range(4)]
        assert sum(one.max_offset for one in queues if one is not None) == traffic.sent
