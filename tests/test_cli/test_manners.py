"""The command line's manners: errors, exit codes, terminals, closed pipes, a fast start."""

from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from rmqctl.cli import main, options, output, progress, settings, text
from rmqctl.cli.command import Command, command_first
from rmqctl.cli.options import COMMON_OPTIONS
from rmqctl.cli.types import Time
from rmqctl.errors import ReadersDisagree
from tests.conftest import Golden
from tests.terminals import OnTerminal
from tests.test_cli.conftest import BROKER_CONF, NASTY, WITHOUT_A_BAR, Cli, Terminal, state

PULL = ("pull", "--topic", "orders", "--queue-id", "0", "--offset", "0")
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = (*path, name)
        found.append((below, command))
        if isinstance(command, click.Group):
            found += commands(command, below)
    return found


@pytest.mark.parametrize(("path", "command"), commands(main.cli), ids=str)
def test_every_command_has_help_with_examples(
    path: tuple[str, ...], command: click.Command, cli: Cli
) -> None:
    done = cli(*path, "--help")
    assert done.code == 0
    assert done.out.startswith("Usage: rmqctl")
    assert "Examples:" in done.out and f"rmqctl {' '.join(path[:-1])}".strip() in done.out
    if isinstance(command, Command):
        assert "Exit status:" in done.out


@pytest.mark.parametrize(("path", "command"), [((), main.cli), *commands(main.cli)], ids=str)
def test_help_fits_80_columns(path: tuple[str, ...], command: click.Command, cli: Cli) -> None:
    """No sentence is cut, no example wraps, no option pushes its help to the next line."""
    lines = cli(*path, "--help").out.splitlines()
    assert not [line for line in lines if line.endswith("...") and "[ARGS]" not in line]
    assert max(map(len, lines)) <= 80
    options = lines[lines.index("Options:") + 1 :]
    assert not [line for line in options if re.fullmatch(r"  -\S+( \S+)?", line)]


def test_top_level_help_is_grouped_by_risk(cli: Cli) -> None:
    out = cli("--help").out
    sections = ["Inspect (never writes):", "Query (never writes):", "Write:"]
    assert [out.index(s) for s in sections] == sorted(out.index(s) for s in sections)
    assert cli("--version").out.startswith("rmqctl, version ")


USAGE_ERRORS = [
    ("nothing",),
    ("queues",),
    ("queues", "--wrong"),
    ("queues", "--store", ""),
    (*PULL, "--format", "xml"),
    ("rebuild", "--store", "x"),
    ("dump", "what"),
    ("walk", "commitlog", "--store", "x", "--start", "2", "--end", "1"),
    ("walk", "index", "--store", "x", "--since", "2", "--until", "1"),
    ("message", "--store", "x", "1" * 5000),
    ("walk", "commitlog", "--store", "x", "--since", "1" * 5000),
    ("put", "--store", "x", "--from", "absent"),
    ("put", "--store", "x", "--topic", "t", "--batch", "2"),
    ("flush", "--store", "x", "--structure", "checkpoint"),
    ("schedule", "deliver", "--store", "x", "--level", "0"),
    ("schedule", "deliver", "--store", "x", "--skip", "3"),
    ("schedule", "deliver", "--store", "x", "--skip", "3:9-4"),
    ("transaction", "commit", "--store", "x"),
    ("transaction", "rollback", "--store", "x", "--", "-1"),
    ("clean", "--store", "x", "--dry-run", "--yes"),
    ("clean", "--store", "x", "--disk-ratio", "101"),
    ("du", "--store", "x", "--by", "colour"),
    ("group", "set-offset", "g", "--store", "x", "--to", "end"),
    ("group", "set-offset", "g", "--store", "x", "--topic", "t", "--to", "soon"),
    ("group", "set-offset", "g", "--store", "x", "--topic", "t", "--to", "1" * 5000),
    ("group", "set-offset", "g@h", "--store", "x", "--topic", "t", "--to", "end"),
    ("offset", "--store", "x", "--topic", "t", "--queue-id", "0", "--time", "tomorrow"),
    ("message", "--store", "x"),
    ("find", "--store", "x"),
    ("find", "", "--store", "x"),
    *((*line, "--store", "x", "--topic", "") for line in (("walk", "queue"), ("topics",), PULL)),
    ("walk", "commitlog", "--store", "x", "--key", ""),
    ("index", "query", "--store", "x", "--topic", "t", "--key", ""),
    ("message", "--store", "x", "--unique-key", ""),
    ("groups", "--store", "x", "--group", ""),
    ("find", "x", "--store", "x", "--since", "2", "--until", "1"),
    ("message", "--store", "x", "1", "--unique-key", "k"),
    ("walk", "commitlog", "--store", "x", "--from-end"),
    (*PULL, "--store", "x", "--filter", "a >"),
    (*PULL, "--store", "x", "--decompress"),
]


@pytest.mark.parametrize("line", USAGE_ERRORS, ids=lambda line: " ".join(line)[:50])
def test_usage_errors_are_one_line_and_exit_2(line: tuple[str, ...], cli: Cli) -> None:
    done = cli(*line)
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("error: ") and len(done.err.splitlines()) == 1
    assert "\\x0a" not in done.err


HUGE = "x y" * 33_000


@pytest.mark.parametrize(
    "line",
    [
        (HUGE,),
        ("info", "--store", HUGE),
        ("info", "--store", "x", "--broker-conf", HUGE),
        ("info", "--store", "x", "--format", "x" * 100_000),
        ("info", "--store", "x", HUGE),
        ("pull", "--store", "x", "--topic", "t", "--offset", "0", "--queue-id", HUGE),
        ("put", "--store", "x", "--create", "--topic", HUGE, "--body", "x"),
        ("put", "--store", "x", "--topic", "t", "--body", "x", "--property", "\x1b" * 100_000),
        ("put", "--store", "x", "--from", HUGE),
        ("walk", "commitlog", "--store", "x", "--since", HUGE),
    ],
    ids=lambda line: " ".join(line)[:50],
)
def test_an_error_does_not_repeat_a_huge_argument(
    line: tuple[str, ...], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli(*line)
    assert done.code in (2, 3, 5) and done.out == ""
    assert len(done.err) < 5000 and "more characters" in done.err
    assert done.err.startswith("error: ") and done.err.endswith(".\n")


def test_near_misses_are_named(cli: Cli) -> None:
    assert "Did you mean 'pull'?" in cli("pul").err
    assert "Did you mean 'checkpoint'?" in cli("dump", "checkpiont").err
    assert cli("queues", "--json", "--format", "csv", "--store", "x").code == 2


@pytest.mark.parametrize("line", [(), ("walk",), ("dump", "--store", "x")], ids=repr)
def test_without_a_command_there_is_help(line: tuple[str, ...], cli: Cli) -> None:
    done = cli(*line)
    assert done.code == 2 and done.out == "" and done.err.startswith("Usage: rmqctl")


def test_common_options_may_stand_before_the_command(cli: Cli, store: Path) -> None:
    common = options.common(lambda settings: None)
    names = {n for p in common.__click_params__ for n in p.opts}  # type: ignore[attr-defined]
    assert names == set(COMMON_OPTIONS)
    assert command_first(["-q", "--store=x", "queues", "-v"]) == ["queues", "-q", "--store=x", "-v"]
    conf = store.parent / "broker.conf"
    cli("info", store=store)  # Writes broker.conf.
    where = ("--store", store, "--broker-conf", conf, "--json")
    for line in (("dump", "checkpoint"), ("dump", "0"), ("walk", "queue"), ("queues",)):
        after = cli(*line, *where)
        assert after.code == 0
        assert cli(*where, *line) == after
        assert cli(*line[:1], *where, *line[1:]) == after


STORE_COMMANDS = [
    ("queues",),
    ("stats",),
    ("topics",),
    ("groups",),
    ("groups", "--watch"),
    ("find", "x"),
    ("du",),
    ("du", "--disk"),
    ("config", "check"),
    ("offset", "--topic", "t", "--queue-id", "0", "--time", "0"),
    ("message", "--unique-key", "k"),
    ("walk", "commitlog", "--follow"),
    (*PULL, "--follow"),
    ("put", "--topic", "t", "--body", "x"),
    ("flush",),
    ("clean", "--dry-run"),
    ("clean", "--yes"),
    ("group", "set-offset", "g", "--topic", "t", "--to", "end", "--yes"),
    ("schedule", "ls"),
    ("schedule", "deliver"),
    ("timer", "ls"),
    ("timer", "deliver"),
    ("timer", "rebuild", "--yes"),
    ("transaction", "ls"),
    ("transaction", "commit", "0"),
    ("rebuild", "all", "--missing"),
]


@pytest.mark.parametrize("line", STORE_COMMANDS, ids=" ".join)
def test_no_such_store(line: tuple[str, ...], cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name in ("absent", "empty", "file"):
        done = cli(*line, "--store", tmp_path / name)
        assert done.code == 3 and "--store" in done.err and done.out == ""
    assert sorted(os.listdir(tmp_path)) == ["empty", "file"]
    assert os.listdir(tmp_path / "empty") == []


def test_the_store_can_come_from_the_environment(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQCTL_STORE", str(store))
    assert cli("queues").code == 0


def test_broker_conf_errors(cli: Cli, store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "wrong.conf"
    for content, found in (("maxIndexNum=x", "line 1"), ("mappedFileSizeCommitLog=999", "999")):
        conf.write_text(content)
        done = cli("queues", "--store", store, "--broker-conf", conf)
        assert done.code in (2, 5) and found in done.err
    assert cli("queues", "--store", store, "--broker-conf", tmp_path / "absent").code == 2


def _without_roots_rights() -> None:
    """Of a process that is about to start another one: that is refused what its owner is."""
    drop, override, search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    for right in (override, search):
        ctypes.CDLL(None).prctl(drop, right, 0, 0, 0)


@pytest.mark.parametrize("name", [".", "commitlog", "consumequeue"])
@pytest.mark.parametrize("line", [("queues",), ("du", "--disk"), ("verify",)], ids=" ".join)
def test_an_unreadable_store(line: tuple[str, ...], name: str, store: Path) -> None:
    (store / name).chmod(0)
    try:
        done = subprocess.run(
            rmqctl(*line, "--store", store),
            preexec_fn=_without_roots_rights,
            capture_output=True,
            text=True,
        )
    finally:
        (store / name).chmod(0o755)
    told = ["unreadable-file", name] if "verify" in line and name != "." else []
    assert done.returncode == 5 and done.stderr.count("\n") == 1
    assert all(word in done.stdout for word in told) and bool(told) == bool(done.stdout)
    assert "Permission denied" in done.stderr and "owner" in done.stderr


@pytest.mark.parametrize(
    "names",
    [
        ["commitlog"],
        ["consumequeue"],
        ["consumequeue/orders"],
        ["consumequeue/orders/0"],
        ["index"],
        ["config"],
        ["config/topics.json"],
        ["config/topics.json.bak", "consumequeue/orders"],
    ],
    ids=" ".join,
)
def test_lint_names_what_it_may_not_read_and_goes_on(names: list[str], store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_text('{"topicConfigTable":{}}')
    (store / "index" / "notes.txt").touch()
    modes = {name: (store / name).stat().st_mode for name in names}
    for name in names:
        (store / name).chmod(0)
    line = rmqctl("lint", "--store", store, "--format", "ndjson")
    try:
        done = subprocess.run(line, preexec_fn=_without_roots_rights, capture_output=True)
    finally:
        for name, mode in modes.items():
            (store / name).chmod(mode)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    told = [row["path"] for row in rows if row.get("code") == "unreadable-file"]
    assert (done.returncode, sorted(told)) == (1, sorted(names)), (done, rows)
    others = {row.get("code") for row in rows} & {"commitlog-missing", "queue-file-missing"}
    assert not others and rows[-1]["type"] == "summary"
    assert ("index" in names) == ("foreign-file" not in {row.get("code") for row in rows})


@pytest.mark.parametrize(
    ("place", "mode"),
    [("dledger-n0/data", 0), ("disk1", 0), ("disks/1", 0), ("disks", 0), ("../disk", 0o444)],
)
def test_a_log_that_cannot_be_read_is_not_left_out(place: str, mode: int, store: Path) -> None:
    """Whether it is a member's, or lies where ``storePathCommitLog`` says: its bytes are most."""
    log = store / ("disks/1" if place == "disks" else place)
    log.parent.mkdir(parents=True, exist_ok=True)
    conf = store.parent / "broker.conf"
    if place.startswith("dledger"):
        shutil.copytree(store / "commitlog", log)
        conf.write_text(BROKER_CONF)
    else:
        (store / "commitlog").rename(log)
        (store / "more").mkdir()
        told = f"storePathCommitLog={log},{store}/more\n"
        conf.write_text(f"{BROKER_CONF}storePathRootDir={store}\n{told}")
    line = rmqctl("du", "--disk", "--store", store, "--broker-conf", conf)

    def run() -> subprocess.CompletedProcess[str]:
        rights = _without_roots_rights
        return subprocess.run(line, preexec_fn=rights, capture_output=True, text=True)

    assert run().returncode == 0
    (store / place).chmod(mode)
    try:
        done = run()
    finally:
        (store / place).chmod(0o755)
    assert (done.returncode, done.stdout) == (5, "") and "Permission denied" in done.stderr


def test_lost_and_found_is_not_the_stores(store: Path) -> None:
    """The root of a file system has a directory that only root reads."""
    (store / "lost+found").mkdir(mode=0)
    line = rmqctl("du", "--disk", "--store", store)
    assert (
        subprocess.run(line, preexec_fn=_without_roots_rights, capture_output=True).returncode == 0
    )


@pytest.mark.parametrize(
    ("name", "line"), [("consumequeue", ("queues",)), ("commitlog", ("walk", "commitlog"))]
)
def test_a_fifo_in_the_store_does_not_hang(
    name: str, line: tuple[str, ...], cli: Cli, store: Path
) -> None:
    file = next(path for path in (store / name).rglob("0" * 20))
    file.unlink()
    os.mkfifo(file)
    done = cli(*line, store=store)
    name = text.visible(str(file.relative_to(store)))
    assert done.code in (0, 1) and f"{name}: not a regular file" in done.err


def test_a_broker_that_holds_the_lock(cli: Cli, store: Path) -> None:
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); "
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        before = state(store)
        for line in (("put", "--topic", "t"), ("flush",)):
            done = cli(*line, store=store)
            assert done.code == 4
            assert f"is in use: process {holder.pid} (python" in done.err
        assert cli("info", "--format", "ndjson", store=store).rows[0]["locked"] is True
        assert state(store) == before
        assert holder.stdin is not None
        holder.stdin.close()


@pytest.mark.parametrize("bug", [KeyError("x\x1b[2J"), ReadersDisagree(physical_offset=7)])
def test_a_bug_is_one_line_and_70(
    bug: Exception, cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise bug

    monkeypatch.setattr(settings.Settings, "open", broken)
    monkeypatch.delenv("RMQCTL_DEBUG", raising=False)
    done = cli("queues", store=store)
    assert done.code == 70 and "RMQCTL_DEBUG=1" in done.err and len(done.err.splitlines()) == 1
    assert "\x1b" not in done.err
    monkeypatch.setenv("RMQCTL_DEBUG", "1")
    with pytest.raises(type(bug)):
        cli("queues", store=store)


def test_ctrl_c_is_130_and_leaves_whole_rows(store: Path) -> None:
    body = (
        "import os, signal, sys; from rmqctl.cli import settings; from rmqctl.cli.main import run"
    )
    # A run in the background ignores Ctrl-C, and hands that down.
    body += "; signal.signal(signal.SIGINT, signal.default_int_handler)"
    stop = "os.kill(os.getpid(), signal.SIGINT)"
    code = f"{body}; settings.Settings.open = lambda *_, **__: {stop}; sys.exit(run(sys.argv[1:]))"
    line = [sys.executable, "-c", code, "queues", "--store", str(store)]
    done = subprocess.run(line, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_ctrl_c_while_modules_are_loaded(store: Path) -> None:
    stop = "os.kill(os.getpid(), signal.SIGINT)"
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, *_):
        if name == "click":
            {stop}
sys.meta_path.insert(0, Finder())
from rmqctl.__main__ import main
main()
"""
    line = [sys.executable, "-c", code, "queues", "--store", str(store)]
    done = subprocess.run(line, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("busy", [0, 0.2], ids=["idle", "busy"])
def test_ctrl_c_in_a_finalizer(store: Path, busy: float) -> None:
    """Python prints what a finalizer raises, and goes on. On a busy machine what tells the command
    of it may run long before the command goes on."""
    code = f"""
import _thread, os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
start = _thread.start_new_thread
def start_and_wait(*arguments):
    start(*arguments)
    time.sleep({busy})
_thread.start_new_thread = start_and_wait
from rmqctl.cli import settings
from rmqctl.cli.main import main
class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)
def opened(*_, **__):
    Finalized()
    while True:
        time.sleep(0.001)
settings.Settings.open = opened
main()
"""
    line = [sys.executable, "-c", code, "queues", "--store", str(store)]
    done = subprocess.run(line, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), ImportError("libx.so: failed to map segment from shared object")],
    ids=["memory", "library"],
)
def test_too_little_memory_is_no_bug(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def greedy(*_: object) -> None:
        raise error

    monkeypatch.setattr(settings.Settings, "open", greedy)
    monkeypatch.delenv("RMQCTL_DEBUG", raising=False)
    done = cli("queues", store=store)
    assert done.code == 5 and "memory" in done.err and len(done.err.splitlines()) == 1


def test_interrupted_is_130(cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(settings.Settings, "open", interrupt)
    assert cli("queues", store=store).code == 130


NASTY_LINES = [
    (
        "pull",
        "--topic",
        "nasty\u202etopic",
        "--queue-id",
        "0",
        "--offset",
        "0",
        "--body-as",
        "utf8",
    ),
    ("walk", "commitlog"),
    ("walk", "queue"),
    ("queues",),
    ("queues", "-v", "--topic", "nasty\u202etopic"),
    ("pull", "--topic", NASTY + "/", "--queue-id", "0", "--offset", "0"),
    ("message", NASTY),
    ("queues", "--" + NASTY),
    (NASTY,),
    ("dump", "unit", "nasty\u202etopic", "0", "0"),
    ("du", "--by", "topic,tag"),
    ("stats",),
    ("config", "check"),
    ("topics",),
    ("topics", "--topic", NASTY),
    ("groups", "--group", NASTY),
    ("group", "set-offset", NASTY, "--topic", "orders", "--to", "end", "--new", "--dry-run"),
    ("group", "set-offset", "g", "--topic", NASTY, "--to", "end"),
    ("find", NASTY),
    ("find", NASTY, "--scan", "--body-as", "utf8"),
    ("offset", "--topic", "nasty\u202etopic", "--queue-id", "0", "--time", "0"),
    ("offset", "--topic", "t", "--queue-id", "0", "--time", NASTY),
    ("message", "--unique-key", NASTY),
    (*PULL, "--filter", NASTY),
    ("transaction", "ls", "--producer-group", NASTY),
    ("schedule", "deliver", "--skip", NASTY),
]


@pytest.mark.parametrize("format", output.FORMATS)
@pytest.mark.parametrize("line", NASTY_LINES, ids=repr)
def test_control_characters_never_reach_a_terminal(
    line: tuple[str, ...], format: str, cli: Cli, store: Path
) -> None:
    done = cli(*line, "--format", format, store=store)
    assert not RAW.search(done.out) and not RAW.search(done.err)
    if format == "ndjson" and done.code == 0 and line[0] == "pull":
        assert done.rows[0]["properties"]["note"] == NASTY
        assert done.rows[0]["topic"] == "nasty\u202etopic"


def test_text_is_made_visible() -> None:
    assert text.visible("a\x1bb\u202e\ud800é") == "a\\x1bb\\u202e\\ud800é"
    assert json.loads(text.safe_json('{"a":"\x7f\u202e\U000e0001"}')) == {
        "a": "\x7f\u202e\U000e0001"
    }
    row = {"type": "x", "lone": "\ud800", "big": 2**70, "low": -(2**63)}
    for encoded in (output.json_text(row).encode(), output.bulk_encoder()(row)):
        assert json.loads(encoded) == row
    assert output.bulk_lines()([row, {"type": "y"}]).count(b"\n") == 2


def test_times() -> None:
    convert = Time().convert
    assert convert("1700000000000", None, None) == 1_700_000_000_000
    assert convert("2023-11-14T22:13:20Z", None, None) == 1_700_000_000_000
    assert convert("2023-11-14T23:13:20.5+01:00", None, None) == 1_700_000_000_500
    hour = convert("-1h", None, None) - convert("-2h", None, None)
    assert abs(hour - 3_600_000) < 1000
    for wrong in ("tomorrow", "", "-1", "-2H", "1e5", "-\u0662h", "0001-01-01T00:00+14:00"):
        with pytest.raises(click.BadParameter):
            convert(wrong, None, None)
    assert text.iso_time(2**62) == str(2**62) and text.iso_time(0) == "0"
    spans = {
        0: "0ms",
        999: "999ms",
        90_000: "1m30s",
        3_600_500: "1h",
        10**9: "11d13h",
        -5000: "-5s",
    }
    assert {span: text.duration(span) for span in spans} == spans
    sizes = {
        0: "0",
        9_999: "9999",
        10_000: "9.8 KiB",
        1 << 20: "1 MiB",
        6_000_000: "5.7 MiB",
        420_000_040: "401 MiB",
        (1 << 30) + (1 << 29): "1.5 GiB",
        1 << 40: "1 TiB",
        2**63 - 1: "8 EiB",
        -20_480: "-20 KiB",
    }
    assert {size: text.human_size(size) for size in sizes} == sizes
    assert text.cell("allocated_bytes", 6_000_000) == "5.7 MiB"
    assert text.cell("commitlog_file_size", 1 << 30) == "1073741824 (1 GiB)"
    assert text.cell("bytes", "0c") == "0c" and text.cell("total_size", 1 << 20) == "1048576"
    assert re.fullmatch(
        r"2023-11-1\dT\d\d:\d\d:20.000[+-]\d\d:\d\d", text.iso_time(1_700_000_000_000)
    )


def rmqctl(*line: str | Path) -> list[str]:
    return [sys.executable, "-m", "rmqctl", *map(str, line)]


@pytest.mark.parametrize("format", output.FORMATS)
def test_a_closed_pipe_ends_quietly(format: str, store: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    line = rmqctl("walk", "commitlog", "--store", store, "--format", format)
    done = subprocess.run(line, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_stdout_that_takes_nothing(store: Path) -> None:
    line = rmqctl("queues", "--store", store)
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *line], stderr=subprocess.PIPE)
    assert (closed.returncode, closed.stderr) == (0, b"")
    absent = rmqctl("queues", "--store", "/absent")
    mute = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *absent], stdout=subprocess.PIPE)
    assert (mute.returncode, mute.stdout) == (3, b"")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 5 and done.stderr.count("\n") == 1
    assert "standard output: No space left" in done.stderr


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("fleet verify --stores -", "it is closed"),
        ("put --topic a --body-file -", "standard input is closed"),
        ("put --topic a --dry-run", "Give --body TEXT"),
        ("put --from - --dry-run", "it is closed"),
        ("index query --topic a --keys-from -", "it is closed"),
        (
            "rebuild queues --to-file-queues --in-place --from-log-alone --min-offsets -",
            "standard input is closed",
        ),
        ("browse", "browse needs a terminal"),
    ],
)
def test_a_stdin_that_is_closed(line: str, told: str, store: Path) -> None:
    """The descriptor was that of the next file that was opened: one of the store's."""
    conf = store.parent / "broker.conf"
    conf.write_text(BROKER_CONF)
    which: list[str | Path] = (
        [] if "--stores" in line else ["--store", store, "--broker-conf", conf]
    )
    words = rmqctl(*line.split(), *which)
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *words], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert told.lower() in done.stderr.decode().lower()


UNSAID: list[tuple[int, tuple[str, ...]]] = [
    (3, ("verify", "--store", "absent")),
    (3, ("info", "--store", ".")),
    (2, ("info", "--nonsense")),
    (2, ()),
    (5, ("message", "5", "--store", "store", "--broker-conf", "broker.conf")),
    (6, ("rebuild", "all", "--in-place", "--store", "store", "--broker-conf", "broker.conf")),
    (0, ("topics", "--store", "store", "--broker-conf", "broker.conf")),
]


@pytest.mark.parametrize("reader", ["full", "gone"])
@pytest.mark.parametrize(("code", "line"), UNSAID, ids=repr)
def test_a_stderr_that_takes_nothing_changes_no_exit_code(
    code: int, line: tuple[str, ...], reader: str, cli: Cli, store: Path
) -> None:
    """A full disk under `2>FILE`, and `2>&1 | true`. A reader of stdout that has gone is none of
    stderr's."""
    cli("info", store=store)  # Writes broker.conf.
    if "topics" in line:
        (store / "config").mkdir(exist_ok=True)
        (store / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
        assert cli("topics", store=store).err.startswith("note: ")
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "wb") as full:
        stderr = full.fileno() if reader == "full" else write
        done = subprocess.run(
            rmqctl(*line),
            cwd=store.parent,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    os.close(write)
    assert done.returncode == code and bool(done.stdout) == (code == 0)


@pytest.mark.parametrize(("bug", "code"), [("KeyError(1)", 70), ("BrokenPipeError()", 5)])
@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("stderr", ["pipe", "full"])
def test_a_bug_and_a_broken_pipe_that_is_not_stdouts(
    bug: str, code: int, debug: str, stderr: str, store: Path
) -> None:
    """With the traceback, too; and where nobody gets to see it."""
    script = (
        "from rmqctl.cli import settings; from rmqctl.cli.main import main\n"
        f"def broken(*_, **__): raise {bug}\n"
        "settings.Settings.open = broken; main()"
    )
    line = [sys.executable, "-c", script, "queues", "--store", str(store)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            line,
            env=os.environ | {"RMQCTL_DEBUG": debug},
            stdout=subprocess.PIPE,
            stderr=full if stderr == "full" else subprocess.PIPE,
        )
    assert (done.returncode, done.stdout) == (code, b"")
    assert stderr == "full" or (b"Traceback" in done.stderr) == bool(debug)


def test_a_bar_that_cannot_be_drawn_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Gone(io.BytesIO()))
    monkeypatch.setattr(progress, "_LATE_SECONDS", 0)
    with progress.late_progress("read", quiet=False) as show:
        show(1, 2)
        show(2, 2)


@pytest.mark.parametrize(
    "line",
    [
        ("--version",),
        ("--help",),
        PULL,
        ("put", "--topic", "orders", "--body", "x"),
        ("index", "query", "--topic", "orders", "--key", "order-3"),
        ("message", "0"),
        ("queues",),
        ("find", "order-3", "-q"),
        ("groups",),
        ("groups", "--queues"),
        ("topics", "--no-bytes"),
        ("group", "set-offset", "g", "--topic", "orders", "--to", "-1h", "--new", "--yes"),
        ("offset", "--topic", "orders", "--queue-id", "0", "--time", "0"),
        ("schedule", "ls"),
        ("clean", "--dry-run"),
        ("flush", "--structure", "commitlog"),
    ],
    ids=" ".join,
)
def test_single_shots_import_nothing_heavy(line: tuple[str, ...], store: Path) -> None:
    code = (
        "import sys; from rmqctl.cli.main import run; code = run(sys.argv[1:]); "
        "heavy = {'numpy', 'construct', 'rich', 'orjson', 'lz4', 'zstandard', 'pyarrow'}; "
        "heavy = (heavy | {'pyspark', 'rmqctl.kernel'}) & set(sys.modules); "
        "print(*heavy, file=sys.stderr); sys.exit(code)"
    )
    conf = store.parent / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    where = () if line[0].startswith("--") else ("--store", store, "--broker-conf", conf)
    command = [sys.executable, "-c", code, *line, *map(str, where)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.split() == []


def test_no_thread_spins_beside_a_scan(store: Path) -> None:
    code = (
        "import os, sys; from rmqctl.cli.main import main\n"
        "try: main()\n"
        "finally: print("
        "'numpy' in sys.modules, len(os.listdir('/proc/self/task')), file=sys.stderr)"
    )
    # Of the kernel's own threads, which have ended by then, the system may not know it yet.
    command = [sys.executable, "-c", code, "verify", "-q", "--jobs", "1", "--store", str(store)]
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stderr.split()[-2:] == ["True", "1"]


def on_terminal(line: list[str | Path], width: int) -> tuple[int, str]:
    """Exit status and everything that a terminal gets, stdout and stderr."""
    line = [sys.executable, "-c", WITHOUT_A_BAR, *line]
    size = {"COLUMNS": str(width), "LINES": "40", "TERM": "xterm", "RMQCTL_PAGER": "cat"}
    return OnTerminal(line, env=os.environ | size).ended()


def without_colours(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_tables_on_a_terminal_are_as_wide_as_it(width: int, store: Path) -> None:
    for line in (PULL, ("queues",), ("walk", "commitlog"), ("walk", "queue"), ("dump", "0")):
        code, shown = on_terminal([*line, "--store", store], width)
        lines = without_colours(shown).splitlines()
        assert code == 0 and max(map(text.width, lines)) <= width
        assert not RAW.search("\n".join(lines))
        assert "orders" in shown and "summary: " in shown


@pytest.mark.parametrize(
    ("name", "line", "rows", "shown"),
    [
        (
            "transaction",
            ("transaction", "ls"),
            30,
            r" 1246  pending  TopicT +pg +h3 .* (ask|discard)",
        ),
        ("delay", ("schedule", "ls"), 16, r" 14 +10m +6 +6  20"),
        ("timer", ("timer", "ls", "--now", "1795363220482"), 14, r"rolled +2026-"),
        ("broker", ("clean", "--dry-run"), 13, r"orders +3  cg_orders +122 +0 +0"),
        ("broker", ("topics",), 15, r"orders +4 +490 +(118289|116 KiB)  2026-"),
        ("broker", ("groups",), 4, r"cg_orders +orders +4 +0 +0ms +0  ok"),
        ("broker", ("groups", "--queues"), 7, r"cg_orders +orders +3 +122 +0 +0ms  ok"),
    ],
)
def test_what_waits_takes_one_line_each_at_80_columns(
    name: str,
    line: tuple[str, ...],
    rows: int,
    shown: str,
    golden: Golden,
    broker_conf_file: Callable[[str], Path],
) -> None:
    where = ("--store", golden(name), "--broker-conf", broker_conf_file(name))
    code, out = on_terminal([*line, *where], 80)
    page, _, _ = without_colours(out).partition("summary: ")
    table = page.partition("\n(")[0].splitlines()  # What is left out is told in parentheses.
    rule = next(number for number, text in enumerate(table) if text.startswith("──"))
    assert code == 0 and len(table[rule + 1 :]) == rows
    assert any(re.match(f" *{shown}", text) for text in table), out


@pytest.mark.parametrize("width", [80, 160])
def test_findings_are_readable_on_a_terminal(width: int, cli: Cli, store: Path) -> None:
    file = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = bytearray(file.read_bytes())
    for unit in (0, 5):
        data[unit * 20] = 1
    file.write_bytes(data)
    cli("info", store=store)  # Writes broker.conf.
    where = ("--store", store, "--broker-conf", store.parent / "broker.conf")
    code, shown = on_terminal(["verify", *where], width)
    assert code == 1
    assert shown.startswith("2 errors: unit-mismatch (2)")
    lines = without_colours(shown).splitlines()
    commands = [line for line in lines if line.startswith("  rmqctl ")]
    assert len(commands) == 1, "in one piece, to be copied"
    assert max(len(line) for line in lines if line not in commands) <= width
    words = " ".join(lines).split()
    assert words.count("unit-mismatch") == 4 and words.count("consumequeue/orders/0") == 2
    assert words.count("times):") == 1, "the advice, once"
    assert words.index("summary:") < words.index("times):")
    assert "unit-mismatch (2 times): Consumers get" in " ".join(words)
    _, rows = on_terminal(["verify", *where, "--format", "ndjson"], width)
    found = [json.loads(row) for row in re.findall(r'^.*?(\{"type".*\})$', rows, re.MULTILINE)]
    assert [row["type"] for row in found] == ["finding", "finding", "summary"]


def test_no_color_and_dumb_terminals(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, shown = on_terminal([*PULL, "--store", store], 160)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown)


def test_plain_tables_stream_and_never_cut(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    with output.RowWriter("table") as writer:
        for number in range(250):
            writer.row({"type": "x", "n": number, "t": "long" * (50 if number == 249 else 1)})
        writer.summary(rows=250)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 252 and lines[0].split() == ["n", "t"]
    assert lines[250].endswith("long" * 50) and lines[251] == "summary: rows=250"


def test_csv_holds_one_type_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with output.RowWriter("csv", main_type="message") as writer:
        writer.row({"type": "blank", "size": 3})
        writer.row({"type": "message", "t": 'a,"b"', "m": {"k": "v"}, "n": None, "b": True})
        writer.row({"type": "message", "t": "two\nlines", "m": {}, "n": 2**63, "b": False})
        writer.summary(rows=2)
    printed = capsys.readouterr()
    assert printed.out == (
        "type,t,m,n,b\n"
        'message,"a,""b""","{""k"":""v""}",,true\n'
        "message,two\\x0alines,{},9223372036854775808,false\n"
    )
    assert "1 of type blank left out" in printed.err


ORDERS = ("pull", "--topic", "orders", "--queue-id", "0")
HEADED = [
    (*ORDERS, "--offset"),
    (*ORDERS, "--body-as", "utf8", "--offset"),
    (*ORDERS, "--limit", "99", "--body-as", "hex", "--offset"),
    ("walk", "commitlog", "--body-as", "utf8", "--decompress", "--start"),
    ("walk", "queue", "--offset"),
    ("find", "order-7", "--body-as", "utf8", "--until"),
    ("index", "query", "--topic", "orders", "--key", "order-7", "--raw", "--until"),
    ("queues", "--topic"),
    ("topics", "--topic"),
    ("du", "--by", "day,topic", "--until"),
]


@pytest.mark.parametrize("line", HEADED, ids=" ".join)
def test_csv_has_the_same_header_without_a_row(
    line: tuple[str, ...], cli: Cli, store: Path
) -> None:
    *_, summary = cli("verify", "--format", "ndjson", store=store).rows
    some, none = {
        "--offset": ("0", "999"),
        "--start": ("0", str(summary["max_offset"])),
        "--until": ("now", "1"),
        "--topic": ("orders", "absent"),
    }[line[-1]]
    header, *rows = cli(*line, some, "--format", "csv", store=store).out.splitlines()
    assert rows
    done = cli(*line, none, "--format", "csv", store=store)
    assert done.out.splitlines() == [header], done.err


def test_csv_has_no_header_where_an_error_comes_first(cli: Cli, store: Path) -> None:
    done = cli("walk", "commitlog", "--start", "1", "--format", "csv", store=store)
    assert done.code == 5 and not done.out


def test_quiet_prints_nothing(cli: Cli, store: Path) -> None:
    done = cli(*PULL, "-q", store=store)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert cli("pull", "--topic", "absent", *PULL[3:], "-q", store=store).code == 1
