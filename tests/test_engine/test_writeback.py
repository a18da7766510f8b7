"""Pages of a file that grows, far behind its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.engine.files import writeback
from rmqctl.engine.files.writeback import PagesBehind

Told = list[tuple[str, int, int]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What the system is told, in pieces that a test can count."""
    calls: Told = []
    monkeypatch.setattr(writeback, "_AT_ONCE", 10)
    monkeypatch.setattr(writeback, "_DISTANCES", (50, 100))
    monkeypatch.setattr(
        writeback, "begin_writing", lambda _, start, end: calls.append(("write", start, end))
    )

    def advised(_: int, start: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        calls.append(("forget", start, start + length))

    monkeypatch.setattr(os, "posix_fadvise", advised)
    return calls


def test_few_bytes_stay_as_they_are(told: Told) -> None:
    pages = PagesBehind(-1, 1000)
    for end in range(1000, 1010):
        pages.grown(end)
    assert not told


def test_each_byte_is_written_once_and_forgotten_twice(told: Told) -> None:
    pages = PagesBehind(-1, 7)
    for end in range(7, 408, 5):
        pages.grown(end)
    written = [call[1:] for call in told if call[0] == "write"]
    assert written == [(start, start + 10) for start in range(7, 407, 10)]
    forgotten = [call[1:] for call in told if call[0] == "forget"]
    times = [sum(start <= at < end for start, end in forgotten) for at in range(407)]
    # What was there before stays.
    assert times == [0] * 7 + [2] * 300 + [1] * 50 + [0] * 50


def test_a_system_that_refuses_advice_changes_nothing(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(22, "refused")

    monkeypatch.setattr(os, "posix_fadvise", refused)
    pages = PagesBehind(-1, 0)
    for end in range(0, 400, 20):
        pages.grown(end)
    assert len(told) == 19


def test_a_file_is_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_AT_ONCE", 1 << 16)
    monkeypatch.setattr(writeback, "_DISTANCES", (1 << 17, 1 << 18))
    piece = bytes(range(256)) * 64
    with (tmp_path / "file").open("wb") as file:
        pages = PagesBehind(file.fileno(), 0)
        for number in range(1, 101):
            file.write(piece)
            pages.grown(number * len(piece))
    assert (tmp_path / "file").read_bytes() == piece * 100
