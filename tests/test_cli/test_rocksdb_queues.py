"""Queues in RocksDB (5.x) are read as those in files are, where the library is there."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import rocksdb as layout
from rmqctl.engine.files.paths import QueueDirectory
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.rocksdbqueue import RocksDBQueueTable
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.state import rocksdb
from rmqctl.engine.state.rocksdb import Database
from rmqctl.engine.state.rocksdbmanifest import is_cut
from rmqctl.engine.state.rocksdbqueues import QueueDatabase
from tests import golden_data
from tests.seeds import times
from tests.test_cli.conftest import Cli, Done

SAID = json.loads((golden_data.LATER / "rocksdb.json").read_text("utf-8"))
CONF = "".join(f"{name}={value}\n" for name, value in SAID["config"].items())
#: Where each queue ends; the log has 17 of the messages of orders, and none of bills.
SENT = {(topic, queue_id): count for topic, queue_id, count in SAID["sent"]}
#: What asks queues.
READING = (
    "queues",
    "walk queue --topic orders --start 16384",
    "walk queue --topic orders --queue-id 0 --offset 65 --end-offset 67",
    "pull --topic orders --queue-id 0 --offset 62 --max-messages 100",
    "pull --topic orders --queue-id 1 --offset 3 --max-messages 2",
    "pull --topic orders --queue-id 0 --offset 61",
    "pull --topic orders --queue-id 0 --offset 99",
    "pull --topic bills --queue-id 0",
    "offset --topic orders --queue-id 0 --time 1795365120688",
    "offset --topic bills --queue-id 0 --time 0",
    "topics",
    "dump unit orders 0 68",
)


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    """A copy of the golden store."""
    golden = golden_data.unpacked("rocksdb", golden_directory, golden_data.LATER)
    (tmp_path / "conf").write_text(CONF)
    return golden_data.copy_tree(golden, tmp_path / "store")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name, *_: None if name == "rocksdict" else find(name)
    )


def call(cli: Cli, root: Path, line: str) -> Done:
    conf = root.parent / "conf"
    return cli(*line.split(), "--store", root, "--broker-conf", conf, "--format", "ndjson")


def changed(root: Path, change: Callable[[Any, Any], None], name: str = "consumequeue") -> None:
    """Writes to a database: its column families of units and of offsets are given."""
    from rocksdict import Options, Rdict

    path, options = str(root / name), Options(raw_mode=True)
    families = {one: Options(raw_mode=True) for one in Rdict.list_cf(path, options)}
    database = Rdict(path, options=options, column_families=families)
    units, offsets = (database.get_column_family(one) for one in ("default", "offset"))
    change(units, offsets)
    units.flush(True)
    offsets.flush(True)
    del units, offsets
    database.close()


def test_every_command_reads_them_as_those_in_files(cli: Cli, root: Path) -> None:
    """The rows are those of the store that it becomes with files."""
    before = golden_data.tree_content(root)
    read = {line: call(cli, root, line) for line in READING}
    assert golden_data.tree_content(root) == before
    assert [row["messages"] for row in read["queues"].rows] == [0, 8, 9, 17]
    convert = "rebuild queues --to-file-queues --in-place --yes"
    assert call(cli, root, convert).code == 0
    for line, done in read.items():
        again = call(cli, root, line)
        rows: list[list[Any]] = [done.rows, again.rows]
        if line == "topics":
            # Those that nobody has sent to are in topics.json only now.
            names = "topic", "queues", "messages", "bytes"
            rows = [[[row[n] for n in names] for row in one[:-1] if row["queues"]] for one in rows]
        if line.startswith("dump"):
            rows = [one[:-1] for one in rows]
        assert rows[0] == rows[1], line
        assert done.code == again.code, line


def test_where_they_begin_and_end(root: Path) -> None:
    with MessageStore(root, parse_broker_conf(CONF)) as store:
        assert not store.queues.in_files
        found = {}
        for where in store.queues.directories():
            queue = store.consume_queue(where.topic, where.queue_id)
            assert queue is not None
            found[where.topic, where.queue_id] = queue.min_offset, queue.max_offset
        assert {place: end for place, (_, end) in found.items()} == SENT
        assert found["bills", 0] == (5, 5)
        assert store.consume_queue("bills", 1) is None  # Somebody has asked for it, no more.
        assert store.consume_queue("CHECKPOINT_TOPIC", 0) is None
        for nobody in ("", "x" * 400, "\udc80", "../x", "a\0b"):
            assert store.consume_queue(nobody, 0) is None
        assert store.consume_queue("orders", -1) is None
        assert store.dispatched_to == store.max_offset == 20515


def test_the_queues_of_a_topic_are_found_without_all_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``serve`` asks for the queues of each topic of each group: to list all of them each time
    takes a store of many queues minutes."""
    config = parse_broker_conf(CONF)
    with MessageStore(root, config) as store:
        everything = list(store.queues.directories())
        monkeypatch.setattr(QueueDatabase, "places", None)
        for topic in (*store_topics(everything), "order", "ordersX", "CHECKPOINT_TOPIC", "\ud800"):
            found = list(store.queues.directories_of(topic))
            assert found == [where for where in everything if where.topic == topic]


def store_topics(directories: list[QueueDirectory]) -> list[str]:
    topics = sorted({where.topic for where in directories})
    assert topics
    return topics


@pytest.mark.parametrize("name", ["rocksdict-config.json", "LOG", "LOCK", "000099.dbtmp"])
def test_files_of_others_beside_a_database_stay_as_they_are(
    cli: Cli, root: Path, name: str
) -> None:
    """Somebody has opened it with the library before, which writes such a file."""
    (root / "consumequeue" / name).write_text("{other")
    before = golden_data.tree_content(root)
    assert call(cli, root, "queues").rows[-1]["queues"] == 3
    assert golden_data.tree_content(root) == before


def test_any_thread_reads(root: Path) -> None:
    with MessageStore(root, parse_broker_conf(CONF)) as store, ThreadPoolExecutor(4) as pool:

        def pull(number: int) -> list[int]:
            found = store.get_message("orders", number % 2, 62 * (number % 2 == 0))
            return [record.queue_offset for record in found.records]

        assert list(pool.map(pull, range(40))) == [[*range(62, 70)], [*range(9)]] * 20


def test_a_queue_lives_on_with_who_holds_it(root: Path) -> None:
    with MessageStore(root, parse_broker_conf(CONF)) as store:
        queue = store.consume_queue("orders", 0)
        assert queue is not None
    unit = queue.unit(69)
    assert unit is not None and unit.physical_offset == 18085
    assert queue.unit(70) is None


@pytest.mark.parametrize("line", ["queues", "walk queue", "pull --topic orders --queue-id 0"])
@pytest.mark.usefixtures("without_library")
def test_without_the_library_it_is_said(cli: Cli, root: Path, line: str) -> None:
    done = call(cli, root, line)
    assert "queues in RocksDB" in done.err and "[rocksdb]" in done.err
    assert done.err.count("note:") == 1 and not done.rows[:-1]


@pytest.mark.parametrize("line", ["config check", "groups", "topics", "transaction ls", "pop ls"])
def test_offsets_and_topics_in_rocksdb_are_said(cli: Cli, root: Path, line: str) -> None:
    """No answer is silently empty, or old."""
    done = call(cli, root, line)
    assert done.code == 0 and "config/consumerOffsets" in done.err and "not read" in done.err
    if line == "config check":
        told = {(row["code"], row["path"]) for row in done.rows[:-1]}
        names = "topics", "subscriptionGroups", "consumerOffsets"
        assert told == {("not-understood", f"config/{name}") for name in names}
    for name in ("topics", "subscriptionGroups", "consumerOffsets"):
        shutil.rmtree(root / "config" / name)
    assert not call(cli, root, line).err
    (root.parent / "conf").write_text(f"{CONF}configManagerVersion=v2\nstoreType=defaultRocksDB\n")
    assert "config/rdb" in call(cli, root, line).err


@pytest.mark.parametrize("line", ["schedule ls", "transaction ls", "config check"])
@pytest.mark.usefixtures("without_library")
def test_other_commands_that_ask_queues_say_it_too(cli: Cli, root: Path, line: str) -> None:
    done = call(cli, root, line)
    assert done.code == 0 and "queues in RocksDB" in done.err


def test_units_that_are_missing(cli: Cli, root: Path) -> None:
    """In the middle, and where the queue begins: a broker finds nothing there."""

    def change(units: Any, offsets: Any) -> None:
        for queue_offset in (62, 65, 66):
            units.delete(layout.unit_key("orders", 0, queue_offset))
        offsets[layout.end_key("orders", 0, layout.MIN)] = layout.END.pack(16384, 62)

    changed(root, change)
    done = call(cli, root, "walk queue --topic orders --queue-id 0")
    assert [row["queue_offset"] for row in done.rows[:-1]] == [63, 64, 65, 67, 68, 69]
    (damage,) = [row for row in done.rows if row["type"] == "damage"]
    assert damage["length"] == 2 and damage["reason"] == "units-never-written"
    for offset, following in ((62, 63), (65, 67)):
        (one,) = call(cli, root, f"pull --topic orders --queue-id 0 --offset {offset}").rows
        assert (one["status"], one["next_begin_offset"]) == ("OFFSET_FOUND_NULL", following)
    done = call(cli, root, "pull --topic orders --queue-id 0 --offset 63 --max-messages 9")
    assert [row["queue_offset"] for row in done.rows[:-1]] == [63, 64, 67, 68, 69]
    (row,) = call(cli, root, "queues --topic orders --queue-id 0").rows[:-1]
    assert (row["min_offset"], row["max_offset"]) == (62, 70)


def test_a_queue_of_nobody_s_length(cli: Cli, root: Path) -> None:
    """Two units far apart: what lies between costs nothing."""
    far = (1 << 58) - 1

    def change(units: Any, offsets: Any) -> None:
        units[layout.unit_key("orders", 0, far)] = layout.UNIT.pack(18085, 243, 97, 0)
        offsets[layout.end_key("orders", 0)] = layout.END.pack(18085, far)
        # No queue is as long as that: it counts as none.
        offsets[layout.end_key("orders", 1)] = layout.END.pack(18085, (1 << 63) - 1)
        offsets[layout.end_key("orders", 2)] = layout.END.pack(-1, 5)
        offsets[b""] = layout.END.pack(18085, 3)
        offsets[b"\x00\x00\x00\x09\x01orders"] = b"x"

    changed(root, change)
    done = call(cli, root, "walk queue --topic orders")
    assert [row["queue_offset"] for row in done.rows if row["type"] == "unit"] == [
        *range(62, 70),
        far,
    ]
    assert call(cli, root, f"pull --topic orders --queue-id 0 --offset {far - 9}").code == 1
    assert call(cli, root, "queues").rows[-1]["queues"] == 2
    with MessageStore(root, parse_broker_conf(CONF)) as store:
        assert store.consume_queue("\udc80", 0) is None


def test_a_time_in_a_queue_of_nobody_s_length(cli: Cli, root: Path) -> None:
    """What lies between two units costs nothing, nor what lies behind the last one that leads to a
    record."""
    far = (1 << 58) - 1

    def change(units: Any, offsets: Any) -> None:
        units[layout.unit_key("orders", 0, far)] = layout.UNIT.pack(20000, 243, 97, 0)
        offsets[layout.end_key("orders", 0)] = layout.END.pack(20000, far)
        offsets[layout.end_key("orders", 0, layout.MIN)] = layout.END.pack(16384, 62)

    changed(root, change)
    newest = 1 << 43
    for line, found in (
        ("0 --boundary ceil", 62),
        ("0 --boundary nearest", 62),
        (f"{newest} --boundary ceil", None),
        (f"{newest} --boundary floor", 69),
        (f"{newest} --boundary floor --scan", 69),
    ):
        done = call(cli, root, f"offset --topic orders --queue-id 0 --time {line}")
        row = done.rows[0]
        assert (row["min_offset"], row["max_offset"]) == (62, far + 1)
        assert row["queue_offset"] == found, line


def test_both_kinds(cli: Cli, root: Path) -> None:
    """A broker that was switched, or writes both: what its broker.conf says is read."""
    place = root / "consumequeue/orders/0"
    place.mkdir(parents=True)
    (place / ("0" * 20)).write_bytes(layout.UNIT.pack(16384, 243, 97, 0)[:20] + bytes(980))
    done = call(cli, root, "queues")
    assert [row["max_offset"] for row in done.rows[:-1]] == [1]
    assert "too; those in files are read" in done.err
    for said, ends in (
        ("storeType=default", [1]),
        ("storeType=defaultRocksDB", [5, 70, 9]),
        ("rocksdbCQDoubleWriteEnable=true", [1]),
    ):
        (root.parent / "conf").write_text(f"{CONF}{said}\n")
        done = call(cli, root, "queues")
        assert [row["max_offset"] for row in done.rows[:-1]] == ends, said
        assert not done.err
        assert call(cli, root, "put --topic orders --body x").code == 5


@pytest.mark.parametrize("left_over", [1, 2])
def test_a_broker_that_merges_files_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch, left_over: int
) -> None:
    """A file goes between its name's reading and its opening: once more, as long as it changes."""
    opened = Database._open_linked
    tries: list[int] = []

    def open_linked(self: Database) -> None:
        tries.append(len(tries))
        if len(tries) <= left_over:
            (root / "consumequeue" / f"{len(tries)}.sst").touch()
            raise OSError("No such file")
        opened(self)

    monkeypatch.setattr(Database, "_open_linked", open_linked)
    with Database(root / "consumequeue") as database:
        assert len(list(database.items("default"))) == 84
    assert len(tries) == left_over + 1


def test_what_does_not_change_is_not_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def open_linked(self: Database) -> None:
        tries.append(self)
        raise OSError("No such file")

    monkeypatch.setattr(Database, "_open_linked", open_linked)
    with pytest.raises(rocksdb.RocksDBUnreadable, match="No such file"):
        Database(root / "consumequeue").open()
    assert len(tries) == 1


# --- verify --------------------------------------------------------------------------------------


def _set_unit(queue_offset: int, *unit: int, queue_id: int = 0) -> Callable[[Any, Any], None]:
    def change(units: Any, offsets: Any) -> None:
        units[layout.unit_key("orders", queue_id, queue_offset)] = layout.UNIT.pack(*unit)

    return change


def _set_place(which: bytes, *place: int) -> Callable[[Any, Any], None]:
    def change(units: Any, offsets: Any) -> None:
        offsets[layout.end_key("orders", 0, which)] = layout.END.pack(*place)

    return change


def _without_unit(units: Any, offsets: Any) -> None:
    for queue_offset in (65, 66):
        units.delete(layout.unit_key("orders", 0, queue_offset))


def _without_queue(units: Any, offsets: Any) -> None:
    offsets.delete(layout.end_key("orders", 1))


def _behind_the_end(units: Any, offsets: Any) -> None:
    _set_unit(70, 30000, 243, 97, 0)(units, offsets)
    _set_place(layout.MAX, 30000, 70)(units, offsets)


def _flushed_before(units: Any, offsets: Any) -> None:
    """As a kill leaves it: what came last was never flushed."""
    offsets[layout.end_key("orders", 1)] = layout.END.pack(18571, 1)
    built_to = layout.end_key(layout.CHECKPOINT_TOPIC, 0)
    offsets[built_to] = layout.BUILT_TO.pack(18814)
    for queue_offset in range(2, 9):
        units.delete(layout.unit_key("orders", 1, queue_offset))


def _left_behind(units: Any, offsets: Any) -> None:
    """Units behind the end, of a log that was cut, and before the begin, of one that has expired:
    they are the library's to remove."""
    _set_unit(77, 30000, 243, 97, 0)(units, offsets)
    units.delete(layout.unit_key("orders", 0, 20))
    units.delete(layout.unit_key("bills", 0, 4))


#: What is changed, and code and queue offset of what verify says.
UNSOUND: dict[str, tuple[Callable[[Any, Any], None], list[tuple[str, int | None]]]] = {
    "nothing": (lambda units, offsets: None, []),
    "left behind": (_left_behind, []),
    "flushed before": (_flushed_before, [("dispatch-behind", None)]),
    "unit missing": (_without_unit, [("record-without-unit", 65)]),
    "other tags code": (
        _set_unit(64, 16870, 243, 98, 1795365120678),
        [("unit-store-time-mismatch", 64), ("unit-mismatch", 64)],
    ),
    "other time": (_set_unit(69, 18085, 243, 97, 7), [("unit-store-time-mismatch", 69)]),
    "queue missing": (_without_queue, [("queue-missing", None)]),
    # Its broker looks for the begin by halves, and finds none.
    "end too far": (
        _set_place(layout.MAX, 18085, 80),
        [("queue-end-contradicted", 80), ("queue-begin-contradicted", 0)],
    ),
    "end elsewhere": (_set_place(layout.MAX, 18000, 69), [("queue-end-contradicted", 69)]),
    "end too early": (_set_place(layout.MAX, 17599, 67), [("record-without-unit", 68)]),
    "begin too late": (_set_place(layout.MIN, 17842, 68), [("queue-begin-contradicted", 68)]),
    "begin too early": (_set_place(layout.MIN, 16384, 9), [("queue-begin-contradicted", 9)]),
    "behind the log": (_behind_the_end, [("unit-points-past-log-end", 70)]),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_verify_compares_them_with_the_log(cli: Cli, root: Path, case: str) -> None:
    change, wanted = UNSOUND[case]
    changed(root, change)
    before = golden_data.tree_content(root)
    done = call(cli, root, "verify")
    assert golden_data.tree_content(root) == before
    *rows, summary = done.rows
    told = [row for row in rows if row["code"] not in ("not-understood", "log-starts-late")]
    assert [(row["code"], row["queue_offset"]) for row in told] == wanted
    assert done.code == any(row["severity"] != "info" for row in told)
    assert summary["queues"] == 3 - (case == "queue missing")
    for row in told:
        if row["queue_id"] is not None:
            assert row["path"] == "consumequeue" and row["topic"] == "orders"
            assert "--to-file-queues" in row["advice"] and "--to-file-queues" in row["command"]
            assert row["position"] is None
        elif row["code"] == "dispatch-behind":
            assert row["command"] is None and "Its broker" in row["advice"]
    if wanted and case != "flushed before":
        # What it says is what mends it.
        line = "rebuild queues --to-file-queues --in-place --yes"
        assert call(cli, root, line).code == 0
        assert call(cli, root, "verify").code == 0


@pytest.mark.usefixtures("without_library")
def test_verify_without_the_library_says_what_it_leaves_out(cli: Cli, root: Path) -> None:
    done = call(cli, root, "verify")
    (row,) = [row for row in done.rows if row.get("code") == "rocksdb-not-compared"]
    assert done.code == 0 and row["path"] == "consumequeue"
    assert "pip install rocksdict" in row["advice"]
    assert not [row for row in done.rows if row.get("found") == "queues in RocksDB (5.x)"]
    assert done.rows[-1]["queues"] == 0


def test_verify_of_both_kinds(cli: Cli, root: Path) -> None:
    """Files of queues are checked where they count, those of the database never."""
    copy = golden_data.copy_tree(root, root.with_name("copy"))
    convert = "rebuild queues --to-file-queues --in-place --yes"
    assert call(cli, copy, convert).code == 0
    for topic in ("bills", "orders"):
        shutil.copytree(copy / "consumequeue" / topic, root / "consumequeue" / topic)
    done = call(cli, root, "verify")
    assert "rocksdb-not-compared" in [row.get("code") for row in done.rows]
    for said in ("rocksdbCQDoubleWriteEnable=true", "storeType=defaultRocksDB"):
        (root.parent / "conf").write_text(f"{CONF}{said}\n")
        done = call(cli, root, "verify")
        assert done.code == 0 and done.rows[-1]["queues"] == 3, said
        assert "rocksdb-not-compared" not in [row.get("code") for row in done.rows]


def test_verify_finds_every_topic_in_the_database(cli: Cli, root: Path) -> None:
    """With queues in RocksDB a broker has no batch queues, whatever is left of them."""
    before = call(cli, root, "verify").rows[-1]
    (root / "batchconsumequeue" / "orders" / "0").mkdir(parents=True)
    after = call(cli, root, "verify").rows[-1]
    assert after["units"] == before["units"] > 0 and after["queues"] == 3


# --- damage --------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def flipped(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:20] + bytes(byte ^ 0xFF for byte in data[20:80]) + data[80:])


def of_nothing(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "tables-cut": ("*.sst", cut),
    "blocks-flipped": ("*.sst", flipped),
    "tables-missing": ("*.sst", Path.unlink),
    "manifest-missing": ("MANIFEST-*", Path.unlink),
    "manifest-flipped": ("MANIFEST-*", flipped),
    "manifest-empty": ("MANIFEST-*", of_nothing),
    # As after a crash in the middle of an entry, of which the library says nothing.
    "manifest-cut": ("MANIFEST-*", lambda path: os.truncate(path, 200)),
    "current-empty": ("CURRENT", of_nothing),
    "current-astray": ("CURRENT", lambda path: path.write_bytes(b"\x1b[2J\n" * 9)),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_database_is_an_error_with_a_next_step(cli: Cli, root: Path, case: str) -> None:
    pattern, damage = DAMAGE[case]
    for path in list((root / "consumequeue").glob(pattern)):
        damage(path)
    before = golden_data.tree_content(root)
    for line in READING:
        done = call(cli, root, line)
        assert done.code == 5 and "RocksDB cannot be read" in done.err, line
        assert "--to-file-queues" in done.err and "\x1b" not in done.err
        assert "rmqctl-rocksdb-" not in done.err, "no place of a link"
    # What needs no queue is as it was.
    assert call(cli, root, "walk commitlog").rows[-1]["messages"] == 17
    assert call(cli, root, "message 16384").code == 0
    done = call(cli, root, "verify")
    told = [row for row in done.rows if row.get("code") == "rocksdb-unreadable"]
    assert done.code == 1 and told and "--from-log-alone" in told[0]["command"]
    assert done.rows[-1]["records"] == 17 and not done.err
    (row,) = call(cli, root, "info").rows
    assert row["queues"] == 0 and any("cannot be read" in one for one in row["not_understood"])
    assert golden_data.tree_content(root) == before


@pytest.mark.parametrize("name", ["topics", "subscriptionGroups", "consumerOffsets"])
def test_what_a_cut_list_of_files_hides_is_not_lost_in_silence(
    cli: Cli, root: Path, name: str
) -> None:
    for path in list((root / "config" / name).glob("*.log")):
        os.truncate(path, 0)  # What the tables have as well.
    (manifest,) = (root / "config" / name).glob("MANIFEST-*")
    os.truncate(manifest, 200)
    before = golden_data.tree_content(root)
    done = call(cli, root, "rebuild queues --to-file-queues --in-place --yes")
    assert done.code == 5 and "MANIFEST" in done.err and ".sst" in done.err, done
    assert golden_data.tree_content(root) == before


def test_a_list_is_cut_where_no_entry_ends(chance: random.Random) -> None:
    """Records in pieces, as RocksDB writes them, none over the border of a block."""
    log, places = b"", []
    for size in (100, 40_000, 7, 25_000, 1, 70_000, 32_761 + 32_768):
        begin, left, is_first = len(log), size, True
        while left or is_first:
            room = (1 << 15) - len(log) % (1 << 15)
            if room < 8:
                log += bytes(room)
                continue
            piece = min(left, room - 7)
            kind = (1 if is_first else 4) if piece == left else (2 if is_first else 3)
            log += struct.pack("<IHB", 0xFFFFFFFF, piece, kind) + b"x" * piece
            left, is_first = left - piece, False
        places.append((begin, len(log)))
    for begin, end in places:
        assert not is_cut(log[:end]), end
        within = chance.sample(range(begin + 8, end), min(50, end - begin - 8))
        assert all(is_cut(log[:at]) for at in (end - 1, *within)), (begin, end)
    assert not is_cut(log + bytes(5000)), "room that was made ahead"


def test_verify_says_once_that_a_part_cannot_be_read(cli: Cli, root: Path) -> None:
    """One table after the other: what is not in it is checked all the same."""
    for table in sorted((root / "consumequeue").glob("*.sst")):
        sound = table.read_bytes()
        flipped(table)
        done = call(cli, root, "verify")
        codes = [row.get("code") for row in done.rows]
        assert done.code == 1 and codes.count("rocksdb-unreadable") == 1 and not done.err
        assert not {"queue-missing", "consumequeue-missing", "record-without-unit"} & set(codes)
        assert done.rows[-1]["records"] == 17
        table.write_bytes(sound)
    assert call(cli, root, "verify").code == 0


@pytest.mark.filterwarnings("error")
@settings(max_examples=times(40))
@given(st.data())
def test_any_bytes_of_a_database(golden_directory: Path, data: st.DataObject) -> None:
    """Units, or our own error."""
    golden = golden_data.unpacked("rocksdb", golden_directory, golden_data.LATER) / "consumequeue"
    root = golden_directory / "any-bytes" / "consumequeue"
    shutil.rmtree(root.parent, ignore_errors=True)
    shutil.copytree(golden, root)
    names = sorted(path.name for path in root.iterdir() if path.stat().st_size)
    path = root / data.draw(st.sampled_from(names))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    table = RocksDBQueueTable(root, MessageStoreConfig().mapped_file_size_consume_queue, whole)
    try:
        for where in table.directories():
            queue = table.find(where.topic, where.queue_id)
            assert queue is None or len(list(queue.units(0, 100))) <= 100
        table.look_at_all()
    except rocksdb.RocksDBUnreadable:
        return


def whole() -> tuple[int, int]:
    return 0, 1 << 40
