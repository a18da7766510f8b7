"""export on Spark and in its own process: the same rows in the same directories."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.cli.commands import export as command
from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.scan.choice import Choice
from rmqctl.operations.look.export import StoreToExport
from rmqctl.operations.look.export import export as export_here
from rmqctl.rows.columns import Source, broker_of
from rmqctl.rows.exported import Exported, exported_columns
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import BORN, CONFIG, message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pip install 'rmqctl[spark]'")
pq = pytest.importorskip("pyarrow.parquet", reason="pip install 'rmqctl[spark]'")

pytestmark = pytest.mark.xdist_group("spark-writes")
STORES = ("ipv6", "broker", "sqlfilter", "transaction")


def stores(golden: Golden) -> list[str]:
    return [name for name in STORES if name in golden_data.STORES]


def here(golden: Golden, names: list[str], to: Path, kind: str, columns: list[str]) -> Exported:
    opened = []
    for name in names:
        root = golden(name)
        store = MessageStore(root, golden_data.broker_conf(name))
        opened.append(StoreToExport(store, Source(str(root), broker_of(str(root)))))
    done = export_here(opened, columns, to, kind, Choice())
    for one in opened:
        one.store.close()
    return done


def plain(value: bytes | datetime) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def contents(directory: Path) -> dict[str, list[str]]:
    """What the files of each directory hold, in any order; nor have properties one."""
    found: dict[str, set[str]] = {}
    for path in directory.rglob("part-*"):
        if path.suffix == ".parquet":
            rows = pq.ParquetFile(path).read().to_pylist()
            for row in rows:
                row["properties"] = dict(row["properties"])
        elif path.suffix == ".json":
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        else:
            rows = list(csv.DictReader(path.open(encoding="utf-8", newline="")))
            for row in rows:
                row["properties"] = json.loads(row["properties"])
        told = {json.dumps(sorted(row.items()), default=plain, sort_keys=True) for row in rows}
        assert all(list(row) == list(rows[0]) for row in rows) or path.suffix == ".json"
        assert len(told) == len(rows)
        found.setdefault(str(path.parent.relative_to(directory)), set()).update(told)
    return {name: sorted(rows) for name, rows in found.items()}


@pytest.mark.parametrize("kind", ["parquet", "ndjson", "csv"])
def test_both_write_the_same(
    spark: SparkSession, golden: Golden, tmp_path: Path, kind: str
) -> None:
    from rmqctl.spark.report import export

    names, columns = stores(golden), exported_columns()
    roots = [str(golden(name)) for name in names]
    rows = export.selected(spark, roots, {}, columns)
    on_spark = export.export(rows, columns, str(tmp_path / "spark"), kind)
    assert here(golden, names, tmp_path / "here", kind, columns) == on_spark
    assert on_spark.messages > 500 and on_spark.damages == 0
    one, other = contents(tmp_path / "spark"), contents(tmp_path / "here")
    assert one.keys() == other.keys()
    for directory, told in one.items():
        assert other[directory] == told, directory
    for place in ("spark", "here"):
        assert (tmp_path / place / "_SUCCESS").exists()
        suffixes = {path.suffix for path in (tmp_path / place).rglob("part-*")}
        assert suffixes == {{"ndjson": ".json"}.get(kind, f".{kind}")}


def test_what_is_damaged_counts_for_both_whatever_is_chosen(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Forty messages an hour apart, of which the first, one of a later file and a whole file are
    gone, a directory being in its place, and one body is not what was stored."""
    from rmqctl.spark.report import export

    hour, root, columns = 3_600_000, tmp_path / "store", exported_columns()
    ticks = iter(range(BORN, BORN + 100 * hour, hour))
    with MessageStore(
        root, CONFIG, writable=True, create=True, clock=lambda: next(ticks)
    ) as opened:
        for number in range(40):
            topic = ("orders", "other")[number % 2]
            assert opened.put_message(message(number, topic=topic, body=bytes(180))).is_ok
        places = [
            one.physical_offset for one in opened.commit_log.walk() if isinstance(one, Record)
        ]
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 4
    for at, where, what in ((0, 4, b"????"), (places[-3], 4, b"????"), (places[20], 100, b"?")):
        file = files[at // 2048]
        data = bytearray(file.read_bytes())
        data[at % 2048 + where : at % 2048 + where + len(what)] = what
        file.write_bytes(data)
    files[1].unlink()
    files[1].mkdir()
    choices = (
        *(Choice(), Choice("orders"), Choice("none", BORN + 30 * hour)),
        Choice(None, None, BORN + 3 * hour),
    )
    seen = set()
    for number, choice in enumerate(choices):
        rows = export.selected(spark, [str(root)], {}, columns, **choice._asdict())
        done = export.export(rows, columns, str(tmp_path / f"spark{number}"), "ndjson")
        with MessageStore(root, CONFIG) as opened:
            source = Source(str(root), broker_of(str(root)))
            to = tmp_path / f"here{number}"
            assert done == export_here(
                [StoreToExport(opened, source)], columns, to, "ndjson", choice
            )
        assert contents(tmp_path / f"spark{number}") == contents(to)
        seen.add((done.damages, done.body_crc_mismatches))
    # All of it; none of it: what is chosen lies elsewhere.
    assert (4, 1) in seen and len(seen) > 2


@pytest.mark.parametrize("kind", ["parquet", "ndjson", "csv"])
def test_import_takes_what_was_exported_here(
    spark: SparkSession, golden: Golden, tmp_path: Path, kind: str
) -> None:
    from rmqctl.spark.sink import importer

    done = here(golden, ["ipv6"], tmp_path / "out", kind, exported_columns())
    messages = importer.read(spark, str(tmp_path / "out"), kind)
    config = golden_data.broker_conf("ipv6")
    assert importer.load(messages, str(tmp_path / "new"), config) == done.messages == 200
    with (
        MessageStore(golden("ipv6"), config) as old,
        MessageStore(tmp_path / "new", config) as new,
    ):
        kept = [
            [
                (one.topic, one.queue_id, one.properties, store.body(one), one.born_timestamp)
                for one in store.commit_log.walk()
                if isinstance(one, Record)
            ]
            for store in (old, new)
        ]
    assert kept[0] == kept[1]


def test_a_time_of_any_year_is_the_same_for_every_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of INT96, which Spark writes by default, pyarrow makes another time after 2262."""
    from rmqctl.spark.report import export

    root, columns = tmp_path / "store", exported_columns("born_time")
    born = datetime(5000, 1, 1, tzinfo=UTC)
    late = message(0)
    late.born_timestamp = int(born.timestamp()) * 1000
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        assert opened.put_message(late).is_ok
    export.export(
        export.selected(spark, [str(root)], {}, columns), columns, str(tmp_path / "out"), "parquet"
    )
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert pq.ParquetFile(path).read().to_pylist() == [{"born_time": born}]
    # The session is the caller's.
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


@pytest.mark.parametrize("oddity", ["short log", "no log", "link to nowhere", "short queue"])
def test_both_say_what_is_odd(
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    oddity: str,
) -> None:
    """Files of the log whose length is wrong, or that lie elsewhere; of queues nothing is read."""

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        assert all(opened.put_message(message(number)).is_ok for number in range(40))
    log = sorted((root / "commitlog").iterdir())
    queue = next(path for path in (root / "consumequeue").rglob("*") if path.is_file())
    if oddity == "no log":
        for path in log:
            path.unlink()
    elif oddity == "link to nowhere":
        log[1].unlink()
        log[1].symlink_to("/nowhere/at/all")
    else:
        path = log[1] if oddity == "short log" else queue
        path.write_bytes(path.read_bytes()[:78])
    told = []
    for number, more in enumerate(([], ["--master", "local[2]"])):
        to = tmp_path / f"out{number}"
        words = ["export", "--store", str(root), "--output", str(to), "--format", "ndjson"]
        code = run([*words, *more])
        out, err = capfd.readouterr()
        told.append((code, out.replace(str(to), ""), err))
        assert to.exists() == (oddity != "link to nowhere")
    assert told[0] == told[1]
    code, _, err = told[0]
    assert code == {"short queue": 0, "link to nowhere": 5}.get(oddity, 1)
    assert ("note: " in err) == (oddity != "short queue")
