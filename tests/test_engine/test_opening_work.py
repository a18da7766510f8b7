"""What opening a store for writing looks at, counted and not timed: a few times its log, however
many records that has."""

from __future__ import annotations

import mmap
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from tests.test_safety.support import Clock, message, small_config

CONFIG = small_config(log=4 << 20, queue=60_000, items=100_000)
#: One opening has several times the records of the other.
FEW, MANY = 4000, 20_000


class Work:
    """Calls of functions, and bytes that are copied out of maps and files."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0

    def of(self, monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> Work:
        """Counts while ``do`` runs."""
        work = self

        class Map(mmap.mmap):
            def __getitem__(self, key: Any) -> Any:
                got = super().__getitem__(key)
                work.bytes += len(got) if isinstance(got, bytes) else 1
                return got

        def pread(descriptor: int, size: int, at: int) -> bytes:
            got = real_pread(descriptor, size, at)
            work.bytes += len(got)
            return got

        def called(frame: FrameType, event: str, argument: object) -> None:
            if event in ("call", "c_call"):
                work.calls += 1

        real_pread = os.pread
        with monkeypatch.context() as patched:
            patched.setattr(mmap, "mmap", Map)
            patched.setattr(os, "pread", pread)
            sys.setprofile(called)
            try:
                do()
            finally:
                sys.setprofile(None)
        return self


def make(root: Path, count: int) -> int:
    """A store of so many small records; the bytes of its log."""
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        messages = (message(number, body=b"x" * 20, keys=0) for number in range(count))
        for results in store.put_stream(messages, flush=False):
            assert all(result.is_ok for result in results)
        return store.max_offset


def open_and_close(root: Path) -> None:
    MessageStore(root, CONFIG, writable=True).close()


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
@pytest.mark.parametrize("lost", ["nothing", "consumequeue", "consumequeue and index"])
def test_opening_looks_at_the_log_a_few_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lost: str, abort: bool
) -> None:
    for count in (FEW, MANY):
        root = tmp_path / f"{count}"
        log_bytes = make(root, count)
        for name in lost.split(" and "):
            shutil.rmtree(root / name, ignore_errors=True)
        if abort:
            (root / "abort").touch()
        work = Work().of(monkeypatch, partial(open_and_close, root))
        # A part of it may be looked at without being copied, and is not counted.
        assert work.bytes < 6 * log_bytes + (4 << 20), f"{work.bytes} of a log of {log_bytes}"
        # Some calls a record, whichever backend scans, and as many of each of the files.
        assert work.calls < 64 * count + 20_000, work.calls
