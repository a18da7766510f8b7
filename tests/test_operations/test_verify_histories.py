"""verify on stores that something has happened to: topics deleted and made again, files that
retention removes meanwhile, a log that is not there, a broker that has just started; and how many
findings much damage of one kind is."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rmqctl.errors import CannotRead, CommitLogMissing, FileLengthContradiction
from rmqctl.operations.change.flush import flush
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.verify import ERROR, INFO, WARNING, Finding, Summary, verify
from rmqctl.operations.verify.queueunits import UnitChecker
from rmqctl.rows import Row
from tests.golden_data import tree_content
from tests.test_operations.small_store import (
    CONFIG,
    GEOMETRY,
    LOG_SIZE,
    QUEUE_SIZE,
    findings_of,
    make_small_store,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_small_store(tmp_path / "store")


def put(root: Path, topic: str, count: int, **properties: str) -> None:
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        for number in range(count):
            message = MessageExtBrokerInner(
                topic, b"%d" % number, properties={"TAGS": "t", **properties}
            )
            assert writer.put_message(message, flush=False).is_ok


def told(findings: list[Finding]) -> list[tuple[str, str, str | None]]:
    return [(one.code, one.severity, one.path) for one in findings]


# --- topics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [1, 7, 50, 90])
def test_a_topic_that_was_deleted_and_made_again(tmp_path: Path, later: int) -> None:
    """``DefaultMessageStore#cleanUnusedTopic`` takes its queues; the log keeps what it had."""
    root = tmp_path / "store"
    put(root, "Other", 3)
    put(root, "Again", 50)
    put(root, "Other", 3)
    shutil.rmtree(root / "consumequeue" / "Again")
    put(root, "Again", later)
    findings, summary = findings_of(root)
    assert told(findings) == [("queue-begun-again", WARNING, "consumequeue/Again/0")]
    assert findings[0].expected == "units of 50 records"
    assert (findings[0].queue_offset, summary.units) == (0, 6 + later + min(50, later))
    # Its first records expire; the others still name places that are the later ones'.
    first = root / "commitlog" / f"{0:020d}"
    first.unlink()
    findings, _ = findings_of(root)
    assert [one.code for one in findings] == [
        "log-starts-late",
        "queue-begun-again",
    ], findings
    assert (findings[1].queue_offset or 0) > 0


def given_twice(root: Path, tmp_path: Path) -> None:
    """A store whose 40 units are those of the records that came first, and 15 have later ones."""
    put(root, "T", 40)
    put(root, "Other", 1)
    kept = tmp_path / "kept"
    (root / "consumequeue/T").rename(kept)
    put(root, "T", 15)
    put(root, "Other", 1)
    shutil.rmtree(root / "consumequeue/T")
    kept.rename(root / "consumequeue/T")


def test_an_offset_that_was_given_twice_is_one_finding(tmp_path: Path) -> None:
    """The units are those of the records that came first: the later ones cannot be consumed."""
    root = tmp_path / "store"
    given_twice(root, tmp_path)
    findings, _ = findings_of(root)
    assert told(findings) == [
        ("queue-offset-repeated", ERROR, "consumequeue/T/0"),
    ]
    assert (findings[0].expected, findings[0].found) == ("40", "15 records from 0")
    assert (findings[0].queue_offset, findings[0].position) == (0, 0)


def test_offsets_that_were_given_twice_are_told_of_a_queue_that_goes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    given_twice(root, tmp_path)
    real = UnitChecker._again

    def then_gone(*arguments: Any) -> Generator[Finding, None, int]:
        yield from real(*arguments)
        raise CannotRead(path=str(root / "consumequeue/T/0/gone"), reason="it has gone")

    monkeypatch.setattr(UnitChecker, "_again", then_gone)
    findings, _ = findings_of(root)
    assert told(findings) == [
        ("file-removed-meanwhile", INFO, "consumequeue/T/0/gone"),
        ("queue-offset-repeated", ERROR, "consumequeue/T/0"),
    ]


@pytest.mark.parametrize(
    ("topics", "code", "severity"),
    [
        (None, "queue-missing", ERROR),
        ('{"topicConfigTable":', "queue-missing", ERROR),
        (json.dumps({"topicConfigTable": {}}), "queue-missing", ERROR),
        (json.dumps({"topicConfigTable": {"TopicA": {}}}), "queue-missing", ERROR),
        (json.dumps({"topicConfigTable": {"Other": {}}}), "queue-of-deleted-topic", INFO),
    ],
)
def test_queues_of_a_topic_that_was_deleted_are_not_missed(
    store: Path, topics: str | None, code: str, severity: str
) -> None:
    if topics is not None:
        (store / "config").mkdir()
        (store / "config" / "topics.json").write_text(topics)
    shutil.rmtree(store / "consumequeue" / "TopicA")
    findings, summary = findings_of(store)
    assert {(one.code, one.severity, one.topic) for one in findings} == {(code, severity, "TopicA")}
    assert summary.is_clean == (severity == INFO)


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "%LMQ%one"])
def test_queues_that_a_broker_never_removes_are_missed(store: Path, name: str) -> None:
    (store / "config").mkdir()
    topics: dict[str, object] = {"topicConfigTable": {"Other": {}}}
    (store / "config" / "topics.json").write_text(json.dumps(topics))
    shutil.rmtree(store / "consumequeue" / name)
    findings, _ = findings_of(store)
    assert {(one.code, one.topic) for one in findings} == {("queue-missing", name)}


# --- the log -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_directory", [True, False])
def test_a_log_that_is_not_there_is_one_finding(store: Path, keeps_directory: bool) -> None:
    """A disk that is not mounted, or a storePathCommitLog that was not said: to rebuild would
    empty the queues."""
    shutil.rmtree(store / "commitlog")
    if keeps_directory:
        (store / "commitlog").mkdir()
    findings, summary = findings_of(store)
    assert told(findings) == [("commitlog-missing", ERROR, "commitlog")]
    assert "rebuild queues" not in findings[0].advice
    assert not summary.is_clean
    before = tree_content(store)
    with pytest.raises(CommitLogMissing):
        rebuild_in_place(plan_rebuild(store, CONFIG, "all"))
    with pytest.raises(CommitLogMissing):  # a put would begin a log at 0
        MessageStore(store, CONFIG, writable=True)
    assert tree_content(store) == before


def test_a_store_without_a_log_and_without_units_is_empty(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert findings_of(tmp_path)[0] == []


@pytest.mark.parametrize("number", range(6))
def test_files_that_retention_removes_meanwhile(
    tmp_path: Path, chance: random.Random, number: int
) -> None:
    """As ``MappedFileQueue#deleteExpiredFileByTime`` and ``IndexService#deleteExpiredFile`` do,
    the oldest first, and never the last one."""
    root = tmp_path / "store"
    put(root, "T", 150, UNIQ_KEY="k")
    (root / "abort").touch()
    directories = [root / "commitlog", root / "consumequeue/T/0", root / "index"]
    removed = 0

    def progress(done: int) -> None:
        nonlocal removed
        if chance.random() < 0.5:
            return
        for directory in directories:
            files = sorted(directory.iterdir())
            for file in files[: chance.randrange(len(files))]:
                if directory.name == "index":
                    log_min = int(min((root / "commitlog").iterdir()).name)
                    if int.from_bytes(file.read_bytes()[24:32], "big") >= log_min:
                        break
                elif directory.name == "0":
                    log_min = int(min((root / "commitlog").iterdir()).name)
                    if int.from_bytes(file.read_bytes()[-20:-12], "big") >= log_min:
                        break
                file.unlink()
                removed += 1

    *found, summary = verify(root, CONFIG, progress)
    assert removed and isinstance(summary, Summary)
    allowed = {"unclean-shutdown", "file-removed-meanwhile", "dispatch-behind", "index-behind"}
    assert {row.code for row in found if isinstance(row, Finding)} <= allowed
    assert summary.is_clean


def test_a_file_in_the_middle_that_goes_meanwhile_is_no_retention(store: Path) -> None:
    def progress(done: int) -> None:
        (store / "commitlog" / f"{LOG_SIZE:020d}").unlink(missing_ok=True)

    with pytest.raises(CannotRead, match="No such file"):
        list(verify(store, CONFIG, progress))


def test_a_log_that_has_lost_its_end_is_not_read_again_for_each_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        for number in range(120):
            message = MessageExtBrokerInner("T", b"x" * 50, number % 40, properties={"a": "b"})
            assert writer.put_message(message, flush=False).is_ok
    # All but the first three rounds of records are gone; zeros stand there, as after a power loss.
    files = sorted((root / "commitlog").iterdir())
    for file in files[3:]:
        file.write_bytes(bytes(LOG_SIZE))
    walks = 0
    walk = CommitLog.walk

    def counted(log: CommitLog, *arguments: int) -> object:
        nonlocal walks
        walks += 1
        return walk(log, *arguments)

    monkeypatch.setattr(CommitLog, "walk", counted)
    findings, _ = findings_of(root)
    assert {one.code for one in findings} == {"unit-points-past-log-end", "checkpoint-in-future"}
    assert len([one for one in findings if one.structure == "queue"]) == 40
    assert 1 <= walks <= 2


# --- the checkpoint ----------------------------------------------------------------------------

_HOLD = """
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any
from rmqctl.engine.files.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_broker_that_has_just_started_has_no_checkpoint_yet(store: Path) -> None:
    """It makes the file empty, and writes it with its first flush, a second later."""
    write_checkpoint(store, store / "checkpoint", Checkpoint())
    (store / "abort").touch()
    findings, _ = findings_of(store)
    assert ("checkpoint-zero", WARNING, "checkpoint") in told(findings)
    running = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert running.stdout is not None and running.stdout.readline() == b"held\n"
        findings, summary = findings_of(store)
        assert ("checkpoint-zero", INFO, "checkpoint") in told(findings)
        assert summary.is_clean

        def progress(done: int) -> None:
            write_checkpoint(store, store / "checkpoint", Checkpoint(1, 1, 1))

        codes = [row.code for row in verify(store, CONFIG, progress) if isinstance(row, Finding)]
        assert codes == ["unclean-shutdown"]
    finally:
        running.communicate()


# --- much damage of one kind -------------------------------------------------------------------


def test_neighbours_of_one_kind_are_one_finding(tmp_path: Path) -> None:
    """Whatever the size of the store, and so whatever verify keeps in memory."""
    root = tmp_path / "store"
    put(root, "T", 30)
    for path in sorted((root / "consumequeue/T/0").iterdir())[1:5]:
        data = bytearray(path.read_bytes())
        data[19::20] = b"\1" * len(data[19::20])
        path.write_bytes(data)
    findings, summary = findings_of(root)
    (found,) = findings
    assert (found.code, found.queue_offset) == ("unit-mismatch", QUEUE_SIZE // 20)
    assert str(found.found).startswith("20 units from offset ")
    assert summary.units == 30


def test_neighbours_in_the_index_are_one_finding(store: Path) -> None:
    path = sorted((store / "index").iterdir())[0]
    whole = path.read_bytes()
    slots, items = GEOMETRY.slot_position(0), GEOMETRY.item_position(0)
    path.write_bytes(whole[:slots] + b"\7" * (items - slots) + whole[items:])
    (found,) = findings_of(store)[0]
    assert found.code == "index-slot-mismatch"
    assert found.found == f"{0x07070707}, and {GEOMETRY.hash_slot_num - 1} more behind it"
    data = bytearray(whole)
    for index_no in range(2, 12):
        at = GEOMETRY.item_position(index_no)
        data[at + 12 : at + 16] = b"\x7f\0\0\0"
    path.write_bytes(data)
    (found,) = findings_of(store)[0]
    assert found.code == "index-item-mismatch"
    assert str(found.found).endswith(", and 9 more behind it")


@pytest.mark.parametrize("at", [0, 1, 4])
def test_damage_behind_damage_is_told_apart(tmp_path: Path, at: int) -> None:
    """Wrong units, unwritten ones and good ones in a row: each stretch is one finding."""
    root = tmp_path / "store"
    put(root, "T", 25)
    path = root / "consumequeue/T/0" / f"{QUEUE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    start = at * 20
    data[start : start + 20] = bytes(20)
    if at < 4:
        data[start + 20 + 19] ^= 1
    path.write_bytes(data)
    codes = [(one.code, one.queue_offset) for one in findings_of(root)[0]]
    expected = [("record-without-unit", 5 + at), ("unit-mismatch", 6 + at)]
    assert codes == expected[: 2 if at < 4 else 1]


def test_a_checkpoint_that_cannot_be_read_is_a_finding(store: Path) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()
    (found,) = findings_of(store)[0]
    assert (found.code, found.path) == ("unreadable-file", "checkpoint")
    assert found.found == "it is not a regular file"


def test_an_index_file_that_was_cut_is_rebuilt(store: Path) -> None:
    """The others still say what the broker's sizes are; without any only its broker.conf does."""
    silent = replace(CONFIG, explicit=frozenset())
    _, second = sorted((store / "index").iterdir())
    second.write_bytes(second.read_bytes()[:-1])
    assert "index-length-mismatch" in {one.code for one in findings_of(store)[0]}
    rebuild_in_place(plan_rebuild(store, silent, "index"))
    assert findings_of(store)[0] == []
    for path in (store / "index").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileLengthContradiction, match="maxIndexNum"):
        plan_rebuild(store, silent, "index")


def test_flush_writes_the_checkpoint_that_was_lost(store: Path) -> None:
    """With the time of the last full index file, as it was: one of 0 would cost a broker that
    crashes every index file but the last."""
    before = read_checkpoint(store / "checkpoint")
    assert before is not None and before.index_msg_timestamp
    (store / "checkpoint").unlink()
    assert told(findings_of(store)[0]) == [("checkpoint-missing", WARNING, "checkpoint")]
    with MessageStore(store, CONFIG, writable=True) as writer:
        rows: list[Row] = list(flush(writer))
    assert rows[-1]["index_msg_timestamp"] == before.index_msg_timestamp
    assert read_checkpoint(store / "checkpoint") == before
    assert findings_of(store)[0] == []


# --- writers beside it -------------------------------------------------------------------------


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("more", [1, 10, 200])
def test_a_writer_that_opens_the_store_meanwhile(tmp_path: Path, more: int, closes: bool) -> None:
    """What it stores behind what verify has read is nothing wrong, though ``abort`` was not there
    at first, or is gone again."""
    root = tmp_path / "store"
    put(root, "T", 100, UNIQ_KEY="k")
    writers: list[MessageStore] = []

    def progress(done: int) -> None:
        if not writers:
            writers.append(MessageStore(root, CONFIG, writable=True))
            for number in range(more):
                message = MessageExtBrokerInner("T", b"x", properties={"KEYS": f"later{number}"})
                assert writers[0].put_message(message, flush=False).is_ok
            if closes:
                writers[0].close()

    found = [one for one in verify(root, CONFIG, progress) if isinstance(one, Finding)]
    assert [one for one in told(found) if one[1] != INFO] == []
    writers[0].close()
    assert not findings_of(root)[0]


# --- log and index -----------------------------------------------------------------------------


def test_whole_files_of_garbage_are_damage(tmp_path: Path, chance: random.Random) -> None:
    """An append that a crash cut off leaves nothing in the files behind it."""
    root = tmp_path / "store"
    put(root, "T", 120)
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 5
    for path in files[2:]:
        path.write_bytes(chance.randbytes(LOG_SIZE))
    findings, _ = findings_of(root)
    damaged = [one.physical_offset for one in findings if one.structure == "commitlog"]
    assert set(range(2 * LOG_SIZE, (len(files) - 1) * LOG_SIZE, LOG_SIZE)) <= set(damaged)


def test_the_first_index_file_is_gone(tmp_path: Path) -> None:
    """Its messages are without keys; the times of the next file are still right."""
    root = tmp_path / "store"
    clock = iter(range(1_700_000_000_000, 1_800_000_000_000, 7_000))
    with MessageStore(
        root, CONFIG, writable=True, create=True, clock=lambda: next(clock)
    ) as writer:
        for number in range(60):
            message = MessageExtBrokerInner("T", b"x", properties={"KEYS": f"k{number}"})
            assert writer.put_message(message, flush=False).is_ok
    first, *others = sorted((root / "index").iterdir())
    assert others
    first.unlink()
    findings, _ = findings_of(root)
    assert [one.code for one in findings] == ["index-starts-late"]
