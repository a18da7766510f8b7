"""rebuild --missing: what lags behind the log is caught up, and nothing else is touched."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotWrite
from rmqctl.operations.mend.missing import MissingSummary, add_missing
from tests.test_safety.support import (
    Clock,
    assert_clean,
    derived_files,
    message,
    small_config,
    tree,
)

CONFIG = small_config(log=1 << 14, queue=400, slots=13, items=120)
RECORDS = 240


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    root = tmp_path / "whole"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(RECORDS):
            assert store.put_message(message(number), flush=False).is_ok
    return root


def counts(summary: MissingSummary) -> tuple[int, int, int]:
    return summary.units, len(summary.queues), summary.index_items


def run(root: Path, what: str = "all", config: MessageStoreConfig = CONFIG) -> MissingSummary:
    """A dry run first: it changes nothing, and says what the run then does, also by two threads."""
    before = tree(root)
    told = add_missing(root, config, what, dry_run=True)
    assert tree(root) == before
    done = add_missing(root, config, what, jobs=2)
    assert counts(told) == counts(done)
    return done


def test_a_whole_store_gets_nothing(whole: Path) -> None:
    before = derived_files(whole)
    assert counts(run(whole)) == (0, 0, 0)
    assert derived_files(whole) == before


@pytest.mark.parametrize("number", [RECORDS - 1, RECORDS - 4, RECORDS - 2])
@pytest.mark.parametrize("abort", [False, True])
def test_a_queue_that_is_gone_comes_back(whole: Path, number: int, abort: bool) -> None:
    """Also the one of the newest message, which an opening store would begin to catch up."""
    before = derived_files(whole)
    if abort:
        (whole / "abort").touch()
    shutil.rmtree(whole / f"consumequeue/topic{number % 3}/{number // 3 % 2}")
    assert counts(run(whole)) == (RECORDS // 6, 1, 0)
    assert derived_files(whole) == before
    assert_clean(whole, CONFIG)


def test_a_queue_that_lags_gets_its_last_units(whole: Path) -> None:
    """The newest unit of all is there, so an opening store sees nothing to do."""
    before = derived_files(whole)
    files = sorted((whole / "consumequeue/topic1/0").iterdir())
    files[-1].write_bytes(files[-1].read_bytes()[:100].ljust(400, b"\0"))
    MessageStore(whole, CONFIG, writable=True).close()
    assert derived_files(whole) != before
    assert counts(run(whole, "queues")) == (15, 1, 0)
    assert derived_files(whole) == before


def test_queues_and_index_that_are_gone(whole: Path) -> None:
    before = derived_files(whole)
    shutil.rmtree(whole / "consumequeue")
    shutil.rmtree(whole / "index")
    assert counts(run(whole, "queues")) == (RECORDS, 6, 0)
    MessageStore(whole, CONFIG, writable=True).close()
    shutil.rmtree(whole / "index", ignore_errors=True)
    assert counts(run(whole, "index")) == (0, 0, RECORDS)
    assert derived_files(whole) == before
    assert_clean(whole, CONFIG)


def test_an_opening_store_catches_up_what_lags_behind_the_newest_unit(whole: Path) -> None:
    before = derived_files(whole)
    for queue in (whole / "consumequeue").glob("*/*"):
        files = sorted(queue.iterdir())
        files[-1].write_bytes(bytes(400))
    told = add_missing(whole, CONFIG, "queues", dry_run=True)
    assert counts(told) == (6 * 20, 6, 0)
    MessageStore(whole, CONFIG, writable=True).close()
    assert derived_files(whole) == before


def test_what_was_not_asked_for_stays_as_it_is(whole: Path) -> None:
    """A queue that is gone does not come back with the index, nor an index with the queues."""
    before = derived_files(whole)
    shutil.rmtree(whole / "consumequeue/topic1/0")
    assert counts(run(whole, "index")) == (0, 0, 0)
    assert not (whole / "consumequeue/topic1/0").exists()
    assert counts(run(whole, "queues")) == (RECORDS // 6, 1, 0)
    assert derived_files(whole) == before
    for path in (whole / "index").iterdir():
        path.unlink()
    assert counts(run(whole, "queues")) == (0, 0, 0)
    assert list((whole / "index").iterdir()) == []


def test_what_was_not_asked_for_is_caught_up_as_by_an_opening(whole: Path) -> None:
    before = derived_files(whole)
    for queue in (whole / "consumequeue").glob("*/*"):
        sorted(queue.iterdir())[-1].write_bytes(bytes(400))
    run(whole, "index")
    assert derived_files(whole) == before


def test_a_unit_that_a_kill_has_cut_is_completed(whole: Path) -> None:
    before = derived_files(whole)
    (whole / "abort").touch()
    (last,) = sorted((whole / "consumequeue/topic2/1").iterdir())[-1:]
    data = bytearray(last.read_bytes())
    end = len(bytes(data).rstrip(b"\0"))
    end += -end % 20
    data[end - 8 : end] = bytes(8)
    last.write_bytes(data)
    run(whole)
    assert derived_files(whole) == before
    assert_clean(whole, CONFIG)


def test_units_behind_damage_keep_their_places(whole: Path) -> None:
    """A queue that is made again says of each message what the message says: where one is lost, a
    pre-blank unit holds its place, or every consumer's offset would mean another message."""
    with MessageStore(whole, CONFIG) as store:
        queue = store.consume_queue("topic0", 0)
        assert queue is not None
        units = [unit for _, unit in queue.units(0, queue.max_offset)]
    lost = units[7].physical_offset
    path = whole / "commitlog" / f"{lost // (1 << 14) * (1 << 14):020d}"
    with path.open("r+b") as file:
        file.seek(lost % (1 << 14) + 4)
        file.write(b"\xff" * 4)
    shutil.rmtree(whole / "consumequeue/topic0/0")
    summary = run(whole, "queues")
    assert [damage.physical_offset for damage in summary.damage] == [lost]
    with MessageStore(whole, CONFIG) as store:
        queue = store.consume_queue("topic0", 0)
        assert queue is not None and queue.max_offset == len(units)
        found = [unit for _, unit in queue.units(0, queue.max_offset)]
    assert found[:7] == units[:7] and found[8:] == units[8:] and found[7].is_pre_blank


def test_a_full_disk_is_told_as_such(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = derived_files(whole)
    shutil.rmtree(whole / "consumequeue/topic1/0")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(CannotWrite, match="No space left"):
            add_missing(whole, CONFIG, "queues")
    add_missing(whole, CONFIG, "queues")
    assert derived_files(whole) == before
