"""``rmqctl backup`` and ``rmqctl restore``: rows and exit codes, bad input, URLs, kills, a full
disk, a disk that fails."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import CannotRead, CannotWrite
from rmqctl.operations.backup import archive, tree
from tests import processes
from tests.golden_data import tree_content
from tests.test_cli.conftest import BROKER_CONF, CONFIG, Cli, message, state

NDJSON = ("--format", "ndjson")
#: One of each kind of backup.
KINDS = ("full", "full.tar.zst")


def content(root: Path) -> dict[str, Any]:
    """What stands below a directory, but ``lock``."""
    return {name: data for name, data in tree_content(root).items() if name != "lock"}


def left_over(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if "rmqctl-new" in path.name]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_exit_codes(cli: Cli, store: Path, tmp_path: Path, kind: str) -> None:
    before, output = state(store), tmp_path / kind
    line = ("backup", "create", "--output", output, *NDJSON)
    dry = cli(*line, "--dry-run", store=store)
    assert dry.code == 0 and not output.exists() and left_over(tmp_path) == []
    done = cli(*line, store=store)
    assert (done.code, done.err) == (0, "") and dry.rows[:-1] == done.rows[:-1]
    parts, summary = done.rows[:-1], done.rows[-1]
    assert [row["part"] for row in parts] == ["commitlog", "consumequeue", "index", "other"]
    for name in ("files", "data_bytes", "stored_bytes"):
        assert summary[name] == sum(row[name] for row in parts)
    for row in parts[:-1]:
        files = [path for path in (store / row["part"]).rglob("*") if path.is_file()]
        ends = [len(path.read_bytes().rstrip(b"\0")) for path in files]
        assert row["files"] == len(files) and row["stored_bytes"] <= row["data_bytes"]
        # Whole pieces of the log, whole units, all of an index file that has any item.
        assert sum(ends) <= row["data_bytes"] <= sum(path.stat().st_size for path in files)
    assert (summary["base"], summary["is_live"], summary["dry_run"]) == (None, False, False)
    assert state(store) == before
    assert cli("backup", "verify", output, "-q").code == 0
    (row, listed) = cli("backup", "ls", output, *NDJSON).rows
    assert (row["id"], row["backup"]) == (summary["id"], str(output))
    assert (listed["backups"], listed["incomplete"]) == (1, None)
    new = tmp_path / "new"
    dry = cli("restore", output, "--output", new, "--dry-run", *NDJSON)
    assert dry.code == 0 and dry.rows[-1]["dry_run"] and not new.exists()
    (row, restored) = cli("restore", output, "--output", new, *NDJSON).rows
    assert (restored["id"], restored["backups"]) == (summary["id"], 1)
    assert content(new) == content(store) and left_over(tmp_path) == []
    assert cli("verify", "-q", store=new).code == 0


def test_backups_are_listed_the_oldest_first(cli: Cli, store: Path, tmp_path: Path) -> None:
    made = []
    for name in ("c", "a", "b"):
        made.append(tmp_path / name)
        base = ("--base", made[-2]) if len(made) > 1 else ()
        assert cli("backup", "--output", made[-1], *base, "-q", store=store).code == 0
    for given in (made, made[::-1], sorted(made)):
        *rows, summary = cli("backup", "ls", *given, *NDJSON).rows
        assert [row["backup"] for row in rows] == [str(place) for place in made]
        assert (summary["backups"], summary["incomplete"]) == (3, None)


def test_the_short_form_and_options_before_the_command(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    assert cli("backup", "--output", tmp_path / "a", "-q", store=store).code == 0
    conf = tmp_path / "broker.conf"
    line = ("--broker-conf", conf, "backup", "--store", store, "--output", tmp_path / "b", "-q")
    assert cli(*line).code == 0
    assert cli("backup", "verify", tmp_path / "a", tmp_path / "b", "-q").code == 0
    for option in ("--help", "-h"):
        assert "create" in cli("backup", option).out


def test_bad_input(cli: Cli, store: Path, tmp_path: Path) -> None:
    before, full, other = state(store), tmp_path / "full.tar.zst", tmp_path / "other"
    more = tmp_path / "more.tar.zst"
    assert cli("backup", "--output", full, "-q", store=store).code == 0
    assert cli("backup", "--output", other, "-q", store=store).code == 0
    assert cli("backup", "--base", full, "--output", more, "-q", store=store).code == 0
    (tmp_path / "text").write_text("no backup")
    (tmp_path / "text.ndjson").write_text("no manifest\n")
    (tmp_path / "empty.tar.zst").touch()
    new = tmp_path / "new"
    backups: list[tuple[int, str, tuple[str | Path, ...]]] = [
        (2, "missing option", ("create",)),
        (2, "lies in the store", ("create", "--output", store / "backup")),
        (2, "lies in the store", ("create", "--output", store / "b.tar.zst")),
        (6, "exists already", ("create", "--output", full)),
        (6, "exists already", ("create", "--output", other)),
        (2, "one file", ("create", "--output", "memory://there/is/a/directory")),
        (5, "cannot reach", ("create", "--output", "nosuch://x/b.tar.zst")),
        (2, "ends with .tar.zst", ("create", "--output", tmp_path / "b.tar.gz")),
        (3, "no backup", ("create", "--output", new, "--base", tmp_path / "none")),
        (5, "no archive", ("create", "--output", new, "--base", tmp_path / "text")),
        (5, "no JSON", ("create", "--output", new, "--base", tmp_path / "text.ndjson")),
    ]
    for code, said, line in backups:
        done = cli("backup", *line, store=store)
        assert (done.code, done.out) == (code, "") and said in done.err, done
    restores: list[tuple[int, str, tuple[str | Path, ...]]] = [
        (2, "missing argument", ("--output", new)),
        (3, "no backup", (tmp_path / "none", "--output", new)),
        (3, f"no {'rmqctl-backup.ndjson'}", (tmp_path, "--output", new)),
        (3, "no regular file", ("/dev/zero", "--output", new)),
        (3, "nothing has that name", ("memory://none.tar.zst", "--output", new)),
        (5, "no archive", (tmp_path / "text", "--output", new)),
        (5, "no archive", (tmp_path / "empty.tar.zst", "--output", new)),
        (6, "not empty", (full, "--output", store)),
        (6, "exists already", (full, "--output", tmp_path / "text")),
        (2, "which is not named", (more, "--output", new)),
        (2, "several chains", (full, other, "--output", new)),
    ]
    for code, said, line in restores:
        done = cli("restore", *line)
        assert (done.code, done.out) == (code, "") and said in done.err, done
    done = cli("backup", "ls", tmp_path / "none", "--json")
    assert (done.code, done.out) == (3, "")
    assert not new.exists() and state(store) == before and left_over(tmp_path) == []
    done = cli("backup", "verify", tmp_path / "text", more, *NDJSON)
    problem, summary = done.rows
    assert done.code == 1 and "no archive" in problem["what"]
    assert "which is not named" in summary["incomplete"]


def test_a_base_of_another_store_is_told(cli: Cli, store: Path, tmp_path: Path) -> None:
    other, full = tmp_path / "other", tmp_path / "full"
    line = ("put", "--create", "--topic", "t", "--body", "x", "-q", "--store", other)
    assert cli(*line).code == 0
    assert cli("backup", "--output", full, "-q", "--store", other).code == 0
    more = tmp_path / "more.tar.zst"
    done = cli("backup", "--base", full, "--output", more, *NDJSON, store=store)
    assert done.code == 0 and "backup of another store" in done.err
    assert cli("restore", more, full, "--output", tmp_path / "new", "-q").code == 0
    assert content(tmp_path / "new") == content(store)


def test_a_base_of_the_same_store_is_no_other(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Also where there are files that it does not have, and where it has all of them."""
    full = tmp_path / "full"
    assert cli("backup", "--output", full, "-q", store=store).code == 0
    with MessageStore(store, CONFIG, writable=True) as opened:
        opened.put_messages([message(number) for number in range(60)])
    for name, base in (("more", "full"), ("same", "more")):
        line = ("backup", "--base", tmp_path / base, "--output", tmp_path / name)
        done = cli(*line, *NDJSON, store=store)
        assert (done.code, done.err) == (0, "")
        assert (done.rows[-1]["stored_bytes"] > 0) == (name == "more")


def test_what_is_left_out_is_told_in_short(cli: Cli, store: Path, tmp_path: Path) -> None:
    for count in range(1, 6):
        (store / f"left-{count}").symlink_to(tmp_path / "none")
        done = cli("backup", "--output", tmp_path / f"full-{count}", store=store)
        names = ", ".join(f"left-{number}" for number in range(1, min(count, 3) + 1))
        more = f" and {count - 3} more" if count > 3 else ""
        assert done.code == 0 and f"{names}{more}" in done.err
        assert (" more" in done.err) == (count > 3)


def test_a_byte_that_changed_is_named(cli: Cli, store: Path, tmp_path: Path) -> None:
    for kind in KINDS:
        assert cli("backup", "--output", tmp_path / kind, "-q", store=store).code == 0
    log = tmp_path / "full" / "store" / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    done = cli("backup", "verify", tmp_path / "full", *NDJSON)
    problem, summary = done.rows
    assert (done.code, summary["problems"]) == (1, 1)
    assert problem["path"] == f"commitlog/{'0' * 20}" and "other bytes" in problem["what"]
    done = cli("restore", tmp_path / "full", "--output", tmp_path / "new")
    assert done.code == 5 and "is not what was backed up" in done.err
    assert not (tmp_path / "new").exists() and left_over(tmp_path) == []
    packed = tmp_path / "full.tar.zst"
    data = bytearray(packed.read_bytes())
    data[len(data) // 3] ^= 1
    packed.write_bytes(data)
    done = cli("backup", "verify", packed, *NDJSON)
    assert done.code == 1 and done.rows[0]["backup"] == str(packed)
    assert cli("restore", packed, "--output", tmp_path / "new").code == 5


def test_names_of_the_store_reach_no_terminal_raw(cli: Cli, store: Path, tmp_path: Path) -> None:
    (store / "config").mkdir()
    (store / "config" / "\x1b[31mred\u202e").write_text("x")
    (store / "\x1b[2Jgone").symlink_to(tmp_path / "none")
    for kind in KINDS:
        done = cli("backup", "--output", tmp_path / kind, store=store)
        assert done.code == 0 and "was left out" in done.err
        assert not {"\x1b", "\u202e"} & {*done.out, *done.err}
    (tmp_path / "full" / "store" / "config" / "\x1b[31mred\u202e").write_text("y")
    done = cli("backup", "verify", tmp_path / "full")
    assert done.code == 1 and not {"\x1b", "\u202e"} & {*done.out}
    done = cli("restore", tmp_path / "full", "--output", tmp_path / "new")
    assert done.code == 5 and not {"\x1b", "\u202e"} & {*done.err}


def test_names_that_are_no_unicode_come_back(cli: Cli, store: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (store / name).write_text("x")
    for kind in KINDS:
        assert cli("backup", "--output", tmp_path / kind, "-q", store=store).code == 0
        new = tmp_path / f"new-{kind}"
        assert cli("restore", tmp_path / kind, "--output", new, "-q").code == 0
        assert (new / name).read_text() == "x"


def test_behind_a_url(cli: Cli, store: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url, more = "memory://user:secret@backups/full.tar.zst", "memory://backups/more.tar.zst"
    done = cli("backup", "--output", url, *NDJSON, store=store)
    assert done.code == 0 and done.rows[-1]["output"] == "memory://backups/full.tar.zst"
    assert "secret" not in cli("backup", "--output", url, store=store).err
    done = cli("backup", "--base", url, "--output", more, *NDJSON, store=store)
    assert done.code == 0 and done.rows[-1]["stored_bytes"] == 0
    assert cli("backup", "verify", url, more, "-q").code == 0
    assert cli("restore", more, url, "--output", tmp_path / "new", "-q").code == 0
    assert content(tmp_path / "new") == content(store)
    line = ("backup", "--output", f"file://{tmp_path}/full.tar.zst", "-q")
    assert cli(*line, store=store).code == 0 and (tmp_path / "full.tar.zst").is_file()
    fsspec.filesystem("memory").rm("/", recursive=True)


def test_a_url_that_breaks_off_leaves_nothing(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = pytest.importorskip("fsspec.implementations.memory")
    url = "memory://breaks/full.tar.zst"
    with monkeypatch.context() as patch:
        write = memory.MemoryFile.write
        patch.setattr(memory.MemoryFile, "write", failing(write, 1, errno.ECONNRESET), False)
        done = cli("backup", "--output", url, store=store)
    assert done.code == 5 and "Connection reset" in done.err and url in done.err
    assert not fsspec.filesystem("memory").exists("/breaks/full.tar.zst")
    assert cli("backup", "--output", url, "-q", store=store).code == 0
    fsspec.filesystem("memory").rm("/", recursive=True)


@pytest.mark.parametrize("package", ["zstandard", "fsspec.core"])
def test_a_package_that_lacks_is_named(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    place = "memory://b.tar.zst" if package == "fsspec.core" else tmp_path / "b.tar.zst"
    done = cli("backup", "--output", place, store=store)
    assert done.code == 5 and f"pip install {package.partition('.')[0]}" in done.err
    assert cli("backup", "--output", tmp_path / "full", "-q", store=store).code == 0


def failing(call: Any, after: int, number: int) -> Any:
    """What does as a function does so often, and then says what the system says."""
    left = after

    def fails(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(number, os.strerror(number))
        return call(*arguments, **named)

    return fails


@pytest.mark.parametrize("after", [0, 3])
def test_a_full_disk_leaves_nothing(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    before = state(store)
    for owner, name, output in (
        (tree, "write_at", "full"),
        (archive._Counted, "write", "full.tar.zst"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing(getattr(owner, name), after // 3, errno.ENOSPC))
            done = cli("backup", "--output", tmp_path / output, store=store)
        assert done.code == CannotWrite.exit_code and "No space left" in done.err
        assert not (tmp_path / output).exists() and left_over(tmp_path) == []
        assert cli("backup", "--output", tmp_path / output, "-q", store=store).code == 0
    new = tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(tree, "write_at", failing(write_at, after, errno.ENOSPC))
        done = cli("restore", tmp_path / "full.tar.zst", "--output", new)
    assert done.code == CannotWrite.exit_code and "No space left" in done.err
    assert not new.exists() and left_over(tmp_path) == [] and state(store) == before
    assert cli("restore", tmp_path / "full.tar.zst", "--output", new, "-q").code == 0
    assert content(new) == content(store)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_cannot_be_read_is_an_error(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """At any file; and never a statement about its bytes."""
    real = MappedFile.read_aside

    def refused(mapped: MappedFile, position: int, size: int) -> bytes:
        if mapped.path.parent.name == "index" and position == 0 and size > 1000:
            raise CannotRead(path=str(mapped.path), reason=os.strerror(errno.EIO))
        return real(mapped, position, size)

    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "read_aside", refused)
        done = cli("backup", "--output", tmp_path / kind, store=store)
    assert done.code == 5 and "Input/output error" in done.err and "cannot read" in done.err
    assert not (tmp_path / kind).exists() and left_over(tmp_path) == []


#: A command that is killed at the N-th file of a store that it opens, or change of names, lengths
#: or times that it makes.
KILLED = """
import os, signal, sys
left = int(sys.argv.pop(1))
def hook(event, arguments):
    global left
    is_opened = event == "open" and "store/" in str(arguments[0])
    if is_opened or event in ("os.rename", "os.link", "os.truncate", "os.utime", "os.mkdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
from rmqctl.cli.main import main
main()
"""


def killed(*line: str | Path) -> Iterator[int]:
    """Exit codes of a command that is killed earlier or later, up to where it comes to its end."""
    at = 0
    while True:
        done = processes.run("-c", KILLED, str(at), *map(str, line))
        assert done.returncode in (-9, 0), done.stderr
        yield done.returncode
        if done.returncode == 0:
            return
        at = at * 2 + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_moment_leaves_nothing_under_the_name(
    cli: Cli, store: Path, tmp_path: Path, kind: str
) -> None:
    """And what it leaves beside it the next run takes away."""
    before, conf = state(store), tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    places = tmp_path / "places"
    places.mkdir()
    output, new = places / kind, places / "new"
    kills = 0
    for code in killed("backup", "--store", store, "--broker-conf", conf, "--output", output, "-q"):
        assert output.exists() == (code == 0)
        kills += code != 0
    assert kills >= 2 and left_over(places) == [] and state(store) == before
    assert cli("backup", "verify", output, "-q").code == 0
    kills = 0
    for code in killed("restore", output, "--output", new, "-q"):
        assert new.exists() == (code == 0)
        kills += code != 0
    assert kills > 5 and left_over(places) == [] and content(new) == content(store)


def test_a_store_amid_a_repair_is_told(cli: Cli, store: Path, tmp_path: Path) -> None:
    full, new = tmp_path / "full.tar.zst", tmp_path / "new"
    (store / "rmqctl-repair").mkdir()
    (store / "rmqctl-repair/journal.json").write_text("{}")
    done = cli("backup", "--output", full, store=store)
    assert done.code == 0 and "in the backup some of the store is old, some new" in done.err
    done = cli("restore", full, "--output", new)
    assert done.code == 0 and f"`rmqctl repair --resume --store {new}`" in done.err
    assert cli("put", "--topic", "orders", "--body", "x", store=new).code != 0


@pytest.mark.parametrize("is_only", [False, True])
def test_a_log_that_was_cut_is_told(cli: Cli, store: Path, tmp_path: Path, is_only: bool) -> None:
    """Of the only file nothing says how long it was."""
    log = sorted((store / "commitlog").iterdir())
    for path in log[1:] if is_only else ():
        path.unlink()
    cut = log[0 if is_only else -1]
    os.truncate(cut, 1500)
    before = state(store)
    line = ("backup", "--store", store, "--output")
    done = cli(*line, tmp_path / "full")
    assert done.code == 0 and f"commitlog/{cut.name}: 1500 bytes" in done.err
    assert "The backup has it as it is" in done.err and state(store) == before
    assert (tmp_path / "full/store/commitlog" / cut.name).stat().st_size == 1500
    assert cli(*line, tmp_path / "quiet", "-q").err == ""
