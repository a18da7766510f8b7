"""fleet: the list of stores, what is counted of one, what says that it has changed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.scan.ranges import PartScan, plan_parts
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import CannotRead, CannotWrite, NoFileToWrite, OutputInUse, UsageError
from rmqctl.operations.fleet import looking, processes, run
from rmqctl.operations.fleet.counting import Count, counted, gathered
from rmqctl.operations.fleet.looking import Task, fields, row
from rmqctl.operations.fleet.run import Asked, Run
from rmqctl.operations.fleet.run import _tree as tree
from rmqctl.operations.fleet.state import State
from rmqctl.operations.fleet.stores import FleetStore, Listed, StoresFileError, listed, named
from rmqctl.operations.fleet.sums import Sums
from tests import golden_data
from tests.seeds import times

Golden = Callable[[str], Path]
LIST = """
# brokers
/data/broker-a/store

  b = sub/store
c=s3://bucket/x=y/store
./d=e/store
s3://bucket/f=g
file:///data/broker-e/store
f=file:/data/broker-f/store
"""


def test_a_list_has_a_store_a_line() -> None:
    assert listed(LIST, "list", Path("/lists")) == [
        Listed(None, "/data/broker-a/store"),
        Listed("b", "/lists/sub/store"),
        Listed("c", "s3://bucket/x=y/store"),
        Listed(None, "/lists/d=e/store"),
        Listed(None, "s3://bucket/f=g"),
        Listed(None, "/data/broker-e/store"),
        Listed("f", "/data/broker-f/store"),
    ]
    with pytest.raises(StoresFileError, match="list, line 2: no path holds a zero byte"):
        listed("/a\n/b\0", "list", Path("/lists"))


def test_stores_are_called_by_their_lines_and_paths() -> None:
    def expand(path: str) -> list[str]:
        return ["/x/store", "/y/store"] if path == "/*/store" else [path][: path != "/none"]

    lines = [("y", "/y/store"), (None, "/*/store"), (None, "/old/x/store"), ("z", "/none")]
    stores = named([Listed(*line) for line in lines], expand)
    assert [(one.name, one.path) for one in stores] == [
        ("y", "/y/store"),
        ("/x/store", "/x/store"),
        ("/old/x/store", "/old/x/store"),
        ("z", "/none"),
    ]
    with pytest.raises(UsageError, match="2 stores are called a"):
        named([Listed("a", "/x"), Listed("a", "/y")], expand)
    with pytest.raises(UsageError, match=r"a=/\*/store names 2 stores"):
        named([Listed("a", "/*/store")], expand)


def test_each_store_goes_by_its_own_broker_conf(tmp_path: Path) -> None:
    root = tmp_path / "broker-a" / "store"
    root.mkdir(parents=True)
    lines = [Listed(None, str(root)), Listed(None, "s3://b/broker-c/store")]

    def confs(pattern: str | None) -> list[str | None]:
        return [one.broker_conf for one in named(lines, lambda path: [path], str, pattern)]

    assert confs(None) == [None, None]
    (tmp_path / "broker-a" / "broker.conf").write_text("brokerName=a\n")
    assert confs(None) == [str(tmp_path / "broker-a" / "broker.conf"), None]
    assert confs("{path}/../{name}.conf")[0] == f"{root}/../broker-a.conf"


@pytest.mark.parametrize("name", ["basic", "crash", "transaction"])
def test_parts_of_a_log_add_up_to_the_whole(name: str, golden: Golden) -> None:
    with MessageStore(golden(name), golden_data.broker_conf(name)) as store:
        log: CommitLog = store.commit_log
        whole, together = counted(log), Count()
        parts = plan_parts(log, 32768)
        assert len(parts) > 1
        for part in parts:
            together.join(gathered(PartScan(Scanner(log, properties=False), part)))
    assert together == whole
    assert whole.records and whole.record_bytes and whole.last and whole.first


def test_another_process_waits_for_nothing(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows from other processes are those of this one; of a store whose process ends the row says
    so, of the others nothing is lost, and only those just looked at wait for each other."""
    ended = str(tmp_path / "ended")
    places = [str(golden_data.forced(golden(name))) for name in ("basic", "ipv6", *["basic"] * 4)]
    stores = [FleetStore(ended, place, place) for place in places]
    stores.insert(1, FleetStore("gone", str(tmp_path / "no"), str(tmp_path / "no")))
    tasks = [Task(one, "du", golden_data.broker_conf("basic"), False) for one in stores]
    here = [looking.looked_at(task) for task in tasks]
    pools: list[int] = []
    in_pool = processes._in_pool

    def counted(some: dict[int, Task], *rest: Any) -> Any:
        pools.append(len(some))
        return in_pool(some, *rest)

    monkeypatch.setattr(processes, "_in_pool", counted)
    there = dict(processes.each(tasks, 2, ends_at_gone))
    assert sorted(there) == list(range(len(tasks)))
    # Three were begun at a time; one more may be all that was left for the next pool.
    assert pools[0] == len(tasks)
    assert pools.count(1) <= 4
    for number, expected in enumerate(here):
        found: dict[str, Any] = {**there[number], "seconds": expected["seconds"]}
        if number == 1:
            assert (found["exit_code"], found["records"]) == (5, None)
            assert "ended from outside" in found["error"]
        else:
            assert found == expected
    assert here[1]["exit_code"] == 3


def ends_at_gone(task: Task) -> Any:
    # Ctrl-C is for whoever began this process.
    assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    ended = Path(task.store.name)
    if task.store.name == "gone":
        Path(task.store.path).with_name("ended").touch()
        os._exit(9)
    if not ended.exists():
        time.sleep(60)  # It is ended with the other one.
    return looking.looked_at(task)


def test_a_bug_is_one_stores_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(looking, "_of_directory", broken)
    store = FleetStore("a", str(tmp_path), str(tmp_path))
    found = looking.looked_at(Task(store, "stats", golden_data.broker_conf("basic")))
    assert found["exit_code"] == 70
    assert "a bug in rmqctl: KeyError: 'x'" in (found["error"] or "")


@pytest.mark.parametrize("verb", ["verify", "stats", "du"])
@pytest.mark.parametrize("size", [0, 30])
def test_a_first_file_that_is_cut_is_damage_and_no_error(
    golden: Golden, tmp_path: Path, verb: str, size: int
) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("basic"), root)
    os.truncate(min((root / "commitlog").iterdir()), size)
    for reads_log in (True, False):
        store = FleetStore("one", str(root), str(root))
        found = looking.looked_at(Task(store, verb, golden_data.broker_conf("basic"), reads_log))
        assert found["error"] is None, found["error"]
        # The next file has records, and of the first one nothing is known.
        assert found["min_offset"] == 0
        assert found["exit_code"] == int(reads_log or verb == "verify")


def test_what_has_changed_is_looked_at_again(golden: Golden, tmp_path: Path) -> None:
    root = golden_data.copy_tree(golden("basic"), tmp_path / "store")
    store = FleetStore("broker", str(root), str(root))
    directory = tmp_path / "state"

    def left(*, reads_log: bool = True, again: bool = False, is_noted: bool = False) -> int:
        asked = Asked("du", reads_log)
        with State(directory, "du") as state:
            run = Run([store], asked, no_remote, state, again=again)
            count = len(run.left)
            known = row(store, "du", 0.0, records=7, exit_code=0)
            if is_noted:
                (found,) = run.in_order([(0, known)] if count else [])
                assert (found["records"], found["kept"]) == (7, not count)
        return count

    assert left() == 1
    assert [left(is_noted=True), left(is_noted=True)] == [1, 0]
    assert [left(again=True), left(reads_log=False)] == [1, 1]
    unit = next((root / "consumequeue").rglob("0" * 20))
    status = unit.stat()
    os.utime(unit, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    assert [left(is_noted=True), left()] == [1, 0]
    (root / "abort").touch()
    assert [left(is_noted=True), left()] == [1, 0]
    (kept,) = (directory / "du").iterdir()
    kept.write_bytes(kept.read_bytes()[:-40])
    assert left() == 1
    with State(directory, "du"), pytest.raises(OutputInUse):
        State(directory, "du")
    with State(directory, "stats"):
        pass


def test_a_mark_is_the_same_in_every_process(golden: Golden, tmp_path: Path) -> None:
    """Hashes of texts, and with them the order of sets, are other ones in each process."""
    conf = tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text("basic"))
    program = (
        "import sys; from tests.test_operations.test_fleet import *; "
        "store = FleetStore('a', sys.argv[1], 'a', sys.argv[2]); "
        "print(Run([store], Asked('du'), no_remote, State(Path(sys.argv[3]), 'du')).left[0].mark)"
    )
    told = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, golden("basic"), conf, tmp_path / "state"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        told.add(done.stdout)
    assert len(told) == 1


def no_remote(url: str, config: object) -> Any:
    raise AssertionError(url)


def test_errors_are_tried_again(tmp_path: Path) -> None:
    store = FleetStore("a", str(tmp_path / "store"), "a")
    with State(tmp_path / "state", "verify") as state:
        known = row(store, "verify", 0.0, error="no", exit_code=5)
        state.keep(store, "mark", known)
        assert state.kept(store, "mark") is None
        state.keep(store, "mark", row(store, "verify", 0.0))
        found = state.kept(store, "mark")
        assert found is not None and list(found) == fields("verify")
        state.keep(store, "mark", known)
        assert state.kept(store, "mark") is None


def test_a_store_whose_name_is_no_utf_8_is_kept(tmp_path: Path) -> None:
    store = FleetStore("x\udcff", "/x\udcff/store", "/x\udcff/store")
    with State(tmp_path, "du") as state:
        state.keep(store, "mark", row(store, "du", 0.0, records=7))
        found = state.kept(store, "mark")
    assert found is not None
    assert (found["store"], found["path"], found["records"]) == (store.name, store.shown, 7)


def test_a_kept_row_with_changed_bytes_is_none_or_the_same(
    tmp_path: Path, chance: random.Random
) -> None:
    """Parquet without checksums would give a changed number of errors, and pyarrow raises errors
    of many classes."""
    store = FleetStore("a", "/a", "/a")
    with State(tmp_path, "verify") as state:
        state.keep(store, "mark", row(store, "verify", 0.0, records=70_000, errors=300))
        known = state.kept(store, "mark")
        (path,) = (tmp_path / "verify").iterdir()
        sound, none = path.read_bytes(), 0
        assert known is not None
        for _ in range(times(300)):
            changed = bytearray(sound)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            path.write_bytes(changed)
            found = state.kept(store, "mark")
            none += found is None
            assert found is None or found["errors"] in (300, None), found
        assert none > 100


def test_a_state_that_cannot_be_cleared_is_told_and_let_go(tmp_path: Path) -> None:
    left = tmp_path / "verify/.a.parquet.b"
    left.mkdir(parents=True)
    with pytest.raises(CannotWrite):
        State(tmp_path, "verify")
    left.rmdir()
    with State(tmp_path, "verify"):
        pass


@pytest.mark.parametrize("kind", ["fifo", "directory", "rows", "null"])
def test_what_is_no_kept_row_is_none(tmp_path: Path, kind: str) -> None:
    store = FleetStore("a", "/a", "/a")
    one = row(store, "verify", 0.0, records=7)
    with State(tmp_path, "verify") as state:
        state.keep(store, "mark", one)
        (path,) = (tmp_path / "verify").iterdir()
        table = pq.read_table(path)
        path.unlink()
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "rows":
            pq.write_table(pa.concat_tables([table] * 2000).combine_chunks(), path)
        else:
            columns = pa.schema([one.with_nullable(True) for one in table.schema])
            pq.write_table(
                pa.Table.from_pylist([table.to_pylist()[0] | {"type": None}], columns), path
            )
        assert state.kept(store, "mark") is None
        if kind == "directory":
            with pytest.raises(NoFileToWrite):
                state.keep(store, "mark", one)
        else:
            state.keep(store, "mark", one)
            assert state.kept(store, "mark") is not None


def test_no_network_is_asked_for_what_is_refused(tmp_path: Path) -> None:
    store = FleetStore("a", "s3://bucket/a", "s3://bucket/a")
    with State(tmp_path, "verify") as state:
        (one,) = Run([store], Asked("verify"), no_remote, state).left
    assert "maps a store's files" in (looking.looked_at(one.task)["error"] or "")


def test_a_url_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is told meanwhile, and the same is not asked again."""
    monkeypatch.setattr(run, "_WAIT_SECONDS", 0.001)
    store = FleetStore("a", "s3://bucket/a", "s3://bucket/a")
    told = threading.Event()
    opened: list[str] = []

    def no_answer(url: str, config: Any) -> Any:
        opened.append(url)
        assert told.wait(60)
        raise CannotRead(path=url, reason="no answer")

    planned = Run([store], Asked("du"), no_answer, waiting=told.set)
    assert (planned.rows[0]["exit_code"], planned.left) == (5, [])
    assert "no answer" in (planned.rows[0]["error"] or "")
    assert opened == [store.path]
    # Other machines may reach it.
    (left,) = Run([store], Asked("du", elsewhere=True), no_answer).left
    assert left.task.store == store


def test_the_sums_hold_nothing_of_the_rows() -> None:
    store, sums = FleetStore("a", "/a", "/a"), Sums("verify")
    for number in range(3):
        known = row(store, "verify", 0.0, records=number, bytes=10, errors=number, exit_code=1)
        sums.add(known)
    sums.add(row(store, "verify", 0.0, error="gone", exit_code=3))
    assert sums.exit_code == 3
    assert sums.summary() == {
        "stores": 4,
        "kept": 0,
        "failed": 1,
        "unclean": 3,
        "records": 3,
        "bytes": 30,
        "errors": 3,
        "warnings": 0,
        "infos": 0,
    }


def test_a_directory_behind_links_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "store" / "sub").mkdir(parents=True)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_bytes(b"xy")
    (tmp_path / "store" / "link").symlink_to(tmp_path / "far")
    (tmp_path / "store" / "sub" / "up").symlink_to(tmp_path / "store" / "sub")
    (tmp_path / "store" / "gone").symlink_to(tmp_path / "nowhere")
    found = list(tree(tmp_path / "store", ""))
    assert [(one.name, one.size) for one in found] == [("link/file", 2)]


def test_a_directory_that_may_not_be_listed_hides_no_other(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``lost+found`` is root's, where a store has a disk of its own."""
    known = golden("basic")
    store = FleetStore("a", str(known), str(known))
    (before,) = Run([store], Asked("stats"), no_remote).left
    usual = os.scandir

    def scandir(place: str) -> Any:
        if place == str(known / "config"):
            raise PermissionError(13, "Permission denied", place)
        return usual(place)

    monkeypatch.setattr(os, "scandir", scandir)
    names = [one.name for one in tree(known, "")]
    assert "config/" in names and "checkpoint" in names
    with State(tmp_path, "stats") as state:
        (found,) = Run([store], Asked("stats"), no_remote, state).left
    assert found.mark is not None
    assert found.log_bytes == before.log_bytes > 0
