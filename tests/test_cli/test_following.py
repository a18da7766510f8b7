"""``--follow`` beside a writer in its own process: rolls, kills, Ctrl-C, a reader that goes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore

from .conftest import BROKER_CONF, CONFIG, message

WALK = ("walk", "commitlog", "--body-as", "utf8")
PULL = ("pull", "--topic", "orders", "--queue-id", "0", "--body-as", "utf8")
#: Puts messages `first` to `last` into a store, a bulk of some at a time.
WRITER = """
import sys, time
from rmqctl.engine.messagestore import MessageStore
from tests.test_cli.conftest import CONFIG, message
root, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with MessageStore(root, CONFIG, writable=True, create=True) as store:
    for number in range(first, last, 5):
        some = [message(n, queue_id=0) for n in range(number, min(number + 5, last))]
        store.put_messages(some, flush=False)
        print(number + 5, flush=True)
        time.sleep(0.002)
    sys.stdin.read()
"""
TOP = Path(__file__).parents[2]


class Follower:
    """A following command; rows are read as they come."""

    def __init__(self, store: Path, *arguments: str, format: str = "ndjson") -> None:
        conf = store.parent / "broker.conf"
        conf.write_text(BROKER_CONF)
        line = [*arguments, "--follow", "--interval", "0.02", "--store", str(store)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rmqctl", *line, "--broker-conf", str(conf), "--format", format],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=TOP,
        )
        self._rest = b""

    def until(self, sign: bytes) -> None:
        """Reads on until a sign is there, when it comes in time."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + 100
        while sign not in self._rest:
            left = deadline - time.monotonic()
            assert left > 0, f"{sign!r} did not come"
            if select.select([self.process.stdout], [], [], left)[0]:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                assert data, f"the command ended: {self.errors()}"
                self._rest += data

    def line(self) -> str:
        self.until(b"\n")
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def rows(self, count: int, kind: str = "message") -> list[dict[str, Any]]:
        """The next rows of a type; others are passed over."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            row = json.loads(self.line())
            if row["type"] == kind:
                found.append(row)
        return found

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def end(self, number: int = signal.SIGINT) -> tuple[int, dict[str, Any], str]:
        """Signals it; exit code, the last row, and stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=100)
        last = (self._rest + out).decode().splitlines()[-1]
        return self.process.returncode, json.loads(last), err.decode()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one message, so that the commands have something to open."""
    path = tmp_path / "store"
    with MessageStore(path, CONFIG, writable=True, create=True) as opened:
        opened.put_message(message(0, queue_id=0))
    return path


@pytest.fixture
def writers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def write(
    writers: list[subprocess.Popen[bytes]], store: Path, first: int, last: int
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store), str(first), str(last)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=TOP,
    )
    writers.append(process)
    return process


def bodies(count: int, start: int = 0) -> list[str]:
    return [f"body {number}" for number in range(start, count)]


@pytest.mark.parametrize("command", [WALK, PULL], ids=["walk", "pull"])
def test_everything_that_a_writer_puts_is_printed_once_and_in_order(
    command: tuple[str, ...], store: Path, writers: list[subprocess.Popen[bytes]]
) -> None:
    follower = Follower(store, *command)
    write(writers, store, 1, 400)
    rows = follower.rows(400)
    assert [row["body"] for row in rows] == bodies(400)
    assert [row["queue_offset"] for row in rows] == list(range(400))
    assert rows[-1]["physical_offset"] > 20 * CONFIG.mapped_file_size_commit_log
    code, summary, errors = follower.end()
    assert (code, errors) == (130, "")
    assert (summary["type"], summary["messages"], summary["moves"]) == ("summary", 400, 0)


def test_a_writer_that_is_killed_and_comes_back_is_followed(
    store: Path, writers: list[subprocess.Popen[bytes]]
) -> None:
    log, queue = Follower(store, *WALK), Follower(store, *PULL)
    killed = write(writers, store, 1, 10_000)
    assert killed.stdout is not None
    for _ in range(20):
        assert killed.stdout.readline()
    killed.kill()
    killed.wait()
    with MessageStore(store, CONFIG, writable=True) as again:
        found = again.queues.find("orders", 0)
        assert found is not None
        count = found.max_offset
        again.put_messages([message(n, queue_id=0) for n in range(20_000, 20_010)])
    wanted = bodies(count) + bodies(20_010, 20_000)
    for follower in (log, queue):
        assert [row["body"] for row in follower.rows(len(wanted))] == wanted
        code, summary, errors = follower.end(signal.SIGTERM)
        assert (code, summary["messages"], errors) == (130, len(wanted), "")


def test_from_the_end_to_a_number_of_messages(store: Path) -> None:
    # With a filter blanks are no rows.
    log = Follower(store, *WALK, "--topic", "orders", "--from-end", "--limit", "2")
    queue = Follower(store, *PULL, "--from-end", "--max-messages", "2")
    number = 100
    deadline = time.monotonic() + 100
    # They start in their own time: messages come until they have seen enough.
    while any(f.process.poll() is None for f in (log, queue)) and time.monotonic() < deadline:
        with MessageStore(store, CONFIG, writable=True) as writer:
            writer.put_message(message(number, queue_id=0))
        number += 1
        time.sleep(0.05)
    for follower in (log, queue):
        out, _ = follower.process.communicate(timeout=100)
        first, second, summary = map(json.loads, out.decode().splitlines())
        assert first["queue_offset"] >= 1
        assert second["queue_offset"] == first["queue_offset"] + 1
        assert (follower.process.returncode, summary["messages"]) == (0, 2)


def test_an_end_that_moves_back_is_told_on_stderr(store: Path) -> None:
    with MessageStore(store, CONFIG, writable=True) as writer:
        offset = writer.max_offset
        writer.put_message(message(1, queue_id=0))
    follower = Follower(store, *WALK)
    follower.rows(2)
    log = store / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(1000))
    (moved,) = follower.rows(1, "moved")
    assert (moved["reason"], moved["to_offset"]) == ("end-moved-back", offset)
    code, summary, errors = follower.end()
    assert (code, summary["moves"], summary["next_offset"]) == (130, 1, offset)
    assert "the end moved back" in errors
    assert str(offset) in errors


def test_a_reader_that_goes_ends_it_quietly(store: Path) -> None:
    follower = Follower(store, *PULL)
    follower.rows(1)
    assert follower.process.stdout is not None
    follower.process.stdout.close()
    assert follower.process.wait(timeout=100) == 0
    assert follower.errors() == ""


@pytest.mark.parametrize("format", ["table", "csv", "json"])
def test_other_formats_hand_each_row_over(format: str, store: Path) -> None:
    follower = Follower(store, *PULL, format=format)
    follower.until(b"body 0")
    follower.process.send_signal(signal.SIGINT)
    out, err = follower.process.communicate(timeout=100)
    assert (follower.process.returncode, err) == (130, b"")
    text = (follower._rest + out).decode()
    assert ("summary" in text) is (format != "csv")


def test_following_changes_nothing(store: Path) -> None:
    from .conftest import state

    before = state(store)
    follower = Follower(store, *WALK)
    follower.rows(1)
    follower.end()
    assert state(store) == before
