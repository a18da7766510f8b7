"""Options of the data source mean what those of Spark's Kafka source do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.rows.columns import STRUCTURES, ddl
from tests.conftest import Golden
from tests.golden_data import broker_conf_text, copy_tree

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from rmqctl.spark import RocketMQDataSource, scan
from rmqctl.spark.source.datasource import RocketMQReader
from rmqctl.spark.source.options import OPTIONS
from rmqctl.spark.source.split import Split
from rmqctl.spark.source.stream import RocketMQStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

SMALL = MessageStoreConfig(mapped_file_size_commit_log=4096)
CONF = "mappedFileSizeCommitLog=4096"
TIMES = "physical_offset", "store_timestamp"
PLACES = ("topic", "queue_id", "queue_offset")
STATUS = StructType().add("status", "string")
COUNT = 100
Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A hundred messages of two topics with two queues each, in turn, in several files."""
    root = tmp_path_factory.mktemp("options") / "store"
    clock = count(1_700_000_000_000, 1000).__next__
    with MessageStore(root, SMALL, writable=True, create=True, clock=clock) as opened:
        for number in range(COUNT):
            topic = ("orders", "bills")[number % 2]
            message = MessageExtBrokerInner(topic, b"%0200d" % number, queue_id=number // 2 % 2)
            assert opened.put_message(message).is_ok
    yield root


def source(path: Path, **options: Any) -> RocketMQDataSource:
    texts = {name: str(value) for name, value in options.items()}
    given = CaseInsensitiveDict({"path": str(path), "brokerConf": CONF} | texts)
    return RocketMQDataSource(given)


def schema_of(columns: tuple[str, ...]) -> StructType:
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

    kinds: dict[str, Any] = {
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "binary": BinaryType(),
    }
    types = {column.name: kinds.get(column.type, "") for column in STRUCTURES["commitlog"]}
    schema = StructType()
    for name in columns:
        schema = schema.add(name, types[name])
    return schema


def batch(path: Path, columns: tuple[str, ...] = PLACES, **options: Any) -> list[tuple[Any, ...]]:
    reader = source(path, **options).reader(schema_of(columns))
    return [
        tuple(row.values())
        for partition in reader.partitions()
        for found in reader.read(partition)
        for row in rows_of(found)
    ]


def rows_of(found: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def follow(path: Path, offset: Any = None, **options: Any) -> Iterator[list[Place]]:
    """The batches of a stream, from a checkpoint's offset on."""
    reader = source(path, **options).streamReader(schema_of(PLACES))
    assert isinstance(reader, RocketMQStreamReader)
    offset = reader.initialOffset() if offset is None else offset
    while True:
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        if end == offset:
            return
        yield [
            tuple(row.values())
            for partition in reader.partitions(offset, end)
            for found in reader.read(partition)
            for row in rows_of(found)
        ]
        offset = end


def queue_of(rows: list[Place], topic: str, queue_id: int) -> list[int]:
    return [offset for name, number, offset in rows if (name, number) == (topic, queue_id)]


def test_topics_are_subscribed_to(store: Path) -> None:
    everything = batch(store)
    orders = [row for row in everything if row[0] == "orders"]
    assert len(everything) == COUNT and len(orders) == COUNT / 2
    for options in (
        {"subscribe": "orders"},
        {"subscribe": " orders , none"},
        {"subscribePattern": "ord.*"},
    ):
        assert batch(store, PLACES, **options) == orders
        assert [row for rows in follow(store, **options) for row in rows] == orders
    assert batch(store, subscribePattern="ord") == []
    assert batch(store, subscribe="bills,orders") == everything


def test_queues_start_and_end_where_they_are_told_to(store: Path) -> None:
    start = '{"orders": {"0": 20, "1": -2}, "bills": {"1": 3}, "none": {"0": 1}}'
    found = batch(store, startingOffsets=start)
    assert queue_of(found, "orders", 0) == [20, 21, 22, 23, 24]
    assert queue_of(found, "orders", 1) == queue_of(found, "bills", 0) == list(range(25))
    assert queue_of(found, "bills", 1) == list(range(3, 25))
    found = batch(store, startingOffsets=start, endingOffsets='{"orders": {"0": 22, "1": -1}}')
    assert queue_of(found, "orders", 0) == [20, 21]
    assert queue_of(found, "orders", 1) == list(range(25))
    assert queue_of(found, "bills", 1) == list(range(3, 25))


def test_times_bound_a_batch(store: Path) -> None:
    rows = batch(store, TIMES)
    middle = rows[COUNT // 2][1]
    later = [row for row in rows if row[1] >= middle]
    assert len(later) == COUNT // 2
    assert batch(store, TIMES, startingTimestamp=middle) == later
    assert batch(store, TIMES, endingTimestamp=middle) == rows[: COUNT - len(later)]
    assert batch(store, TIMES, startingTimestamp=0, clockSlackMs=-1) == rows


def test_a_time_to_come_reads_nothing(store: Path) -> None:
    bound = 4_000_000_000_000
    reader = source(store, startingTimestamp=bound).reader(schema_of(TIMES))
    assert list(reader.partitions()) == []
    assert len(list(source(store, parallelism=9).reader(schema_of(TIMES)).partitions())) > 3


def test_a_stream_starts_at_offsets_and_keeps_them(store: Path) -> None:
    start = '{"orders": {"0": 20, "1": -1}, "bills": {"1": 3}}'
    reader = source(store, startingOffsets=start).streamReader(schema_of(PLACES))
    first = reader.initialOffset()
    assert first == {
        str(store): 0,
        "*began": {str(store): 0},
        "*startingOffsets": {str(store): {"orders": {"0": 20, "1": 25}, "bills": {"1": 3}}},
    }
    rows = [row for rows in follow(store, startingOffsets=start) for row in rows]
    assert queue_of(rows, "orders", 0) == [20, 21, 22, 23, 24]
    assert queue_of(rows, "orders", 1) == []
    assert queue_of(rows, "bills", 1) == list(range(3, 25))
    # What a checkpoint holds counts, not what the options say by then.
    again = [row for rows in follow(store, first, startingOffsets="latest") for row in rows]
    assert again == rows


def test_a_stream_starts_at_a_time(store: Path) -> None:
    rows = batch(store, (*PLACES, "store_timestamp"))
    middle = rows[COUNT // 2][3]
    expected = [row[:3] for row in rows if row[3] >= middle]
    found = [row for rows in follow(store, startingTimestamp=middle) for row in rows]
    assert found == expected
    assert list(follow(store, startingTimestamp=4_000_000_000_000)) == []


@pytest.mark.parametrize("options", [{}, {"subscribe": "bills"}, {"maxBytesPerTrigger": "500"}])
def test_a_stream_takes_so_many_messages_at_a_time(store: Path, options: dict[str, str]) -> None:
    batches = list(follow(store, maxOffsetsPerTrigger=7, **options))
    expected = [row for row in batch(store) if row[0] in options.get("subscribe", "orders,bills")]
    assert [row for rows in batches for row in rows] == expected
    assert max(map(len, batches)) <= 7
    if "maxBytesPerTrigger" not in options:
        full, rest = divmod(len(expected), 7)
        assert [len(rows) for rows in batches if rows] == [7] * full + [rest] * bool(rest)


def test_several_stores_share_a_batch(store: Path, tmp_path: Path) -> None:
    for name in "ab":
        copy_tree(store, tmp_path / name)
    batches = list(follow(tmp_path / "*", maxOffsetsPerTrigger=10))
    assert [len(rows) for rows in batches] == [10] * (COUNT // 5)
    for reader in (source(tmp_path / "*", startingOffsets='{"t": {"0": 1}}'),):
        with pytest.raises(ValueError, match="those of one store's queues"):
            reader.reader(schema_of(PLACES))
        with pytest.raises(ValueError, match="those of one store's queues"):
            reader.streamReader(schema_of(PLACES)).initialOffset()


def test_there_are_as_many_tasks_as_are_asked_for(store: Path) -> None:
    whole = batch(store)
    for wanted in (1, 7, 20):
        reader = source(store, minPartitions=wanted).reader(schema_of(PLACES))
        assert len(list(reader.partitions())) >= wanted
        assert batch(store, minPartitions=wanted) == whole


def test_small_files_are_read_several_by_one_task(store: Path) -> None:
    whole = batch(store, minPartitions=1)
    files = len(list((store / "commitlog").iterdir()))
    assert files == 8
    for at_once, tasks in ((1, 1), (2, 2), (3, 3), (4, 4), (100, files)):
        reader = source(store, parallelism=at_once).reader(schema_of(PLACES))
        assert len(list(reader.partitions())) == tasks
        assert batch(store, parallelism=at_once) == whole
    small = source(store, parallelism=1, splitBytes=4096).reader(schema_of(PLACES))
    assert len(list(small.partitions())) == files
    stream = source(store, parallelism=2).streamReader(schema_of(PLACES))
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert len(stream.partitions(start, end)) == 2
    (every,) = follow(store, parallelism=2)
    assert every == whole
    reader = source(store, structure="queue", columns="status").reader(STATUS)
    assert sum(len(found) for one in reader.partitions() for found in reader.read(one)) == COUNT


def test_damage_ends_a_query_that_asks_for_it(store: Path, tmp_path: Path) -> None:
    root = copy_tree(store, tmp_path / "store")
    path = sorted((root / "commitlog").iterdir())[1]
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff\xff\xff\xff")
    assert (None, None, None) in batch(root)
    assert batch(store, failOnDataLoss="TRUE") == batch(store)
    with pytest.raises(RmqctlError, match=r"cannot be read in one place: \S+.*failOnDataLoss"):
        batch(root, failOnDataLoss="true")
    with pytest.raises(RmqctlError, match="cannot be read in one place"):
        list(follow(root, failOnDataLoss="true"))


def test_a_message_is_found_by_its_id(store: Path) -> None:
    columns = (*PLACES, "msg_id", "physical_offset")
    row = batch(store, columns)[60]
    where = f'[["msg_id", "=", "{row[3]}"]]'
    reader = source(store, where=where).reader(schema_of(columns))
    assert isinstance(reader, RocketMQReader)
    (split,) = reader.partitions()
    assert isinstance(split, Split) and split.start <= row[4] < split.end
    assert batch(store, columns, where=where) == [row]


def test_sizes_and_names_are_written_as_one_likes(store: Path) -> None:
    texts = ("500", "1k", "64m", "1 GB", "0")
    assert [source(store, SPLITBYTES=text)._settings().split_bytes for text in texts] == [
        500,
        1 << 10,
        64 << 20,
        1 << 30,
        0,
    ]
    assert source(store, Structure="Queue", COLUMNS="Topic, Queue_ID").schema() == ddl(
        "queue", ["topic", "queue_id"]
    )
    everything = [column.name for column in STRUCTURES["commitlog"]]
    assert source(store, columns="*").schema() == ddl("commitlog", everything)
    assert "body" in everything


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"splitSize": "1"}, "unknown option splitsize. Is splitBytes meant? spark.read takes"),
        ({"maxBytesPerTrigger": "1"}, "maxBytesPerTrigger is one of spark.readStream, not of"),
        ({"columns": "topic,TOPIC"}, "columns name topic twice"),
        ({"checkCrc": "true"}, "checkCrc=true tells of damaged bodies in the column status"),
        ({"startingOffsets": "latest"}, "startingOffsets=latest is one of streams"),
        ({"endingOffsets": "earliest"}, "a batch would have no row"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "-1 in startingOffsets: a batch would have no"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "-2 in endingOffsets: a batch would have no row"),
        ({"startingOffsets": '{"t": 5}'}, "option startingOffsets is JSON such as"),
        ({"startingOffsets": '{"t": {"0": 1.5}}'}, "is JSON such as"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "is JSON such as"),
        ({"startingOffsets": '{"t": {"-1": 5}}'}, "is JSON such as"),
        ({"startingOffsets": "[" * 99_999}, "is JSON such as"),
        ({"startingOffsets": '{"t": {"0": 5}}', "startingTimestamp": "1"}, "not both"),
        ({"subscribe": "t", "subscribePattern": "t"}, "not both"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "is no regular expression"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp is a number"),
        ({"structure": "queue", "startingTimestamp": "1"}, "is one of the commitlog, not of"),
        ({"minPartitions": "many"}, "option minPartitions is a number, not 'many'"),
    ],
)
def test_an_option_says_what_is_wrong_with_it(
    store: Path, options: dict[str, str], text: str
) -> None:
    reads = source(store, **options)
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        reads.schema()
        reads.reader(StructType() if "structure" in options else schema_of(PLACES))
    assert len(str(caught.value)) < 700


def test_a_writer_knows_its_options(tmp_path: Path) -> None:
    written = source(tmp_path / "new", asstored="true").writer(schema_of(("topic", "body")), False)
    assert written is not None
    with pytest.raises(ValueError, match=r"unknown option asstore\. Is asStored meant"):
        source(tmp_path / "new", asStore="true").writer(schema_of(("topic",)), False)


def test_spark_hands_them_over(spark: SparkSession, golden: Golden) -> None:
    conf = broker_conf_text("basic")
    root = str(golden("basic"))
    reader = spark.read.format("rocketmq").option("BROKERCONF", conf)
    topic = reader.load(root).first()["topic"]  # type: ignore[index]
    few = reader.option("subscribe", topic).option("Columns", "topic").option("splitBytes", "4k")
    assert {row["topic"] for row in few.load(root).collect()} == {topic}
    assert scan(spark, root, columns="topic, body", brokerConf=conf).columns == ["topic", "body"]
    assert "body" in scan(spark, root, columns="*", brokerConf=conf).columns
    with pytest.raises(ValueError, match="name topic twice"):
        scan(spark, root, columns="topic,topic", brokerConf=conf)
    with pytest.raises(Exception, match="Is splitBytes meant"):
        reader.option("splitSize", "1").load(root).count()


def test_spark_knows_the_name_unasked(spark: SparkSession, golden: Golden) -> None:
    """A session in which nobody has registered the source: a new one, of the same Java."""
    import pyspark_rocketmq

    assert pyspark_rocketmq.DefaultSource is RocketMQDataSource
    fresh = spark.newSession()
    reader = fresh.read.format("rocketmq").option("brokerConf", broker_conf_text("basic"))
    assert reader.option("columns", "topic").load(str(golden("basic"))).count() > 0


def test_the_page_has_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/spark.md").read_text("utf-8")
    takers = {"b": "read", "s": "stream", "w": "write", "t": "stream write"}
    for option in OPTIONS:
        where = ", ".join(takers[letter] for letter in option.holds_in)
        assert f"| `{option.name}` | {where} | {option.meaning} |\n" in page
