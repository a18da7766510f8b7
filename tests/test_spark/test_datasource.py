"""The data source: row for row what the walks of the engine say, damage included."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.text import decode_properties, tags_code
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.filesizes import consume_queue_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    LATER,
    STORES,
    apply_damage,
    broker_conf,
    broker_conf_text,
    copy_tree,
    damage_case,
    unpacked,
)

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

import numpy as np
import pyarrow as pa

from rmqctl import kernel
from rmqctl.arrow.arrays import MessageColumns
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.rows.columns import STRUCTURES, Source, ddl
from rmqctl.spark import RocketMQDataSource, scan
from rmqctl.spark.remote.stores import expand
from rmqctl.spark.source import logsplit
from rmqctl.spark.source.pushdown import Bounds
from rmqctl.spark.source.split import ReadSettings, Split
from rmqctl.spark.source.splits import plan
from tests.test_operations.test_item_times import CONFIG, make_store_with_pauses
from tests.test_spark.conftest import engine_rows, read_rows, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

SPLITS = [256 << 20, 30_000, 3_000]


@pytest.mark.parametrize("split_bytes", SPLITS)
@pytest.mark.parametrize("name", STORES)
def test_golden_stores_row_for_row(golden: Golden, name: str, split_bytes: int) -> None:
    root = golden(name)
    for structure in STRUCTURES:
        settings = ReadSettings(
            structure, [str(root)], broker_conf(name), check_crc=True, split_bytes=split_bytes
        )
        assert read_rows(settings) == engine_rows(structure, root, broker_conf(name)), structure


def test_first_items_of_index_files_have_their_messages_times(tmp_path: Path) -> None:
    times = make_store_with_pauses(tmp_path / "store", 3_600_000)
    for split_bytes in SPLITS:
        settings = ReadSettings("index", [str(tmp_path / "store")], CONFIG, split_bytes=split_bytes)
        assert [row["store_timestamp"] for row in read_rows(settings)] == times


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_damage_is_where_the_walk_says(golden: Golden, case: str, tmp_path: Path) -> None:
    description = damage_case(case)
    root = copy_tree(golden(description["base"]), tmp_path / case)
    apply_damage(root, description["ops"])
    config = broker_conf(description["base"])
    for split_bytes in SPLITS:
        settings = ReadSettings("commitlog", [str(root)], config, split_bytes=split_bytes)
        try:
            expected = engine_rows("commitlog", root, config)
        except Exception as error:
            assert [row["damage"] for row in read_rows(settings)] == [str(error)]
        else:
            assert read_rows(settings) == expected


@pytest.mark.parametrize("split_bytes", SPLITS)
@pytest.mark.parametrize("numbers", [[0], [2], [6], [0, 1], [2, 3]], ids=str)
def test_log_files_without_a_byte(
    golden: Golden, tmp_path: Path, numbers: list[int], split_bytes: int
) -> None:
    """The log goes on behind them. The store ``crash`` ends before its file 5: there nothing is
    missing."""
    for name in ("basic", "crash"):
        root = copy_tree(golden(name), tmp_path / name)
        for number in numbers:
            path = root / "commitlog" / f"{number * 65536:020d}"
            path.touch()
            os.truncate(path, 0)
        settings = ReadSettings(
            "commitlog", [str(root)], broker_conf(name), check_crc=True, split_bytes=split_bytes
        )
        assert read_rows(settings) == engine_rows("commitlog", root, broker_conf(name))


def test_a_log_file_that_is_missing_behind_a_full_one(golden: Golden, tmp_path: Path) -> None:
    """That is damage, though only zeros follow."""
    root = copy_tree(golden("crash"), tmp_path / "store")
    (root / "commitlog" / f"{262144:020d}").unlink()
    rows = read_rows(ReadSettings("commitlog", [str(root)], broker_conf("crash"), check_crc=True))
    assert rows == engine_rows("commitlog", root, broker_conf("crash"))
    assert str(rows[-1]["damage"]).startswith("commitlog-file-missing")


@pytest.mark.parametrize("split_bytes", SPLITS)
@pytest.mark.parametrize("size", [0, 190, 200, 1001])
@pytest.mark.parametrize("number", [0, 2])
def test_queue_files_of_a_wrong_length_have_units(
    golden: Golden, tmp_path: Path, number: int, size: int, split_bytes: int
) -> None:
    """The walk reads them as far as they have some, and says what they lack."""
    root = copy_tree(golden("batch"), tmp_path / "store")
    os.truncate(root / "consumequeue/TopicBatch/0" / f"{number * 1000:020d}", size)
    settings = ReadSettings("queue", [str(root)], broker_conf("batch"), split_bytes=split_bytes)
    assert read_rows(settings) == engine_rows("queue", root, broker_conf("batch"))


@pytest.mark.parametrize("split_bytes", SPLITS)
def test_units_of_a_queue_with_foreign_things(
    golden: Golden, tmp_path: Path, split_bytes: int
) -> None:
    """What has the name of a file and is none is a row each; all other files are read."""
    root, config = copy_tree(golden("batch"), tmp_path / "store"), broker_conf("batch")
    queue = root / "consumequeue/TopicBatch/0"
    (queue / f"{1000:020d}").unlink()
    (queue / f"{1000:020d}").mkdir()
    (queue / f"{3000:020d}").symlink_to("/no/such/file")
    (queue / f"{2000:020d}").rename(queue / f"{4020:020d}")
    rows = read_rows(ReadSettings("queue", [str(root)], config, split_bytes=split_bytes))
    told = [row for row in rows if row["status"] == "damage" and row["queue_offset"] is None]
    assert [row for row in rows if row not in told] == engine_rows("queue", root, config)
    texts = "1000: it is not a regular", "3000: it is not a regular", "4020 is in the place of"
    for row, text in zip(told, texts, strict=True):
        assert text in row["damage"] and (row["topic"], row["queue_id"]) == ("TopicBatch", 0)


@pytest.mark.parametrize("name", ["basic", "broker", "delay"])
def test_through_spark(spark: SparkSession, golden: Golden, name: str) -> None:
    root, conf = golden(name), broker_conf_text(name)
    for structure in STRUCTURES if name == "basic" else ("commitlog",):
        columns = [column.name for column in STRUCTURES[structure]]
        frame = scan(spark, str(root), structure, columns, brokerConf=conf, splitBytes="100000")
        assert (
            frame.schema.simpleString()
            == "struct<"
            + ",".join(f"{column.name}:{column.type}" for column in STRUCTURES[structure])
            + ">"
        )
        found = table_rows(frame.toArrow())
        assert found == engine_rows(structure, root, broker_conf(name))


def test_the_plain_reader(spark: SparkSession, golden: Golden) -> None:
    """Without ``scan``: every column but the body, and filters pushed or not."""
    root, conf = golden("basic"), broker_conf_text("basic")
    rows = engine_rows("commitlog", root, broker_conf("basic"))
    reader = spark.read.format("rocketmq").option("brokerConf", conf)
    frame = reader.load(str(root))
    assert frame.columns == [c.name for c in STRUCTURES["commitlog"] if c.name != "body"]
    few = reader.option("columns", "topic, body").load(str(root))
    assert few.schema.simpleString() == "struct<topic:string,body:binary>"
    assert table_rows(few.toArrow()) == [
        {name: row[name] for name in ("topic", "body")} for row in rows
    ]
    wanted = sum(row["topic"] == "TopicA" for row in rows)
    for pushes in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushes)
        assert frame.where("topic = 'TopicA'").count() == wanted
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_workers_here_are_this_python_unless_another_is_chosen(
    spark: SparkSession, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python3`` of PATH is what PySpark takes, and of an environment that is not activated it has
    no package."""
    context = spark.sparkContext
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(context, "pythonExec", "python3")
    assert scan(spark, str(golden("basic")), columns=["topic"]).count() > 0
    assert context.pythonExec == sys.executable
    for chosen, master in (("/opt/python", "local[*]"), ("python3", "spark://node:7077")):
        monkeypatch.setattr(context, "pythonExec", chosen)
        monkeypatch.setattr(context, "master", master)
        assert RocketMQDataSource.name() == "rocketmq" and context.pythonExec == chosen
    monkeypatch.setattr(context, "master", "local[*]")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert RocketMQDataSource.name() == "rocketmq" and context.pythonExec == "python3"


def test_counting_needs_no_column(spark: SparkSession, golden: Golden) -> None:
    frame = scan(spark, str(golden("basic")), columns=[])
    assert (frame.columns, frame.count()) == ([], 600)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_each_column_alone(golden: Golden, structure: str) -> None:
    root = golden("basic")
    rows = engine_rows(structure, root, broker_conf("basic"))
    settings = ReadSettings(structure, [str(root)], broker_conf("basic"), check_crc=True)
    for column in STRUCTURES[structure]:
        assert read_rows(settings, [column.name]) == [
            {column.name: row[column.name]} for row in rows
        ]


def test_the_body_is_read_only_when_asked(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqctl.arrow.arrays import _MADE

    def refuse(_: object) -> pa.Array:
        raise AssertionError("the body was read")

    monkeypatch.setitem(_MADE, "body", refuse)
    names = [column.name for column in STRUCTURES["commitlog"] if column.name != "body"]
    settings = ReadSettings("commitlog", [str(golden("basic"))], broker_conf("basic"))
    assert len(read_rows(settings, names)) == 600


def test_tags_codes_of_delayed_messages(golden: Golden) -> None:
    """The log's column is the hash of the tags; the queue's unit holds the time of delivery."""
    root, config = golden("delay"), broker_conf("delay")
    logged = read_rows(ReadSettings("commitlog", [str(root)], config))
    units = {
        row["physical_offset"]: row["tags_code"]
        for row in read_rows(ReadSettings("queue", [str(root)], config))
    }
    delayed = [row for row in logged if row["topic"] == "SCHEDULE_TOPIC_XXXX"]
    assert delayed
    for row in delayed:
        tags = row["properties"].get("TAGS")
        assert row["tags_code"] == (tags_code(tags) if tags else 0)
        assert units[row["physical_offset"]] > row["store_timestamp"]


# --- several stores ----------------------------------------------------------------------


def small_store(root: Path, topic: str, count: int = 3) -> Path:
    with MessageStore(root, writable=True, create=True) as store:
        store.put_messages(
            [MessageExtBrokerInner(topic, b"%d" % number) for number in range(count)]
        )
    return root


def test_several_stores(spark: SparkSession, tmp_path: Path) -> None:
    stores = [small_store(tmp_path / f"broker-{name}" / "store", name) for name in "abc"]
    for path, some in (
        (f"{tmp_path}/broker-*/store", stores),
        (f"{stores[0]}, {stores[2]}", [stores[0], stores[2]]),
        (f"file://{stores[1]}", [stores[1]]),
    ):
        frame = scan(spark, path, columns=["store", "topic"])
        found = {
            (row.store, row.topic, row["count"])
            for row in frame.groupBy("store", "topic").count().collect()
        }
        assert found == {(str(s), s.parent.name[-1], 3) for s in some}


def test_a_store_that_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    good = small_store(tmp_path / "good", "t")
    empty = tmp_path / "empty"
    empty.mkdir()
    stuck = small_store(tmp_path / "stuck", "t")
    (log,) = (stuck / "commitlog").iterdir()
    log.unlink()
    os.mkfifo(log)
    settings = ReadSettings("commitlog", [str(s) for s in (empty, stuck, good)], broker_conf("lmq"))
    rows = read_rows(ReadSettings("commitlog", settings.stores, MessageStore(good).config))
    assert [(row["store"], row["status"]) for row in rows] == [
        (str(empty), "damage"),
        (str(stuck), "damage"),
        *[(str(good), "ok")] * 3,
    ]
    assert "is not a RocketMQ store" in rows[0]["damage"]
    assert "it is not a regular file" in rows[1]["damage"]
    assert {row["damage"] for row in read_rows(settings)} >= {rows[0]["damage"]}


def test_the_length_of_queue_files_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists all topics, and there may be ten thousand."""
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        for number in range(20):
            assert store.put_message(MessageExtBrokerInner(f"topic-{number}", b"x")).is_ok
    asked = []

    def noted(*where: Any) -> int:
        asked.append(where)
        return consume_queue_file_size(*where)

    monkeypatch.setattr("rmqctl.engine.queue.queuetable.consume_queue_file_size", noted)
    settings = ReadSettings("queue", [str(tmp_path / "store")], MessageStoreConfig())
    assert len(read_rows(settings)) == 20
    assert len(asked) == 2, "once for the plan and once for its task"


@pytest.mark.parametrize("split_bytes", SPLITS)
def test_queues_in_rocksdb(golden_directory: Path, split_bytes: int) -> None:
    pytest.importorskip("rocksdict", reason="pip install '.[rocksdb]'")
    root = unpacked("rocksdb", golden_directory, LATER)
    config = MessageStore(root).config
    rows = read_rows(ReadSettings("queue", [str(root)], config, split_bytes=split_bytes))
    assert len(rows) == 17
    assert rows == engine_rows("queue", root, config)
    bounds = Bounds(low={"queue_offset": 64}, only={"topic": frozenset(["orders"])})
    few = read_rows(ReadSettings("queue", [str(root)], config), bounds=bounds)
    assert few == [row for row in rows if row["queue_offset"] >= 64]


def test_what_vanishes_after_planning_is_a_row(tmp_path: Path) -> None:
    """As on an executor that does not see the store."""
    from rmqctl.spark.source.splits import read

    store = small_store(tmp_path / "store", "t")
    schema = pa.schema([("status", pa.string()), ("damage", pa.string())])
    for structure in ("commitlog", "queue"):
        settings = ReadSettings(structure, [str(store)], MessageStore(store).config)
        splits = list(plan(settings, Bounds()))
        assert splits
        hidden = [
            Split(str(tmp_path / "gone"), start=s.start, end=s.end, parts=s.parts) for s in splits
        ]
        rows = [
            row
            for s in hidden
            for b in read(s, settings, Bounds(), schema)
            for row in b.to_pylist()
        ]
        if structure == "commitlog":
            assert rows == [
                {"status": "damage", "damage": "no commit log file holds offset 0 on this machine"}
            ]
        else:
            assert [row["status"] for row in rows] == ["damage"]


# --- clear errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "path", "text"),
    [
        ({}, "/no/such/store", "/no/such/store: no such directory on this machine"),
        ({}, "", "no path: give the store's directory to load()"),
        ({"structure": "tables"}, ".", "structure 'tables' is none of commitlog, queue, index"),
        ({"columns": "topic,bodies"}, ".", "commitlog has no column 'bodies', but physical_offset"),
        ({"checkCrc": "yes"}, ".", "option checkCrc is true, false or auto, not 'yes'"),
        ({"splitBytes": "much"}, ".", "option splitBytes is a number of bytes such as 64m"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, str], path: str, text: str) -> None:
    source = RocketMQDataSource(dict(options, path=path))
    with pytest.raises(ValueError) as caught:
        source.schema()
        source._settings()
    assert text in str(caught.value)


def test_an_error_reaches_the_user(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="no such directory on this machine"):
        spark.read.format("rocketmq").load("/no/such/store").count()
    with pytest.raises(ValueError, match="has no column 'bodies'"):
        scan(spark, "/no/such/store", columns=["bodies"])


def test_a_column_of_another_type_is_refused(golden: Golden) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    source = RocketMQDataSource({"path": str(golden("basic"))})
    with pytest.raises(ValueError, match="no column queue_id of type bigint"):
        source.reader(StructType([StructField("queue_id", LongType())]))


def test_paths(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    for form in ("file:", "file://"):
        assert expand(f"{form}{tmp_path}/*") == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert expand(f"{tmp_path}/*") == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert expand(f"{tmp_path}/b, {tmp_path}/a") == [f"{tmp_path}/b", f"{tmp_path}/a"]
    with pytest.raises(ValueError, match="no such directory"):
        expand(f"{tmp_path}/file")


def test_a_name_is_itself_before_it_is_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a,b", "s[1]", "s1"]
    stores = [str(small_store(tmp_path / name, name[0] + str(len(name)), 1)) for name in names]
    for store in stores:
        assert expand(store) == [store]
        (row,) = scan(spark, [store], columns=["store"]).collect()
        assert row["store"] == store
    rows = scan(spark, stores, columns=["store", "topic"]).collect()
    assert sorted((row["store"], row["topic"]) for row in rows) == sorted(
        zip(stores, ["a3", "s4", "s2"], strict=True)
    )


# --- places where splits meet --------------------------------------------------------------


def test_a_body_that_holds_records_deceives_no_split(tmp_path: Path) -> None:
    """Its records name their own places even, as only a liar's do."""
    root = tmp_path / "store"
    with MessageStore(root, writable=True, create=True) as store:
        store.put_messages([MessageExtBrokerInner("t", b"x" * 100) for _ in range(20)])
        start = store.max_offset + 88
        inner = bytearray()
        for number in range(20):
            record = bytearray(store.commit_log.locate(0)[0].read(0, 191))
            size = int.from_bytes(record[:4], "big")
            record = record[:size]
            record[28:36] = (start + number * size).to_bytes(8, "big")
            inner += record
        store.put_messages([MessageExtBrokerInner("t", bytes(inner))])
        assert store.commit_log.find_record(start) is not None, "the lie must be a good one"
        store.put_messages([MessageExtBrokerInner("t", b"y" * 100) for _ in range(20)])
    expected = engine_rows("commitlog", root)
    for split_bytes in (100, 333, 1000, 3000):
        settings = ReadSettings(
            "commitlog", [str(root)], MessageStore(root).config, split_bytes=1 << 30
        )
        from dataclasses import replace

        end = MessageStore(root).max_offset
        import rmqctl.spark.source.splits as module
        from rmqctl.spark.source.logsplit import open_log

        schema = pa.schema([("physical_offset", pa.int64())])
        found = [
            row["physical_offset"]
            for split in module.log_splits(
                open_log(str(root), settings.config), str(root), split_bytes, 0, end, log_end=end
            )
            for batch in module.read(
                split, replace(settings, split_bytes=split_bytes), Bounds(), schema
            )
            for row in batch.to_pylist()
        ]
        assert found == [row["physical_offset"] for row in expected]


# --- properties ------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        b"\x01",
        b"\x02",
        b"TAGS",
        b"KEYS",
        b"a",
        b"",
        b"\x00",
        b"\xff",
        "ü€😀".encode(),
        b"\xed\xa0\x80",
    ]
)
STORED = st.one_of(
    st.lists(PIECES, max_size=12).map(b"".join),
    st.dictionaries(st.text("abTAGS", max_size=4), st.text(max_size=5), max_size=5).map(
        lambda d: b"\x02".join(f"{k}\x01{v}".encode("utf-8", "replace") for k, v in d.items())
    ),
)


@given(st.lists(STORED, min_size=1, max_size=20), st.binary(max_size=3))
def test_maps_are_the_decoded_properties(stored: list[bytes], gap: bytes) -> None:
    data = bytearray(b"-")
    places = []
    for value in stored:
        places.append((len(data), len(value)))
        data += value + gap
    data += b"-"
    start, length = (np.array(column, np.int64) for column in zip(*places, strict=True))
    expected = [decode_properties(value) for value in stored]
    codes = [tags_code(value["TAGS"]) if "TAGS" in value else 0 for value in expected]
    for choice in engines():
        maps, found = columns_of_properties(bytes(data), start, length, choice)
        assert [dict(value) for value in maps.to_pylist()] == expected
        assert [len(value) for value in maps.to_pylist()] == [len(value) for value in expected]
        assert found.to_pylist() == codes


def engines() -> list[str]:
    """By numpy, and by the kernel where it is there."""
    return ["pure"] if kernel.usable().module is None else ["pure", "compiled"]


def columns_of_properties(data: bytes, start: Any, length: Any, choice: str) -> tuple[Any, Any]:
    """The columns of records of which nothing but the properties is there."""
    zeros = np.zeros(len(start), np.int64)
    values: dict[str, Any] = {field.name: zeros for field in fields(Batch)}
    values |= {"properties_position": start, "properties_length": length, "topics": TopicTable()}
    batch = Batch(**values | {"mapped": SimpleNamespace(buffer=data + bytes(100))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        names = ["properties", "tags_code"]
        columns = MessageColumns(batch, Source("", ""), names, checked=False)
        made = columns.column("properties"), columns.column("tags_code")
    for array in made:
        array.validate(full=True)
    return made


def test_names_repeat_beyond_the_bits_of_a_word() -> None:
    value = b"\x02".join(b"n%d\x01%d" % (n % 60, n) for n in range(150))
    for choice in engines():
        places = np.array([0]), np.array([len(value)])
        maps, _ = columns_of_properties(value + b"-", *places, choice)
        assert dict(maps[0].as_py()) == decode_properties(value)


@pytest.mark.parametrize("count", [64, 65, 200])
def test_many_names(count: int) -> None:
    value = b"\x02".join(b"n%d\x01%d" % (n, n) for n in range(count)) + b"\x02TAGS\x01t\x02"
    for choice in engines():
        places = np.array([0]), np.array([len(value)])
        maps, codes = columns_of_properties(value + b"-", *places, choice)
        assert maps[0].as_py() == list(decode_properties(value).items())
        assert codes.to_pylist() == [tags_code("t")]


def test_times_outside_of_the_calendar_are_null() -> None:
    from rmqctl.arrow.arrays import times

    values: Any = np.array([-(2**63), -1, 0, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1])
    found = times(values).to_pylist()
    assert [value is None for value in found] == [True, False, False, False, True, True]


def test_the_schema_of_a_structure() -> None:
    assert "`body`" not in ddl("commitlog")
    assert ddl("queue", ["topic", "size"]) == (
        "`topic` string COMMENT 'topic', `size` int COMMENT 'size of the record'"
    )
    assert "COMMENT 'the producer\\'s own flag'" in ddl("commitlog", ["flag"])
    with pytest.raises(ValueError, match="none of commitlog, queue, index"):
        ddl("log")


# --- the tutorial ----------------------------------------------------------------------------


def test_the_tutorial(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a store to a chart in ten statements, and the other snippets, as they stand there."""
    import ast
    import re
    from xml.etree import ElementTree

    page = (Path(__file__).parents[2] / "docs/tutorial/spark.md").read_text()
    chart, less, notebook, live, parquet, new, whole, append, copy = re.findall(
        r"```python\n(.*?)```", page, re.DOTALL
    )
    assert len(ast.parse(chart).body) <= 10
    store = small_store(tmp_path / "store", "orders", 7)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}

    def run(code: str) -> None:
        exec(
            code.replace("/data/rocketmq/store", str(store)).replace("/data", str(tmp_path)), names
        )

    run(chart)
    drawing = ElementTree.parse(tmp_path / "messages.svg").getroot()
    assert [element.text for element in drawing if element.tag.endswith("text")] == ["orders: 7"]
    run(less)
    run(notebook)
    assert names["counted"].summary["messages"] == 7
    assert list((tmp_path / "messages" / "topic=orders").rglob("*.parquet"))
    run("stream = " + live)
    assert names["stream"].isStreaming
    run(parquet)
    with MessageStore(store, writable=True) as opened:
        assert opened.put_message(MessageExtBrokerInner("orders", b"later")).is_ok
    names["follow"]()
    rows = spark.read.parquet(str(tmp_path / "parquet"))
    followed = sorted(bytes(row.body) for row in rows.collect())
    assert followed == sorted(row["body"] for row in engine_rows("commitlog", store))
    assert len(followed) == 8
    names["rows"] = spark.createDataFrame([("t", b"x")], "topic string, body binary")
    run(new)
    run(whole.replace("new-store", "whole-store"))
    run(append)
    run(append)
    run(copy)
    for made, bodies in (("whole-store", [b"x"]), ("new-store", [b"x"] * 2)):
        assert [row["body"] for row in engine_rows("commitlog", tmp_path / made)] == bodies
    assert len(engine_rows("commitlog", tmp_path / "copy")) == 8


def test_a_path_of_a_broker_conf_may_hold_an_equals_sign(tmp_path: Path) -> None:
    from rmqctl.spark.source.datasource import broker_config

    path = tmp_path / "env=test" / "broker.conf"
    path.parent.mkdir()
    path.write_text("mappedFileSizeCommitLog=4096\n")
    for text in (str(path), path.read_text()):
        assert broker_config(text).mapped_file_size_commit_log == 4096


@pytest.mark.parametrize("damaged", [False, True])
def test_splits_far_inside_of_a_large_file_meet(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file is longer than what a search looks back at, a split begins at the first record
    behind its place, found from a record before it and not from the file's start."""
    monkeypatch.setattr(logsplit, "_LOOK_BACK", 0)
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 19, max_message_size=1000)
    root = tmp_path / "store"
    with MessageStore(root, config, writable=True, create=True) as store:
        bodies = [b"x" * (n * 37 % 700) for n in range(1200)]
        results = store.put_messages([MessageExtBrokerInner("t", b) for b in bodies], flush=False)
        places = [r.append.wrote_offset for r in results if r.append is not None]
    assert len(places) == 1200 and places[-1] > 1 << 19
    if damaged:
        lost = places.pop(700)
        with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(lost + 4)
            file.write(b"\xff" * 4)
    for split_bytes in (9_001, 100_000):
        settings = ReadSettings("commitlog", [str(root)], config, split_bytes=split_bytes)
        rows = read_rows(settings, ["physical_offset", "status"])
        assert [row["physical_offset"] for row in rows if row["status"] == "unchecked"] == places
        assert [row["physical_offset"] for row in rows if row["status"] != "unchecked"] == (
            [lost] if damaged else []
        )


@pytest.mark.parametrize(
    ("asked", "columns", "told"),
    [
        (None, ["status"], {"unchecked"}),
        (None, ["status", "body"], {"ok", "body-crc-mismatch"}),
        (True, ["status"], {"ok", "body-crc-mismatch"}),
        (False, ["status", "body"], {"unchecked"}),
    ],
)
def test_status_claims_nothing_of_bodies_that_nobody_has_looked_at(
    tmp_path: Path, asked: bool | None, columns: list[str], told: set[str]
) -> None:
    root = tmp_path / "store"
    with MessageStore(root, MessageStoreConfig(), writable=True, create=True) as store:
        for body in (b"sound", b"to be changed"):
            assert store.put_message(MessageExtBrokerInner("t", body)).is_ok
    log = root / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        place = file.read(4096).index(b"to be")
        file.seek(place)
        file.write(b"!")
    settings = ReadSettings("commitlog", [str(root)], MessageStoreConfig(), check_crc=asked)
    assert {row["status"] for row in read_rows(settings, columns)} == told
