"""checkpoint: what is shown, what the data proves, and that only that is stored."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rmqctl.errors import CheckpointTooLate, FileLengthUnproven, NeedsConsent, StoreInUse
from rmqctl.operations.doctor.checkpoint import (
    ask_consent,
    compute,
    plan_set,
    planned,
    rows,
    show,
    store_checkpoint,
    summary_row,
    verdict,
)
from rmqctl.operations.verify import Finding, verify
from tests.conftest import Golden
from tests.golden_data import apply_damage, broker_conf, copy_tree, damage_case, expected, state

CONFIG = broker_conf("basic")
NEWEST = max(row["storeTimestamp"] for row in expected("basic")["message"])
SIX_FILES = 6 * 65536


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return copy_tree(golden("basic"), tmp_path / "store")


def put_checkpoint(root: Path, *times: int) -> None:
    write_checkpoint(root, root / "checkpoint", Checkpoint(*times))


def test_a_sound_store_proves_its_newest_record(store: Path) -> None:
    before = state(store)
    judged = compute(store, CONFIG)
    assert state(store) == before
    assert judged.new is not None and judged.new[:3] == (NEWEST,) * 3
    assert not judged.says_too_much and judged.is_sound
    assert [row["ended_by"] for row in rows(judged)] == [None] * 3


def test_units_that_deliver_at_another_time_are_there(golden: Golden) -> None:
    """As of a broker with its own messageDelayLevel, whose broker.conf is not at hand."""
    config = replace(broker_conf("broker"), message_delay_level="1h 2h 3h 4h 5h 6h")
    found = [one.code for one in verify(golden("broker"), config) if isinstance(one, Finding)]
    assert "unit-delivery-time-mismatch" in found
    judged = compute(golden("broker"), config)
    assert judged.new is not None and judged.new.logics_msg_timestamp > 0
    assert judged.proofs["logics_msg_timestamp"].ended_by is None and judged.is_sound


def test_from_which_file_a_start_would_read(store: Path) -> None:
    put_checkpoint(store, NEWEST + 5000, NEWEST + 5000, 0)
    summary = summary_row(show(store, CONFIG))
    assert (summary["scan_from"], summary["scan_why"]) == (SIX_FILES, "checkpoint")
    assert summary["first_scanned_file"] == f"commitlog/{SIX_FILES:020d}"
    assert summary["says_too_much"]
    put_checkpoint(store, 0, NEWEST, 0)
    summary = summary_row(show(store, CONFIG))
    assert (summary["scan_from"], summary["scan_why"]) == (0, "first-file")
    assert summary["bytes_to_scan"] == 439124
    (store / "checkpoint").unlink()
    assert not show(store, CONFIG).is_sound


def first_times(root: Path) -> dict[int, int]:
    """The store time (ms) of the first record of each log file, by the file's first offset."""
    with MessageStore(root, CONFIG) as one:
        starts = [entry.file_from_offset for entry in one.commit_log.files.entries]
        return {start: one.commit_log.record_at(start).store_timestamp for start in starts}


def scan_from(root: Path, config: MessageStoreConfig = CONFIG) -> object:
    return summary_row(show(root, config))["scan_from"]


def test_a_file_that_begins_at_the_checkpoint_is_no_newer(store: Path) -> None:
    """``CommitLog#isMappedFileMatchedRecover``, with the margin of ``getMinTimestamp``."""
    times = first_times(store)
    for start, time in times.items():
        newest = max(one for one, other in times.items() if other <= time)
        put_checkpoint(store, time + 3000, NEWEST + 5000, 0)
        assert scan_from(store) == newest, start
        older = [one for one, other in times.items() if other < time]
        put_checkpoint(store, NEWEST + 5000, time + 2999, 0)
        assert scan_from(store) == max(older, default=0), start


def test_the_index_time_counts_if_the_index_is_to_be_safe(store: Path) -> None:
    """``StoreCheckpoint#getMinTimestampIndex``, with ``messageIndexSafe`` and an index."""
    times = first_times(store)
    start, time = sorted(times.items())[2]
    assert sum(other <= time for other in times.values()) == 3
    put_checkpoint(store, NEWEST + 5000, NEWEST + 5000, time)
    safe = replace(CONFIG, message_index_safe=True)
    assert scan_from(store, safe) == start
    assert scan_from(store, replace(safe, message_index_enable=False)) == SIX_FILES
    assert scan_from(store) == SIX_FILES


def test_a_first_record_without_a_time_tells_nothing(store: Path) -> None:
    path = store / "commitlog" / f"{SIX_FILES:020d}"
    data = bytearray(path.read_bytes())
    data[56:64] = bytes(8)
    path.write_bytes(data)
    put_checkpoint(store, NEWEST + 5000, NEWEST + 5000, 0)
    assert scan_from(store) == SIX_FILES - 65536


def test_what_was_not_read_is_not_said_to_hold(store: Path) -> None:
    """``show`` looks at the newest record only; a queue that is lost it does not see."""
    apply_damage(store, damage_case("no-one-queue")["ops"])
    put_checkpoint(store, NEWEST, NEWEST, NEWEST)
    shown, computed = show(store, CONFIG), compute(store, CONFIG)
    assert "holds" not in verdict(shown) and "`rmqctl checkpoint compute`" in verdict(shown)
    assert shown.is_sound and not computed.is_sound and "says more" in verdict(computed)
    put_checkpoint(store, 0, 0, 0)
    assert "says nothing" in verdict(show(store, CONFIG)) and not show(store, CONFIG).is_sound
    for judged in (shown, computed):
        assert "dry_run" not in summary_row(judged)
    assert summary_row(shown, dry_run=True)["dry_run"] is True


@pytest.mark.parametrize(
    ("case", "name", "ended_by"),
    [
        ("cq-tail-lost", "logics_msg_timestamp", "record-without-unit"),
        ("no-one-queue", "logics_msg_timestamp", "queue-missing"),
        ("no-index", "index_msg_timestamp", "index-missing"),
    ],
)
def test_a_proof_ends_before_what_is_found(
    store: Path, case: str, name: str, ended_by: str
) -> None:
    apply_damage(store, damage_case(case)["ops"])
    judged = compute(store, CONFIG)
    found = {row["name"]: row for row in rows(judged)}
    assert found[name]["ended_by"] == ended_by
    assert found[name]["new_timestamp"] < NEWEST
    others = [row for row in found.values() if row["name"] != name]
    assert {row["new_timestamp"] for row in others} == {NEWEST}


def test_with_what_is_proven_a_start_brings_a_lost_queue_back(store: Path) -> None:
    """A checkpoint that said too much hid its messages."""
    apply_damage(store, damage_case("no-one-queue")["ops"])
    (store / "abort").touch()
    put_checkpoint(store, *[NEWEST + 100_000] * 3)

    def first_scanned() -> str:
        path = rehearse(store, CONFIG).first_scanned
        assert path is not None
        return path.name

    assert first_scanned() == f"{SIX_FILES:020d}"
    judged = compute(store, CONFIG)
    assert judged.says_too_much and judged.new is not None
    store_checkpoint(store, CONFIG, judged.new)
    assert read_checkpoint(store / "checkpoint") == judged.new
    # Where the queue's first message lies: its units are all dispatched again.
    assert first_scanned() == f"{0:020d}"


def test_no_time_beyond_the_log_is_stored(store: Path) -> None:
    before = state(store)
    with pytest.raises(CheckpointTooLate, match=r"timestamp 20\S+Z is later .*, 20\S+Z:") as caught:
        plan_set(show(store, CONFIG), {"logics_msg_timestamp": NEWEST + 1})
    assert (caught.value.timestamp, caught.value.newest) == (NEWEST + 1, NEWEST)
    with pytest.raises(CheckpointTooLate):
        store_checkpoint(store, CONFIG, Checkpoint(NEWEST + 1, 0, 0))
    kept = {name: seen for name, seen in state(store).items() if name in before and name != "."}
    assert kept == {name: seen for name, seen in before.items() if name != "."}


def test_consent_and_the_lock(store: Path) -> None:
    judged = plan_set(show(store, CONFIG), {"index_msg_timestamp": 0})
    with pytest.raises(NeedsConsent, match=r"index_msg_timestamp from 20\S+Z to 0\."):
        ask_consent(judged)
    assert judged.new is not None
    lock = StoreLock(store)
    try:
        with pytest.raises(StoreInUse):
            store_checkpoint(store, CONFIG, judged.new)
    finally:
        lock.release()
    store_checkpoint(store, CONFIG, judged.new)
    stored = read_checkpoint(store / "checkpoint")
    assert stored is not None and stored.index_msg_timestamp == 0
    ask_consent(show(store, CONFIG))  # Nothing is to be changed.


def test_an_index_that_a_start_would_make_keeps_its_start(store: Path) -> None:
    """A start after a crash indexes what its recovery reads, and nothing before."""
    shutil.rmtree(store / "index")
    (store / "checkpoint").unlink()
    (store / "abort").touch()
    judged = compute(store, CONFIG)
    assert judged.new is not None and judged.new[:3] == (NEWEST, 0, 0)
    assert judged.scan_why == "first-file"
    store_checkpoint(store, CONFIG, judged.new)
    MessageStore(store, CONFIG, writable=True).close()
    assert [one for one in verify(store, CONFIG) if isinstance(one, Finding)] == []


def test_none_is_stored_where_the_only_log_file_may_have_been_cut(
    golden: Golden, tmp_path: Path
) -> None:
    """What is proven is of what is left; with the length from broker.conf it is a short file."""
    root = copy_tree(golden("broker"), tmp_path / "store")
    apply_damage(root, [{"op": "truncate", "path": f"commitlog/{0:020d}", "length": 200_000}])
    before, config = state(root), MessageStoreConfig()
    new = compute(root, config).new
    assert new is not None
    for refused in (planned, store_checkpoint):
        with pytest.raises(FileLengthUnproven):
            refused(root, config, new)
    assert state(root) == before
