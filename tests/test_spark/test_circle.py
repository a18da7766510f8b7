"""Messages that export, walk and others print go into import and put, and nothing is laundered."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.cli.commands import export, import_
from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import UsageError
from rmqctl.operations.change.putstream import BulkPut, put_lines
from rmqctl.operations.look.walk import Selection, walk_commit_log
from rmqctl.rows import Row
from rmqctl.rows.exported import exported_columns
from tests import random_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark-writes")
SMALL = MessageStoreConfig(mapped_file_size_commit_log=1 << 17)
KINDS = ["parquet", "ndjson", "csv"]
#: What is another one's in another store.
OWN = {"physical_offset", "store_timestamp", "msg_id"}
BODIES = [b"plain", b'h\xc3\xa9llo, "you"\n\x1b[2J', b"\xff\0not UTF-8", b""]
MISMATCH = "the body is not what was stored"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four messages, one of them delivered after a delay."""
    path = tmp_path / "store"
    with MessageStore(path, SMALL, writable=True, create=True) as opened:
        for number, body in enumerate(BODIES):
            properties = {"KEYS": f"k{number}", "note": 'a,\n"b"'}
            if number == 1:
                properties["DELAY"] = "3"
            sent = MessageExtBrokerInner("orders", body, number % 2, properties=properties)
            sent.was_stored = True
            assert opened.put_message(sent).is_ok
    return path


def rows_of(path: Path, body: str = "base64") -> list[Row]:
    with MessageStore(path, SMALL) as opened:
        return list(walk_commit_log(opened, Selection(), body))


def kept(rows: list[Row]) -> list[Row]:
    return [
        {name: value for name, value in row.items() if name not in OWN}
        for row in rows
        if row["type"] == "message"
    ]


def damage(path: Path) -> None:
    """Changes the body of the first message."""
    (log,) = (path / "commitlog").iterdir()
    data = log.read_bytes()
    log.write_bytes(data.replace(b"plain", b"Plain", 1))


def exported(spark: SparkSession, path: Path, to: Path, kind: str) -> tuple[int, int, int]:
    from rmqctl.spark.report import export as report

    columns = exported_columns()
    rows = report.selected(spark, [str(path)], {}, columns)
    return report.export(rows, columns, str(to), kind)


def lines_of(directory: Path) -> Iterator[bytes]:
    for path in sorted(directory.rglob("part-*")):
        yield from path.read_bytes().splitlines()


def refusal(spark: SparkSession, path: Path, kind: str, **options: bool) -> str:
    """Why an import of a file is refused."""
    from rmqctl.spark.session.failures import SparkFailed, failures_told
    from rmqctl.spark.sink import importer

    with pytest.raises((SparkFailed, UsageError)) as told, failures_told():
        importer.read(spark, str(path), kind, **options).collect()
    return str(told.value)


@pytest.mark.parametrize("body", ["base64", "hex", "utf8"])
def test_import_takes_rows_of_walk(
    spark: SparkSession, store: Path, tmp_path: Path, body: str
) -> None:
    from rmqctl.spark.sink import importer

    rows, source = rows_of(store, body), tmp_path / "rows.ndjson"
    others: list[Row] = [{"type": "damage", "physical_offset": 0, "length": 1}]
    text = "\n".join(json.dumps(row) for row in [*others, *rows])
    source.write_bytes(b"\xef\xbb\xbf" + text.encode())
    messages = importer.read(spark, str(source), "ndjson")
    assert importer.load(messages, str(tmp_path / "new"), SMALL) == len(BODIES)
    assert kept(rows_of(tmp_path / "new", body)) == kept(rows)


def test_ten_thousand_messages_go_round(
    spark: SparkSession, chance: random.Random, tmp_path: Path
) -> None:
    """export → import → walk. An import puts messages in the order of their store times, so places
    are others; nothing else is."""
    from rmqctl.spark.sink import importer

    old, new, files = tmp_path / "old", tmp_path / "new", tmp_path / "files"
    with MessageStore(old, SMALL, writable=True, create=True) as opened:
        sent = random_messages.messages(chance, 10_000)
        assert all(result.is_ok for bulk in opened.put_stream(sent) for result in bulk)
    assert exported(spark, old, files, "parquet")[0] == 10_000
    assert importer.load(importer.read(spark, str(files), "parquet"), str(new), SMALL) == 10_000
    assert placeless(rows_of(new)) == placeless(rows_of(old))


def placeless(rows: list[Row]) -> list[str]:
    less = [{name: row[name] for name in row if name != "queue_offset"} for row in kept(rows)]
    return sorted(json.dumps(row, sort_keys=True) for row in less)


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_import_takes_what_the_command_prints(
    spark: SparkSession, store: Path, tmp_path: Path, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from rmqctl.spark.sink import importer

    line = ("walk", "commitlog", "--store", str(store), "--body-as", "base64", "--format", form)
    assert run(line) == 0
    source = tmp_path / f"rows.{form}"
    source.write_text(("\ufeff" if form == "csv" else "") + capfd.readouterr().out)
    found = importer.read(spark, str(source), form).collect()
    assert [bytes(row["body"] or b"") for row in found] == BODIES
    assert [row["properties"]["note"] for row in found] == ['a,\n"b"'] * len(BODIES)


def test_put_takes_what_export_writes(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    """A line is a message of its own, and says its topic as its directory does."""
    from rmqctl.operations.change.messagemaker import MessageMaker

    assert exported(spark, store, tmp_path / "out", "ndjson") == (len(BODIES), 0, 0)
    lines = list(lines_of(tmp_path / "out"))
    assert {json.loads(line)["body_encoding"] for line in lines} == {"base64"}
    maker = MessageMaker()
    with MessageStore(tmp_path / "new", SMALL, writable=True, create=True) as new:
        for bulk in put_lines(new, [*lines], BulkPut("export"), maker=maker):
            list(bulk)
    assert [row["body"] for row in kept(rows_of(tmp_path / "new"))] == [
        row["body"] for row in kept(rows_of(store))
    ]


def test_a_body_has_its_former_name_on_request(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    from rmqctl.spark.report import export as report
    from rmqctl.spark.sink import importer

    columns = exported_columns("topic,body_base64")
    rows = report.selected(spark, [str(store)], {}, columns)
    assert report.export(rows, columns, str(tmp_path / "out"), "ndjson").messages == len(BODIES)
    names = ["type", "topic", "body_base64"]
    assert all(list(json.loads(line)) == names for line in lines_of(tmp_path / "out"))
    found = importer.read(spark, str(tmp_path / "out"), "ndjson").collect()
    assert sorted(bytes(row["body"]) for row in found) == sorted(BODIES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_body_is_told_and_refused(
    spark: SparkSession, store: Path, tmp_path: Path, kind: str
) -> None:
    from rmqctl.spark.sink import importer

    damage(store)
    out = tmp_path / "out"
    assert exported(spark, store, out, kind) == (len(BODIES), 0, 1)
    assert MISMATCH in refusal(spark, out, kind)
    found = importer.read(spark, str(out), kind, ignore_body_crc=True).collect()
    assert sorted(bytes(row["body"] or b"") for row in found) == sorted([b"Plain", *BODIES[1:]])


def test_the_commands_tell_of_a_damaged_body(
    spark: SparkSession,
    store: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rmqctl.spark.session.failures import failures_told

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        with failures_told():
            yield spark

    for command in (export, import_):
        monkeypatch.setattr(command, "spark_session", session)
    damage(store)
    out, new, on = str(tmp_path / "out"), str(tmp_path / "new"), ("--master", "local[2]")
    assert run(("export", "--store", str(store), "--to", out, "--format", "ndjson", *on)) == 1
    told = capfd.readouterr()
    assert "body_crc_mismatches=1" in told.out and "one body is not what was stored" in told.err
    load = ("import", "--store", new, "--from", out, "--input", "ndjson", *on)
    assert run(load) == 5
    assert MISMATCH in capfd.readouterr().err and not Path(new).exists()
    assert run((*load, "--ignore-body-crc")) == 0


ROW: dict[str, Any] = {"topic": "a", "body": "YQ==", "body_encoding": "base64", "body_length": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": 7}, "topic must be a string, not 7"),
        ({"keys": 7}, "keys must be a string, not 7"),
        ({"properties": {"a": 1}}, "property 'a' must be a string, not 1"),
        ({"queue_id": "1"}, "queue_id must be a whole number"),
        ({"boddy": ""}, "unknown field 'boddy'"),
        ({"type": "finding"}, "a row of type 'finding' is no message"),
        ({"body": None}, "the body of 1 bytes is missing"),
        ({"body": "YWE="}, "the body has 2 bytes, and body_length says 1"),
        ({"body_crc": 7}, MISMATCH),
        ({"status": "body-crc-mismatch"}, MISMATCH),
        ({"delay_level": 3}, "an import delays nothing"),
        ({"topic": None}, "topic is missing"),
    ],
    ids=str,
)
def test_import_refuses_what_put_refuses(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    source = tmp_path / "rows of mine.ndjson"
    lines = [json.dumps(row) for row in (ROW, ROW | changes, ROW)]
    source.write_text("\n\n".join(lines))
    told = refusal(spark, source, "ndjson")
    assert f": {source}, line 3: " in told and reason in told
    source.write_bytes(gzip.compress(source.read_bytes()))
    told = refusal(spark, source.rename(tmp_path / "rows.ndjson.gz"), "ndjson")
    assert ", a line: " in told and reason in told


def test_import_takes_what_it_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    from rmqctl.spark.sink import importer

    source = tmp_path / "rows.ndjson"
    rows: list[Row] = [{"type": "finding"}, ROW | {"boddy": "", "body_crc": 7, "flag": None}]
    source.write_text("\n\n".join(json.dumps(row) for row in rows))
    more = {"ignore_body_crc": True, "ignore_unknown": True}
    (row,) = importer.read(spark, str(source), "ndjson", **more).collect()
    assert (row["topic"], bytes(row["body"]), row["flag"]) == ("a", b"a", None)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("'a' AS topic, 'b' AS body, 1 AS boddy", "a column 'boddy', which is none of a message"),
        ("1 AS topic", "topic must be a string, not int"),
        ("'a' AS topic, 7 AS keys", "keys must be a string, not int"),
        ("'a' AS topic, 3 AS body_length", "its body is missing"),
        ("'a' AS topic, 'b' AS body, 3 AS body_crc", MISMATCH),
        ("'a' AS topic, 'b' AS body, 'body-crc-mismatch' AS status", MISMATCH),
        ("'a' AS topic, 'x' AS body, 'utf16' AS body_encoding", "body_encoding utf16 is none"),
        ("'a' AS topic, 'finding' AS type", "a row of type finding, which is no message"),
        ("'b' AS body", "no column topic"),
    ],
)
def test_columns_that_are_no_message(
    spark: SparkSession, tmp_path: Path, columns: str, reason: str
) -> None:
    spark.sql(f"SELECT {columns}").write.parquet(str(tmp_path / "rows"))
    assert reason in refusal(spark, tmp_path / "rows", "parquet")


def test_columns_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Types of rows, spellings of bodies, and bodies that were decompressed."""
    from rmqctl.spark.sink import importer

    source = tmp_path / "rows"
    columns = "'a' AS topic, 1793 AS sys_flag, -1 AS body_crc, 0 AS body_length"
    spark.sql(
        f"""SELECT {columns}, 'message' AS type, '6869' AS body, 'hex' AS body_encoding,
                'decompressed' AS body_status
            UNION ALL SELECT {columns}, 'summary', 'x', 'utf8', NULL"""
    ).write.parquet(str(source))
    (row,) = importer.read(spark, str(source), "parquet").collect()
    assert (bytes(row["body"]), row["sys_flag"]) == (b"hi", 0)
    unknown = "SELECT 'a' AS topic, 'b' AS body, 1 AS boddy"
    spark.sql(unknown).write.parquet(str(tmp_path / "more"))
    found = importer.read(spark, str(tmp_path / "more"), "parquet", ignore_unknown=True)
    assert found.columns == ["body", "topic"]
