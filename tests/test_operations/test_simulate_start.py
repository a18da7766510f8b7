"""simulate-start: what it says of golden damage, and that it changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from rmqctl.cli.main import run
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.rehearsal import rehearse
from rmqctl.engine.rehearsal.model import Outcome
from rmqctl.errors import DamagedStore
from rmqctl.operations.doctor import simulatestart
from rmqctl.operations.doctor.simulatestart import Simulation, simulate_start
from rmqctl.operations.doctor.startrows import next_words, rows, summary_row, verdict
from tests.conftest import Golden
from tests.golden_data import (
    apply_damage,
    broker_conf,
    broker_conf_text,
    copy_tree,
    damage_case,
    state,
)


def damaged(golden: Golden, tmp_path: Path, case: str) -> Path:
    root = copy_tree(golden("basic"), tmp_path / case)
    apply_damage(root, damage_case(case)["ops"])
    return root


def simulated(root: Path, *, percent: int = 10, at: int = 0) -> Simulation:
    """By itself of a new store on a disk with room: the retention takes nothing."""
    before = state(root)
    done = simulate_start(root, broker_conf("basic"), percent=percent, at=at)
    assert state(root) == before
    return done


def test_one_bit_costs_539_of_600_messages(golden: Golden, tmp_path: Path) -> None:
    done = simulated(damaged(golden, tmp_path, "flip-body-early-abort"))
    summary = summary_row(done)
    assert summary["starts"] and not summary["clean_shutdown"]
    assert (summary["messages_lost"], summary["queue_messages_lost"]) == (539, 539)
    assert summary["first_scanned_file"] == "commitlog/00000000000000000000"
    assert (summary["min_physical_offset"], summary["max_physical_offset"]) == (0, 45412)
    assert summary["index_files_deleted"] == 2
    assert summary["bytes_to_scan"] == summary["reput_from"] == 45412
    found = list(rows(done))
    deleted = [row["path"] for row in found if row["type"] == "deleted"]
    assert sum(path.startswith("commitlog/") for path in deleted) == 6
    cuts = {row["path"]: row["to_position"] for row in found if row["type"] == "truncated"}
    assert cuts["commitlog/00000000000000000000"] == 45412
    assert cuts["consumequeue/TopicA/0/00000000000000000000"] == 20
    steps = [row["what"] for row in found if row["type"] == "step"]
    assert steps == [
        *("abnormal-recovery", "load-log", "load-queues", "delete-index", "delete-index"),
        *("scan-log", "end-log", "cut-queues"),
    ]
    assert "loses 539 messages of the log" in verdict(done)


@pytest.mark.parametrize(
    ("case", "lost", "of_queues"),
    [
        ("flip-body-early", 0, 0),  # The last three files only are read.
        ("stale-record-after-end", 0, 0),
        ("torn-tail", 0, 0),
        ("cq-tail-lost", 0, 0),
        ("no-consumequeue", 0, 0),
        ("first-files-expired", 0, 0),
        ("checkpoint-missing", 0, 0),
    ],
)
def test_what_is_harmless(
    golden: Golden, tmp_path: Path, case: str, lost: int, of_queues: int
) -> None:
    done = simulated(damaged(golden, tmp_path, case))
    assert (done.messages_lost, done.queue_messages_lost) == (lost, of_queues)
    assert done.is_harmless and "loses no message" in verdict(done)


@pytest.mark.parametrize(
    ("case", "unreadable"), [("flip-body-late", 0), ("bad-magic-late", 1), ("bad-size-late", 1)]
)
def test_what_the_engine_lost_is_counted(
    golden: Golden, tmp_path: Path, case: str, unreadable: int
) -> None:
    done = simulated(damaged(golden, tmp_path, case))
    assert done.messages_lost + unreadable == 600 - damage_case(case)["engine"]["messages"] > 1
    assert not done.is_harmless


def test_a_broker_that_refuses(golden: Golden, tmp_path: Path) -> None:
    done = simulated(damaged(golden, tmp_path, "stray-file"))
    summary = summary_row(done)
    assert not summary["starts"] and summary["max_physical_offset"] is None
    assert summary["reason"] == "commitlog/notes.txt: 1 bytes, not a file of 65536 bytes"
    assert [row["type"] for row in rows(done)] == ["step", "step"]
    assert next_words(done) == ("repair", "--plan", "{plan}")


@pytest.mark.parametrize(
    ("user", "owner", "mode", "starts"),
    [
        (7, 7, 0o644, True),
        (7, 7, 0o444, False),
        (7, 0, 0o644, False),
        (7, 0, 0o664, True),
        (7, 0, 0o646, True),
        (0, 0, 0o444, True),
        (0, 7, 0o444, True),
    ],
)
def test_a_file_that_the_broker_may_not_write(
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    owner: int,
    mode: int,
    starts: bool,
) -> None:
    """Its user is who owns most of the files; root may write each. Of another's file nobody knows
    whose group he is in."""
    root = copy_tree(golden("basic"), tmp_path / "store")
    one = root / "consumequeue/TopicA/0" / f"{0:020d}"
    one.chmod(mode)
    lstat = os.lstat

    def owned(path: str | Path) -> os.stat_result:
        status = lstat(path)
        uid = owner if Path(path) == one else user
        return os.stat_result((*status[:4], uid, *status[5:10]))

    monkeypatch.setattr(os, "lstat", owned)
    done = simulated(root)
    summary = summary_row(done)
    assert done.is_harmless == summary["starts"] == starts
    if starts:
        return
    where = one.relative_to(root)
    reason = f"{where}: user 7, who owns most of the store, may not write it"
    assert summary["reason"] == reason and reason in verdict(done)
    assert done.steps[-1].why == reason and next_words(done) == ("lint",)
    # What a start does that may is played as ever.
    assert summary["messages_lost"] == 0 and summary["max_physical_offset"] is not None


@pytest.mark.parametrize(
    ("number", "size", "expected"),
    [
        (1, 1000, "salvage"),
        (1, 0, "repair"),
        (-1, 1000, "repair"),
        (-1, 0, "repair"),
        (-1, 65537, "salvage"),
    ],
)
def test_a_file_of_the_log_of_a_wrong_length(
    golden: Golden, tmp_path: Path, number: int, size: int, expected: str
) -> None:
    """A repair gives the last one what it lacks, and moves an empty one away."""
    root = copy_tree(golden("basic"), tmp_path / "store")
    file = sorted((root / "commitlog").iterdir())[number]
    os.truncate(file, size)
    done = simulated(root)
    assert (done.outcome.reason or "").startswith(f"commitlog/{file.name}: {size} bytes")
    assert (next_words(done) or ("",))[0] == expected


@pytest.mark.parametrize("name", ["commitlog", "commitlog/*"])
def test_no_repair_is_advised_where_the_log_is_missing(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    """The start deletes all queues, and a plan would have no step: verify says what to do."""
    root = copy_tree(golden("basic"), tmp_path / "store")
    for path in sorted(root.glob(name)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = simulated(root)
    assert done.starts and done.queue_messages_lost == 600
    assert next_words(done) == ("verify",)


@pytest.mark.parametrize(("is_damaged", "word"), [(False, "flush"), (True, "salvage")])
def test_a_flush_is_advised_where_it_is_not_refused(
    golden: Golden, tmp_path: Path, is_damaged: bool, word: str
) -> None:
    """A damaged body in the last three files, before those that the checkpoint has a start read."""
    root, config = copy_tree(golden("basic"), tmp_path / "store"), broker_conf("basic")
    with MessageStore(root, config) as store:
        *_, third, _, last = store.commit_log.files.entries
        records = [one for one in store.commit_log.walk() if isinstance(one, Record)]
    if is_damaged:
        record = [one for one in records if one.physical_offset < third.file_from_offset + 60000][
            -1
        ]
        with third.path.open("r+b") as file:
            file.seek(record.physical_offset - third.file_from_offset + 100)
            file.write(bytes(20))
    time = next(r for r in records if r.physical_offset == last.file_from_offset).store_timestamp
    with (root / "checkpoint").open("r+b") as file:
        file.write(pack(">qqq", time + 3000, time + 3000, 0))
    (root / "abort").touch()
    done = simulated(root)
    assert done.is_harmless and (next_words(done) or ("",))[0] == word
    if is_damaged:
        with pytest.raises(DamagedStore):
            MessageStore(root, config, writable=True)
    else:
        MessageStore(root, config, writable=True).close()


def test_the_retention_goes_on_with_what_the_start_leaves(golden: Golden, tmp_path: Path) -> None:
    root = damaged(golden, tmp_path, "flip-body-late")
    for path in (root / "commitlog").iterdir():
        os.utime(path, (1000, 1000))
    done = simulated(root, percent=80, at=1 << 40)
    taken = [one.path.name for one in done.removals if one.path.parent.name == "commitlog"]
    assert taken and {one.path for one in done.removals}.isdisjoint(
        one.path for one in done.outcome.deleted
    )
    assert summary_row(done)["retention_files"] == len(done.removals)
    assert any(step.what == "retention" for step in done.steps)
    files = f"deletes {len(done.removals)} files, {len(taken)} of them of the log."
    assert verdict(done).endswith(f" A minute later its retention {files}")


def test_files_that_a_full_disk_costs_are_told_and_lead_to_whose_they_are(
    golden: Golden, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("basic"), root)
    for path in (root / "commitlog").iterdir():
        os.utime(path, (1 << 30, 1 << 30))
    done = simulated(root, percent=90, at=1000 << 30)
    assert done.is_harmless and "retention deletes" in verdict(done)
    assert next_words(done) == ("clean", "--dry-run")
    assert next_words(simulated(root, percent=10, at=1000 << 30)) is None


def test_units_that_come_to_places_of_others_are_told(tmp_path: Path) -> None:
    """Queues of an older copy end before the file from which the start reads: 4.9.3 appends the
    units of the records there where the queues end."""
    root, times = tmp_path / "store", count(1_700_000_000_000, 1000)
    config = replace(broker_conf("basic"), mapped_file_size_commit_log=4096)

    def put(number: int) -> None:
        with MessageStore(
            root, config, writable=True, create=True, clock=lambda: next(times)
        ) as writer:
            for _ in range(number):
                assert writer.put_message(MessageExtBrokerInner("T", b"x" * 500)).is_ok

    put(5)
    older = shutil.copytree(root / "consumequeue", tmp_path / "older")
    put(60)
    assert simulate_start(root, config, percent=10, at=0).is_harmless
    shutil.rmtree(root / "consumequeue")
    older.rename(root / "consumequeue")
    (root / "abort").touch()
    done = simulate_start(root, config, percent=10, at=0)
    assert done.starts and not done.is_harmless and 0 < done.misplaced < 60
    assert f"It puts {done.misplaced} units at places of other messages" in verdict(done)
    assert [step.where for step in done.steps if step.what == "misplaced-units"] == [
        "consumequeue/T/0"
    ]
    assert next_words(done) == ("repair", "--plan", "{plan}")
    MessageStore(root, config, writable=True).close()  # Ours begins where the queue ends.
    assert simulate_start(root, config, percent=10, at=0).is_harmless


def test_the_command(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = damaged(golden, tmp_path, "flip-body-early-abort")
    conf = tmp_path / "broker.conf"
    conf.write_text(broker_conf_text("basic"))
    options = ["--store", str(root), "--broker-conf", str(conf)]
    assert run(["simulate-start", *options, "--format", "ndjson"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[-1]["messages_lost"] == 539 and found[-1]["version"] == "4.9.3"
    assert sum(row["lost"] for row in found if row["type"] == "queue") == 539
    assert run(["simulate-start", *options, "--as", "5.3.3"]) == 1
    assert capsys.readouterr().out.startswith("A broker of 5.3.3 starts, and loses 539")
    (root / "abort").unlink()
    assert run(["simulate-start", *options, "--format", "ndjson"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["clean_shutdown"] and last["messages_lost"] == 0


@pytest.mark.parametrize("name", ["mapped_file_size_commit_log", "mapped_file_size_consume_queue"])
@pytest.mark.parametrize("factor", [2, 4])
def test_with_the_broker_conf_of_another_store(golden: Golden, name: str, factor: int) -> None:
    """Nothing is to be salvaged or repaired, and both refuse this configuration."""
    config = broker_conf("basic")
    assert config.is_explicit(name)
    done = simulate_start(
        golden("basic"), replace(config, **{name: factor * getattr(config, name)})
    )
    assert not done.starts and next_words(done) == ("lint",)
    assert verdict(done).endswith(
        "The broker.conf is none of this store's: give that of its own broker."
    )


@pytest.mark.parametrize("checkpoint", [None, bytes(4096)])
def test_without_a_checkpoint_it_says_so(
    golden: Golden, tmp_path: Path, checkpoint: bytes | None
) -> None:
    root = damaged(golden, tmp_path, "flip-body-early-abort")
    (root / "checkpoint").unlink()
    if checkpoint is not None:
        (root / "checkpoint").write_bytes(checkpoint)
    why = {step.what: step.why for step in simulated(root).steps}
    assert why["delete-index"].endswith(", no checkpoint says that any of the index is on disk")
    assert why["scan-log"] == "no checkpoint says how much of log and queues is on disk"


def test_beside_a_running_broker_nothing_is_next(
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is found of a store that is being written is nothing to repair."""
    root, conf = copy_tree(golden("basic"), tmp_path / "store"), tmp_path / "broker.conf"
    conf.write_text(broker_conf_text("basic"))
    (root / "abort").touch()
    # A process does not see its own locks.
    holder = "process 4711 (java)"
    monkeypatch.setattr(rehearse, "holder_of_lock", lambda root: holder)
    assert run(["simulate-start", "--store", str(root), "--broker-conf", str(conf)]) == 1
    told = capsys.readouterr().out
    assert f"does not start: the lock is held by {holder}." in told
    assert "command=-" in told and "Next" not in told


@pytest.mark.parametrize("case", [None, "flip-body-early-abort"])
def test_what_a_running_broker_writes_meanwhile_is_not_lost(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str | None
) -> None:
    """It comes behind the end that the start has found; what is there already is still counted."""
    config = broker_conf("basic")
    root = copy_tree(golden("basic"), tmp_path / "store")
    writer = MessageStore(root, config, writable=True)
    if case is not None:
        apply_damage(root, damage_case(case)["ops"])

    def meanwhile(*arguments: Any, **named: Any) -> Outcome:
        outcome = rehearse.rehearse(*arguments, **named)
        for number in range(5):
            message = MessageExtBrokerInner("TopicA", b"%d" % number, 0)
            assert writer.put_message(message, flush=False).is_ok
        return outcome

    # A process does not see its own locks.
    monkeypatch.setattr(rehearse, "holder_of_lock", lambda root: "process 4711 (java)")
    monkeypatch.setattr(simulatestart, "is_locked", lambda root: True)
    monkeypatch.setattr(simulatestart, "rehearse", meanwhile)
    with writer:
        done = simulate_start(root, config)
    lost = 0 if case is None else 539
    assert (done.messages_lost, done.queue_messages_lost) == (lost, lost)


def test_one_is_told_as_one(golden: Golden) -> None:
    done = simulate_start(golden("broker"), broker_conf("broker"))
    assert "1 file" in {step.why for step in done.steps}
    done.messages_lost = 1
    assert "loses 1 message of the log" in verdict(done)


def test_queue_files_are_not_mapped(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    """To map and unmap takes longer than to read a few units, of each of 100,000 queues."""
    mapped: list[Path] = []
    original = MappedFile.__init__

    def noted(self: MappedFile, path: Path, *rest: object) -> None:
        mapped.append(path)
        original(self, path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(MappedFile, "__init__", noted)
    outcome = rehearse.rehearse(golden("basic"), broker_conf("basic"))
    assert outcome.starts and outcome.queues
    assert mapped and not [path for path in mapped if "consumequeue" in path.parts]
