"""Lines of a bulk input: however they come in pieces, and those that do not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.cli import lines
from rmqctl.cli.lines import LineSource
from rmqctl.cli.output import RowWriter
from rmqctl.operations.change.putstream import LineTooLong
from tests.test_cli.conftest import Cli

TEXTS = [b"", b"a", b"a\n", b"\n\n", b"a\nb", b"ab\ncd\n\nefghij\nk", b"\nabcdefghijklmnop\n"]


@pytest.mark.parametrize("block", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("text", TEXTS)
def test_lines_are_those_of_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, block: int
) -> None:
    path = tmp_path / "in"
    path.write_bytes(text)
    monkeypatch.setattr(lines, "_BLOCK", block)
    with LineSource(str(path)) as source:
        found = [line for line in source if line is not None]
    assert found == text.removesuffix(b"\n").split(b"\n") if text else not found


def test_a_line_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\ntwo\n" + b"x" * 100)
    monkeypatch.setattr(lines, "_BLOCK", 10)
    monkeypatch.setattr(lines, "_LONGEST_LINE", 50)
    found: list[bytes | None] = []
    with LineSource(str(path)) as source, pytest.raises(LineTooLong, match="longer than 50 bytes"):
        found.extend(source)
    assert [line for line in found if line is not None] == [b"one", b"two"]


@pytest.mark.parametrize("batch", [(), ("--batch", "2")])
def test_a_line_that_is_too_long_is_named_and_loses_nothing(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: tuple[str, ...]
) -> None:
    monkeypatch.setattr(lines, "_LONGEST_LINE", 500_000)
    source = tmp_path / "in"
    good = '{"topic": "a", "body": "x"}\n'
    source.write_text(good * 3 + f'{{"topic": "a", "body": "{"x" * 2_000_000}"}}\n' + good)
    done = cli("put", "--from", source, *batch, "--format", "ndjson", store=store)
    assert done.code == 2
    assert f"{source}, line 4: it is longer than 500000 bytes" in done.err
    assert "The messages before it are stored (3)" in done.err
    assert [row["type"] for row in done.rows] == ["append_result"] * (2 if batch else 3)


READ = """
import resource, sys
from rmqctl.cli import lines
from rmqctl.operations.change.putstream import LineTooLong
lines._BLOCK = 4096
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
count = 0
with lines.LineSource(sys.argv[1]) as source:
    try:
        for line in source:
            count += line is not None
    except LineTooLong:
        print("too long after", count)
"""


def test_a_long_line_in_many_pieces_costs_no_more_than_its_bytes(tmp_path: Path) -> None:
    """64 MiB in pieces of 4 KiB: joined to what came before, each time, they would be 500 GB."""
    path = tmp_path / "in"
    with path.open("wb") as file:
        file.write(b"{}\n")
        os.truncate(path, 65 << 20)
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "too long after 1\n"), done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "walk commitlog",
        "walk commitlog --topic absent",
        "walk queue --topic orders",
        "pull --topic orders --queue-id 0 --offset 0 --limit 100",
        "index query --topic orders --key absent",
    ],
)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_where_nothing_is_printed_lines_are_made_and_no_rows(
    line: str, is_damaged: bool, cli: Cli, store: Path
) -> None:
    """Lines are made many times as fast. The exit code is that of rows."""
    if is_damaged:
        log = store / "commitlog" / f"{2048:020d}"
        data = bytearray(log.read_bytes())
        data[4:8] = b"\xff" * 4
        log.write_bytes(data)
    assert RowWriter("table", quiet=True).form == "ndjson"
    words = [*line.split(), "--store", store]
    loud, quiet = cli(*words), cli(*words, "-q")
    assert (quiet.code, quiet.out) == (loud.code, "") and loud.code in (0, 1)
