"""Ctrl-C is heard between two calls of the kernel: so none of them may take long."""

from __future__ import annotations

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
from rmqctl.rows.columns import Source
from rmqctl.rows.exported import exported_columns
from tests.test_engine import test_scanner as logs

#: Seconds of CPU time, which what else runs on the machine does not lengthen.
LONGEST_CALL = 0.2
FILE_SIZE = 40 << 20


class Timed:
    """The kernel, with the longest call of all."""

    def __init__(self, module: ModuleType) -> None:
        self.longest = 0.0
        self.calls = 0
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, type):
            return lambda *given, **named: self._object(found(*given, **named))
        return self._timed(found) if callable(found) else found

    def _object(self, one: Any) -> Any:
        names = [name for name in dir(one) if not name.startswith("_")]
        return SimpleNamespace(**{name: self._timed(getattr(one, name)) for name in names})

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return call(*given, **named)
            finally:
                self.longest = max(self.longest, time.thread_time() - start)
                self.calls += 1

        return timed


@pytest.fixture
def timed(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Timed:
    timed = Timed(compiled)
    monkeypatch.setattr(kernel, "_load", lambda: Kernel(timed, ""))  # type: ignore[arg-type]
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    return timed


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommitLog, ConsumeQueue]:
    """A log of the smallest records that there are, and a queue of all of them."""
    root = tmp_path_factory.mktemp("dense")
    spec = {"topic": b"t", "body": b"", "properties": b"", "sys_flag": 0, "v2": False,
            "queue_id": 0, "queue_offset": 0, "store_timestamp": 1, "crc_error": 0}  # fmt: skip
    record = np.frombuffer(logs.encode(0, spec), np.uint8)
    count = FILE_SIZE // len(record) - 1
    data = np.tile(record, (count, 1))
    places = np.arange(count, dtype=np.int64) * len(record)
    data[:, 28:36] = places.astype(">i8").view(np.uint8).reshape(-1, 8)
    log = logs.write(root, {0: data.tobytes().ljust(FILE_SIZE, b"\0")}, FILE_SIZE)
    units = np.zeros(count, [("place", ">i8"), ("size", ">i4"), ("code", ">i8")])
    units["place"], units["size"] = places, len(record)
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
