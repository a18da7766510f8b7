"""rebuild --missing: what lags behind the log is caught up, and nothing else is touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.missing import MissingSummary, add_missing
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
    """A dry run first: it changes nothing, and says what the run then does."""
    before = tree(root)
    told = add_missing(root, config, what, dry_run=True)
    assert tree(root) == before
    done = add_missing(root, config, what)
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
