"""rebuild --to-file-queues: a store of 5.3.3 that is in RocksDB becomes one with files."""

from __future__ import annotations

import json
import shutil
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import rocksdb as layout
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.engine.state import brokerjson, rocksdb
from rmqctl.errors import StoreInUse
from rmqctl.operations.mend import tofiles
from rmqctl.operations.mend.swap import swap
from tests import golden_data
from tests.seeds import times
from tests.test_cli.conftest import Cli, Done

SAID = json.loads((golden_data.LATER / "rocksdb.json").read_text("utf-8"))
CONF = "".join(f"{name}={value}\n" for name, value in SAID["config"].items())
SENT = {(topic, queue_id): count for topic, queue_id, count in SAID["sent"]}
CONVERT = ("rebuild", "queues", "--to-file-queues", "--in-place")


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    """A copy of the golden store; the first file of its log has expired."""
    golden = golden_data.unpacked("rocksdb", golden_directory, golden_data.LATER)
    (tmp_path / "conf").write_text(CONF)
    return golden_data.copy_tree(golden, tmp_path / "store")


def call(cli: Cli, root: Path, *line: str, form: str = "ndjson") -> Done:
    return cli(*line, "--store", root, "--broker-conf", root.parent / "conf", "--format", form)


def ends(root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """First and next queue offset of each queue."""
    with MessageStore(root, parse_broker_conf(CONF)) as store:
        found = {}
        for where in store.queues.directories():
            queue = store.consume_queue(where.topic, where.queue_id)
            assert queue is not None
            found[where.topic, where.queue_id] = (queue.min_offset, queue.max_offset)
        return found


def test_queues_topics_groups_and_offsets(cli: Cli, root: Path) -> None:
    assert call(cli, root, "put", "--topic", "orders", "--body", "x").code == 5
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 0 and "storeType=default" in done.err
    (summary,) = done.rows
    assert (summary["queues"], summary["ended_queues"], summary["offsets"]) == (3, 1, 1)
    with MessageStore(root, parse_broker_conf(CONF)) as store:
        records = [one for one in store.commit_log.walk() if isinstance(one, Record)]
        for record in records:
            queue = store.consume_queue(record.topic, record.queue_id)
            assert queue is not None
            unit = queue.unit(record.queue_offset)
            assert unit is not None and unit.physical_offset == record.physical_offset
    assert summary["units"] == summary["records"] == len(records)
    # Where each queue ended it goes on, also bills, of which the log has nothing.
    found = ends(root)
    assert {place: next_one for place, (_, next_one) in found.items()} == SENT
    assert found["bills", 0] == (5, 5)
    assert found["orders", 0][0] == min(one.queue_offset for one in records if not one.queue_id)
    topics = brokerjson.read_config(root, brokerjson.TOPICS)
    assert topics["topicConfigTable"]["orders"]["readQueueNums"] > 0
    assert topics["dataVersion"]["counter"] > 0
    groups = brokerjson.read_config(root, brokerjson.SUBSCRIPTION_GROUP)
    assert groups["subscriptionGroupTable"]["readers"]["groupName"] == "readers"
    assert brokerjson.consumer_offsets(root, None)["bills", "readers"] == {0: 5}
    # It is a store like others now, and nothing of the old one is lost.
    assert call(cli, root, "verify").code == 0
    assert call(cli, root, "config", "check").code == 0
    assert call(cli, root, "put", "--topic", "bills", "--queue-id", "0", "--body", "x").code == 0
    assert ends(root)["bills", 0] == (5, 6)
    (kept,) = root.glob("rmqctl-old-*")
    assert {str(path.parent.relative_to(kept)) for path in kept.rglob("CURRENT")} == {
        "consumequeue",
        "config/topics",
        "config/subscriptionGroups",
        "config/consumerOffsets",
    }
    again = call(cli, root, *CONVERT, "--yes")
    assert again.code == 2 and "has no queues in RocksDB" in again.err


@pytest.mark.parametrize(("more", "code"), [(("--dry-run",), 0), ((), 6)])
def test_without_consent_nothing_changes(
    cli: Cli, root: Path, more: tuple[str, ...], code: int
) -> None:
    before = golden_data.tree_content(root)
    done = call(cli, root, *CONVERT, *more)
    assert done.code == code
    assert golden_data.tree_content(root) == before
    if not code:
        (summary,) = done.rows
        assert summary["dry_run"] and (summary["topics"], summary["offsets"]) == (15, 1)
        # The log was not read.
        assert {summary[name] for name in ("records", "queues", "ended_queues")} == {None}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("queues", 0),
        ("walk queue", 0),
        ("pop ls", 0),
        ("timer ls", 0),
        ("groups", 0),
        ("topics", 0),
        ("pull --topic orders --queue-id 0", 1),
    ],
)
def test_what_looks_into_queues_says_that_they_are_not_read(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int
) -> None:
    """Without the library; tests/test_cli/test_rocksdb_queues.py has what is read with it."""
    monkeypatch.setattr("rmqctl.engine.state.rocksdb.is_readable", lambda: False)
    done = call(cli, root, *line.split())
    assert done.code == code and "queues in RocksDB" in done.err and "--to-file-queues" in done.err


def test_from_the_log_alone(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library: refused, or by the log and what stands in JSON files."""
    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name, *_: None if name == "rocksdict" else find(name)
    )
    before = golden_data.tree_content(root)
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 5 and "rocksdb" in done.err
    assert "--from-log-alone" in done.err and "--min-offset TOPIC:QUEUE=N" in done.err
    assert golden_data.tree_content(root) == before
    done = call(cli, root, *CONVERT, "--yes", "--from-log-alone")
    assert done.code == 0 and "those of the JSON files" in done.err
    assert set(ends(root)) == {("orders", 0), ("orders", 1)}
    assert not (root / "config/topics.json").exists()
    assert done.rows[-1]["topics"] is None
    assert call(cli, root, "verify").code == 0


@pytest.mark.parametrize("path", ["consumequeue/CURRENT", "config/topics/CURRENT"])
@pytest.mark.parametrize("data", [b"", b"MANIFEST-999999\n", b"\x1b[2J" * 9])
def test_a_damaged_database(cli: Cli, root: Path, path: str, data: bytes) -> None:
    (root / path).write_bytes(data)
    before = golden_data.tree_content(root)
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 5 and "RocksDB cannot be read" in done.err and "\x1b" not in done.err
    assert golden_data.tree_content(root) == before
    assert call(cli, root, *CONVERT, "--yes", "--from-log-alone").code == 0


def test_tables_that_are_cut_off(cli: Cli, root: Path) -> None:
    for table in (root / "consumequeue").glob("*.sst"):
        table.write_bytes(table.read_bytes()[:40])
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 5 and "RocksDB cannot be read" in done.err


@pytest.mark.parametrize("database", ["consumequeue", "config/consumerOffsets", "config/topics"])
def test_a_damaged_block_is_no_end(cli: Cli, root: Path, database: str) -> None:
    """The library's iterators just end there: queues, or offsets, would be left out."""
    for table in (root / database).glob("*.sst"):
        data = table.read_bytes()
        table.write_bytes(data[:20] + bytes(byte ^ 0xFF for byte in data[20:80]) + data[80:])
    before = golden_data.tree_content(root)
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 5 and "RocksDB cannot be read" in done.err and "checksum" in done.err
    assert golden_data.tree_content(root) == before


@pytest.mark.parametrize("swaps", [0, 1, 2, 3])
def test_cut_off_and_done_again(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch, swaps: int
) -> None:
    """After each of its steps: no other command writes, and the next run ends it."""
    done: list[tuple[Any, ...]] = []

    def until(*arguments: Any) -> None:
        if len(done) == swaps:
            raise KeyboardInterrupt
        done.append(arguments)
        swap(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("rmqctl.operations.mend.tofiles.swap", until)
        assert call(cli, root, *CONVERT, "--yes").code == 130
    assert call(cli, root, "put", "--topic", "orders", "--body", "x").code == 5
    assert call(cli, root, *CONVERT, "--yes").code == 0
    assert {place: next_one for place, (_, next_one) in ends(root).items()} == SENT
    assert brokerjson.consumer_offsets(root, None)["bills", "readers"] == {0: 5}
    assert call(cli, root, "verify").code == 0


def test_what_its_broker_wrote_until_it_stopped_counts(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops, and persists its last offsets, after they were read for the plan."""
    read, files = [], rocksdb.config_files

    def until_it_stops(root: Path) -> dict[str, dict[str, Any]]:
        read.append(lock := _is_locked(root))
        found = files(root)
        if lock:
            found[brokerjson.CONSUMER_OFFSET]["offsetTable"]["bills@readers"] = {0: 77}
        return found

    monkeypatch.setattr(tofiles, "config_files", until_it_stops)
    assert call(cli, root, *CONVERT, "--yes").code == 0
    assert read == [False, True]
    assert brokerjson.consumer_offsets(root, None)["bills", "readers"] == {0: 77}


def _is_locked(root: Path) -> bool:
    try:
        StoreLock(root).release()
    except StoreInUse:
        return True
    return False


def test_a_json_file_that_counts_further(cli: Cli, root: Path) -> None:
    """As a broker's start takes it."""
    offsets = '{"dataVersion":{"counter":99,"timestamp":1},"offsetTable":{"bills@readers":{0:3}}}'
    older = '{"dataVersion":{"counter":-1,"timestamp":1},"topicConfigTable":{"old":{}}}'
    (root / "config/consumerOffset.json").write_text(offsets)
    (root / "config/topics.json").write_text(older)
    assert call(cli, root, *CONVERT, "--yes").code == 0
    assert brokerjson.consumer_offsets(root, None)["bills", "readers"] == {0: 3}
    assert "old" not in brokerjson.read_config(root, brokerjson.TOPICS)["topicConfigTable"]
    assert (root / "config/topics.json.bak").read_text() == older


@pytest.mark.parametrize(
    "line",
    [
        ("rebuild", "all", "--to-file-queues", "--in-place"),
        ("rebuild", "queues", "--to-file-queues"),
        (*CONVERT, "--topic", "orders"),
        ("rebuild", "queues", "--in-place", "--from-log-alone"),
    ],
)
def test_options_that_do_not_go_together(cli: Cli, root: Path, line: tuple[str, ...]) -> None:
    done = call(cli, root, *line)
    assert done.code == 2 and "--" in done.err


def test_other_forms_stay_refused(cli: Cli, root: Path) -> None:
    """A configuration of version 2 is none of those that are read; nor is anybody's else."""
    (root / "config/rdb").mkdir()
    (root / "config/rdb/CURRENT").write_text("x")
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 5 and "config/rdb" in done.err
    shutil.rmtree(root / "config/rdb")
    (root / "epochFileCheckpoint").write_text("1\n0\n1-0\n")
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 5 and "epochFileCheckpoint" in done.err
    (root / "epochFileCheckpoint").unlink()
    (root / "dledger-n0/data").mkdir(parents=True)
    done = call(cli, root, *CONVERT, "--yes")
    assert done.code == 5 and "DLedger" in done.err


@settings(max_examples=times(200))
@given(st.binary(max_size=60))
def test_any_key(key: bytes) -> None:
    parts = layout.topic_and_rest(key)
    assert parts is None or parts[0].encode() in key


def test_keys_are_read_as_they_are_made() -> None:
    key = layout.unit_key("Orders", 3, 42)
    assert key.hex() == "00000006014f72646572730100000003" + "01000000000000002a"
    assert layout.topic_and_rest(key) == ("Orders", key[12:])


@pytest.mark.parametrize("form", ["options", "file"])
def test_where_an_expired_queue_goes_on_may_be_said(cli: Cli, root: Path, form: str) -> None:
    """Without the databases only an operator knows; what the log has messages of it tells."""
    line: tuple[object, ...] = ("--min-offset", "bills:0=5", "--min-offset", "orders:0=7")
    if form == "file":
        said = root.parent / "offsets.json"
        said.write_text('{"bills": {"0": 4}, "orders": {"0": 7}}')
        line = ("--min-offsets", said, "--min-offset", "bills:0=5")
    done = cli(
        *CONVERT, "--yes", "--from-log-alone", *line,
        "--store", root, "--broker-conf", root.parent / "conf", "--format", "ndjson",
    )  # fmt: skip
    assert done.code == 0 and done.rows[-1]["ended_queues"] == 1
    assert "log has messages of orders:0" in done.err and "of bills:0" not in done.err
    found = ends(root)
    assert found["bills", 0] == (5, 5)
    assert {place: next_one for place, (_, next_one) in found.items()} == SENT
    assert call(cli, root, "verify").code == 0
    assert call(cli, root, "put", "--topic", "bills", "--queue-id", "0", "--body", "x").code == 0
    assert ends(root)["bills", 0] == (5, 6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bills=5", "TOPIC:QUEUE=N"),
        ("bills:x=5", "TOPIC:QUEUE=N"),
        ("bills:0=-5", "TOPIC:QUEUE=N"),
        ("../x:0=5", "cannot be a queue directory"),
        ("bills:0=9223372036854775807", "no queue is as long"),
    ],
)
def test_a_minimum_that_is_none(cli: Cli, root: Path, text: str, told: str) -> None:
    before = golden_data.tree_content(root)
    done = call(cli, root, *CONVERT, "--yes", "--from-log-alone", "--min-offset", text)
    assert done.code == 2 and told in done.err
    assert golden_data.tree_content(root) == before


@pytest.mark.parametrize("text", ["[", "[]", '{"bills": 5}', '{"bills": {"0": true}}', "[" * 99999])
def test_a_file_of_minimum_offsets_that_is_none(cli: Cli, root: Path, text: str) -> None:
    said = root.parent / "offsets.json"
    said.write_text(text)
    done = call(cli, root, *CONVERT, "--yes", "--from-log-alone", "--min-offsets", str(said))
    assert done.code == 2 and "--min-offsets" in done.err


def test_minimum_offsets_of_a_whole_log(cli: Cli, root: Path) -> None:
    """Nothing of it has expired; and what the databases say is not to be said again."""
    option = ("--min-offset", "bills:0=5")
    assert call(cli, root, *CONVERT, "--yes", *option).code == 2
    first = min((root / "commitlog").iterdir())
    first.rename(first.with_name("0" * 20))
    for other in sorted((root / "commitlog").iterdir())[1:]:
        other.unlink()
    done = call(cli, root, *CONVERT, "--yes", "--from-log-alone", *option)
    assert done.code == 2 and "begins at 0" in done.err
