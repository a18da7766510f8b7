"""Lines of pulls that a second thread makes: they are those that one thread makes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmqctl import kernel
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.lines import Lines, LinesOfPulls
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.look.pull import pull, pull_lines

pytestmark = pytest.mark.usefixtures("compiled")

COUNT = 6000


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.VARIABLE, "compiled")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue of messages of all sizes: of some 32 are more than an answer holds. The bodies of two
    are not what was stored, and the properties of two are no UTF-8."""
    root = tmp_path_factory.mktemp("ahead") / "store"
    choose = random.Random(3)
    bodies = [b"body %d " % n + b"x" * (choose.random() < 0.02) * 30_000 for n in range(COUNT)]
    messages = [
        MessageExtBrokerInner("t", body, 0, properties={"TAGS": f"tag{n}", "KEYS": f"key{n}"})
        for n, body in enumerate(bodies)
    ]
    with MessageStore(root, writable=True, create=True) as store:
        assert sum(len(bulk) for bulk in store.put_stream(messages)) == COUNT
        store.flush()
    log = root / "commitlog" / "00000000000000000000"
    with log.open("r+b") as file:
        head = file.read(8 << 20)
        for number in (2900, 5100):
            file.seek(head.index(b"body %d " % number))
            file.write(b"B")
        for number in (3777, 4444):
            file.seek(head.index(b"tag%d" % number))
            file.write(b"\xff")
    return root


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each piece had that the second thread made."""
    counts: list[int] = []
    call = LinesOfPulls.__call__

    def counted(self: LinesOfPulls, queue: Any, offset: int, most: int) -> Lines | None:
        known = self._following
        made = call(self, queue, offset, most)
        if known is not None and made is known[1]:
            counts.append(made.messages)
        return made

    monkeypatch.setattr(LinesOfPulls, "__call__", counted)
    return counts


def lines_of(store: MessageStore, offset: int, most: int, **more: Any) -> list[Any]:
    rows: list[Any] = []
    asked: dict[str, Any] = {"max_messages": most, "body": "utf8", **more}
    for row in pull_lines(store, "t", 0, offset, form="ndjson", **asked):
        if isinstance(row, Lines):
            rows += [json.loads(line) for line in bytes(row.data).splitlines()]
        else:
            rows.append(json.loads(json.dumps(row)))
    return rows


@pytest.mark.parametrize("most", [511, 600, 1057, 2000, 3808, 4448, 5999, 6000, 6001, 9999])
def test_they_are_those_of_one_thread(root: Path, most: int, taken: list[int]) -> None:
    with MessageStore(root) as store:
        for offset in (0, 1, 1500, 4000):
            told = lines_of(store, offset, most)
            rows = pull(store, "t", 0, offset, max_messages=most, body="utf8")
            assert told == [json.loads(json.dumps(row)) for row in rows]


def test_a_second_thread_makes_half_of_many(
    root: Path, taken: list[int], compiled: ModuleType
) -> None:
    if not compiled.stores_behind():
        pytest.skip("one processor has no second thread")
    with MessageStore(root) as store:
        # Not where it has not begun when the first one is done, as on a busy machine.
        assert any(lines_of(store, 0, COUNT) and taken for _ in range(500))
        assert max(taken) >= 256
        # Which messages tags leave nobody knows before.
        taken.clear()
        lines_of(store, 0, COUNT, tag="tag1||tag2")
        assert not taken


@pytest.mark.parametrize(
    ("thread", "rows"),
    [
        ("lines", 'pull_lines(store, "t", 0, 0, form="csv", max_messages=6000)'),
        ("keys", 'query_keys(store, "t", (f"key{n}" for n in range(6000)), form="csv")'),
    ],
)
def test_nobody_waits_for_a_second_thread_that_gets_no_processor(
    root: Path, thread: str, rows: str
) -> None:
    """What it had to do the first one does then, and nothing holds a file when that is done."""
    script = """
import os, sys
from contextlib import suppress
from pathlib import Path
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.lines import Lines
from rmqctl.kernel._kernel import stores_behind
from rmqctl.operations.look.keyed import query_keys
from rmqctl.operations.look.pull import pull_lines

def rows(store):
    return eval(sys.argv[2])

def pulled(store):
    return b"".join(bytes(row.data) for row in rows(store) if isinstance(row, Lines))

def starve():
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # That of the pull before has ended.
            if Path(f"/proc/self/task/{task}/comm").read_text() == sys.argv[3] + "\\n":
                os.sched_setaffinity(int(task), {first})
                os.setpriority(os.PRIO_PROCESS, int(task), 19)
                return True

first, parent = min(os.sched_getaffinity(0)), os.getpid()
busy = os.fork()
if not busy:
    os.sched_setaffinity(0, {first})
    while os.getppid() == parent:
        pass
    os._exit(0)
with MessageStore(Path(sys.argv[1])) as store:
    expected, starved = pulled(store), 0
    for _ in range(30):
        told = b""
        for row in rows(store):
            starved += starve() is True
            told += bytes(row.data) if isinstance(row, Lines) else b""
        assert told == expected
    mapped = store.commit_log.files.find(0)
    mapped.buffer.close()
os.kill(busy, 9)
sys.exit(0 if starved or not stores_behind() else 3)
"""
    done = subprocess.run([sys.executable, "-c", script, str(root), rows, thread], timeout=120)
    assert done.returncode == 0


def test_nothing_holds_a_file_afterwards(root: Path) -> None:
    with MessageStore(root) as store:
        lines_of(store, 0, COUNT)
        mapped = store.commit_log.files.find(0)
        assert mapped is not None
        mapped.buffer.close()  # type: ignore[union-attr]


def test_a_process_that_is_forked_has_no_second_thread(root: Path) -> None:
    """And does not wait for it."""
    script = """
import os, sys
from pathlib import Path
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.look.pull import pull_lines

with MessageStore(Path(sys.argv[1])) as store:
    rows = pull_lines(store, "t", 0, 0, form="csv", max_messages=5000)
    count = sum(next(rows).messages for _ in range(3))
    child = os.fork()
    count += sum(row.messages if isinstance(row, tuple) else 1 for row in rows)
    if child:
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status) or count != 5001)
    os._exit(count != 5001)
"""
    done = subprocess.run([sys.executable, "-c", script, str(root)], timeout=60)
    assert done.returncode == 0
