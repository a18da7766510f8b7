"""A copy that follows: over lost connections, restarts of its master, kills, and whatever comes."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import RmqctlError
from rmqctl.operations.verify import Finding, verify
from rmqctl.replicate import sockets
from rmqctl.replicate.asker import Target
from rmqctl.replicate.copy import Copy
from rmqctl.replicate.errors import BadLogReceived, MasterRefused, MasterSilent
from rmqctl.replicate.events import Event, Lost
from rmqctl.replicate.keeping import Keep
from rmqctl.replicate.questions import ConfigFile
from rmqctl.replicate.sockets import Replication
from rmqctl.serve.ha.frames import FRAME, REPORT
from tests import processes
from tests.golden_data import tree_content
from tests.ports import free_ports
from tests.test_engine.test_pieces import log_bytes
from tests.test_replicate.live import CONFIG, FILE_SIZE, SAYS, LiveMaster, live

LOCAL = "127.0.0.1"


def same(master: Path, copy: Path) -> None:
    """Log and queues byte by byte, and verify has nothing to say."""
    for name in ("commitlog", "consumequeue"):
        assert tree_content(copy / name) == tree_content(master / name), name
    assert [one for one in verify(copy, CONFIG) if isinstance(one, Finding)] == []


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "it has not come to pass"
        time.sleep(0.01)


class Following:
    """A replication in a thread of its own."""

    def __init__(
        self,
        copy: Path,
        ha_port: int,
        port: int,
        keep: Keep | None = None,
        until_caught_up: bool = False,
    ) -> None:
        self.told: list[Event] = []
        self.failure: RmqctlError | None = None
        target, broker = Target(LOCAL, ha_port), Target(LOCAL, port)
        self.replication = Replication(copy, target, broker, None, self.told.append, keep=keep)
        self._thread = threading.Thread(target=self._run, args=(until_caught_up,))
        self._thread.start()

    def _run(self, until_caught_up: bool) -> None:
        try:
            self.replication.run(until_caught_up=until_caught_up)
        except RmqctlError as error:
            self.failure = error

    def await_end(self, end: int) -> None:
        def has_come() -> bool:
            copy = self.replication.copy
            assert self._thread.is_alive(), self.failure
            return copy is not None and copy.stored >= end

        wait_for(has_come)

    def await_lost(self, times: int) -> None:
        """Waits until it has lost so many connections."""
        wait_for(lambda: sum(isinstance(one, Lost) for one in self.told) >= times)

    def await_failure(self) -> RmqctlError | None:
        self._thread.join(60)
        assert not self._thread.is_alive(), self.told
        return self.failure

    def stop(self) -> RmqctlError | None:
        self.replication.stop()
        self._thread.join(60)
        return self.failure


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_RETRY_SECONDS", 0.05)


@contextmanager
def following(copy: Path, master: LiveMaster) -> Iterator[Following]:
    follower = Following(copy, master.ha_port, master.port)
    try:
        yield follower
    finally:
        failure = follower.stop()
    assert failure is None


def test_it_follows_over_cuts_and_a_restart_of_its_master(tmp_path: Path) -> None:
    root, copy = tmp_path / "master", tmp_path / "copy"
    port, ha_port = free_ports(2)
    with live(root, ports=(port, ha_port)) as master:
        master.put(10)
        follower = Following(copy, ha_port, port)
        for number in range(3):
            master.put(30)
            follower.await_end(master.store.max_offset)
            master.cut()
            follower.await_lost(number + 1)
    try:
        with live(root, ports=(port, ha_port)) as master:
            master.put(20, size=800)
            follower.await_end(master.store.max_offset)
    finally:
        assert follower.stop() is None
    same(root, copy)


@pytest.mark.parametrize("is_gone", [True, False])
def test_who_is_to_end_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """The master goes away, or never gives its files. What has come stays."""
    monkeypatch.setattr(Replication, "_has_caught_up", lambda *_: False)
    root, copy = tmp_path / "master", tmp_path / "copy"
    with live(root) as master:
        master.put(30)
        end = master.store.max_offset
        follower = Following(copy, master.ha_port, master.port, until_caught_up=True)
        follower.await_end(end)
        if not is_gone:
            monkeypatch.setattr(sockets, "_PATIENCE_MINUTES", 0.0)
            failure = follower.await_failure()
    if is_gone:
        follower.await_lost(1)
        monkeypatch.setattr(sockets, "_PATIENCE_MINUTES", 0.0)
        failure = follower.await_failure()
    assert isinstance(failure, MasterSilent)
    assert log_bytes(copy, 0, end) == log_bytes(root, 0, end)
    assert not (copy / "abort").exists()


def test_a_slave_of_a_sync_master_is_waited_for(tmp_path: Path) -> None:
    with live(tmp_path / "master") as master, following(tmp_path / "copy", master) as follower:
        master.put(20)
        end = master.store.max_offset
        follower.await_end(end)
        # Reported is what is on disk, all of it, and no more.
        wait_for(lambda: master.slaves.master.acked >= end)
        assert master.slaves.master.acked == end


def test_a_copy_that_is_killed_goes_on(tmp_path: Path) -> None:
    """At any moment, four times at least, and until some of the log has come: what is there then
    is the beginning of the master's."""
    root, copy, chance = tmp_path / "master", tmp_path / "copy", random.Random(5)
    with live(root) as master:
        arguments = [f"{LOCAL}:{master.ha_port}", "--broker", f"{LOCAL}:{master.port}"]
        stop = threading.Event()

        def put() -> None:
            while not stop.wait(0.01):
                master.put(5, size=300)

        putter = threading.Thread(target=put)
        putter.start()
        try:
            kills = end = 0
            while kills < 4 or (end <= FILE_SIZE and kills < 60):
                kills += 1
                process = processes.Process(
                    "rmqctl", "replicate", *arguments, "--to", str(copy), "--format", "ndjson"
                )
                process.stdout.readline()
                time.sleep(chance.random() * 0.1)
                process.kill()
                assert process.wait() < 0
                assert (copy / "abort").exists()
                with MessageStore(copy, CONFIG) as store:
                    end = store.max_offset
                assert log_bytes(copy, 0, end) == log_bytes(root, 0, end)
        finally:
            stop.set()
            putter.join()
        done = processes.run(
            "rmqctl", "replicate", *arguments, "--to", str(copy), "--until-caught-up", "--verify"
        )
        assert done.returncode == 0, done.stderr
        assert end > FILE_SIZE
    same(root, copy)


# --- masters that are none -------------------------------------------------------------------


@contextmanager
def saying(answer: Callable[[int], bytes]) -> Iterator[int]:
    """A port at which each slave gets some bytes for its first report, and nothing more."""
    with socket.create_server((LOCAL, 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link:
                link.sendall(answer(*REPORT.unpack(link.recv(REPORT.size))))
                link.settimeout(20)
                try:
                    while link.recv(100):
                        pass
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.close()
        thread.join()


def frame(place: int, data: bytes, size: int | None = None) -> bytes:
    return FRAME.pack(place, len(data) if size is None else size) + data


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("enableControllerMode=true", "another form"),
        ("enableDLegerCommitLog=true", "another form"),
        ("storeType=defaultRocksDB", "RocksDB"),
        ("configManagerVersion=v2", "RocksDB"),
        ("", "'orders' has batch queues"),
    ],
)
def test_a_master_whose_log_alone_is_no_copy_is_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, why: str
) -> None:
    if not setting:
        topics = '{"topicConfigTable":{"orders":{"attributes":{"queue.type":"BatchCQ"}}}}'
        monkeypatch.setitem(SAYS, RequestCode.GET_ALL_TOPIC_CONFIG, lambda _: topics)
    with live(tmp_path / "master") as master:
        master.more = f"{setting}\n"
        follower = Following(tmp_path / "copy", master.ha_port, master.port)
        try:
            wait_for(lambda: follower.failure is not None)
        finally:
            failure = follower.stop()
    assert isinstance(failure, MasterRefused) and why in str(failure)
    assert "backup create" in str(failure)
    assert not (tmp_path / "copy").exists()


def test_a_copy_that_has_lost_its_beginning_gets_it_again(tmp_path: Path) -> None:
    """With the power, before anything of it was forced to disk: what is left proves whose copy it
    is, and goes with the rest."""
    root, copy = tmp_path / "master", tmp_path / "copy"
    with live(root) as master:
        master.put(8)
        with following(copy, master) as follower:
            follower.await_end(master.store.max_offset)
        with (copy / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.write(bytes(100))
        (copy / "checkpoint").unlink()
        (copy / "abort").touch()
        with following(copy, master) as follower:
            follower.await_end(master.store.max_offset)
    same(root, copy)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda place: b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame for"),
        (lambda place: frame(place + 1, b"x"), "a frame for"),
        (lambda place: frame(place, b"", 1 << 30), "a frame of 1073741824 bytes"),
        (lambda place: frame(place, b"", -5), "a frame of -5 bytes"),
        (lambda place: frame(place, b"\x7f" * 100), "total-size-out-of-range|bad-magic"),
        (lambda place: frame(place, bytes(200)), "bad-magic"),
    ],
)
def test_what_is_no_log_is_refused(
    tmp_path: Path, answer: Callable[[int], bytes], why: str
) -> None:
    copy = tmp_path / "copy"
    with live(tmp_path / "master") as master:
        master.put(3)
        with following(copy, master) as follower:
            follower.await_end(master.store.max_offset)
        before = tree_content(copy / "commitlog")
        with saying(answer) as port:
            replication = Replication(
                copy, Target(LOCAL, port), Target(LOCAL, master.port), None, lambda event: None
            )
            with pytest.raises(BadLogReceived, match=why):
                replication.run()
    assert tree_content(copy / "commitlog") == before
    assert not (copy / "abort").exists()


def test_the_copy_of_a_broken_file_of_config_stays(tmp_path: Path) -> None:
    """As a loss of power leaves one: its ``.bak`` is what a broker would take."""
    copy = Copy(tmp_path / "copy", CONFIG)
    try:
        config, name, good = tmp_path / "copy/config", "consumerOffset.json", '{"offsetTable":{}}'
        config.mkdir()
        (config / name).write_bytes(bytes(30))
        (config / f"{name}.bak").write_text(good)
        assert copy.write(ConfigFile(name, "{}"))
        assert (config / f"{name}.bak").read_text() == good
        assert copy.write(ConfigFile(name, good))
        assert [(config / one).read_text() for one in (f"{name}.bak", name)] == ["{}", good]
    finally:
        copy.close()
