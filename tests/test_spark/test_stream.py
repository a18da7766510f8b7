"""The stream: every record of a live log once, whatever happens between two batches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from rmqctl.rows.columns import ddl
from rmqctl.spark import RocketMQDataSource
from rmqctl.spark.source.split import Split
from rmqctl.spark.source.stream import RocketMQStreamReader
from tests.descriptors import open_descriptors
from tests.seeds import times
from tests.test_spark.conftest import until_connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

SMALL = MessageStoreConfig(mapped_file_size_commit_log=4096)
COLUMNS = ["physical_offset", "body", "status", "damage"]


class Live:
    """A store that somebody writes: it is never closed cleanly while it is read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = MessageStore(root, SMALL, writable=True, create=True)
        self.bodies: list[bytes] = []

    def put(self, count: int, size: int = 100) -> None:
        bodies = [b"%06d" % (len(self.bodies) + n) + b"x" * size for n in range(count)]
        results = self.store.put_messages([MessageExtBrokerInner("t", body) for body in bodies])
        assert all(result.is_ok for result in results)
        self.bodies += bodies

    def raw(self, position: int, data: bytes) -> None:
        """What another process does to the file."""
        for path in sorted((self.root / "commitlog").iterdir()):
            if int(path.name) <= position < int(path.name) + 4096:
                with path.open("r+b") as file:
                    file.seek(position - int(path.name))
                    file.write(data)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    store = Live(tmp_path / "store")
    yield store
    store.store.close()


def reader_of(path: Path | str, **options: str) -> RocketMQStreamReader:
    source = RocketMQDataSource({"path": str(path)} | options)
    schema = StructType()
    for name, kind in zip(
        COLUMNS, (LongType(), BinaryType(), StringType(), StringType()), strict=True
    ):
        schema = schema.add(name, kind)
    reader = source.streamReader(schema)
    assert isinstance(reader, RocketMQStreamReader)
    return reader


def rows_between(reader: RocketMQStreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


class Follower:
    """A query: asks for the next offset, reads up to it, and may be killed before it notes it."""

    def __init__(self, path: Path | str, **options: str) -> None:
        self.reader = reader_of(path, **options)
        self.offset = self.reader.initialOffset()
        self.rows: list[dict[str, Any]] = []

    def step(self, limit: Any = None) -> list[dict[str, Any]]:
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        rows = rows_between(self.reader, self.offset, end)
        assert rows == rows_between(self.reader, self.offset, end), "a repeated batch differs"
        self.offset = end
        self.rows += rows
        return rows

    @property
    def bodies(self) -> list[bytes]:
        return [row["body"] for row in self.rows if row["status"] == "ok"]


def test_follows_rolls(live: Live) -> None:
    live.put(1)
    follower = Follower(live.root)
    for count in (0, 30, 0, 100, 1):
        live.put(count)
        follower.step()
        assert follower.bodies == live.bodies
    assert len(list((live.root / "commitlog").iterdir())) > 3
    assert {row["status"] for row in follower.rows} == {"ok"}


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 900)), max_size=8))
@settings(max_examples=times(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_record_once(tmp_path_factory: pytest.TempPathFactory, turns: Any) -> None:
    live = Live(tmp_path_factory.mktemp("live") / "store")
    live.put(1)
    follower = Follower(live.root, splitBytes="500")
    limited = Follower(live.root, maxBytesPerTrigger="1500")
    for count, size in turns:
        live.put(count, size)
        follower.step()
        limited.step()
    follower.step()
    while limited.step():
        pass
    assert follower.bodies == limited.bodies == live.bodies
    live.store.close()


def test_a_half_written_tail_waits(live: Live) -> None:
    live.put(3)
    follower = Follower(live.root)
    follower.step()
    end = live.store.max_offset
    with MessageStore(live.root, SMALL) as store:
        record = bytearray(store.commit_log.locate(0)[0].read(0, end // 3))
    record[28:36] = end.to_bytes(8, "big")
    for cut in (8, 40, len(record) // 2):
        live.raw(end, bytes(record[:cut]))
        assert follower.step() == []
    broken = bytearray(record)
    broken[100] ^= 1
    live.raw(end, bytes(broken))
    assert follower.step() == [], "its CRC is wrong: the body is not all there"
    live.raw(end, bytes(record))
    (row,) = follower.step()
    assert (row["physical_offset"], row["status"]) == (end, "ok")
    live.raw(end, bytes(len(record)))


def test_limits(live: Live) -> None:
    live.put(100)
    follower = Follower(live.root, maxBytesPerTrigger="1k")
    sizes = []
    while rows := follower.step():
        sizes.append(len(rows))
    assert follower.bodies == live.bodies
    assert len(sizes) > 10 and max(sizes) < 10
    assert len(Follower(live.root).step(ReadMaxBytes(1))) == 1
    assert len(Follower(live.root, maxBytesPerTrigger="1k").step(ReadAllAvailable())) == 100


def test_available_now_ends(live: Live) -> None:
    live.put(20)
    follower = Follower(live.root, maxBytesPerTrigger="1k")
    follower.reader.prepareForTriggerAvailableNow()
    live.put(20)
    while follower.step():
        pass
    assert follower.bodies == live.bodies[:20]
    assert follower.reader.latestOffset(follower.offset, ReadMaxBytes(1000)) == follower.offset
    assert follower.reader.reportLatestOffset() == {str(live.root): live.store.max_offset}


def test_starting_at_the_end(live: Live) -> None:
    live.put(5)
    follower = Follower(live.root, startingOffsets="latest")
    live.put(2)
    follower.step()
    assert follower.bodies == live.bodies[5:]


def test_an_expired_file_is_a_row_of_damage(live: Live) -> None:
    live.put(10)
    follower = Follower(live.root)
    follower.step()
    start = follower.offset[str(live.root)]
    live.put(100)
    files = sorted((live.root / "commitlog").iterdir())
    for path in files[:2]:
        path.unlink()
    first, *rest = follower.step()
    assert first["status"] == "damage"
    assert first["damage"] == (
        f"commitlog-file-expired: expected the log from {start}, found it from 8192"
    )
    assert first["physical_offset"] == start
    assert [row["body"] for row in rest] == live.bodies[-len(rest) :]
    assert rest[0]["physical_offset"] == 8192


def test_a_log_that_begins_late_has_not_expired(tmp_path: Path) -> None:
    """Retention has deleted the first files before the stream, or the log itself, began."""
    live = Live(tmp_path / "store")
    live.put(100)
    live.store.close()
    files = sorted((live.root / "commitlog").iterdir())
    aside = tmp_path / "aside"
    aside.mkdir()
    started = Follower(live.root)
    for path in files:
        path.rename(aside / path.name)
    waiting = [Follower(live.root), Follower(live.root, startingOffsets="latest")]
    assert [follower.step() for follower in waiting] == [[], []]
    assert started.step() == [], "its log is gone"
    for path in files[2:]:
        (aside / path.name).rename(path)
    for follower in (*waiting, Follower(live.root)):
        first, *rest = follower.step()
        assert (first["physical_offset"], first["status"]) == (8192, "ok")
        assert {row["status"] for row in rest} == {"ok"}
        assert follower.bodies == live.bodies[-len(follower.bodies) :]
    assert [row["status"] for row in started.step()][:2] == ["damage", "ok"]


def test_damage_does_not_stop_it(live: Live) -> None:
    live.put(10)
    live.raw(4 + 10 * 20, b"\0" * 400)
    live.put(10)
    follower = Follower(live.root)
    follower.step()
    live.put(40)
    follower.step()
    assert [row["status"] for row in follower.rows].count("damage") == 1
    assert follower.bodies[-50:] == live.bodies[-50:]


@pytest.mark.parametrize("begins", ["startingOffsets", "startingTimestamp"])
def test_a_first_batch_that_was_killed_is_the_same_again(live: Live, begins: str) -> None:
    """Spark asks again where the stream begins, and by then the latest is another place."""
    options = {begins: "latest" if begins == "startingOffsets" else "4000000000000"}
    live.put(3)
    first = reader_of(live.root, **options)
    start = first.initialOffset()
    live.put(5)
    end = first.latestOffset(start, ReadAllAvailable())
    expected = rows_between(first, start, end)
    assert [row["body"] for row in expected] == live.bodies[3:8]
    live.put(4)
    again = reader_of(live.root, **options)
    asked = again.initialOffset()
    assert asked != start
    assert rows_between(again, asked, end) == expected
    later = again.latestOffset(end, ReadAllAvailable())
    assert [row["body"] for row in rows_between(again, end, later)] == live.bodies[8:]


@pytest.mark.parametrize("later", ["earliest", "latest"])
def test_a_first_batch_from_the_earliest_stays_so(live: Live, tmp_path: Path, later: str) -> None:
    """Whatever the options of the next run say, and what has expired meanwhile is told."""
    live.put(60)
    first = reader_of(live.root)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    expected = rows_between(first, first.initialOffset(), end)
    assert [row["body"] for row in expected] == live.bodies
    again = reader_of(live.root, startingOffsets=later)
    assert rows_between(again, again.initialOffset(), end) == expected
    sorted((live.root / "commitlog").iterdir())[0].rename(tmp_path / "expired")
    damage, *rest = rows_between(again, again.initialOffset(), end)
    assert (damage["physical_offset"], damage["status"]) == (0, "damage")
    assert rest == [row for row in expected if row["physical_offset"] >= 4096]


def test_a_store_that_joins_in_before_a_killed_batch_is_read_whole(tmp_path: Path) -> None:
    stores = [Live(tmp_path / "a")]
    stores[0].put(3)
    first = reader_of(tmp_path / "*", startingOffsets="latest")
    start = first.initialOffset()
    stores.append(Live(tmp_path / "b"))
    for store in stores:
        store.put(2)
    end = first.latestOffset(start, ReadAllAvailable())
    expected = rows_between(first, start, end)
    assert len(expected) == 4
    again = reader_of(tmp_path / "*", startingOffsets="latest")
    assert rows_between(again, again.initialOffset(), end) == expected
    for store in stores:
        store.store.close()


def test_a_log_that_was_cut_is_refused(live: Live) -> None:
    live.put(3)
    follower = Follower(live.root)
    follower.step()
    follower.offset = {str(live.root): 4000}
    with pytest.raises(ValueError, match=r"the log ends at .*, but the stream has read to 4000"):
        follower.step()


def test_a_store_joins_in(tmp_path: Path) -> None:
    stores = [Live(tmp_path / "a")]
    stores[0].put(3)
    follower = Follower(tmp_path / "*")
    follower.step()
    stores.append(Live(tmp_path / "b"))
    for store in stores:
        store.put(2)
    follower.step()
    assert follower.bodies == [*stores[0].bodies, *stores[1].bodies]
    for store in stores:
        store.store.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"structure": "queue"}, "a stream follows the commitlog, not structure queue"),
        ({"startingOffsets": "now"}, "startingOffsets is JSON such as .*, not 'now'"),
    ],
)
def test_errors(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        reader_of(tmp_path, **options)


def test_restarts_from_a_checkpoint(spark: SparkSession, live: Live, tmp_path: Path) -> None:
    """Queries that are stopped and started again write every record once."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def run(limit: str) -> int:
        stream = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", limit)
        frame = stream.schema(ddl("commitlog", COLUMNS)).load(str(live.root))
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(out))
        )
        assert query.awaitTermination(120)
        assert query.exception() is None
        return sum(1 for name in os.listdir(checkpoint / "commits") if name.isdigit())

    live.put(20)
    assert until_connected(lambda: run("2k")) >= 2
    live.put(70)
    until_connected(lambda: run("16k"))
    found = spark.read.parquet(str(out)).orderBy("physical_offset").collect()
    assert [bytes(row.body) for row in found] == live.bodies
    assert {row.status for row in found} == {"ok"}


def test_a_stream_keeps_no_file_open(live: Live) -> None:
    live.put(100)
    reader = reader_of(live.root)
    start = reader.initialOffset()
    before = open_descriptors()
    for _ in range(5):
        end = reader.latestOffset(start, ReadMaxBytes(2500))
        assert end != start
        for partition in reader.partitions(start, end):
            assert list(reader.read(partition))
        start = end
    assert open_descriptors() == before


def test_what_stands_behind_damage_comes_at_once(live: Live) -> None:
    """The end of the log is that of its last whole record, not the place of the damage."""
    live.put(15)
    live.raw(5 * (live.store.max_offset // 15) + 4, b"\xff" * 4)
    follower = Follower(live.root)
    follower.step()
    assert follower.offset[str(live.root)] == live.store.max_offset
    assert follower.bodies == live.bodies[:5] + live.bodies[6:]
    assert [row["status"] for row in follower.rows].count("damage") == 1


def test_what_has_expired_is_told_up_to_the_batchs_end(live: Live) -> None:
    """The rest is the next batch's: else it would be told twice."""
    live.put(100)
    for path in sorted((live.root / "commitlog").iterdir())[:3]:
        path.unlink()
    reader, store = reader_of(live.root), str(live.root)
    for start, end in ((0, 4096), (4096, 3 * 4096)):
        (expired,) = reader.partitions({store: start}, {store: end})
        assert isinstance(expired, Split)
        assert (expired.start, expired.end) == (start, end) and "expired" in expired.problem


def test_a_limit_is_for_all_stores_together(tmp_path: Path) -> None:
    stores = [Live(tmp_path / name) for name in "abc"]
    for store in stores:
        store.put(20)
    size = stores[0].store.max_offset // 20
    reader = reader_of(tmp_path / "*")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxBytes(9 * size))
    assert [end[str(store.root)] for store in stores] == [3 * size] * 3
    start = {str(store.root): store.store.max_offset for store in stores[:2]}
    end = reader.latestOffset(start | {str(stores[2].root): 0}, ReadMaxBytes(9 * size))
    assert end[str(stores[2].root)] == 9 * size, "what the others leave over"
    start = {str(store.root): store.store.max_offset - size for store in stores[:2]}
    end = reader.latestOffset(start | {str(stores[2].root): 0}, ReadMaxBytes(9 * size))
    assert end[str(stores[2].root)] == 7 * size
    for store in stores:
        store.store.close()


def test_an_end_that_no_queue_proves_is_behind_the_last_record(tmp_path: Path) -> None:
    """Damage, records behind it and no queue: reading on to the end of the file would pass over
    what is put there later."""
    live = Live(tmp_path / "store")
    live.put(15)
    end = live.store.max_offset
    live.store.close()
    live.raw(5 * (end // 15) + 4, b"\xff" * 4)
    shutil.rmtree(live.root / "consumequeue")
    with MessageStore(live.root, SMALL) as store:
        assert store.obstacle.obstacle is not None and store.max_offset == 4096
    follower = Follower(live.root)
    follower.step()
    assert follower.offset[str(live.root)] == end
    assert follower.bodies == live.bodies[:5] + live.bodies[6:]
