"""A played start against what the engine did: golden stores and damage; and a start's corners."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats import layouts
from formats.constants import TRANSACTION_PREPARED_TYPE
from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.rehearsal import brokerlog
from rmqctl.engine.rehearsal.brokerrecord import Checked, check_message
from rmqctl.engine.rehearsal.model import Outcome
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    STORES,
    apply_damage,
    broker_conf,
    copy_tree,
    damage_case,
    expected,
    state,
)
from tests.test_operations.small_store import CONFIG, make_small_store


def queues_of(outcome: Outcome) -> dict[str, list[int]]:
    """Queues with units, as the golden data have them."""
    return {
        f"{one.topic}/{one.queue_id}": [one.min_offset, one.max_offset]
        for one in outcome.queues
        if one.max_physical_offset >= 0
    }


def files_of(root: Path) -> set[str]:
    parts = ("commitlog", "consumequeue", "index")
    files = (path for part in parts for path in (root / part).rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in files}


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_a_start_on_damage_does_what_the_engine_did(
    golden: Golden, tmp_path: Path, case: str
) -> None:
    damage = damage_case(case)
    root = copy_tree(golden(damage["base"]), tmp_path / "store")
    apply_damage(root, damage["ops"])
    before, files = state(root), files_of(root)
    outcome = rehearse(root, broker_conf(damage["base"]))
    assert state(root) == before
    did: dict[str, Any] = damage["engine"]
    assert outcome.starts == did["load"], outcome.reason
    if outcome.starts:
        ends = (outcome.min_offset, outcome.max_offset)
        assert ends == (did["minPhyOffset"], did["maxPhyOffset"])
        assert queues_of(outcome) == did["queues"]
        deleted = {str(one.path.relative_to(root)) for one in outcome.deleted}
        assert deleted == files - set(did["filesAfterStart"])


@pytest.mark.parametrize("name", sorted(set(STORES) - {"defaults"}))
def test_a_start_on_a_sound_store_finds_it_as_the_engine_does(golden: Golden, name: str) -> None:
    outcome = rehearse(golden(name), broker_conf(name))
    assert outcome.starts, outcome.reason
    (ends,) = expected(name)["store"]
    assert (outcome.min_offset, outcome.max_offset) == (ends["minPhyOffset"], ends["maxPhyOffset"])
    assert queues_of(outcome) == {
        f"{row['topic']}/{row['queueId']}": [row["minOffset"], row["maxOffset"]]
        for row in expected(name)["queue"]
        if row["maxPhysicOffset"] >= 0
    }


@pytest.mark.parametrize("as_5", [False, True])
@pytest.mark.parametrize("has_queues", [False, True])
def test_plain_records_are_the_scanners(
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    as_5: bool,
    has_queues: bool,
) -> None:
    """Only ends of files are looked at closely: one by one a large log would take hours."""
    root = copy_tree(golden("basic"), tmp_path / "store")
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    if not has_queues:
        apply_damage(root, damage_case("no-consumequeue")["ops"])
    looked_at = []

    def check(*args: Any, **kw: Any) -> Checked:
        looked_at.append(args)
        return check_message(*args, **kw)

    monkeypatch.setattr(brokerlog, "check_message", check)
    outcome = rehearse(root, broker_conf("basic"), as_5=as_5)
    assert sum(one.max_offset for one in outcome.queues) == 600
    assert len(looked_at) <= 2 * len(log_files(root))


# --- corners ---------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_small_store(tmp_path / "store")


def message(topic: str) -> MessageExtBrokerInner:
    return MessageExtBrokerInner(topic, b"x" * 20, properties={"TAGS": "t"})


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def test_a_lost_file_in_the_middle_keeps_the_dispatch_waiting(store: Path) -> None:
    """Without queues 4.9.3 dispatches all of the log, and comes to the gap."""
    files = log_files(store)
    assert len(files) > 2
    files[1].unlink()
    for path in sorted((store / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    outcome = rehearse(store, CONFIG)
    assert outcome.reason is not None and "waits for ever" in outcome.reason
    assert rehearse(store, CONFIG, as_5=True).starts


def test_a_record_of_an_older_life_is_taken(store: Path) -> None:
    """PHYSICALOFFSET is not looked at: the recovery goes on over it."""
    last = log_files(store)[-1]
    with WritableStore(store, CONFIG) as opened:
        start = opened.max_offset
        assert opened.put_message(message("late")).is_ok
        end = opened.max_offset
    with log_files(store)[-1].open("r+b") as file:
        at = start - int(last.name) + layouts.RECORD_PHYSICAL_OFFSET.offset
        file.seek(at)
        file.write(struct.pack(">q", 77))
    assert rehearse(store, CONFIG).max_offset == end


def test_a_later_versions_record_ends_the_log_of_4_9_3(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for name in ("compaction", "commitlog"):
        (root / name).mkdir(parents=True)
    with WritableStore(root, CONFIG) as opened:
        assert opened.put_message(message("a")).is_ok
        end = opened.max_offset
        assert opened.put_message(message("%RETRY%" + "g" * 150)).is_ok
        later = opened.max_offset
    assert rehearse(root, CONFIG).max_offset == end
    assert rehearse(root, CONFIG, as_5=True).max_offset == later


def test_an_empty_last_file_goes_with_5_3_3_only(store: Path) -> None:
    last = log_files(store)[-1]
    size = last.stat().st_size
    empty = last.with_name(f"{int(last.name) + size:020d}")
    empty.touch()
    outcome = rehearse(store, CONFIG)
    assert outcome.reason == f"commitlog/{empty.name}: 0 bytes, not a file of {size} bytes"
    outcome = rehearse(store, CONFIG, as_5=True)
    assert outcome.starts and [one.path for one in outcome.deleted] == [empty]


@pytest.mark.parametrize("last", ["", "prepared"])
def test_a_last_queue_file_without_a_unit_ends_a_start_of_5_3_3(tmp_path: Path, last: str) -> None:
    """Where the log's last record has a unit, the start cuts the queues at the log's end. It then
    counts the zeros as a unit, and goes on."""
    root, config = tmp_path / "store", replace(CONFIG, mapped_file_size_consume_queue=100)
    with WritableStore(root, config, create=True) as writer:
        for _ in range(5):
            one = MessageExtBrokerInner("T", b"x", properties={"TAGS": "a"})
            assert writer.put_message(one).is_ok
        if last:
            half = replace(one, topic="U", sys_flag=TRANSACTION_PREPARED_TYPE)
            assert writer.put_message(half).is_ok
    (root / "consumequeue" / "T" / "0" / f"{100:020d}").write_bytes(bytes(100))
    assert rehearse(root, config, as_5=False).starts
    outcome = rehearse(root, config, as_5=True)
    assert outcome.starts is not bool(last)
    if last:
        assert outcome.reason == f"T/0/{100:020d}: the queue ends before it"


def test_a_file_that_is_made_again_is_not_deleted(store: Path) -> None:
    """5.3.3 removes an empty file, and dispatches into a new one of its name."""
    queue = next((store / "consumequeue").glob("*/*"))
    for path in list(queue.iterdir())[1:]:
        path.unlink()
    (path,) = queue.iterdir()
    path = path.rename(queue / f"{0:020d}")
    path.write_bytes(b"")
    (store / "abort").touch()
    (store / "checkpoint").unlink(missing_ok=True)
    outcome = rehearse(store, CONFIG, as_5=True)
    assert outcome.starts and path not in {one.path for one in outcome.deleted}
    assert f"{queue.parent.name}/{queue.name}" in queues_of(outcome)


def test_without_a_log_the_queues_go(store: Path) -> None:
    for path in log_files(store):
        path.unlink()
    outcome = rehearse(store, CONFIG)
    assert outcome.starts and {one.why for one in outcome.deleted} == {"log-missing"}
    assert not queues_of(outcome)


@pytest.mark.parametrize("broken", ["{", "[1"])
def test_broken_delay_offsets_end_a_start_of_4_9_3(store: Path, broken: str) -> None:
    (store / "config").mkdir()
    path = store / "config/delayOffset.json"
    path.write_text(broken)
    assert rehearse(store, CONFIG).starts  # There is no copy: then it is as if there was none.
    path.with_name("delayOffset.json.bak").write_text(broken)
    outcome = rehearse(store, CONFIG)
    assert outcome.reason is not None and "delayOffset" in outcome.reason
    assert rehearse(store, CONFIG, as_5=True).starts


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "consumerFilter.json"])
@pytest.mark.parametrize("as_5", [False, True])
def test_a_broken_file_of_config_ends_a_start_before_the_store(
    store: Path, name: str, as_5: bool
) -> None:
    """``BrokerController#initialize`` loads these first, and the store not at all then."""
    (store / "config").mkdir()
    path = store / "config" / name
    path.write_text('{"offsetTable":{"a')
    config = replace(CONFIG, enable_lmq=False)
    assert rehearse(store, config, as_5=as_5).starts
    copy = path.with_name(f"{name}.bak")
    copy.write_text("[1")
    outcome = rehearse(store, config, as_5=as_5)
    assert outcome.reason == f"config/{name}: neither it nor its .bak can be read"
    assert [one.what for one in outcome.steps] == ["fail"] and not outcome.deleted
    copy.write_text("{}")
    assert rehearse(store, config, as_5=as_5).starts
    with_lmq = replace(config, enable_lmq=True)
    copy.write_text("[1")
    assert rehearse(store, with_lmq, as_5=as_5).starts == (name == "consumerOffset.json")


def test_queue_files_of_one_unit_are_cut_for_ever(tmp_path: Path, golden: Golden) -> None:
    root = copy_tree(golden("basic"), tmp_path / "store")
    apply_damage(root, damage_case("flip-body-late")["ops"])
    config = parse_broker_conf("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=20\n")
    for directory in (root / "consumequeue").glob("*/*"):
        (whole,) = directory.iterdir()
        data = whole.read_bytes()
        whole.unlink()
        for at in range(0, len(data.rstrip(b"\0")), 20):
            (directory / f"{at:020d}").write_bytes(data[at : at + 20])
    outcome = rehearse(root, config)
    assert outcome.reason is not None and "for ever" in outcome.reason
