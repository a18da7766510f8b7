"""verify of a store with a file that the disk does not read: it is told, and so is all else."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.errors import CannotRead
from rmqctl.operations.verify import Finding, Summary, run, verify
from tests.test_safety.support import Clock, message, small_config

CONFIG = small_config()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("refused") / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as written:
        for number in range(330):
            assert written.put_message(message(number)).is_ok
    return root


def failed(path: Path) -> CannotRead:
    return CannotRead(path=str(path), reason=os.strerror(errno.EIO))


def refuse_to_open(patch: pytest.MonkeyPatch, refused: Path) -> None:
    real = MappedFile.open.__func__  # type: ignore[attr-defined]

    def opened(cls: type[MappedFile], path: Path, *given: Any) -> MappedFile:
        if path == refused:
            raise failed(path)
        found: MappedFile = real(cls, path, *given)
        return found

    patch.setattr(MappedFile, "open", classmethod(opened))


def refuse_to_read(patch: pytest.MonkeyPatch, refused: Path) -> None:
    real = MappedFile.read_aside

    def read(self: MappedFile, position: int, size: int) -> bytes:
        if self.path == refused:
            raise failed(self.path)
        return real(self, position, size)

    patch.setattr(MappedFile, "read_aside", read)


def checked(root: Path) -> tuple[list[Finding], Summary]:
    *found, summary = verify(root, CONFIG)
    assert isinstance(summary, Summary)
    return [one for one in found if isinstance(one, Finding)], summary


@pytest.mark.parametrize("refuse", [refuse_to_open, refuse_to_read])
@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("directory", ["consumequeue/topic1/0", "index"])
def test_a_file_that_the_disk_does_not_read_is_told(
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    directory: str,
    number: int,
    refuse: Any,
) -> None:
    """Also where nobody is without the right to read it. What it lacks is not said to be missing,
    and another queue's damage is found."""
    sound = checked(store)[1]
    assert sound.is_clean
    refused = sorted((store / directory).iterdir())[number]
    with monkeypatch.context() as patch:
        refuse(patch, refused)
        found, summary = checked(store)
    relative = str(refused.relative_to(store))
    assert [(one.code, one.path) for one in found] == [("unreadable-file", relative)]
    assert found[0].found == "Input/output error" and "disk" in found[0].advice
    assert (summary.records, summary.severities["error"]) == (sound.records, 1)


def test_of_a_queue_that_cannot_be_read_amid_its_check_the_others_are_told(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails when the queue has been opened."""
    from rmqctl.engine.queue.consumequeue import ConsumeQueue

    real, refused = ConsumeQueue.window, store / "consumequeue/topic1/0" / f"{0:020d}"

    def window(self: ConsumeQueue, *given: Any) -> Any:
        if (self.topic, self.queue_id) == ("topic1", 0):
            raise failed(refused)
        return real(self, *given)

    monkeypatch.setattr(ConsumeQueue, "window", window)
    found, _ = checked(store)
    assert [(one.code, one.found) for one in found] == [("unreadable-file", "Input/output error")]


@pytest.mark.parametrize("refuse", [refuse_to_open, refuse_to_read])
@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_a_queue_of_later_stretches_that_the_disk_does_not_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, refuse: Any
) -> None:
    """A stretch looks at a queue before the first record that it has there. It is told by each
    stretch that goes without the queue, once."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as written:
        for at in range(330):
            topic = "late" if at >= 200 else "early"
            assert written.put_message(message(at, topic, 0)).is_ok
    refused = sorted((root / "consumequeue/late/0").iterdir())[number]
    tuning = ScanTuning(batch_records=20, window_bytes=(3000, 3000))
    monkeypatch.setattr(run, "ScanTuning", lambda threads: tuning)
    refuse(monkeypatch, refused)
    start, told, stretches = None, [], 0
    while not stretches or start is not None:
        *found, summary = verify(root, CONFIG, resume_from=start, is_over=lambda: True)
        assert isinstance(summary, Summary)
        told.append([one.code for one in found if isinstance(one, Finding)])
        start, stretches = summary.next_offset, stretches + 1
    assert stretches > 10 and ["unreadable-file"] in told
    assert all(one in ([], ["unreadable-file"]) for one in told)
