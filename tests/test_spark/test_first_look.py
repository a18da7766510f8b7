"""Wrong names are told before Spark is started: views of a query, columns of an import."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rmqctl.cli.commands import import_, sql
from rmqctl.cli.main import run
from rmqctl.errors import RmqctlError
from rmqctl.spark.report.views import check_views
from tests.conftest import Golden

KNOWN = [
    "SELECT 1",
    "select * from Messages m, other o",
    "SELECT * FROM `queues` q LEFT JOIN units u ON true",
    "SELECT extract(year FROM store_time) FROM messages",
    "SELECT trim(both 'x' FROM topic) FROM messages",
    "SELECT 'from nope', \"from nope\", r'\\', ' FROM nope ' -- FROM nope\nFROM messages",
    "SELECT /* FROM nope */ 'it\\'s FROM nope' FROM messages",
    "WITH nope AS (SELECT 1) SELECT * FROM nope",
    "SELECT * FROM parquet.`/x`",
    "SELECT * FROM range(3)",
    "SELECT * FROM VALUES 1, 2 AS t",
    "SELECT * FROM messages, LATERAL (SELECT 1)",
    "SELECT a IS DISTINCT FROM nope FROM messages",
    "SHOW COLUMNS FROM nope",
    "FROM nope |> SELECT 1",
    "",
]
UNKNOWN = [
    ("SELECT 1 FROM message m JOIN queues USING (topic)", "message"),
    ("SELECT * FROM messages LEFT JOIN `index` i ON true", "index"),
    ("SELECT 'it''s' FROM (SELECT * FROM Topics) AS x", "Topics"),
]


#: An import of small files would not need Spark.
IMPORT = ["import", "--master", "local[*]", "--store"]


class Started(RmqctlError):
    """Spark would be."""

    template, exit_code = "started", 99


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise Started

    for command in (sql, import_):
        monkeypatch.setattr(command, "spark_session", start)


@pytest.mark.parametrize("query", KNOWN)
def test_what_may_be_a_name_is_left_to_spark(query: str) -> None:
    check_views(query)


@pytest.mark.parametrize(("query", "name"), UNKNOWN)
def test_a_name_that_is_no_view(
    query: str, name: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["sql", "--store", str(golden("basic")), query]
    assert run(line) == 2
    assert f"there is no view {name}: there are messages, units," in capsys.readouterr().err
    # Which views a session's settings bring nobody knows here.
    assert run([*line, "--conf", "spark.sql.catalogImplementation=hive"]) == Started.exit_code


def csv_file(place: Path, names: list[str]) -> None:
    place.write_text(",".join(names) + "\n" + ",".join("a" for _ in names) + "\n")


def parquet_file(place: Path, names: list[str]) -> None:
    parquet.write_table(pa.table({name: ["a"] for name in names}), place)


def ndjson_file(place: Path, names: list[str]) -> None:
    place.write_text(json.dumps(dict.fromkeys(names, "a")) + "\n{}\n")


@pytest.mark.parametrize("write", [csv_file, parquet_file, ndjson_file])
def test_the_first_file_of_an_import(
    write: Callable[[Path, list[str]], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = write.__name__.removesuffix("_file")
    directory = tmp_path / "rows/topic=a/moon=full"
    directory.mkdir(parents=True)
    (directory / "_SUCCESS").write_text("nothing of a message")
    write(directory / "part-0", ["body", "tags"])
    line = [*IMPORT, str(tmp_path / "new"), "--input", kind, "--from"]
    if kind != "ndjson":  # There it is a name of no line.
        assert run([*line, str(tmp_path / "rows")]) == 2
        assert "a column 'moon'" in capsys.readouterr().err
    write(tmp_path / "wrong", ["topic", "body", "boddy"])
    code = 5 if kind == "ndjson" else 2  # As of any other line.
    assert run([*line, str(tmp_path / "wrong")]) == code
    assert "boddy" in capsys.readouterr().err
    assert run([*line, str(tmp_path / "wrong"), "--ignore-unknown"]) == Started.exit_code
    write(tmp_path / "lacking", ["body"])
    assert run([*line, str(tmp_path / "lacking"), "--ignore-unknown"]) == code
    assert "topic" in capsys.readouterr().err
    assert run([*line, str(tmp_path / "rows"), "--ignore-unknown"]) == Started.exit_code


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson"])
def test_what_cannot_be_read_so_is_left_to_spark(kind: str, tmp_path: Path) -> None:
    """A compressed file, an empty one, a directory of none, and a name without an end."""
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\xff\xfe no text")
    (tmp_path / "empty").touch()
    (tmp_path / "none").mkdir()
    (tmp_path / "long").write_text(f'"{"x" * 200_000}",b\n' if kind == "csv" else "")
    for name in ("packed", "empty", "none", "{none}", "long"):
        line = [*IMPORT, str(tmp_path / "new"), "--input", kind]
        # No Parquet begins like that, and a file of it is never packed as a whole.
        code = 2 if (kind, name) == ("parquet", "packed") else Started.exit_code
        assert run([*line, "--from", str(tmp_path / name)]) == code


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson"])
def test_of_a_pipe_spark_would_read_nothing(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And who looks first would wait for somebody to write into it."""
    line = [*IMPORT, str(tmp_path / "new"), "--input", kind, "--from"]
    (tmp_path / "rows").mkdir()
    os.mkfifo(tmp_path / "rows/a")
    assert run([*line, str(tmp_path / "rows")]) == Started.exit_code
    (tmp_path / "rows/b").write_text("x\n{}\n")
    code = {"parquet": 2, "csv": 2, "ndjson": 5}[kind]
    assert run([*line, str(tmp_path / "rows")]) == code
    capsys.readouterr()
    for name in ("rows/a", "dangling"):
        (tmp_path / "dangling").unlink(missing_ok=True)
        (tmp_path / "dangling").symlink_to("nowhere")
        assert run([*line, str(tmp_path / name)]) == 2
        assert "is no file and no directory" in capsys.readouterr().err
