"""``rmqctl export`` in its own process; tests/test_spark compares it with that of Spark."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import PREFIXES, Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.operations.look import exportfiles
from rmqctl.operations.look.exportfiles import csv_line, partition, partitions
from rmqctl.rows.exported import KNOWN, NO_DAY
from tests import golden_data
from tests.test_cli.conftest import CONFIG, Cli, message

_DAY = 86_400_000
_T0 = 20_000 * _DAY


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Forty messages, half a day apart."""
    ticks = iter(range(_T0, _T0 + 41 * _DAY, _DAY // 2))
    path = tmp_path / "store"
    with MessageStore(
        path, CONFIG, writable=True, create=True, clock=lambda: next(ticks)
    ) as opened:
        for number in range(40):
            assert opened.put_message(message(number)).is_ok
    return path


def lines(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(directory.rglob("part-*.json"))
        for line in path.read_text("utf-8").splitlines()
    ]


@pytest.mark.parametrize(
    ("name", "kind", "meant"),
    [
        ("out.ndjson", "parquet", "ndjson"),
        ("out.jsonl", "csv", "ndjson"),
        ("out.parquet", "ndjson", "parquet"),
        ("out.csv", "csv", None),
        ("out.2026", "csv", None),
    ],
)
def test_a_name_that_stands_for_another_format_is_noticed(
    cli: Cli, store: Path, tmp_path: Path, name: str, kind: str, meant: str | None
) -> None:
    done = cli("export", "--output", tmp_path / name, "--format", kind, store=store)
    assert done.code == 0 and (tmp_path / name).is_dir()
    note = f"directory of {kind}: --format {meant} writes {meant}."
    assert (note in " ".join(done.err.split())) if meant else (done.err == "")


def test_files_lie_by_topic_and_day(cli: Cli, store: Path, tmp_path: Path) -> None:
    before = golden_data.state(store)
    done = cli("export", "--to", tmp_path / "out", "--format", "ndjson", store=store)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("format=ndjson, messages=40, damages=0\n")
    assert golden_data.state(store) == before
    (topic,) = (path for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert topic.name == "topic=orders"
    days = sorted(path.name for path in topic.iterdir())
    assert days[0] == "day=2024-10-04" and len(days) == 20
    with MessageStore(store, CONFIG) as opened:
        told = [cli("walk", "commitlog", "--body-as", "base64", "--format", "ndjson", store=store)]
        walked = [row for row in told[0].rows if row["type"] == "message"]
        assert opened.max_offset > 0
    for row, line in zip(walked, lines(tmp_path / "out"), strict=True):
        assert list(line) == ["type", *_without_null()]
        assert {name: line[name] for name in row} == row
        assert line["store"] == str(store) and line["store_time"].endswith(":00.000Z")


def _without_null() -> list[str]:
    names = [name for name in KNOWN if name != "damage"]
    names.insert(names.index("body") + 1, "body_encoding")
    return names


def test_lines_go_into_put_as_they_are(cli: Cli, store: Path, tmp_path: Path) -> None:
    assert cli("export", "--to", tmp_path / "out", "--format", "ndjson", store=store).code == 0
    rows = tmp_path / "rows"
    rows.write_bytes(b"".join(p.read_bytes() for p in sorted((tmp_path / "out").rglob("part-*"))))
    new = tmp_path / "new" / "store"
    new.parent.mkdir()
    assert cli("put", "--create", "--from", rows, store=new).code == 0
    with MessageStore(store, CONFIG) as old, MessageStore(new, CONFIG) as opened:
        bodies = [
            [one.body(entry) for entry in one.commit_log.walk() if isinstance(entry, Record)]
            for one in (old, opened)
        ]
    assert bodies[0] == bodies[1] and len(bodies[0]) == 40


def test_what_is_asked_for(cli: Cli, store: Path, tmp_path: Path) -> None:
    with MessageStore(store, CONFIG, writable=True) as opened:
        assert opened.put_message(message(0, topic="other")).is_ok
    since, until = str(_T0 + _DAY), str(_T0 + 3 * _DAY - 1)
    line = ("export", "--topic", "orders", "--since", since, "--until", until, "--format", "ndjson")
    done = cli(*line, "--columns", "msg_id, body", "--to", tmp_path / "out", store=store)
    assert done.code == 0 and "messages=4," in done.out
    found = lines(tmp_path / "out")
    assert [b64decode(row["body"]) for row in found] == [b"body %d" % n for n in (2, 3, 4, 5)]
    assert all(list(row) == ["msg_id", "body", "body_encoding"] for row in found)
    done = cli("export", "--topic", "none", "--to", tmp_path / "none", store=store)
    assert done.code == 1 and "messages=0," in done.out
    done = cli("export", "--columns", "topic", "--to", tmp_path / "no", store=store)
    assert done.code == 2 and "--columns needs another column" in done.err
    done = cli("export", "--columns", "colour", "--to", tmp_path / "no", store=store)
    assert done.code == 2 and "there is no column 'colour'" in done.err
    done = cli("export", "--to", tmp_path / "out", store=store)
    assert done.code == 6 and "exists already" in done.err


@pytest.mark.parametrize("kind", ["ndjson", "csv", "parquet"])
def test_damage_is_told(cli: Cli, store: Path, tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pip install pyarrow")
    with MessageStore(store, CONFIG) as opened:
        first, second, *_ = opened.commit_log.walk()
    with (store / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(first.physical_offset + PREFIXES[0].size)
        log.write(b"!")
        log.seek(second.physical_offset)
        log.write(b"\xff" * 8)
    done = cli("export", "--to", tmp_path / "out", "--format", kind, store=store)
    assert done.code == 1
    assert "messages=39, damages=1, body_crc_mismatches=1" in done.out
    assert "one body is not what was stored" in done.err


@pytest.mark.parametrize("kind", ["ndjson", "csv", "parquet"])
def test_a_store_and_a_place_whose_names_are_no_utf8(
    cli: Cli, store: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pip install pyarrow")
    place = store.rename(tmp_path / os.fsdecode(b"bro\xffker"))
    to = tmp_path / os.fsdecode(b"o\xfft")
    columns = ("--columns", "store,broker,queue_offset")
    done = cli("export", "--output", to, "--format", kind, *columns, store=place)
    assert done.code == 0, done.err
    (first, *_) = sorted(to.rglob("part-*"))
    if kind == "parquet":
        import pyarrow.parquet

        with first.open("rb") as file:
            (row, *_) = pyarrow.parquet.ParquetFile(file).read().to_pylist()
    elif kind == "ndjson":
        row = json.loads(first.read_text("utf-8").splitlines()[0])
    else:
        row = next(csv.DictReader(io.StringIO(first.read_text("utf-8"))))
    assert row["store"] == f"{tmp_path}/bro\\xffker"
    assert row["broker"] == "bro\\xffker"


def test_parquet(cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install pyarrow")
    from rmqctl.arrow import parquet as writing

    # Of three files two are closed when the third is opened, and gone on with in new ones.
    monkeypatch.setattr(writing, "_OPEN", 2)
    monkeypatch.setattr(writing, "_HELD_BYTES", 1)
    columns = ("--columns", "topic,queue_offset,body_base64,body")
    assert cli("export", "--to", tmp_path / "out", *columns, store=store).code == 0
    found = [
        (str(path.parent.name), row)
        for path in sorted((tmp_path / "out").rglob("part-*.parquet"))
        for row in parquet.ParquetFile(path).read().to_pylist()
    ]
    assert len(found) == 40 and found[0][0] == "day=2024-10-04"
    assert [row["body"] for _, row in found] == [b"body %d" % n for n in range(40)]
    assert all(b64decode(row["body_base64"]) == row["body"] for _, row in found)
    assert list(found[0][1]) == ["queue_offset", "body_base64", "body"]


def test_without_pyarrow(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = cli("export", "--to", tmp_path / "out", store=store)
    assert done.code == 5
    assert f"Install it with `{sys.executable} -m pip install 'pyarrow>=22'`" in done.err
    assert not (tmp_path / "out").exists()
    for kind in ("ndjson", "csv"):
        done = cli("export", "--to", tmp_path / kind, "--format", kind, store=store)
        assert done.code == 0


def test_no_spark_and_no_pyarrow_is_loaded(store: Path, tmp_path: Path) -> None:
    conf = store.parent / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=2048\nmappedFileSizeConsumeQueue=2000\n")
    line = ["export", "--store", store, "--broker-conf", conf, "--format", "csv", "--to"]
    words = [str(word) for word in (*line, tmp_path / "out")]
    code = f"import sys\nfrom rmqctl.cli.main import run\nassert run({words!r}) == 0\n"
    code += "print({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_names_of_directories() -> None:
    assert partition("a=b/c", 0) == "topic=a%3Db%2Fc/day=1970-01-01"
    assert partition("..", -1) == "topic=../day=1969-12-31"
    assert partition("\0\x1b[31m\x7f%", 19_000) == "topic=%00%1B%5B31m%7F%25/day=2022-01-08"
    assert partition("", 1 << 40) == "topic=__HIVE_DEFAULT_PARTITION__/day=unknown"
    assert partition("größe", 2_932_896) == "topic=größe/day=9999-12-31"
    assert partition("x", -719_162) == "topic=x/day=0001-01-01"


@pytest.mark.parametrize("letter", ["%", "ö", "€", "😀", "a%"])
def test_names_of_directories_fit(letter: str) -> None:
    """The limit is in bytes. What fits is as it always was, and what does not is told apart."""
    seen = set()
    for count in range(1, 300):
        for topic in (letter * count, letter * count + "b"):
            name, day = partition(topic, 0).split("/")
            escaped = "topic=" + topic.replace("%", "%25")
            assert day == "day=1970-01-01" and len(name.encode()) <= 255
            if len(escaped.encode()) <= 255:
                assert name == escaped
            else:
                head, end = name.split("%~")
                assert escaped.startswith(head) and len(end) == 32
                assert head.count("%") == head.count("%25") and len(name.encode()) > 250
            seen.add(name)
    assert len(seen) == 598


@pytest.mark.parametrize("kind", ["ndjson", "csv", "parquet"])
@pytest.mark.parametrize("topic", ["%" * 127, "\ufffd" * 127], ids=["escaped", "no UTF-8"])
def test_a_topic_that_is_too_long_for_a_directory(
    cli: Cli, tmp_path: Path, store: Path, kind: str, topic: str
) -> None:
    """One of 127 bytes, each of which takes three in a name."""
    with MessageStore(store, CONFIG, writable=True) as opened:
        assert opened.put_message(message(0, topic="x" * 127)).is_ok
        (record,) = (
            one
            for one in opened.commit_log.walk()
            if isinstance(one, Record) and one.topic == "x" * 127
        )
        mapped, position = opened.commit_log.locate(record.physical_offset)
    at = position + 88 + record.body_length + 1
    with mapped.path.open("r+b") as file:
        file.seek(at)
        file.write((b"%" if topic[0] == "%" else b"\xff") * 127)
    out = tmp_path / "out"
    assert cli("export", "--output", out, "--format", kind, store=store).code == 0
    (place,) = (path for path in out.iterdir() if "%~" in path.name)
    assert (place / "_topic").read_text() == topic
    assert len(list(out.rglob("_topic"))) == 1 and len(list(place.rglob("part-*"))) == 1
    if kind == "ndjson":
        assert [row["topic"] for row in lines(place)] == [topic]


def test_cells_of_csv() -> None:
    row = {"a": None, "b": "", "c": 'say "no", or\nyes', "d": 5, "e": {"k": "v"}, "f": " x"}
    assert csv_line(row) == b',"","say ""no"", or\nyes",5,"{""k"":""v""}"," x"\n'


def test_few_files_are_open_at_once(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exportfiles, "_OPEN", 2)
    store = tmp_path / "store"
    with MessageStore(store, CONFIG, writable=True, create=True) as opened:
        for number in range(30):
            topic = f"topic-{number % 5}"
            assert opened.put_message(MessageExtBrokerInner(topic, str(number).encode())).is_ok
    assert cli("export", "--to", tmp_path / "out", "--format", "csv", store=store).code == 0
    files = sorted((tmp_path / "out").rglob("part-*.csv"))
    assert len(files) == 5
    for path in files:
        head, *rows = path.read_text().splitlines()
        assert head.startswith("physical_offset,") and len(rows) == 6


def test_a_disk_that_fails_leaves_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exportfiles.TextFiles, "write", full)
    (store.parent / "broker.conf").write_text("mappedFileSizeCommitLog=2048\n")
    line = ["export", "--store", str(store), "--broker-conf", str(store.parent / "broker.conf")]
    assert run([*line, "--to", str(tmp_path / "out"), "--format", "ndjson"]) == 5
    assert "No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))


def test_the_rows_of_a_batch_go_to_the_day_and_topic_of_each() -> None:
    """In their order, whatever times hostile records have."""
    source = random.Random(4)
    topics = ["b", "a", "c"]
    topic = [source.randrange(3) for _ in range(400)]
    times = [-(1 << 63), -_DAY, -1, 0, _DAY - 1, _DAY, (1 << 63) - 1]
    stamps = [source.choice(times) for _ in topic]
    batch = SimpleNamespace(
        topics=SimpleNamespace(names=topics),
        topic_id=np.array(topic, np.int64),
        store_timestamp=np.array(stamps, np.int64),
    )
    expected: dict[str, list[int]] = {}
    for row, (number, stamp) in enumerate(zip(topic, stamps, strict=True)):
        expected.setdefault(partition(topics[number], stamp // _DAY), []).append(row)
    found: dict[str, list[int]] = {}
    for directory, rows in partitions(cast(Batch, batch)):
        found.setdefault(directory, []).extend(rows.tolist())
    # Two days that no calendar has are one directory.
    assert {name: sorted(rows) for name, rows in found.items()} == expected
    assert all(rows == sorted(rows) for name, rows in found.items() if NO_DAY not in name)
