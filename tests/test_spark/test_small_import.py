"""Small files are imported without Spark, and give what they give with it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rmqctl.cli.commands import import_
from rmqctl.cli.main import run
from rmqctl.errors import RmqctlError, UsageError
from rmqctl.spark.sink import newstore, smallimport
from rmqctl.spark.sink.messagelines import LineRefused
from rmqctl.spark.sink.smallimport import FileUnreadable, small_files
from tests.conftest import Golden
from tests.seeds import times
from tests.test_operations.small_store import CONFIG, findings_of
from tests.test_spark.test_circle import MISMATCH, ROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark-writes")
KINDS = ["parquet", "ndjson", "csv"]


class Started(RmqctlError):
    """Spark would be."""

    template, exit_code = "started", 99


def started(*_: Any) -> None:
    raise Started


def exported(root: Path, to: Path, kind: str, *more: str) -> Path:
    line = ["export", "--store", str(root), "--output", str(to), "--format", kind, *more]
    assert run(line) == 0
    return to


def read(source: Path, kind: str, **options: bool) -> list[dict[str, Any]]:
    files = small_files(str(source), kind)
    assert files is not None
    rows: list[dict[str, Any]] = smallimport.read(files, str(source), kind, **options).to_pylist()
    return rows


def by_spark(spark: SparkSession, source: Path, kind: str) -> list[dict[str, Any]]:
    from rmqctl.spark.sink import importer

    rows = importer.read(spark, str(source), kind).collect()
    return [one.asDict() for one in rows]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what is null or what every message has, properties and bodies in one form."""
    return [
        {
            name: dict(value) if name == "properties" else bytes(value) if name == "body" else value
            for name, value in row.items()
            if value is not None and (name, value) not in (("body", b""), ("sys_flag", 0))
        }
        for row in rows
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["basic", "broker", "delay", "transaction", "ipv6"])
def test_the_same_messages_in_the_same_order(
    spark: SparkSession, golden: Golden, tmp_path: Path, name: str, kind: str
) -> None:
    source = exported(golden(name), tmp_path / "rows", kind)
    ours = plain(read(source, kind))
    assert ours == plain(by_spark(spark, source, kind))
    assert ours


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_makes_a_store_without_spark(
    golden: Golden,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(import_, "spark_session", started)
    source = exported(golden("broker"), tmp_path / "rows", kind)
    new = tmp_path / "new"
    line = ["import", "--store", str(new), "--from", str(source), "--input", kind]
    for more in (["--master", "local[2]"], ["--conf", "spark.ui.enabled=false"]):
        assert run([*line, *more]) == Started.exit_code
    capsys.readouterr()
    assert run([*line, "--format", "ndjson"]) == 0
    row = {"type": "summary", "store": str(new), "messages": 829}
    assert json.loads(capsys.readouterr().out) == row
    assert run(["verify", "--store", str(new), "-q"]) == 0
    assert run(line) == 6
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("new")] == ["new"]


def test_what_is_left_to_spark(
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(import_, "spark_session", started)
    lines = tmp_path / "rows.ndjson"
    lines.write_text(json.dumps(ROW) + "\n")
    packed = tmp_path / "rows.ndjson.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    (tmp_path / "empty").mkdir()
    assert small_files(str(lines), "ndjson") is not None
    for more in ([], ["--master", "local[2]"]):
        line = ["import", "--store", str(tmp_path / "new"), "--from", str(lines), *more]
        assert run(line) == 2
        assert "rows.ndjson is no Parquet file. Say what it is: --input" in capsys.readouterr().err
    assert small_files(str(packed), "ndjson") is None
    assert small_files(str(tmp_path / "empty"), "ndjson") is None
    assert small_files(str(tmp_path / "{a,b}"), "ndjson") is None
    monkeypatch.setattr(smallimport, "_MOST_BYTES", lines.stat().st_size)
    assert small_files(str(lines), "ndjson") is not None
    monkeypatch.setattr(smallimport, "_MOST_BYTES", lines.stat().st_size - 1)
    line = ["import", "--store", str(tmp_path / "new"), "--from", str(lines), "--input", "ndjson"]
    assert run(line) == Started.exit_code
    source = exported(golden("basic"), tmp_path / "columns", "parquet")
    assert small_files(str(source), "parquet") is None
    for more in ([], ["--master", "local[2]"]):
        line = ["import", "--store", str(tmp_path / "new"), "--from", str(source), *more]
        assert run([*line, "--input", "csv"]) == 2
        assert (
            "part-00000.parquet is a Parquet file. Say --input parquet" in capsys.readouterr().err
        )


COLUMNS: dict[str, tuple[Callable[[], dict[str, Any]], type[RmqctlError], str]] = {
    "unknown": (
        lambda: {"topic": ["a"], "boddy": [1]},
        UsageError,
        "a column 'boddy', which is none of a message",
    ),
    "number": (lambda: {"topic": [1]}, UsageError, "topic must be a string, not int64"),
    "no topic": (lambda: {"body": ["a"]}, UsageError, "no column topic"),
    "null topic": (lambda: {"topic": ["a", None]}, LineRefused, "row 2: the field topic"),
    "fraction": (
        lambda: {"topic": ["a"], "queue_id": [1.5]},
        UsageError,
        "queue_id must be a whole number: ",
    ),
    "missing": (
        lambda: {"topic": ["a"], "body_length": [3]},
        LineRefused,
        "row 1: the body of 3 bytes is missing",
    ),
    "crc": (lambda: {"topic": ["a"], "body": [b"b"], "body_crc": [3]}, LineRefused, MISMATCH),
    "type": (
        lambda: {"topic": ["a"], "type": ["finding"]},
        LineRefused,
        "a row of type 'finding' is no message",
    ),
    "encoding": (
        lambda: {"topic": ["a"], "body": ["x"], "body_encoding": ["utf16"]},
        LineRefused,
        "body_encoding 'utf16' is none of",
    ),
    "null property": (
        lambda: {
            "topic": ["a"],
            "properties": pa.array([[("b", None)]], pa.map_(pa.string(), pa.string())),
        },
        LineRefused,
        "property 'b' must be a string",
    ),
    "list": (
        lambda: {"topic": ["a"], "properties": [["b"]]},
        LineRefused,
        "properties must be an object of strings, not an array",
    ),
    "text": (
        lambda: {"topic": pa.array([b"\xff"], pa.binary()).view(pa.string())},
        FileUnreadable,
        "utf-8",
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_are_no_message(name: str, tmp_path: Path) -> None:
    columns, kind, reason = COLUMNS[name]
    source = tmp_path / "100%25 rows.parquet"
    parquet.write_table(pa.table(columns()), source)
    with pytest.raises(kind) as told:
        read(source, "parquet")
    assert reason in str(told.value)
    if kind is not UsageError:
        assert str(source) in str(told.value) and told.value.exit_code == 5


def test_columns_as_other_programs_write_them(tmp_path: Path) -> None:
    """Numbers with nulls among them are floating-point numbers to pandas; texts may be coded."""
    source = tmp_path / "rows.parquet"
    table = {
        "topic": pa.array(["a", "b"]).dictionary_encode(),
        "queue_id": [2.0, None],
        "born_timestamp": ["1700000000000", "1"],
        "body": ["x", None],
        "tags": pa.nulls(2),
        "store_timestamp": [1, 2],
    }
    parquet.write_table(pa.table(table), source)
    rows = plain(read(source, "parquet"))
    assert rows == [
        {
            "topic": "a",
            "queue_id": 2,
            "born_timestamp": 1700000000000,
            "body": b"x",
        },
        {"topic": "b", "born_timestamp": 1},
    ]


CSV = "topic,queue_id,keys,properties,body\n"


def test_columns_that_directories_give(tmp_path: Path) -> None:
    place = tmp_path / "rows" / "topic=a%2Fb" / "queue_id=7" / "tags=__HIVE_DEFAULT_PARTITION__"
    place.mkdir(parents=True)
    parquet.write_table(pa.table({"body": [b"x"], "tags": ["t"]}), place / "part")
    assert plain(read(tmp_path / "rows", "parquet")) == [
        {"topic": "a/b", "queue_id": 7, "body": b"x"}
    ]


def quoted(*fields: str) -> list[str]:
    return [field.replace('"', '""') for field in fields]


def test_csv_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    body = 'two\nlines, and "quotes"'
    properties = json.dumps({"p": 'x, " \n y'})
    first = ",".join(f'"{text}"' for text in quoted("a", "1", "k 1", properties, body))
    lines = [first, 'b,,"",,', 'c,2147483647, k ,{},"\r\n"']
    source.write_text("\ufeff" + CSV + "\n".join(lines), newline="")
    rows = plain(read(source, "csv"))
    assert rows == plain(by_spark(spark, source, "csv"))
    assert [row.get("keys") for row in rows] == ["k 1", None, " k "]
    assert rows[0]["body"] == body.encode()


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("a,1,k,{\n", FileUnreadable, "Expected 5 columns, got 4"),
        ("a,1,k,{,b\n", LineRefused, "row 1: properties must be an object of strings, not '{'"),
        ('a,1,k,"{""p"":1}",b\n', LineRefused, "property 'p' must be a string, not 1"),
        ("a,x,k,{},b\n", UsageError, "queue_id must be a whole number: "),
        ("a,-1,k,{},b\n", LineRefused, "queue_id -1 is not within 0 to"),
        (",1,k,{},b\n", LineRefused, "row 1: the field topic is missing"),
        ("", UsageError, "rows.csv has two columns 'body'"),
        ("a,1,\udcff,{},b\n", FileUnreadable, "UTF8"),
    ],
)
def test_csv_that_is_no_messages(
    text: str, kind: type[RmqctlError], reason: str, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    header = CSV if text else CSV.replace("keys", "body")
    source.write_text(header + text, errors="surrogateescape")
    with pytest.raises(kind) as told:
        read(source, "csv")
    assert reason in str(told.value)


@pytest.mark.parametrize("at", [0.3, 0.9])
def test_a_file_that_is_cut_off(at: float, golden: Golden, tmp_path: Path) -> None:
    source = exported(golden("basic"), tmp_path / "rows", "parquet")
    path = max(source.rglob("*.parquet"))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * at)])
    assert small_files(str(source), "parquet") is None  # Spark's error tells of it.
    damaged = bytearray(data)
    damaged[8 : len(data) // 2] = bytes(len(data) // 2 - 8)
    path.write_bytes(damaged)
    with pytest.raises((FileUnreadable, LineRefused)):
        read(source, "parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_change_anywhere_end_in_an_error_or_in_messages(
    kind: str, golden: Golden, tmp_path: Path, chance: random.Random
) -> None:
    source = exported(golden("basic"), tmp_path / "rows", kind)
    path = max(one for one in source.rglob("*.*") if one.is_file())
    sound = path.read_bytes()
    ended = {"read": 0, "refused": 0, "left to Spark": 0}
    for _ in range(times(60)):
        data = bytearray(sound)
        for _ in range(chance.choice([1, 1, 3, 20])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            # The first look refuses what no longer begins as a file of its kind.
            files = small_files(str(source), kind)
            if files is not None:
                smallimport.read(files, str(source), kind)
            ended["left to Spark" if files is None else "read"] += 1
        except RmqctlError:
            ended["refused"] += 1
    assert ended["refused"] and sum(ended.values()) == times(60)


def test_a_line_that_is_none(tmp_path: Path) -> None:
    source = tmp_path / "100%25.ndjson"
    source.write_text(json.dumps(ROW) + "\n\n{\n")
    with pytest.raises(LineRefused) as told:
        read(source, "ndjson")
    assert f"{source}, line 3: not JSON" in str(told.value)


def test_lines_are_taken_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    """Those without one come first, as on Spark."""
    source = tmp_path / "rows.ndjson"
    offsets = [30, None, 10, 20, None]
    rows = [ROW | {"keys": str(at), "physical_offset": one} for at, one in enumerate(offsets)]
    source.write_text("\n".join(map(json.dumps, rows)))
    assert [row["keys"] for row in read(source, "ndjson")] == ["1", "4", "2", "3", "0"]


def test_an_import_that_ends_early_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, new = tmp_path / "rows.ndjson", tmp_path / "new"
    source.write_text(json.dumps(ROW) + "\n")
    line = ["import", "--store", str(new), "--from", str(source), "--input", "ndjson"]

    def ended(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(newstore.NewStore, "dispatch", ended)
        assert run(line) == 130
    assert list(tmp_path.iterdir()) == [source]
    assert run(line) == 0


def test_files_of_directories_in_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark would pass over them, and make a store without their messages."""
    monkeypatch.setattr(import_, "spark_session", started)
    top = tmp_path / "rows"
    for number, name in enumerate(["a.ndjson", "b/c.ndjson", "b/d/e.ndjson", "_b/f.ndjson"]):
        (top / name).parent.mkdir(exist_ok=True, parents=True)
        (top / name).write_text(json.dumps(ROW | {"keys": str(number)}))
    (top / "z").symlink_to(top / "b" / "d")
    assert [row["keys"] for row in read(top, "ndjson")] == ["0", "1", "2", "2"]
    line = ["import", "--store", str(tmp_path / "new"), "--input", "ndjson", "--from"]
    on = ["--master", "local[2]"]
    assert run([*line, str(top), *on]) == 2
    said = capsys.readouterr().err
    assert f"Spark reads no file of {top}/b," in said and f"'{top}/*/*'" in said
    assert run([*line, str(top / "b" / "d"), *on]) == Started.exit_code
    (top / "topic=a").mkdir()
    (top / "topic=a" / "g.ndjson").write_text(json.dumps(ROW))
    assert run([*line, str(top), *on]) == Started.exit_code  # Then it reads all.
    (top / "b" / "up").symlink_to("..")
    assert small_files(str(top), "ndjson") is None
    assert run([*line, str(top)]) == Started.exit_code


def test_a_message_that_no_store_takes(tmp_path: Path) -> None:
    source = tmp_path / "rows.ndjson"
    source.write_text(json.dumps({"topic": "../a", "body": "b"}) + "\n")
    with pytest.raises(RmqctlError, match="cannot be a queue directory"):
        files = small_files(str(source), "ndjson")
        assert files is not None
        smallimport.load(smallimport.read(files, "", "ndjson"), str(tmp_path / "new"), CONFIG)
    assert not (tmp_path / "new").exists()


def test_the_new_store_is_sound(golden: Golden, tmp_path: Path) -> None:
    source = exported(golden("lmq"), tmp_path / "rows", "parquet")
    files = small_files(str(source), "parquet")
    assert files is not None
    rows = smallimport.read(files, str(source), "parquet")
    assert smallimport.load(rows, str(tmp_path / "new"), CONFIG) == len(rows)
    findings, summary = findings_of(tmp_path / "new")
    assert (findings, summary.records) == ([], len(rows))
