"""``rmqctl stats`` in its own process: the numbers are the log's, and no Spark is loaded.
tests/test_spark compares the rows with those of Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import load_broker_conf
from rmqctl.operations.look import stats, statsrows, waiting
from rmqctl.rows.sections import DELAYS
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import BORN, BROKER_CONF, CONFIG, Cli, message, put_at, state

NDJSON = ("--format", "ndjson", "--top", "100000")
_HOUR = 3_600_000


def counted(rows: list[dict[str, Any]], kind: str, *names: str) -> dict[tuple[Any, ...], list[int]]:
    return {
        tuple(row[name] for name in names): [row["messages"], row["bytes"]]
        for row in rows
        if row["type"] == kind
    }


def summed(records: list[Record], key: Callable[[Record], tuple[Any, ...]]) -> Any:
    sums: dict[tuple[Any, ...], list[int]] = {}
    for record in records:
        counts = sums.setdefault(key(record), [0, 0])
        counts[0] += 1
        counts[1] += record.total_size
    return sums


def delay_class(record: Record) -> int | None:
    delay = record.store_timestamp - record.born_timestamp
    return next((limit for limit in DELAYS if delay <= limit), None)


@pytest.mark.parametrize("name", ["broker", "basic", "ipv6", "batch", "transaction"])
def test_numbers_are_those_of_the_log(
    name: str, cli: Cli, golden: Golden, broker_conf_file: Callable[[str], Path]
) -> None:
    root = golden(name)
    done = cli("stats", *NDJSON, "--store", root, "--broker-conf", broker_conf_file(name))
    assert (done.code, done.err) == (0, "")
    *rows, summary = done.rows
    with MessageStore(root, golden_data.broker_conf(name)) as store:
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    expected: dict[tuple[str, ...], Callable[[Record], tuple[Any, ...]]] = {
        ("topic", "topic"): lambda r: (r.topic,),
        ("queue", "topic", "queue_id"): lambda r: (r.topic, r.queue_id),
        ("tag", "topic", "tag"): lambda r: (r.topic, r.properties.get("TAGS")),
        ("hour", "hour"): lambda r: (r.store_timestamp // _HOUR * _HOUR,),
        ("producer", "producer"): lambda r: (r.born_host.rpartition(":")[0],),
        ("size", "body_length_up_to"): lambda r: (
            1 << (r.body_length - 1).bit_length() if r.body_length else 0,
        ),
        ("delay", "delay_ms_up_to"): lambda r: (delay_class(r),),
    }
    for (kind, *names), key in expected.items():
        assert counted(rows, kind, *names) == summed(records, key), kind
    keys = Counter(
        (record.topic, kind, key)
        for record in records
        for kind in ("KEYS", "UNIQ_KEY")
        for key in set(record.properties.get(kind, "").split(" ")) - {""}
    )
    twice = {key: count for key, count in keys.items() if count > 1}
    assert twice == {
        (row["topic"], row["kind"], row["key"]): row["messages"]
        for row in rows
        if row["type"] == "duplicate_key"
    }
    assert summary["duplicate_keys"] == len(twice)
    assert summary["messages_with_duplicate_key"] == sum(twice.values())
    assert summary["messages"] == len(records) and summary["damages"] == 0
    assert summary["reconsumed"] == sum(record.reconsume_times > 0 for record in records)
    assert summary["retries"] == sum(r.topic.startswith("%RETRY%") for r in records)
    (log,) = [row for row in rows if row["type"] == "store"]
    assert [log["messages"], log["bytes"]] == [len(records), sum(r.total_size for r in records)]
    times = [record.store_timestamp for record in records]
    assert log["first_store_timestamp"] == min(times)
    assert log["last_store_timestamp"] == max(times)
    # One store is one broker.
    assert not counted(rows, "broker", "broker")
    most = [row["messages"] for row in rows if row["type"] == "queue"]
    assert most == sorted(most, reverse=True)


def test_several_stores_are_one_count(cli: Cli, store: Path) -> None:
    fleet = store.parent / "fleet"
    for name in ("broker-a", "broker-b"):
        shutil.copytree(store, fleet / name / "store")
    conf = store.parent / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    done = cli("stats", *NDJSON, "--store", f"{fleet}/*/store", "--broker-conf", conf)
    assert done.code == 0, done.err
    brokers = [(r["broker"], r["messages"]) for r in done.rows if r["type"] == "broker"]
    assert brokers == [("broker-a", 60), ("broker-b", 60)]
    summary = done.rows[-1]
    assert (summary["stores"], summary["messages"], summary["topics"]) == (2, 120, 2)
    # Each key stands in both.
    assert summary["duplicate_keys"] == 61 and summary["messages_with_duplicate_key"] == 238
    top = cli("stats", "--top", "1", "--format", "ndjson", "--store", store).rows
    assert [row["topic"] for row in top if row["type"] == "topic"] == ["orders"]


def test_the_range_of_times_is_that_of_all_files(cli: Cli, tmp_path: Path) -> None:
    """A clock may go back: neither the first nor the last file has the first or the last time."""
    path = tmp_path / "store"
    times = [BORN + 500, BORN + 10, BORN + 990, BORN + 400]
    put_at(path, times)
    (log,) = [row for row in cli("stats", *NDJSON, store=path).rows if row["type"] == "store"]
    assert (log["first_store_timestamp"], log["last_store_timestamp"]) == (BORN + 10, BORN + 990)
    assert log["messages"] == len(times)


def test_damage_and_nothing_are_told(cli: Cli, store: Path, tmp_path: Path) -> None:
    before = state(store)
    assert cli("stats", "--store", store, "-q").code == 0
    assert state(store) == before
    log = store / "commitlog" / f"{2048:020d}"
    data = bytearray(log.read_bytes())
    data[4:8] = b"\xff" * 4
    log.write_bytes(data)
    done = cli("stats", *NDJSON, "--store", store)
    assert (done.code, done.rows[-1]["damages"], done.rows[-1]["messages"]) == (1, 1, 59)
    (place,) = [row for row in done.rows if row["type"] == "unreadable"]
    assert (place["store"], place["physical_offset"]) == (str(store), 2048)
    assert place["reason"] == "bad-magic" and 0 < place["length"] < 2048
    last = store / "commitlog" / f"{1 << 20:020d}"
    last.mkdir()
    for top, count in (("1", 1), ("2", 2), ("9", 2)):
        done = cli("stats", "--top", top, "--format", "ndjson", "--store", store)
        assert (done.code, done.rows[-1]["damages"]) == (1, 2)
        told = [row for row in done.rows if row["type"] == "unreadable"]
        assert len(told) == count
    assert [one["physical_offset"] for one in told] == [None, 2048]
    assert str(last) in told[0]["reason"] and told[0]["length"] is None
    last.rmdir()
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    done = cli("stats", *NDJSON, "--store", tmp_path / "empty")
    assert done.code == 1 and done.rows[-1]["retry_rate"] == 0.0


@pytest.mark.parametrize(
    ("name", "bound", "said"),
    [
        ("MAX_KEYS", 100, "100 keys"),
        ("MAX_GROUPS", 2, "2 groups of section"),
        ("MAX_NAMES", 1, "1 tags or producers"),
    ],
)
def test_more_than_is_held_is_refused(
    name: str, bound: int, said: str, cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = statsrows if name == "MAX_GROUPS" else stats
    monkeypatch.setattr(where, name.replace("NAMES", "GROUPS"), bound)
    done = cli("stats", "--store", store)
    assert done.code == 5 and said in done.err and "--master 'local[*]'" in done.err
    assert done.out == "" and done.err.count("\n") == 1


def test_no_spark_is_loaded_and_the_page_is_written(store: Path) -> None:
    code = (
        "import sys; from rmqctl.cli.main import run; code = run(sys.argv[1:]); "
        "print(*{'pyspark', 'pyarrow', 'pandas'} & set(sys.modules), file=sys.stderr); "
        "sys.exit(code)"
    )
    page = store.parent / "stats.html"
    line = [sys.executable, "-c", code, "stats", "--store", str(store), "--report", str(page)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert page.read_text("utf-8").startswith("<!doctype html>") and "orders" in done.stdout


def test_rows_as_odd_as_a_record_can_be(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "store"
    odd: list[dict[str, Any]] = [
        {"born_timestamp": (1 << 63) - 1, "body": b""},
        {"born_timestamp": -(1 << 63), "properties": {}},
        {"born_timestamp": -(1 << 62), "properties": {"TAGS": "\u202e", "KEYS": "a  a b"}},
        {"properties": {"KEYS": " ", "UNIQ_KEY": "b c"}},
        {"properties": {"KEYS": "b", "UNIQ_KEY": "b c"}},
    ]
    with MessageStore(path, writable=True, create=True) as opened:
        for one in odd:
            assert opened.put_message(message(0, **one)).is_ok
    done = cli("stats", *NDJSON, "--store", path)
    assert done.code == 0, done.err
    delays = [row["delay_ms_up_to"] for row in done.rows if row["type"] == "delay"]
    assert delays[0] == 0 and delays[-1] is None and done.rows[-1]["messages"] == len(odd)
    keys = {
        (row["kind"], row["key"]): row["messages"]
        for row in done.rows
        if row["type"] == "duplicate_key"
    }
    assert keys == {("KEYS", "b"): 2, ("UNIQ_KEY", "b c"): 2}


@pytest.mark.parametrize("name", ["delay", "transaction", "broker"])
def test_what_waits_is_what_schedule_and_transaction_say(
    name: str, cli: Cli, golden: Golden, broker_conf_file: Callable[[str], Path]
) -> None:
    where = ("--store", golden(name), "--broker-conf", broker_conf_file(name))
    *rows, summary = cli("stats", *NDJSON, *where).rows
    *levels, scheduled = cli("schedule", "ls", "--format", "ndjson", *where).rows
    *halves, pending = cli("transaction", "ls", "--format", "ndjson", *where).rows
    assert summary["waiting"] == scheduled["pending"]
    assert summary["pending_halves"] == pending["pending"]
    due = {row["hour"]: row["messages"] for row in rows if row["type"] == "due"}
    assert sum(due.values()) == scheduled["pending"] and list(due) == sorted(due)
    next_ones = {level["next_delivery_timestamp"] for level in levels} - {None}
    assert {time // _HOUR * _HOUR for time in next_ones} <= set(due)
    by_group = {row["producer_group"]: row["messages"] for row in rows if row["type"] == "half"}
    assert by_group == Counter(row["producer_group"] for row in halves)
    born = [row["oldest_born_timestamp"] for row in rows if row["type"] == "half"]
    assert not halves or min(born) == min(row["born_timestamp"] for row in halves)
    size: Counter[str] = Counter()
    with MessageStore(golden(name), golden_data.broker_conf(name)) as store:
        for half in halves:
            record = store.look_message_by_offset(half["physical_offset"])
            size[half["producer_group"]] += record.total_size
        for level in levels:
            queue = store.consume_queue("SCHEDULE_TOPIC_XXXX", level["level"] - 1)
            assert queue is not None
            units = queue.units(level["next_offset"], level["max_offset"])
            size["delayed"] += sum(unit.size for _, unit in units)
    of_halves = {row["producer_group"]: row["bytes"] for row in rows if row["type"] == "half"}
    assert sum(row["bytes"] for row in rows if row["type"] == "due") == size.pop("delayed", 0)
    assert of_halves == size


def test_delayed_messages_are_counted_by_the_hour_in_which_they_are_due(
    cli: Cli, tmp_path: Path
) -> None:
    root, start = tmp_path / "store", 1_700_000_000_000 // _HOUR * _HOUR + 60_000
    levels = {"18": 5, "17": 3, "1": 2}
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: start) as store:
        for level, count in levels.items():
            for number in range(count):
                assert store.put_message(message(number, properties={"DELAY": level})).is_ok
    (root / "config").mkdir(exist_ok=True)
    progress = root / "config" / "delayOffset.json"
    progress.write_text('{"offsetTable":{18:4}}')
    *rows, summary = cli("stats", *NDJSON, store=root).rows
    hour = start // _HOUR * _HOUR
    due = {row["hour"]: row["messages"] for row in rows if row["type"] == "due"}
    assert due == {hour: 2, hour + _HOUR: 3, hour + 2 * _HOUR: 1} and summary["waiting"] == 6
    progress.write_text("{")
    done = cli("stats", *NDJSON, store=root)
    assert done.code == 0 and done.rows[-1]["waiting"] is None
    assert "what waits is not counted" in done.err and "delayOffset.json" in done.err
    assert done.rows[-1]["pending_halves"] == 0 and done.rows[-1]["messages"] == 10


def test_delayed_messages_behind_an_extension_are_due_in_their_hours(
    cli: Cli, tmp_path: Path
) -> None:
    """Their units hold addresses in place of delivery times."""
    root, conf = tmp_path / "store", tmp_path / "ext.conf"
    start = 1_700_000_000_000 // _HOUR * _HOUR
    conf.write_text(f"{BROKER_CONF}enableConsumeQueueExt=true\n")
    clock = iter(range(start, start + 9 * _HOUR, _HOUR))
    config = load_broker_conf(conf)
    with MessageStore(root, config, writable=True, create=True, clock=lambda: next(clock)) as store:
        for number in range(3):
            assert store.put_message(message(number, properties={"DELAY": "18"})).is_ok
        queue = store.consume_queue("SCHEDULE_TOPIC_XXXX", 17)
        unit = None if queue is None else queue.unit(0)
        assert unit is not None and unit.tags_code < 0
    rows = cli("stats", *NDJSON, "--store", root, "--broker-conf", conf).rows
    due = {row["hour"]: row["messages"] for row in rows if row["type"] == "due"}
    assert due == {start + number * _HOUR: 1 for number in (2, 3, 4)}


def test_times_at_which_nothing_is_due_are_of_no_hour(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of units that damage has made, and more hours than are held."""
    root, start = tmp_path / "store", 1_700_000_000_000 // _HOUR * _HOUR
    clock = iter(range(start, start + 9 * _HOUR, _HOUR))
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(clock)) as store:
        for number in range(6):
            assert store.put_message(message(number, properties={"DELAY": "1"})).is_ok
    (queue,) = (root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0").iterdir()
    data = bytearray(queue.read_bytes())
    for at, time in ((0, 0), (1, -5), (2, 253_402_300_800_000)):
        data[at * 20 + 12 : at * 20 + 20] = time.to_bytes(8, "big", signed=True)
    queue.write_bytes(data)

    def due() -> dict[int | None, int]:
        rows = cli("stats", *NDJSON, store=root).rows
        return {row["hour"]: row["messages"] for row in rows if row["type"] == "due"}

    hours = [start + number * _HOUR for number in (3, 4, 5)]
    assert list(due().items()) == [(hours[0], 1), (hours[1], 1), (hours[2], 1), (None, 3)]
    data[12:20] = (1).to_bytes(8, "big")
    queue.write_bytes(data)
    assert due()[0] == 1
    monkeypatch.setattr(waiting, "MAX_GROUPS", 2)
    data[:100] = data[60:80] + data[80:100] * 3 + data[100:120]
    queue.write_bytes(data)
    assert due() == {hours[0]: 1, hours[1]: 3, None: 2}


def test_retries_and_dead_letters_by_group_and_how_far_the_log_reaches(
    cli: Cli, tmp_path: Path
) -> None:
    root = tmp_path / "broker-a" / "store"
    topics = ["%RETRY%late", "%RETRY%late", "%DLQ%late", "%DLQ%dead", "orders", "%RETRY%%DLQ%odd"]
    clock = iter(range(BORN, BORN + 10**9, _HOUR))
    with MessageStore(
        root, CONFIG, writable=True, create=True, clock=lambda: next(clock)
    ) as opened:
        for topic in topics:
            assert opened.put_message(message(0, topic=topic)).is_ok
    rows = cli("stats", *NDJSON, store=root).rows
    groups = {
        row["group"]: (row["retries"], row["dead_letters"], row["messages"])
        for row in rows
        if row["type"] == "consumer_group"
    }
    assert groups == {"late": (2, 1, 3), "dead": (0, 1, 1), "%DLQ%odd": (1, 0, 1)}
    shown = cli("stats", store=root).out
    assert "\n\n# Retries and dead letters by consumer group\ngroup " in shown
    assert "  2023-11-14T" in shown.partition("hour ")[2].partition("producer")[0].replace(
        "\n", "  "
    )
    (log,) = [row for row in rows if row["type"] == "store"]
    assert log["store"] == str(root) and log["broker"] == "broker-a"
    assert log["file_reserved_hours"] == 72 and log["messages"] == len(topics)
    assert log["last_store_timestamp"] - log["first_store_timestamp"] >= 5 * _HOUR


def test_topics_of_most_bytes_are_there_too(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        for topic, count, size in (("many", 9, 1), ("some", 5, 1), ("large", 1, 1500)):
            for number in range(count):
                body = b"x" * size
                assert opened.put_message(message(number, topic=topic, body=body)).is_ok
    rows = cli("stats", "--top", "1", "--format", "ndjson", store=root).rows
    assert [row["topic"] for row in rows if row["type"] == "topic"] == ["many", "large"]
    assert [row["topic"] for row in rows if row["type"] == "queue"] == ["many"]
