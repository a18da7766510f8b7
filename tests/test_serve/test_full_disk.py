"""``serve`` on a file system that fills up, as a process with clients: what was acknowledged is
there, what cannot be stored is refused, and everything that reads goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.engine.state import brokerjson
from rmqctl.operations.verify import INFO, Finding, verify
from rmqctl.serve.wire.command import RemotingCommand
from tests import processes
from tests.simulation.clients import records
from tests.test_safety.test_disk_full import fill, mounted
from tests.test_serve.test_endurance import Peer
from tests.test_serve.test_ha import SEND

QUEUES, GROUP = 2, "workers"
CONF = """
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=400
maxHashSlotNum=50
maxIndexNum=200
maxMessageSize=16384
"""
CONFIG = parse_broker_conf(CONF)


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    disk = tmp_path / "disk"
    if os.geteuid() != 0:
        pytest.skip("no right to mount a file system here (needs root)")
    if request.param == "tmpfs":
        if not mounted(disk, "size=2m,nr_inodes=300"):
            pytest.skip("no tmpfs can be mounted here")
    elif not loop_mounted(tmp_path / "image", disk):
        pytest.skip("no image of ext4 can be made, or mounted, here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def loop_mounted(image: Path, disk: Path) -> bool:
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(6 << 20)
    commands = (
        ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)],
        ["mount", "-o", "loop", str(image), str(disk)],
    )
    try:
        return all(not subprocess.run(one, capture_output=True).returncode for one in commands)
    except FileNotFoundError:
        return False


class Serving:
    """``rmqctl serve`` as a process; ``told`` is what it has said so far, ``rows`` what it printed
    at its end."""

    def __init__(self, process: processes.Process) -> None:
        host, _, port = json.loads(process.stdout.readline())["address"].rpartition(":")
        self.place = host, int(port)
        self.rows: list[dict[str, Any]] = []
        self._process, self._told = process, b""
        os.set_blocking(process.stderr.fileno(), False)

    @property
    def told(self) -> str:
        if not self._process.stderr.closed:
            self._told += self._process.stderr.read() or b""
        return self._told.decode()

    def stop(self, number: int = signal.SIGTERM) -> int:
        os.kill(self._process.pid, number)
        self.rows = [json.loads(line) for line in self._process.stdout]
        assert "Traceback" not in self.told and "a bug in" not in self.told
        return self._process.wait()


@contextmanager
def serving(root: Path, base: Path, *options: str) -> Iterator[Serving]:
    conf = base / "broker.conf"
    conf.write_text(CONF)
    here = ("--store", str(root), "--broker-conf", str(conf), "--format", "ndjson")
    process = processes.Process("rmqctl", "serve", "--listen", "127.0.0.1:0", *here, *options)
    try:
        yield Serving(process)
    finally:
        if not process.stdout.closed:
            process.kill()
            process.wait()


class Client:
    """Sends and reads; ``sent`` are the bodies that were acknowledged, by their places."""

    def __init__(self, peer: Peer, sent: dict[tuple[int, int], bytes]) -> None:
        self._peer, self.sent = peer, sent

    def send(self, count: int, size: int = 900, **more: str) -> list[RemotingCommand]:
        """The answers of those that were refused."""
        refused = []
        for number in range(count):
            body = b"%d " % number * (size // 4)
            fields = SEND | {"e": number % QUEUES} | more
            answer = self._peer.ask(RequestCode.SEND_MESSAGE_V2, body, **fields)
            if answer.code == ResponseCode.SUCCESS:
                place = int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
                assert place not in self.sent
                self.sent[place] = body
            else:
                refused.append(answer)
        return refused

    def seen(self) -> dict[tuple[int, int], bytes]:
        """What consumers get."""
        found: dict[tuple[int, int], bytes] = {}
        for queue_id in range(QUEUES):
            offset, answer = 0, self._pull(queue_id, 0)
            while answer.code == ResponseCode.SUCCESS:
                for record, body in records(answer.body):
                    found[queue_id, record.queue_offset] = body
                offset = int(answer.ext_fields["nextBeginOffset"])
                answer = self._pull(queue_id, offset)
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer
        return found

    def _pull(self, queue_id: int, offset: int) -> RemotingCommand:
        fields: dict[str, Any] = {
            "topic": "orders", "queueId": queue_id, "consumerGroup": GROUP, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subscription": "*", "subVersion": 0,
        }  # fmt: skip
        return self._peer.ask(RequestCode.PULL_MESSAGE, **fields)

    def commit(self, offset: int) -> None:
        place: dict[str, Any] = {"topic": "orders", "queueId": 0, "consumerGroup": GROUP}
        told = self._peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=offset)
        assert told.code == ResponseCode.SUCCESS
        asked = self._peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, **place)
        assert asked.ext_fields["offset"] == str(offset)


def made_store(disk: Path) -> Path:
    root = disk / "store"
    MessageStore(root, CONFIG, writable=True, create=True).close()
    return root


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "it has not come to pass"
        time.sleep(0.02)


def assert_refused(refused: list[RemotingCommand]) -> None:
    """As by a broker, which has another code for a file that cannot be made."""
    told = {(one.code, (one.remark or "").partition(":")[0]) for one in refused}
    assert told and told <= {
        (ResponseCode.SERVICE_NOT_AVAILABLE, "SERVICE_NOT_AVAILABLE"),
        (ResponseCode.SYSTEM_ERROR, "CREATE_MAPEDFILE_FAILED"),
    }
    assert all("No space left on device" in (one.remark or "") for one in refused)
    # Where the store is is not for clients.
    assert not [one for one in refused if "/store/" in (one.remark or "")]


def assert_sound(root: Path) -> None:
    assert not (root / "abort").exists()
    found = [one for one in verify(root, CONFIG) if isinstance(one, Finding)]
    assert [one for one in found if one.severity != INFO] == []


@pytest.mark.parametrize(("flush", "leave"), [("sync", 40_000), ("async", 0)])
def test_a_disk_that_fills_up_and_is_freed(
    small_disk: Path, tmp_path: Path, flush: str, leave: int
) -> None:
    """Nobody has to start the server anew."""
    root = made_store(small_disk)
    with serving(root, tmp_path, "--flush", flush) as server, Peer(server.place) as peer:
        client = Client(peer, {})
        assert client.send(20) == []
        filler = fill(small_disk, leave)
        assert_refused(client.send(250))
        assert_refused(Client(peer, {}).send(2, b="of-today"))
        assert client.seen() == client.sent
        assert server.told.count("messages are refused: ") == 1
        client.commit(5)
        wait_for(lambda: "consumerOffset.json is not written" in server.told)
        assert client.seen() == client.sent
        filler.unlink()
        assert client.send(20) == []
        assert Client(peer, {}).send(2, b="of-today") == []
        assert client.seen() == client.sent
        assert server.stop() == 0
    assert_sound(root)
    for name, what in ((brokerjson.CONSUMER_OFFSET, GROUP), (brokerjson.TOPICS, "of-today")):
        assert what in (root / "config" / name).read_text()
    with serving(root, tmp_path, "--read-only") as server, Peer(server.place) as peer:
        assert Client(peer, {}).seen() == client.sent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_while_its_disk_is_full(
    small_disk: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """It is read while that is so; and when there is room again it goes on."""
    root = made_store(small_disk)
    with serving(root, tmp_path) as server, Peer(server.place) as peer:
        client = Client(peer, {})
        assert client.send(20) == []
        filler = fill(small_disk, 20_000)
        assert_refused(client.send(250))
        client.commit(5)
        code = server.stop(number)
    assert code == (1 if number == signal.SIGTERM else -signal.SIGKILL)
    assert (root / "abort").exists() == (number == signal.SIGKILL)
    if number == signal.SIGTERM:
        assert "consumerOffset.json is not written" in server.told
        # What no file could take is printed.
        (told,) = [row for row in server.rows if row["type"] == "committed_offset"]
        assert (told["group"], told["stored_offset"], told["committed_offset"]) == (GROUP, None, 5)
    sent = client.sent
    with serving(root, tmp_path, "--read-only") as server, Peer(server.place) as peer:
        assert Client(peer, {}).seen() == sent
        assert server.stop() == 0
    filler.unlink()
    with serving(root, tmp_path) as server, Peer(server.place) as peer:
        client = Client(peer, sent)
        assert client.seen() == sent
        assert client.send(20) == []
        assert client.seen() == client.sent
        assert server.stop() == 0
    assert_sound(root)
