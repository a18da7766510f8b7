"""Backups of a store that a broker of 5.x is writing: its batch queues, and its timer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.files import paths
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.batchqueue import BATCH_UNIT
from rmqctl.engine.queue.consumequeue import UNIT
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.backup import create as creating
from rmqctl.operations.backup import source
from rmqctl.operations.backup.create import Created, Wanted, create
from rmqctl.operations.backup.restore import plan_restore, restore
from tests import golden_data
from tests.test_safety.support import assert_clean

TOPIC = "BatchTopic"
SAID = json.loads((golden_data.LATER / "batch-queues.json").read_text("utf-8"))
BATCHES = parse_broker_conf("".join(f"{name}={value}\n" for name, value in SAID["config"].items()))

#: What a :class:`Replay` does not write.
NOT_THERE = ("index-missing", "checkpoint-missing")


def live(
    root: Path, output: Path, happens: Callable[[], None], config: MessageStoreConfig
) -> Created:
    """A backup while somebody writes: something happens with each piece that is copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creating, "is_locked", lambda root: True)
        patch.setattr(source, "_DISPATCH_SECONDS", 0.001)
        return create(Wanted(root, config, str(output)), lambda done, total: happens())


def restored(backup: Path, output: Path) -> Path:
    restore(plan_restore([str(backup)], output))
    return output


class Replay:
    """Writes a store again as its broker has written it, record by record: the log, then the units.
    It has no index."""

    def __init__(self, whole: Path, root: Path) -> None:
        self._whole, self._root = whole, root
        with MessageStore(whole, BATCHES) as store:
            walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
        self._ends = [one.physical_offset + one.total_size for one in walked]
        self.shown = 0
        self.end = 0

    def show(self, records: int) -> None:
        """Appends so many records more, if they are there, and their units."""
        self.append(records)
        self.dispatch()

    def append(self, records: int) -> None:
        self.shown = min(self.shown + records, len(self._ends))
        self.end = self._ends[self.shown - 1]
        for path in (self._whole / "commitlog").iterdir():
            start = int(path.name)
            if start < self.end:
                self._write(path, path.read_bytes()[: self.end - start])

    def dispatch(self) -> None:
        for name, layout in ((paths.CONSUME_QUEUE, UNIT), (paths.BATCH_CONSUME_QUEUE, BATCH_UNIT)):
            for path in (self._whole / name).glob("*/*/*"):
                self._show_units(path, layout.size)

    def _show_units(self, path: Path, size: int) -> None:
        data = path.read_bytes()
        units = [data[at : at + size] for at in range(0, len(data), size)]
        shown = [one for one in units if int.from_bytes(one[:8], "big") < self.end and any(one)]
        if shown:
            self._write(path, b"".join(shown))

    def _write(self, path: Path, data: bytes) -> None:
        target = self._root / path.relative_to(self._whole)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if target.exists() else "wb") as file:
            file.truncate(path.stat().st_size)
            file.write(data)


@pytest.fixture
def replay(golden_directory: Path, tmp_path: Path) -> Replay:
    whole = golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)
    made = Replay(whole, tmp_path / "store")
    made.show(20)
    return made


@pytest.mark.parametrize("kind", ["full", "full.tar.zst"])
@pytest.mark.parametrize("at_a_time", [1, 5])
def test_batch_queues_are_cut_where_the_log_is(
    replay: Replay, tmp_path: Path, kind: str, at_a_time: int
) -> None:
    before = replay.end
    made = live(tmp_path / "store", tmp_path / kind, lambda: replay.show(at_a_time), BATCHES)
    head = made.manifest.head
    assert head.physical_offset is not None and before <= head.physical_offset < replay.end
    assert head.dispatched_offset == head.physical_offset
    new = restored(tmp_path / kind, tmp_path / "new")
    assert_clean(new, BATCHES, *NOT_THERE)
    units = 0
    for path in (new / paths.BATCH_CONSUME_QUEUE).glob("*/*/*"):
        data = path.read_bytes()
        assert len(data) == BATCHES.mapper_file_size_batch_consume_queue and data.strip(b"\0")
        stored = [one for one in BATCH_UNIT.iter_unpack(data) if any(one)]
        assert all(offset + size <= head.physical_offset for offset, size, *_ in stored)
        units += len(stored)
    with MessageStore(new, BATCHES) as store:
        assert store.max_offset == head.physical_offset
        walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
    assert units == sum(one.topic == TOPIC for one in walked) > 0


def test_units_of_batch_queues_that_are_not_there_yet_are_waited_for(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end the log has records of batch queues alone."""
    replay.append(3)
    waited = 0

    def sleep(seconds: float) -> None:
        nonlocal waited
        waited += 1
        if waited == 3:
            replay.dispatch()

    monkeypatch.setattr("rmqctl.operations.backup.source.time.sleep", sleep)
    made = live(tmp_path / "store", tmp_path / "full", lambda: None, BATCHES)
    assert waited == 3 and made.manifest.head.dispatched_offset == replay.end
    assert_clean(restored(tmp_path / "full", tmp_path / "new"), BATCHES, *NOT_THERE)


def test_batch_queues_of_a_dispatch_that_stands_still_are_cut_there(
    replay: Replay, tmp_path: Path
) -> None:
    """It goes on when the end of the log and that of the units are noted."""
    dispatched = replay.end
    replay.append(9)
    pieces = 0

    def happens() -> None:
        nonlocal pieces
        pieces += 1
        replay.dispatch()

    made = live(tmp_path / "store", tmp_path / "full", happens, BATCHES)
    head = made.manifest.head
    assert pieces and (head.dispatched_offset, head.physical_offset) == (dispatched, replay.end)
    new = restored(tmp_path / "full", tmp_path / "new")
    assert_clean(new, BATCHES, *NOT_THERE, "not-dispatched")


def test_half_a_unit_of_a_batch_queue_is_not_copied(replay: Replay, tmp_path: Path) -> None:
    """A unit that is being written, of which some bytes are there: its offset seems to lie before
    the end of the log."""
    path = max((tmp_path / "store" / paths.BATCH_CONSUME_QUEUE / TOPIC / "0").iterdir())
    data = path.read_bytes()
    end = -(-len(data.rstrip(b"\0")) // BATCH_UNIT.size) * BATCH_UNIT.size
    assert end < len(data)
    path.write_bytes(data[:end] + replay.end.to_bytes(8, "big")[:7] + bytes(len(data) - end - 7))
    live(tmp_path / "store", tmp_path / "full", lambda: None, BATCHES)
    new = restored(tmp_path / "full", tmp_path / "new")
    assert (new / path.relative_to(tmp_path / "store")).read_bytes() == data
    assert_clean(new, BATCHES, *NOT_THERE)
