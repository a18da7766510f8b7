"""Ctrl-C is heard between two calls of the kernel: so none of them may take long, and a command
ends soon after."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rmqctl import kernel
from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.read.getmessage import TransferLimits
from rmqctl.engine.read.lines import LinesOfPulls, line_maker
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.choice import Choice
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.kernel import Kernel
from rmqctl.operations.look.export import StoreToExport, export
from rmqctl.operations.look.lines import wanted_lines
from rmqctl.operations.look.walk import Selection, commit_log_lines
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from rmqctl.rows.columns import Source
from rmqctl.rows.exported import exported_columns
from tests.processes import Process
from tests.test_engine import test_scanner as logs

#: Seconds of CPU time, which what else runs on the machine does not lengthen.
LONGEST_CALL = 0.2
FILE_SIZE = 40 << 20
#: A store time (ms) without a finding, of which there would be one a record.
NOW = 1_700_000_000_000


class Timed:
    """The kernel, with the longest call of all."""

    def __init__(self, module: ModuleType) -> None:
        self.longest = 0.0
        self.calls = 0
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, type):
            return lambda *given, **named: _TimedObject(self, found(*given, **named))
        return self.of(found)

    def of(self, found: Any) -> Any:
        """What a name of the kernel's stands for, timed when it can be called."""
        return self._timed(found) if callable(found) else found

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return call(*given, **named)
            finally:
                self.longest = max(self.longest, time.thread_time() - start)
                self.calls += 1

        return timed


class _TimedObject:
    """An object of the kernel's whose methods are timed."""

    def __init__(self, timed: Timed, one: Any) -> None:
        self._all, self._one = timed, one

    def __getattr__(self, name: str) -> Any:
        return self._all.of(getattr(self._one, name))


@pytest.fixture
def timed(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Timed:
    timed = Timed(compiled)
    monkeypatch.setattr(kernel, "_load", lambda: Kernel(timed, ""))  # type: ignore[arg-type]
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    return timed


def small_records(body: bytes, properties: bytes, file_size: int) -> tuple[bytes, int]:
    """A file of records of one queue, and how long each of them is."""
    spec = {"topic": b"t", "body": body, "properties": properties, "sys_flag": 0, "v2": False,
            "queue_id": 0, "queue_offset": 0, "store_timestamp": NOW, "crc_error": 0}  # fmt: skip
    record = np.frombuffer(logs.encode(0, spec), np.uint8)
    data = np.tile(record, (file_size // len(record) - 1, 1))
    numbers = np.arange(len(data), dtype=np.int64)
    for at, column in ((20, numbers), (28, numbers * len(record))):
        data[:, at : at + 8] = column.astype(">i8").view(np.uint8).reshape(-1, 8)
    return data.tobytes().ljust(file_size, b"\0"), len(record)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommitLog, ConsumeQueue]:
    """A log of the smallest records that there are, and a queue of all of them."""
    root = tmp_path_factory.mktemp("dense")
    data, size = small_records(b"", b"", FILE_SIZE)
    log = logs.write(root, {0: data}, FILE_SIZE)
    count = FILE_SIZE // size - 1
    units = np.zeros(count, [("place", ">i8"), ("size", ">i4"), ("code", ">i8")])
    units["place"], units["size"] = np.arange(count) * size, size
    queue = root / "queue"
    queue.mkdir()
    (queue / f"{0:020d}").write_bytes(units.tobytes())
    return log, ConsumeQueue(queue, "t", 0, units.nbytes)


def test_a_walk(dense: tuple[CommitLog, ConsumeQueue], timed: Timed) -> None:
    log, _ = dense
    store: Any = SimpleNamespace(commit_log=log, min_offset=0)
    for what in (Selection(), Selection(topic="other")):
        for _ in commit_log_lines(store, what, "utf8", "ndjson"):
            pass
    assert timed.calls > 40 and timed.longest < LONGEST_CALL


def test_pulls(dense: tuple[CommitLog, ConsumeQueue], timed: Timed) -> None:
    log, queue = dense
    store: Any = SimpleNamespace(commit_log=log, max_offset=FILE_SIZE)
    limits = TransferLimits(MessageStoreConfig(), 32)
    wanted = wanted_lines("csv", "utf8")
    for tag in ("*", "other"):
        maker = line_maker(wanted)
        assert maker is not None
        pulls, offset = LinesOfPulls(maker, wanted, store, limits, TagFilter(tag)), 0
        while (lines := pulls(queue, offset, 1 << 30)) is not None:
            offset = lines.end_offset
        assert offset > 400_000
    assert timed.calls > 40 and timed.longest < LONGEST_CALL


def test_a_check(dense: tuple[CommitLog, ConsumeQueue], timed: Timed) -> None:
    log, _ = dense
    for entry in Scanner(log, check=True).scan():
        assert not isinstance(entry, Batch) or entry.crc_matches.all()
    assert timed.calls > 10 and timed.longest < LONGEST_CALL


def test_an_export(dense: tuple[CommitLog, ConsumeQueue], timed: Timed, tmp_path: Path) -> None:
    log, _ = dense
    store: Any = SimpleNamespace(commit_log=log, min_offset=0, max_offset=FILE_SIZE)
    one = StoreToExport(store, Source("/store", "broker"))
    export([one], exported_columns("queue_offset,body"), tmp_path / "to", "csv", Choice())
    assert timed.calls > 20 and timed.longest < LONGEST_CALL


def store_of(root: Path, properties: bytes, file_size: int) -> Path:
    """A store of small records with a log and nothing else."""
    (root / "commitlog").mkdir(parents=True)
    data, _ = small_records(b"b", properties, file_size)
    (root / "commitlog" / f"{0:020d}").write_bytes(data)
    return root


@pytest.mark.parametrize("properties", [b"KEYS\1k", b"DELAY\13"], ids=["plain", "not-plain"])
def test_a_rebuild(properties: bytes, timed: Timed, tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", properties, FILE_SIZE)
    plan = plan_rebuild(root, MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE), "all")
    summary = rebuild_to(plan, tmp_path / "new")
    assert summary.records == summary.units > 350_000
    assert timed.calls > 10 and timed.longest < LONGEST_CALL


#: Bytes of a log, CPU seconds after which each command is in the middle of it, and after
#: which an interrupted one must have ended.
LONG_LOG, IN_THE_MIDDLE, SOON = 256 << 20, 0.04, 0.3
#: It counts its own time: who looks from outside may be too late on a machine that is busy.
INTERRUPTED = f"""
import os, signal
from rmqctl.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored below a nohup.
signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGINT))
signal.setitimer(signal.ITIMER_PROF, {IN_THE_MIDDLE})
raise SystemExit(main())
"""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of(tmp_path_factory.mktemp("long") / "store", b"a\1b", LONG_LOG)


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--jobs", "2"),
        ("verify", "--jobs", "1", "--only", "commitlog"),
        ("rebuild", "all", "--output", "new"),
        ("walk", "commitlog", "--topic", "other", "--format", "ndjson"),
    ],
    ids=["verify", "verify-log", "rebuild", "walk"],
)
@pytest.mark.usefixtures("compiled")
def test_ctrl_c(command: tuple[str, ...], long: Path, tmp_path: Path) -> None:
    process = Process("-c", INTERRUPTED, *command, "--store", str(long), cwd=tmp_path)
    while not has_ended(process.pid):
        time.sleep(0.002)
    spent = cpu_seconds(process.pid) - IN_THE_MIDDLE
    assert process.wait() == 130, "it has ended before it was interrupted"
    assert spent < SOON
    assert not list(tmp_path.iterdir())


def has_ended(pid: int) -> bool:
    """Whether a process has ended, so long as nobody has waited for it."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] == "Z"


def cpu_seconds(pid: int) -> float:
    """What a process has taken of all processors, so long as nobody has waited for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
