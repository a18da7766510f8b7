"""A directory, a device, a pipe or a link to nothing where a store has a file: the same words from
every command, and a step that helps."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.files.unfinished import BESIDE
from rmqctl.errors import NoFileToWrite, NotAFile
from tests.test_cli.conftest import Cli, cli, state, store

__all__ = ["cli", "store"]  # Fixtures of another directory.

NO_FILE = "it is not a regular file"
STEP = "See what it is (`ls -ld`): a file belongs there."
PUT = ("put", "--topic", "orders", "--body", "x")


def place(path: Path, kind: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        if os.geteuid():
            pytest.skip("only root makes devices")
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        path.symlink_to("/nowhere/at/all")
    return path


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
@pytest.mark.parametrize("name", ["lock", "abort", "checkpoint"])
def test_writers_say_what_a_reader_says(name: str, kind: str, cli: Cli, store: Path) -> None:
    path = place(store / name, kind)
    before = state(store)
    for line in (PUT, ("flush",), ("clean", "--yes"), ("checkpoint", "set", "--computed", "--yes")):
        done = cli(*line, store=store)
        assert done.code == 5, (line, done.err)
        does = "read" if line[0] == name else "write"
        assert f"cannot {does} {path}: {NO_FILE}. {STEP}" in done.err
        assert "free space" not in done.err and "owner" not in done.err
    assert state(store) == before


def test_the_words_for_reading_and_writing_are_the_same() -> None:
    reading, writing = (
        str(one(path="there", reason=NO_FILE)).replace("write", "read")
        for one in (NotAFile, NoFileToWrite)
    )
    assert reading == writing == f"cannot read there: {NO_FILE}. {STEP}"


@pytest.mark.parametrize("command", ["verify", "lint"])
@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
@pytest.mark.parametrize(
    ("name", "severity"), [("lock", "error"), ("abort", "warning"), ("checkpoint", "error")]
)
def test_findings_name_it_and_do_not_send_to_its_rights(
    name: str, severity: str, kind: str, command: str, cli: Cli, store: Path
) -> None:
    path = place(store / name, kind)
    done = cli(command, "--format", "ndjson", store=store)
    assert done.code == 1
    (found,) = [row for row in done.rows if row.get("code") == "unreadable-file"]
    assert (found["path"], found["found"], found["severity"]) == (name, NO_FILE, severity)
    assert "rights" not in found["advice"] and "a file belongs there" in found["advice"]
    assert found["command"] == f"ls -ld {path}"
    assert "file-length-mismatch" not in done.out


@pytest.mark.parametrize("command", ["verify", "lint"])
@pytest.mark.parametrize("name", ["lock", "abort", "checkpoint"])
def test_links_that_no_writer_follows_are_named(
    name: str, command: str, cli: Cli, store: Path
) -> None:
    place(store / name, "link")
    done = cli(command, "--format", "ndjson", store=store)
    assert done.code == 1
    assert [row["path"] for row in done.rows if row.get("code") == "symbolic-link"] == [name]
    done = cli(*PUT, store=store)
    assert done.code == 5 and "Put what it stands for there" in done.err


@pytest.mark.parametrize("command", ["verify", "lint"])
def test_a_link_that_the_system_refuses_to_follow_ends_no_check(
    command: str, cli: Cli, store: Path
) -> None:
    (store / "lock").unlink()
    (store / "lock").symlink_to("n" * 300)
    done = cli(command, "--format", "ndjson", store=store)
    assert done.code == 1, done.err
    assert [row["path"] for row in done.rows if row.get("code") == "symbolic-link"] == ["lock"]
    assert done.rows[-1]["type"] == "summary"


@pytest.mark.parametrize("version", ["4.9.3", "5.3.3"])
@pytest.mark.parametrize("kind", ["directory", "link", "fifo", "device"])
@pytest.mark.parametrize("name", ["lock", "checkpoint"])
def test_no_broker_starts_on_it_and_what_is_next_names_it(
    name: str, kind: str, version: str, cli: Cli, store: Path
) -> None:
    """``DefaultMessageStore``'s constructor opens ``lock``, ``StoreCheckpoint``'s its file."""
    place(store / name, kind)
    done = cli("simulate-start", "--as", version, "--format", "ndjson", store=store)
    assert done.code == 1
    summary = done.rows[-1]
    assert summary["starts"] is False and summary["reason"].startswith(f"{name}: a ")
    assert summary["command"].startswith(f"rmqctl verify --store {store}")


@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_a_start_with_something_else_among_the_index_files(
    kind: str, cli: Cli, store: Path
) -> None:
    """Who simulates a start does not wait for somebody to write into a pipe. ``MappedFile`` reads
    the name first, and passes over what has none of an index file."""
    (store / "abort").touch()
    place(store / "index/what", kind)
    for version in ("4.9.3", "5.3.3"):
        done = cli("simulate-start", "--as", version, "--format", "ndjson", store=store)
        assert done.rows[-1]["starts"] is True, done.err
    place(store / "index/20000101000000000", kind)
    done = cli("simulate-start", "--as", "4.9.3", "--format", "ndjson", store=store)
    assert done.rows[-1]["starts"] is True and not [
        row for row in done.rows if row.get("path", "").startswith("index/")
    ]
    done = cli("simulate-start", "--as", "5.3.3", "--format", "ndjson", store=store)
    assert done.rows[-1]["starts"] is False
    assert done.rows[-1]["reason"].startswith("index/20000101000000000: a ")


def test_a_link_to_a_lock_that_can_be_made_keeps_no_broker_from_starting(
    cli: Cli, store: Path
) -> None:
    (store / "lock").unlink()
    (store / "lock").symlink_to(store.parent / "elsewhere")
    assert cli("simulate-start", store=store).code == 0


def test_repair_leaves_it_and_says_so_once(cli: Cli, store: Path) -> None:
    place(store / "checkpoint", "directory")
    plan = store.parent / "plan.json"
    done = cli("repair", "--plan", str(plan), "--format", "ndjson", store=store)
    assert [row["code"] for row in done.rows if row["type"] == "left"] == ["unreadable-file"]
    assert done.rows[-1]["steps"] == 0


@pytest.mark.parametrize("kind", ["directory", "fifo", "link"])
def test_a_file_of_config_that_is_none_has_no_line(kind: str, cli: Cli, store: Path) -> None:
    path = place(store / "config/topics.json", kind)
    done = cli("topics", store=store)
    assert done.code == 5
    assert f"cannot read {path}: {NO_FILE}. {STEP}" in done.err and "line 1" not in done.err
    done = cli("config", "check", "--format", "ndjson", store=store)
    assert done.code == 1
    (found,) = [row for row in done.rows if row.get("code") == "config-unreadable"]
    assert found["found"] == NO_FILE
    assert done.rows[-1]["type"] == "summary"


@pytest.mark.parametrize("kind", ["directory", "link"])
@pytest.mark.parametrize("of", ["commitlog", "consumequeue/orders/0"])
def test_info_goes_on_whatever_stands_in_place_of_a_file(
    of: str, kind: str, cli: Cli, store: Path
) -> None:
    """One that cannot be mapped is as irregular as one of a wrong length."""
    name = f"{of}/{min(os.listdir(store / of))}"
    place(store / name, kind)
    done = cli("info", "--format", "ndjson", store=store)
    assert done.code == 0, done.err
    assert f"{name}: not a regular file" in done.rows[0]["irregular"]
    assert cli("topics", store=store).code == 0
    done = cli(*PUT, store=store)
    assert done.code == 5 and STEP in done.err


@pytest.mark.parametrize("of", ["commitlog", "consumequeue/orders/0"])
def test_a_link_to_a_disk_that_is_not_mounted_is_not_moved_away(
    of: str, cli: Cli, store: Path
) -> None:
    name = f"{of}/{min(os.listdir(store / of))}"
    place(store / name, "link")
    done = cli("lint", "--format", "ndjson", store=store)
    (found,) = [row for row in done.rows if row.get("code") == "foreign-file"]
    assert (found["path"], found["found"]) == (name, "a link that leads nowhere")
    assert "mount that disk" in found["advice"] and found["command"] is None
    plan = store.parent / "plan.json"
    done = cli("repair", "--plan", str(plan), "--format", "ndjson", store=store)
    steps = [row for row in done.rows if row["type"] == "step"]
    assert not [step for step in steps if step["path"] == name]


@pytest.mark.parametrize("which", [min, max], ids=["first", "last"])
def test_nothing_is_made_of_a_log_of_which_a_disk_is_not_mounted(
    which: Callable[[list[str]], str], cli: Cli, store: Path
) -> None:
    """Without what is behind the link it would seem whole: queues, index, a copy, lines."""
    path = place(store / "commitlog" / which(os.listdir(store / "commitlog")), "link")
    before, to = state(store), str(store.parent / "made")
    for line in (
        ("rebuild", "all", "--in-place", "--yes"),
        ("rebuild", "queues", "--output", to),
        ("rebuild", "index", "--output", to),
        ("salvage", "--output", to),
        ("backup", "create", "--output", to),
        ("export", "--output", to, "--format", "ndjson"),
        ("checkpoint", "set", "--computed", "--yes"),
    ):
        done = cli(*line, store=store)
        assert done.code == 5, (line, done.out)
        assert f"cannot read {path}: {NO_FILE}. {STEP}" in done.err
        assert not os.path.lexists(to)
    plan = str(store.parent / "plan.json")
    done = cli("repair", "--plan", plan, "--format", "ndjson", store=store)
    assert done.code == 1 and done.rows[-1]["steps"] == 0
    assert state(store) == before


@pytest.mark.parametrize("which", [min, max], ids=["first", "last"])
def test_no_queue_is_replaced_where_a_directory_stands_in_the_log(
    which: Callable[[list[str]], str], cli: Cli, store: Path
) -> None:
    path = place(store / "commitlog" / which(os.listdir(store / "commitlog")), "directory")
    before = state(store)
    for line in (("--in-place", "--yes"), ("--output", str(store.parent / "made"))):
        done = cli("rebuild", "queues", *line, store=store)
        assert done.code == 5 and f"cannot read {path}: {NO_FILE}. {STEP}" in done.err
    assert state(store) == before


@pytest.mark.parametrize("kind", ["file", "fifo", "socket", "link", "link to fifo"])
@pytest.mark.parametrize("of", ["consumequeue/orders", "consumequeue/orders/0"])
def test_what_has_the_place_of_a_queue_is_named(
    of: str, kind: str, cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue that is missing is made again, so its place is what a writer trips over. To force
    it to disk must not wait for somebody to write into a pipe."""
    path = store / of
    shutil.rmtree(path)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(path.parent)  # The path of a socket is short.
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    elif kind.startswith("link"):
        os.mkfifo(store.parent / "pipe")
        path.symlink_to(store.parent / "pipe" if "fifo" in kind else "/nowhere/at/all")
    else:
        path.write_bytes(b"")
    for line in (PUT, ("rebuild", "all", "--missing", "--yes")):
        done = cli(*line, store=store)
        assert done.code == 5, (line, done.out)
        if kind.startswith("link"):
            assert f"{path} is a symbolic link" in done.err, (line, done.err)
        else:
            words = f"cannot write into {path}: it is no directory. See what it is (`ls -ld`)."
            assert words in done.err, (line, done.err)


@pytest.mark.parametrize("kind", ["fifo", "file"])
def test_what_has_the_place_of_a_working_directory_is_named(
    kind: str, cli: Cli, store: Path
) -> None:
    """``shutil.rmtree`` of a pipe waits until somebody writes into it."""
    for name, line in (
        ("rmqctl-new", ("rebuild", "all", "--in-place", "--yes")),
        ("rmqctl-repair", ("repair", "--undo", "--yes")),
        ("rmqctl-repair", ("repair", "--resume", "--yes")),
    ):
        path = store / name
        os.mkfifo(path) if kind == "fifo" else path.touch()
        before = state(store)
        done = cli(*line, store=store)
        assert done.code == 5 and f"cannot write into {path}: it is no directory" in done.err
        assert state(store) == before
        path.unlink()


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_has_the_place_in_which_a_new_directory_is_made_is_named(
    kind: str, cli: Cli, store: Path, tmp_path: Path
) -> None:
    """It was the directory itself that the error named, with advice about free space."""
    building = tmp_path / f"new{BESIDE}"
    place(building, kind)
    for line in (("salvage",), ("backup", "create"), ("rebuild", "all")):
        done = cli(*line, "--output", tmp_path / "new", store=store)
        assert done.code == 5 and f"cannot write into {building}: it is no directory" in done.err
    assert os.path.lexists(building) and not (tmp_path / "new").exists()


def test_a_file_that_is_not_there_is_no_matter_of_rights(cli: Cli, store: Path) -> None:
    missing = str(store.parent / "none")
    line = ("serve", "--read-only", "--listen", "127.0.0.1:0", "--acl-file", missing)
    done = cli(*line, store=store)
    assert done.code == 2
    assert f"{missing}: there is no such file. Give a plain_acl.yml" in done.err
    done = cli("repair", "--apply", missing, store=store)
    assert done.code == 5
    assert "there is no such file" in done.err and "`rmqctl repair --plan FILE --store " in done.err


def test_links_that_lead_to_each_other(cli: Cli, store: Path, tmp_path: Path) -> None:
    """In a store, and as the place of what is written."""
    for path in (store / "lock", tmp_path / "loop"):
        path.unlink(missing_ok=True)
        path.symlink_to(path.name)
    before = state(store)
    for line in (
        ("backup", "create", "--output", tmp_path / "backup"),
        ("repair", "--plan", tmp_path / "plan"),
        ("repair", "--plan", tmp_path / "loop"),
        ("verify", "--report", tmp_path / "loop"),
        ("simulate-start", "--report", tmp_path / "loop"),
        ("stats", "--report", tmp_path / "loop"),
        ("salvage", "--output", tmp_path / "loop"),
        ("salvage", "--output", tmp_path / "new", "--from", tmp_path / "loop"),
        ("corrupt", "--output", tmp_path / "loop"),
        ("export", "--output", tmp_path / "loop", "--format", "ndjson"),
        ("rebuild", "all", "--output", tmp_path / "loop"),
    ):
        done = cli(*line, store=store)
        assert done.code in (0, 1, 3, 5, 6), (line, done.err)
        if tmp_path / "loop" in line:
            assert done.code >= 3 and str(tmp_path / "loop") in done.err, line
    assert state(store) == before
    assert os.readlink(tmp_path / "loop") == "loop"
