"""The pager and the progress bar: what else a terminal gets, and when it does not."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli import pager, progress
from rmqctl.cli.main import run
from rmqctl.cli.output import RowWriter
from tests.terminals import OnTerminal
from tests.test_cli.conftest import BROKER_CONF, WITHOUT_A_BAR, Terminal

#: A program that marks what it is given.
MARKS = "sed -u s/^/paged:/"


@pytest.fixture
def where(store: Path) -> list[str]:
    conf = store.parent / "broker.conf"
    conf.write_text(BROKER_CONF)
    return ["--store", str(store), "--broker-conf", str(conf)]


def started(line: list[str], variables: dict[str, str], **given: Any) -> OnTerminal:
    """A command on a new terminal, in a process group of its own."""
    environment = {name: value for name, value in os.environ.items() if "PAGER" not in name}
    return OnTerminal(
        [sys.executable, "-c", WITHOUT_A_BAR, *line],
        env=environment | {"TERM": "xterm", "COLUMNS": "90"} | variables,
        start_new_session=True,
        **given,
    )


def shown(line: list[str], variables: dict[str, str], **given: Any) -> tuple[int, list[str]]:
    """The exit status of a command on a terminal, and the lines that this gets."""
    code, output = started(line, variables, **given).ended()
    return code, output.splitlines()


def test_a_terminal_has_a_pager_and_notes_go_through_it(store: Path, where: list[str]) -> None:
    (store / "config").mkdir(exist_ok=True)
    offsets = '{"offsetTable": {"orders@group": {"0": 1, "1": 999}}}'
    (store / "config" / "consumerOffset.json").write_text(offsets)
    # Of the two variables the first one counts.
    code, lines = shown(["groups", *where], {"RMQCTL_PAGER": MARKS, "PAGER": "false"})
    assert code == 0 and all(line.startswith("paged:") for line in lines)
    assert lines[0].endswith("\x1b[0m"), "with its colours"
    assert any("note: 1 offset lies past" in line for line in lines), "stderr, in order"
    assert max(len(line) for line in lines if "─" in line) <= len("paged:") + 90


@pytest.mark.parametrize(
    ("more", "variables"),
    [
        (["--no-pager"], {"PAGER": MARKS}),
        ([], {"PAGER": MARKS, "RMQCTL_PAGER": ""}),
        ([], {"PAGER": MARKS, "RMQCTL_PAGER": "cat"}),
        ([], {"PAGER": "no-such-pager -x"}),
        ([], {"PAGER": MARKS, "TERM": "dumb"}),
    ],
)
def test_there_is_none_where_none_is_wanted(
    more: list[str], variables: dict[str, str], where: list[str]
) -> None:
    code, lines = shown(["queues", *more, *where], variables)
    assert code == 0 and lines[0].removeprefix("\x1b[1m").startswith("topic ")


def test_what_writes_has_none_nor_has_what_is_piped(where: list[str]) -> None:
    put = ["put", "--topic", "orders", "--body", "x", *where]
    code, lines = shown(put, {"PAGER": MARKS})
    assert code == 0 and lines[0].startswith("status ")
    read, write = os.pipe()
    code, lines = shown(["queues", *where], {"PAGER": MARKS}, stdout=write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        piped = pipe.read()
    assert code == 0 and lines == [] and piped.startswith(b"topic ")


@pytest.mark.parametrize(
    "line",
    [
        ["walk", "commitlog", "--follow", "--interval", "0.05"],
        ["groups", "--watch", "--interval", "0.05"],
    ],
    ids=" ".join,
)
def test_what_goes_on_has_none(line: list[str], where: list[str]) -> None:
    command = started([*line, *where], {"PAGER": MARKS})
    first = b""
    while first.count(b"\n") < 3:
        first += os.read(command.controller, 65536)
    command.process.send_signal(signal.SIGINT)
    code, rest = command.ended()
    assert code == 130 and b"paged:" not in first and "paged:" not in rest


def test_leaving_it_early_ends_the_command_quietly(where: list[str]) -> None:
    code, lines = shown(["walk", "commitlog", *where], {"PAGER": "head -n 3"})
    assert code == 0 and len(lines) == 3


def test_ctrl_c_waits_for_it(where: list[str], tmp_path: Path) -> None:
    """As less does: it stays when the command has ended, until the user leaves it."""
    ready = tmp_path / "ready"
    waits = f"trap '' INT; touch {ready}; sleep 0.4; sed s/^/paged:/; echo left"
    line = ["walk", "commitlog", "--format", "ndjson", "-v", *where]
    command = started(line, {"PAGER": waits})
    while not ready.exists():
        assert command.process.poll() is None
        time.sleep(0.01)
    os.killpg(command.process.pid, signal.SIGINT)
    code, output = command.ended()
    lines = output.splitlines()
    # The command may have printed everything by then, and waited.
    assert code in (0, 130)
    assert lines[-1] == "left", "its last line comes before the command ends"
    assert not any("Traceback" in one for one in lines)


def test_a_stream_of_somebody_elses_is_not_taken(
    where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(io.BytesIO(), "utf-8")
    monkeypatch.setenv("RMQCTL_PAGER", "false")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run(["queues", *where]) == 0
    assert "summary: " in terminal.shown and not pager.is_running()


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        (None, ["less"]),
        ("sed -n 'p'", ["/bin/sh", "-c", "sed -n 'p'"]),
        ("sed -n", ["sed", "-n"]),
        ("  ", None),
        ("no-such-pager", None),
    ],
)
def test_the_command_is_split_as_git_does(
    variable: str | None, command: list[str] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    less = tmp_path / "less"
    less.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("RMQCTL_PAGER", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv("PAGER", variable)
    assert pager.command_line() == command


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("counts", [False, True])
def test_the_bar_comes_late_with_bytes_and_rate_and_gives_way(
    counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    out, err = Terminal(io.BytesIO(), "utf-8"), Terminal(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    total = 8_000_000_000
    with (
        RowWriter("ndjson") as writer,
        progress.progress("verify", total, writer, counts=counts) as advance,
    ):
        advance(1)
        clock.now += 0.49
        advance(2)
        assert err.shown == ""
        clock.now += 0.02
        advance(2_000_000_000)
        assert "verify ━" in err.shown
        assert ("25%" in err.shown) == counts
        assert ("2.0/8.0 GB" in err.shown) != counts
        writer.row({"type": "x"})
        assert err.shown.endswith("\x1b[1A\x1b[2K"), "it is wiped before a row is printed"
        wiped = len(err.shown)
        advance(3_000_000_000)
        assert len(err.shown) == wiped, "and stays away for a moment"
        clock.now += 0.31
        advance(4_000_000_000)
        assert "4.0/8.0 GB" in err.shown or counts
    assert err.shown.endswith("\x1b[1A\x1b[2K")


def test_without_a_terminal_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    for terminal, variables in ((io.StringIO(), {}), (Terminal(io.BytesIO()), {"TERM": "dumb"})):
        monkeypatch.setattr(sys, "stderr", terminal)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with progress.late_progress("recovery", quiet=False) as advance:
            clock.now += 1
            advance(1, 2)
        assert (
            terminal.getvalue() == "" if isinstance(terminal, io.StringIO) else not terminal.shown
        )
