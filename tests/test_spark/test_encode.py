"""Stores that are encoded side by side are those of the engine, byte for byte."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import (
    MessageExtBrokerInner,
    PutMessageResult,
    parse_host,
)
from rmqctl.engine.record.record import TAILS, Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.write import assemble
from rmqctl.engine.write.checks import check_message
from rmqctl.operations.mend import rebuild
from rmqctl.operations.verify import Finding, verify
from tests import golden_data

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

import pyarrow as pa

from rmqctl.spark.sink.encode import EncodeSettings, RowEncoder, RowRefused
from rmqctl.spark.sink.messagecolumns import COLUMNS
from rmqctl.spark.sink.newstore import NewStore, SetAside, WriteRefused, with_threads
from rmqctl.spark.source import split
from tests.test_safety.test_power_loss import Power
from tests.test_safety.test_power_loss import content as forced_content
from tests.test_spark.conftest import read_rows

Rows = list[dict[str, Any]]
NOW = 1_700_000_000_000
SMALL = (
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=1000\n"
    "maxHashSlotNum=10\nmaxIndexNum=20\nmaxMessageSize=3000\n"
)
CONF = parse_broker_conf(SMALL + "enableMultiDispatch=true\nenableLmq=true\n")
_KINDS = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
SCHEMA = pa.schema([(name, _KINDS[kinds[0]]) for name, kinds in COLUMNS.items()])


def batch_of(rows: Rows) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def made(root: Path, parts: list[list[Rows]], config: MessageStoreConfig, **options: Any) -> Path:
    """A store of parts, each the batches of one task."""
    root.mkdir()
    new = NewStore(str(root), str(root), EncodeSettings(config, NOW, **options))
    new.begin()
    told = [
        new.set_aside(map(batch_of, batches), f"{number:06d}")
        for number, batches in enumerate(parts)
    ]
    records = new.write_log(told, with_threads)
    if records:
        new.dispatch(records)
    new.finish()
    return root


def message_of(row: dict[str, Any]) -> MessageExtBrokerInner:
    """What the columns mean, said again."""
    properties = dict(row.get("properties") or ())
    for name in ("tags", "keys"):
        if row.get(name):
            properties[name.upper()] = row[name]
    names = ("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset")
    values = {name: row[name] for name in (*names, "born_timestamp") if row.get(name) is not None}
    hosts = {n: parse_host(row[n]) for n in ("born_host", "store_host") if row.get(n)}
    return MessageExtBrokerInner(
        row["topic"],
        row["body"] or b"",
        properties=properties,
        **{"born_timestamp": NOW} | values | hosts,
    )


def appended(root: Path, rows: Rows, config: MessageStoreConfig) -> Path:
    """The store that the engine makes of the same rows."""
    with MessageStore(root, config, writable=True, create=True, clock=lambda: NOW) as store:
        for bulk in store.append_stream(map(message_of, rows), flush=False):
            assert bulk.refused is None
    return root


def content(root: Path) -> dict[str, Any]:
    """Every file but the index, whose names are times, and what the index holds."""
    files = golden_data.tree_content(root)
    kept: dict[str, Any] = {k: v for k, v in files.items() if not k.startswith("index/")}
    index = root / "index"
    return kept | {"index": golden_data.index_contents(index) if index.is_dir() else []}


NAMES = ["a", "b", "UNIQ_KEY", "KEYS", "TAGS", "c%s", "日本", "WAIT", "DELAY", "x" * 20]
MULTI = "INNER_MULTI_DISPATCH"
VALUES = {MULTI: ["%LMQ%q", "%LMQ%q,t1", "t0,%LMQ%z,t0", ",", " "], "DELAY": ["0", "3", "25", "x"]}


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from([*NAMES, MULTI]), unique=True, max_size=4))
    values = ["", "v", "värde", "k1 k2", "\U0001f600"]
    properties = [(name, draw(st.sampled_from(VALUES.get(name, values)))) for name in names]
    some: dict[str, list[Any]] = {
        "body": [None, b"", b"x", bytes(range(256)) * 4],
        "queue_id": [None, 0, 1, 2**31 - 1],
        "tags": [None, "", "A"],
        "keys": [None, "k1 k2"],
        "flag": [None, -7],
        "sys_flag": [None, 0, 2, 4, 8, 12],
        "born_timestamp": [None, 0, 2**62],
        "born_host": [None, "1.2.3.4:5", "[::1]:77"],
        "store_host": [None, "[fe80::1]:9"],
        "reconsume_times": [None, 16],
        "prepared_transaction_offset": [None, 2**40],
    }
    row: dict[str, Any] = {name: draw(st.sampled_from(choices)) for name, choices in some.items()}
    row["topic"] = draw(st.sampled_from(["t0", "t1", "tö" * 20]))
    row["properties"] = draw(st.sampled_from([None, properties]))
    if not (row["properties"] or row["tags"] or row["keys"]):
        row["tags"] = "B"  # With enableMultiDispatch a message needs a property.
    return row


@given(st.lists(st.lists(st.lists(rows(), max_size=6), max_size=3), max_size=4))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_runs_are_what_the_engine_appends(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[Rows]]
) -> None:
    directory = tmp_path_factory.mktemp("runs")
    given = [row for part in parts for batch in part for row in batch]
    told = CONF, Dispatcher(CONF), CONF.mapped_file_size_commit_log
    checked = [check_message(message_of(row), *told) for row in given]
    refused = [one.reason for one in checked if isinstance(one, PutMessageResult)]
    if refused:  # A delay level that is no number.
        with pytest.raises(WriteRefused, match=re.escape(refused[0])):
            made(directory / "many", parts, CONF)
        return
    one = appended(directory / "one", given, CONF)
    assert content(made(directory / "many", parts, CONF)) == content(one)


LIGHT = [
    {"topic": "t0", "body": b"x" * number, "properties": [(MULTI, "%LMQ%q,t1")]}
    for number in range(30)
]


def set_aside(root: Path, parts: list[Rows]) -> tuple[NewStore, list[SetAside]]:
    """A new store and the runs of tasks with one batch each."""
    root.mkdir()
    new = NewStore(str(root), str(root), EncodeSettings(CONF, NOW))
    new.begin()
    told = [new.set_aside([batch_of(rows)], str(number)) for number, rows in enumerate(parts)]
    return new, told


def test_what_a_task_does_may_be_done_twice(tmp_path: Path) -> None:
    """As Spark does it when a node is lost, or too slow: either result counts."""

    def twice(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        tries = [(function(item), function(item)) for item in items]
        return [both[number % 2] for number, both in enumerate(tries)]

    new, told = set_aside(tmp_path / "many", [LIGHT[at : at + 10] for at in (0, 10, 20)])
    new.dispatch(new.write_log(told, twice))
    new.finish()
    assert content(tmp_path / "many") == content(appended(tmp_path / "one", LIGHT, CONF))


def test_a_run_that_is_not_settled_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, told = set_aside(tmp_path / "many", [LIGHT[:10], LIGHT[10:]])
    before = sorted(tmp_path.rglob("*"))
    short = {code: tail._replace(longest_properties=50) for code, tail in TAILS.items()}
    monkeypatch.setattr(assemble, "TAILS", short)
    with pytest.raises(ValueError, match="properties bytes"):
        new.write_log(told, with_threads)
    assert sorted(tmp_path.rglob("*")) == before


def test_many_rows_of_many_shapes(tmp_path: Path) -> None:
    """More rows than a lane, a step or a set of names has."""
    random.seed(7)
    some = [
        {
            "topic": f"t{number % 3}",
            "body": random.randbytes(number % 40),
            "queue_id": number % 5,
            "tags": f"g{number % 4}" if number % 3 else None,
            "properties": [(f"n{number % 400}", "v"), ("UNIQ_KEY", f"u{number}")],
        }
        for number in range(6000)
    ]
    parts = [[some[at : at + 700], some[at + 700 : at + 2000]] for at in range(0, 6000, 2000)]
    one = appended(tmp_path / "one", some, CONF)
    assert content(made(tmp_path / "many", parts, CONF)) == content(one)


def test_an_index_file_that_is_just_full(tmp_path: Path) -> None:
    """Then the checkpoint has its time, whether or not there is a next one."""
    for count in (18, 19, 20):
        given = [{"topic": "t", "body": b"", "keys": "k"} for _ in range(count)]
        one = appended(tmp_path / f"one{count}", given, CONF)
        assert content(made(tmp_path / f"many{count}", [[given]], CONF)) == content(one)


REFUSED = [
    ({"topic": None}, "a row has no topic"),
    ({"topic": ""}, "it is empty"),
    ({"topic": ".."}, "cannot be a queue directory"),
    ({"topic": "t" * 128}, "MESSAGE_ILLEGAL: the topic has 128 bytes"),
    ({"queue_id": -1}, "queue id -1 is negative"),
    ({"body": b"x" * 3000}, "MESSAGE_ILLEGAL: the record would have"),
    ({"properties": [("a", "b" * 32768)]}, "MESSAGE_ILLEGAL: the properties"),
    ({"properties": [("a", None)]}, "the property 'a' is null"),
    ({"properties": [("a", "\x02")]}, "holds a separator"),
    ({"properties": [("a\x01", "b")]}, "holds a separator"),
    ({"tags": "\x01"}, "holds a separator"),
    ({"properties": [("a", "b\x00")]}, "or a NUL"),
    ({"keys": "\x00"}, "or a NUL"),
    ({"born_host": "x"}, "is not ADDRESS:PORT"),
    ({"store_host": "1.2.3.4:65536"}, "a port of at most 65535"),
    ({"sys_flag": 1}, "the body is compressed, which it is not"),
    ({"properties": [(MULTI, "../x")]}, "cannot be a queue directory"),
]


@pytest.mark.parametrize(("wrong", "text"), REFUSED)
def test_a_row_that_is_no_message(wrong: dict[str, Any], text: str) -> None:
    good = {"topic": "t", "body": b"b", "keys": "k"}
    encoder = RowEncoder(EncodeSettings(CONF, NOW))
    with pytest.raises(RowRefused, match=text):
        encoder.encode(batch_of([good, good | wrong, good]))


def test_a_body_that_was_stored_stays_what_it_was() -> None:
    """Of another store's records none is left out: verify names those that no client decodes."""
    row = {"topic": "t", "body": b"plain", "keys": "k", "sys_flag": 1}
    encoder = RowEncoder(EncodeSettings(CONF, NOW, as_stored=True))
    assert b"plain" in bytes(encoder.encode(batch_of([row])).data)


def test_a_row_that_the_engine_refuses_for_its_configuration(tmp_path: Path) -> None:
    with MessageStore(tmp_path / "store", CONF, writable=True, create=True) as store:
        result = store.put_message(MessageExtBrokerInner("t", b"b"))
    assert not result.is_ok
    with pytest.raises(RowRefused, match=result.reason):
        RowEncoder(EncodeSettings(CONF, NOW)).encode(batch_of([{"topic": "t", "body": b"b"}]))


def test_a_text_that_is_not_utf8() -> None:
    topic = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(RowRefused, match="not UTF-8"):
        RowEncoder(EncodeSettings(CONF, NOW)).encode(
            pa.record_batch({"topic": topic, "body": pa.array([b""])})
        )


#: What an import keeps of a record. Offsets and store times are the new store's.
KEPT = (
    "topic",
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
)


def kept_of(root: Path, config: MessageStoreConfig) -> list[Any]:
    """The messages of a store as an import keeps them, in order."""
    with MessageStore(root, config) as store:
        return [
            (
                *(getattr(record, name) for name in KEPT),
                # The places in further queues are the store's own.
                record.properties
                | dict.fromkeys({"INNER_MULTI_QUEUE_OFFSET"} & {*record.properties}),
                store.commit_log.body(record),
            )
            for record in store.commit_log.walk()
            if isinstance(record, Record)
        ]


@pytest.mark.parametrize("name", golden_data.STORES)
def test_records_stay_what_they_were(
    golden: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Every golden store, read as Spark reads it and written as import writes it."""
    source, config = golden(name), golden_data.broker_conf(name)
    read = split.ReadSettings(structure="commitlog", stores=[str(source)], config=config)
    found = [row for row in read_rows(read) if row["status"] != "damage"]
    for row in found:
        row["properties"] = list(row["properties"].items())
    parts = [[found[at : at + 50]] for at in range(0, len(found), 50)]
    target = made(tmp_path / "new", parts, config, as_stored=True)
    assert kept_of(target, config) == kept_of(source, config) != []
    errors = [f for f in verify(target, config) if isinstance(f, Finding) and f.severity != "info"]
    assert errors == []
    rebuild.rebuild_to(rebuild.plan_rebuild(target, config, "all"), tmp_path / "rebuilt")
    again, whole = content(tmp_path / "rebuilt"), content(target)
    assert again == {path: whole[path] for path in again}


def test_a_checksum_of_another_place_is_left_out(tmp_path: Path) -> None:
    row = {"topic": "t", "body": b"b", "properties": [("__CRC32#", "1234567890"), ("a", "b")]}
    root = made(tmp_path / "new", [[[row]]], CONF, as_stored=True)
    with MessageStore(root, CONF) as store:
        record = store.commit_log.record_at(0)
        assert record.properties == {"a": "b"}


def test_a_store_that_was_made_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets its name when it is whole: then no power cut may take any of it back."""
    power = Power(monkeypatch)
    given = [{"topic": "t", "body": b"x" * 100, "keys": f"k{n}"} for n in range(100)]
    root = made(tmp_path / "made", [[given[:50]], [given[50:]]], CONF)
    assert len(list((root / "commitlog").iterdir())) > 2
    assert forced_content(power.goes_off(root, tmp_path / "off")) == forced_content(root)


def test_a_task_that_refused_its_rows_makes_no_store(tmp_path: Path) -> None:
    new = NewStore(str(tmp_path), "the store", EncodeSettings(CONF, NOW))
    run = SetAside(None, "it is none")
    with pytest.raises(WriteRefused, match="the store: it is none"):
        new.write_log([run], with_threads)


@pytest.mark.parametrize("step", [1, 7])
def test_places_are_given_in_steps(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with more records than are looked at together, which only millions have."""
    monkeypatch.setattr(assemble, "_STEP", step)
    some = [{"topic": "t", "body": b"x" * (n % 30), "queue_id": n % 3} for n in range(90)]
    for row in some:
        row["tags"] = "a"
    one = appended(tmp_path / "one", some, CONF)
    assert content(made(tmp_path / "many", [[some[:40]], [some[40:]]], CONF)) == content(one)


@pytest.mark.parametrize("as_stored", [False, True])
def test_a_body_that_is_not_that_of_its_crc_is_refused(as_stored: bool) -> None:
    encoder = RowEncoder(EncodeSettings(CONF, NOW, as_stored=as_stored))
    sound: Rows = [
        {"topic": "t", "body": b"hello", "body_crc": 907060870, "tags": "a"},
        {"topic": "t", "body": b"hello", "body_crc": None, "tags": "a"},
        {"topic": "t", "body": b"", "body_crc": 5, "tags": "a"},
    ]
    assert len(encoder.encode(batch_of(sound)).rows["size"]) == len(sound)
    for crc in (907060871, -1, 0):
        changed = [*sound, {"topic": "t", "body": b"hello", "body_crc": crc, "keys": "order-7"}]
        with pytest.raises(RowRefused, match="not what was stored, by its body_crc") as told:
            encoder.encode(batch_of(changed))
        assert "order-7" in str(told.value)
