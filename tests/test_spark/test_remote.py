"""Stores behind a filesystem that cannot be mapped: row for row what the same store says here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import NotAStore, StoreNotFound
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    STORES,
    apply_damage,
    broker_conf,
    copy_tree,
    damage_case,
    tree_content,
)

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

from rmqctl.rows.columns import STRUCTURES, broker_of
from rmqctl.spark import scan
from rmqctl.spark.remote import remote, remotefile, urls
from rmqctl.spark.remote.stores import expand
from rmqctl.spark.source.datasource import RocketMQDataSource
from rmqctl.spark.source.pushdown import Bounds, decode, encode
from rmqctl.spark.source.split import ReadSettings
from tests.test_spark.conftest import Rows, engine_rows, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces, and scratch files that are no holes but rubbish where nothing was fetched: who
    looks there gets other rows than the engine."""

    def scratch(size: int) -> int:
        descriptor = os.memfd_create("scratch")
        os.write(descriptor, bytes([0xA5]) * size)
        return descriptor

    monkeypatch.setattr(remotefile, "PIECE", 512)
    monkeypatch.setattr(remotefile, "_REQUEST", 2048)
    monkeypatch.setattr(remotefile, "_scratch", scratch)
    monkeypatch.setattr(remotefile, "_holds_data", lambda piece: True)


def here(rows: Rows, root: Path) -> Rows:
    """Rows of a URL as they would be of the path."""
    for row in rows:
        assert row["store"] == f"local://{root}"
        row["store"] = str(root)
        row["damage"] = row["damage"] and row["damage"].replace(f"local://{root}", str(root))
    return rows


def remote_rows(
    structure: str, root: Path, config: MessageStoreConfig | None, split_bytes: int, **more: Any
) -> Rows:
    bounds = more.pop("bounds", None)
    settings = ReadSettings(
        structure,
        [f"local://{root}"],
        config or MessageStoreConfig(),
        split_bytes=split_bytes,
        **more,
    )
    return here(read_rows(settings, bounds=bounds), root)


@pytest.mark.parametrize("name", STORES)
def test_golden_stores_row_for_row(
    golden: Golden, name: str, poisoned: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, config = golden(name), broker_conf(name)
    if name == "defaults":
        # Files of 1 GiB: real holes and pieces.
        monkeypatch.undo()
    for structure in STRUCTURES:
        found = remote_rows(structure, root, config, 30_000 if name != "defaults" else 256 << 20)
        assert found == engine_rows(structure, root, config), structure


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_damage_is_where_the_walk_says(
    golden: Golden, case: str, tmp_path: Path, poisoned: None
) -> None:
    description = damage_case(case)
    root = copy_tree(golden(description["base"]), tmp_path / case)
    apply_damage(root, description["ops"])
    config = broker_conf(description["base"])
    for structure in STRUCTURES:
        for split_bytes in (30_000, 3_000) if structure == "commitlog" else (30_000,):
            settings = ReadSettings(structure, [str(root)], config, split_bytes=split_bytes)
            # What is wrong elsewhere in the store ends the plan of the path, and not that of a URL.
            local = read_rows(settings)
            if [row["status"] for row in local] != ["damage"] or structure == "commitlog":
                assert remote_rows(structure, root, config, split_bytes) == local


# --- places where splits and pieces meet -----------------------------------------------------


@pytest.mark.parametrize("piece", [512, 4096])
@pytest.mark.parametrize("name", ["basic", "crash", "broker"])
def test_splits_that_look_back_little(
    golden: Golden, name: str, piece: int, poisoned: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in files that are longer than what a split looks back at."""
    from rmqctl.spark.source import logsplit

    monkeypatch.setattr(remotefile, "PIECE", piece)
    monkeypatch.setattr(logsplit, "_look_back", lambda config: 2500)
    root, config = golden(name), broker_conf(name)
    expected = engine_rows("commitlog", root, config)
    for split_bytes in (30_000, 3_001):
        assert remote_rows("commitlog", root, config, split_bytes) == expected


def big_store(root: Path) -> Path:
    """Files of 3 MiB, the last one mostly holes; one record is longer than a window's reach."""
    config = MessageStoreConfig(
        mapped_file_size_commit_log=3 << 20,
        max_message_size=1 << 21,
        explicit=frozenset({"mapped_file_size_commit_log"}),
    )
    with MessageStore(root, config, writable=True, create=True) as store:
        for number in range(8):
            body = bytes([65 + number]) * (1_500_000 if number == 4 else 300_000)
            properties = {"p": "x" * 20_000}
            store.put_messages([MessageExtBrokerInner("t", body, properties=properties)])
            store.put_messages([MessageExtBrokerInner("u", b"small") for _ in range(100)])
    return root


@pytest.mark.parametrize("place", range(500, 520))
def test_a_record_is_found_where_pieces_meet(tmp_path: Path, poisoned: None, place: int) -> None:
    from rmqctl.engine.record.record import find_next

    with MessageStore(tmp_path / "made", writable=True, create=True) as store:
        store.put_messages([MessageExtBrokerInner("t", b"x")])
        record = bytearray(store.commit_log.locate(0)[0].read(0, store.max_offset))
    record[28:36] = place.to_bytes(8, "big")
    log = tmp_path / "store" / "commitlog" / f"{0:020d}"
    log.parent.mkdir(parents=True)
    log.write_bytes(bytes(place) + record + bytes(3000))
    mapped = remote.RemoteStore(f"local://{tmp_path}/store").log().files.file(0)
    assert find_next(mapped, 0) == place
    assert mapped.first_nonzero(0, mapped.size) in range(place, place + 4)


class Meter:
    """Counts what is fetched of a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched: list[int] = []
        fetch = remotefile.RemoteFile._fetch

        def counted(file: remotefile.RemoteFile, numbers: list[int]) -> None:
            self.fetched.append(len(numbers) * remotefile.PIECE)
            fetch(file, numbers)

        monkeypatch.setattr(remotefile.RemoteFile, "_fetch", counted)


def test_a_record_that_reaches_far_over_a_split(
    tmp_path: Path, poisoned: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic and properties lie pieces away from where the split ends, damaged or not."""
    from rmqctl.spark.source import logsplit

    root = big_store(tmp_path / "store")
    monkeypatch.setattr(remotefile, "PIECE", 1 << 12)
    monkeypatch.setattr(remotefile, "_REQUEST", 1 << 14)
    monkeypatch.setattr(logsplit, "_look_back", lambda _: 1 << 20)
    expected = engine_rows("commitlog", root)
    assert remote_rows("commitlog", root, None, 1 << 18) == expected
    log, local = remote.RemoteStore(f"local://{root}").log(), MessageStore(root).commit_log
    for row in expected:
        place = row["physical_offset"]
        assert log.entry_at(place) == local.entry_at(place)
    first = min((root / "commitlog").iterdir())
    with first.open("r+b") as file:
        file.write((300_000).to_bytes(4, "big"))  # Less than the record's parts add up to.
    expected = engine_rows("commitlog", root)
    assert expected[0]["damage"].startswith("total-size-mismatch")
    assert remote_rows("commitlog", root, None, 1 << 18) == expected


def test_a_split_fetches_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqctl.spark.source import logsplit

    root = big_store(tmp_path / "store")
    expected = engine_rows("commitlog", root)
    monkeypatch.setattr(remotefile, "PIECE", 1 << 12)
    monkeypatch.setattr(remotefile, "_REQUEST", 1 << 14)
    monkeypatch.setattr(logsplit, "_look_back", lambda _: 1 << 17)
    meter = Meter(monkeypatch)
    assert remote_rows("commitlog", root, None, 1 << 18) == expected
    files = sorted((root / "commitlog").iterdir())
    stored = sum(path.stat().st_size for path in files)
    # Twice: look-backs, the bodies that reach over a split's end, the zeros at the end.
    assert max(meter.fetched) <= 1 << 14
    assert sum(meter.fetched) < 3 * stored
    # One record of the last file: neither the other files nor the rest of this one.
    meter.fetched.clear()
    last = expected[-1]["physical_offset"]
    bounds = decode(encode([("physical_offset", ">=", last), ("physical_offset", "<=", last)]))
    (row,) = remote_rows("commitlog", root, None, 1 << 18, bounds=bounds)
    assert row == expected[-1]
    assert sum(meter.fetched) < 4 << 20


def test_files_are_left_out_by_time(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    root, config = golden("basic"), broker_conf("basic")
    rows = engine_rows("commitlog", root, config)
    stamp = rows[-1]["store_timestamp"]
    bounds = decode(encode([("store_timestamp", ">=", stamp)]))
    found = remote_rows("commitlog", root, config, 30_000, clock_slack=0, bounds=bounds)
    assert found == [row for row in rows if row["store_timestamp"] >= stamp]


# --- the other side ----------------------------------------------------------------------------


@pytest.fixture
def memory() -> Any:
    """fsspec's filesystem in memory, empty."""
    fsspec = pytest.importorskip("fsspec", reason="pip install fsspec")
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    urls.connect.cache_clear()
    yield filesystem
    filesystem.store.clear()


def uploaded(root: Path, filesystem: Any, place: str) -> str:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            filesystem.pipe(f"/{place}/{path.relative_to(root)}", path.read_bytes())
    return f"memory://{place}"


def url_rows(url: str, structure: str = "commitlog", config: Any = None, **more: Any) -> Rows:
    return read_rows(ReadSettings(structure, [url], config or MessageStoreConfig(), **more))


def test_a_filesystem_of_fsspec(golden: Golden, memory: Any) -> None:
    root, config = golden("basic"), broker_conf("basic")
    url = uploaded(root, memory, "bucket/broker-a/store")
    for structure in STRUCTURES:
        expected = [
            row | {"store": url, "broker": "broker-a"}
            for row in engine_rows(structure, root, config)
        ]
        assert url_rows(url, structure, config, split_bytes=30_000) == expected


def test_names_of_the_other_side_choose_no_path(
    golden: Golden, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = uploaded(golden("basic"), memory, "b/s")
    before = len(url_rows(url, "queue", broker_conf("basic")))
    for name in (
        "consumequeue/bad\x1b[31m/0/00000000000000000000",
        "consumequeue/../0/00000000000000000000",
        "consumequeue/a\\b/0/00000000000000000000",
        "consumequeue/x/-1/00000000000000000000",
        "consumequeue/x/0/etc",
        "commitlog/../../../evil",
        "commitlog/99999999999999999999",
        "commitlog/passwd\0",
        "index/../20200101000000000",
    ):
        memory.store[f"/b/s/{name}"] = memory.store["/b/s/lock"]
    rows = url_rows(url, "queue", broker_conf("basic"))
    (told,) = rows[before:]
    assert re.search(r"[23] names below consumequeue/ are no topics: ", told["damage"])
    assert "\x1b" not in told["damage"]
    assert len(url_rows(url, config=broker_conf("basic"))) == 600
    assert list(tmp_path.iterdir()) == []


def test_a_size_chooses_no_allocation(
    golden: Golden, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = uploaded(golden("basic"), memory, "b/s")
    listed = remote.RemoteStore._listed

    def lying(store: remote.RemoteStore, directory: str, recursive: bool) -> Any:
        for parts, size in listed(store, directory, recursive):
            yield parts, 2**62 if size else size

    monkeypatch.setattr(remote.RemoteStore, "_listed", lying)
    (row,) = url_rows(url)
    assert f"a broker has no file of {2**62} bytes" in row["damage"]


def test_what_is_shorter_than_its_listing_is_a_row(
    golden: Golden, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = uploaded(golden("basic"), memory, "b/s")
    listed = remote.RemoteStore._listed

    def stale(store: remote.RemoteStore, directory: str, recursive: bool) -> Any:
        for parts, size in listed(store, directory, recursive):
            yield parts, size + 4096 if size else size

    monkeypatch.setattr(remote.RemoteStore, "_listed", stale)
    damages = [row["damage"] for row in url_rows(url) if row["status"] == "damage"]
    assert any("it has changed" in text for text in damages)


def test_what_vanishes_is_a_row(golden: Golden, memory: Any) -> None:
    import pyarrow as pa

    from rmqctl.arrow.arrays import ARROW_TYPES
    from rmqctl.spark.source.splits import plan, read

    url = uploaded(golden("basic"), memory, "b/s")
    schema = pa.schema([("status", ARROW_TYPES["string"]), ("damage", ARROW_TYPES["string"])])
    for structure in STRUCTURES:
        settings = ReadSettings(structure, [url], broker_conf("basic"))
        splits = list(plan(settings, Bounds()))
        kept = dict(memory.store)
        memory.store.clear()
        batches = [b for s in splits for b in read(s, settings, Bounds(), schema)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        memory.store.update(kept)
        assert rows and {row["status"] for row in rows} == {"damage"}, structure


def test_a_full_scratch_disk_is_a_row(
    golden: Golden, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    url = uploaded(golden("basic"), memory, "b/s")
    monkeypatch.setattr(os, "pwrite", full)
    rows = url_rows(url)
    assert {row["status"] for row in rows} == {"damage"}
    assert "No space left on device" in rows[0]["damage"]


def test_scratch_files_have_no_name(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/no/such,{tmp_path}")
    descriptor = remotefile._scratch(1 << 40)
    try:
        assert os.fstat(descriptor).st_dev == tmp_path.stat().st_dev
        assert os.fstat(descriptor).st_blocks == 0
        assert list(tmp_path.iterdir()) == []
    finally:
        os.close(descriptor)


def test_what_cannot_be_reached_says_so(memory: Any, tmp_path: Path) -> None:
    for url, error, text in (
        ("memory://nothing/store", StoreNotFound, "there is no directory memory://nothing/store"),
        ("nosuch://user:secret@b/s?key=secret", urls.RemoteUnreadable, "nosuch://b/s: "),
    ):
        with pytest.raises(error) as caught:
            remote.check_store(url)
        assert text in str(caught.value)
        assert "secret" not in str(caught.value)
        (row,) = url_rows(url)
        assert (row["status"], row["damage"]) == ("damage", str(caught.value))
    memory.pipe("/b/other/file", b"x")
    with pytest.raises(NotAStore, match="memory://b/other is not a RocketMQ store"):
        remote.check_store("memory://b/other")


def test_patterns(memory: Any) -> None:
    for name in ("broker-a", "broker-b", "other"):
        memory.pipe(f"/b/{name}/store/checkpoint", b"x")
    assert expand("memory://b/broker-*/store") == [
        "memory://b/broker-a/store",
        "memory://b/broker-b/store",
    ]
    assert expand("memory://b/[o]*/store") == ["memory://b/other/store"]
    assert expand("memory://b/other/") == ["memory://b/other"]
    assert expand("s3://") == ["s3://"]  # Whoever connects says what is wrong with it.
    with pytest.raises(StoreNotFound):
        expand("memory://b/nothing-*/store")


def test_names_of_brokers(golden: Golden) -> None:
    for store, name in (
        ("/data/broker-a/store", "broker-a"),
        ("/backups/broker-b-s", "broker-b-s"),
        ("s3://bucket/broker-a/rocketmq/store", "broker-a"),
        ("s3://bucket/", "bucket"),
        ("/data/rocketmq/store", "store"),
        ("/data/broker-a/store/..", "broker-a"),
        ("/", "/"),
    ):
        assert broker_of(store) == name
    from rmqctl.engine.settings.storeconfig import parse_broker_conf

    config = parse_broker_conf("brokerName = broker-z")
    assert ReadSettings("queue", ["/a/b"], config).source("/a/b") == ("/a/b", "broker-z")
    # Given for several, it cannot be the name of all of them.
    assert ReadSettings("queue", ["/a/b", "/a/c"], config).source("/a/b") == ("/a/b", "b")
    assert urls.shown("s3://key:sec@ret@bucket/a/store?region=x") == "s3://bucket/a/store"
    assert urls.shown("s3://bucket//") == "s3://bucket" and urls.shown("s3://") == "s3://"


# --- through Spark -------------------------------------------------------------------------------


def test_through_spark(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    """Data source, sql, stats and export over URLs, from processes of their own."""
    from rmqctl.spark.report import export, sql
    from rmqctl.spark.report.stats import statistics

    for name, broker in (("basic", "broker-a"), ("ipv6", "broker-b")):
        (tmp_path / "bucket" / broker).mkdir(parents=True)
        copy_tree(golden(name), tmp_path / "bucket" / broker / "store")
    before = tree_content(tmp_path / "bucket")
    url = f"local://{tmp_path}/bucket/broker-*/store"
    frame = scan(spark, url, columns=["broker"], splitBytes="100000")
    counted = {row["broker"]: row["count"] for row in frame.groupBy("broker").count().collect()}
    assert counted == {"broker-a": 600, "broker-b": 200}
    stores = expand(url)
    text = (
        "SELECT broker, sum(messages) AS n, (SELECT count(*) FROM units) AS units FROM queues "
        "GROUP BY broker ORDER BY broker"
    )
    rows = list(sql.plain(sql.query(spark, text, stores, {})))
    paths = [store.removeprefix("local://") for store in stores]
    same = list(sql.plain(sql.query(spark, text, paths, {})))
    assert rows == same
    assert [row["broker"] for row in rows] == ["broker-a", "broker-b"]
    told = list(statistics(spark, stores, {}, 10))
    assert {r["broker"]: r["messages"] for r in told if r["type"] == "broker"} == counted
    assert (told[-1]["messages"], told[-1]["damages"]) == (800, 0)
    wanted = ["broker", "msg_id"]
    chosen = export.selected(spark, stores, {}, wanted)
    assert export.export(chosen, wanted, str(tmp_path / "out"), "parquet") == (800, 0, 0)
    assert set(spark.read.parquet(str(tmp_path / "out")).columns) >= {"broker", "msg_id"}
    assert tree_content(tmp_path / "bucket") == before


def test_streams_do_not_follow_objects(golden: Golden) -> None:
    source = RocketMQDataSource({"path": f"local://{golden('basic')}"})
    with pytest.raises(ValueError, match="objects are read"):
        source.streamReader(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["verify", "rebuild"])
def test_commands_that_map_refuse_urls(verb: str, golden: Golden) -> None:
    from click.testing import CliRunner

    from rmqctl.cli.main import cli

    what = ["all", "--in-place"] if verb == "rebuild" else []
    answer = CliRunner().invoke(cli, [verb, *what, "--store", f"local://{golden('basic')}"])
    assert answer.exit_code == 2
    assert "copy it to a file system that every node sees" in answer.output
