"""``rmqctl topics``: what lies in the queues against what ``topics.json`` says."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.operations.change import clean
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import BORN, CONFIG, Cli, state

NDJSON = ("--format", "ndjson")
NORMAL = {"readQueueNums": 2, "writeQueueNums": 3, "perm": 6, "topicSysFlag": 0, "order": True}


def configure(store: Path, table: Any) -> None:
    (store / "config").mkdir(exist_ok=True)
    text = json.dumps({"topicConfigTable": table})
    (store / "config" / "topics.json").write_text(text)


@pytest.mark.parametrize("name", ["basic", "broker", "delay", "lmq", "cqext", "batch"])
def test_messages_and_bytes_are_those_of_the_queues(
    name: str, cli: Cli, golden: Golden, broker_conf_file: Callable[[str], Path]
) -> None:
    """Against what the real engine says of its own queues and units."""
    expected: dict[str, list[int]] = {}
    truth = golden_data.expected(name)
    for queue in truth["queue"]:
        if queue["maxOffset"]:
            of_topic = expected.setdefault(queue["topic"], [0, 0, 0])
            of_topic[0] += 1
            of_topic[1] += queue["maxOffset"] - queue["minOffset"]
    for unit in truth["unit"]:
        expected[unit["topic"]][2] += unit["size"]
    where = ("--store", golden(name), "--broker-conf", broker_conf_file(name))
    rows = cli("topics", *NDJSON, *where).rows
    found = {
        row["topic"]: [row["queues"], row["messages"], row["bytes"]]
        for row in rows[:-1]
        if row["queues"]
    }
    assert found == expected
    assert rows[-1]["bytes"] == sum(size for _, _, size in expected.values())
    assert [row["topic"] for row in rows[:-1]] == sorted(row["topic"] for row in rows[:-1])


def test_kinds_and_configuration(
    cli: Cli, golden: Golden, broker_conf_file: Callable[[str], Path]
) -> None:
    where = ("--store", golden("broker"), "--broker-conf", broker_conf_file("broker"))
    *rows, summary = cli("topics", *NDJSON, *where).rows
    by_name = {row["topic"]: row for row in rows}
    kinds = {name: row["kind"] for name, row in by_name.items()}
    assert kinds["%RETRY%cg_orders"] == "retry" and kinds["%DLQ%cg_orders"] == "dead-letter"
    assert kinds["orders"] == "normal"
    for name in ("DefaultCluster", "broker-a", "TBW102", "DefaultCluster_REPLY_TOPIC"):
        assert kinds[name] == "system" and not by_name[name]["without_queues"]
    assert by_name["orders"]["read_queue_nums"] == by_name["orders"]["write_queue_nums"] == 4
    assert by_name["orders"]["perm"] == 6 and by_name["orders"]["order"] is False
    # The broker keeps no entry for this one.
    assert by_name["RMQ_SYS_TRANS_OP_HALF_TOPIC"]["configured"] is False
    assert summary["without_config"] == summary["without_queues"] == 0


def test_topics_that_are_in_one_place_only(cli: Cli, store: Path) -> None:
    configure(store, {"empty": NORMAL, "orders": NORMAL, "TBW102": NORMAL, "cluster": {"perm": 7}})
    before = state(store)
    done = cli("topics", *NDJSON, store=store)
    assert done.code == 0 and "1 topic with queues is not in config/topics.json" in done.err
    *rows, summary = done.rows
    marks = {row["topic"]: (row["without_queues"], row["without_config"]) for row in rows}
    assert marks == {
        "TBW102": (False, False),
        "cluster": (False, False),
        "empty": (True, False),
        "nasty\u202etopic": (False, True),
        "orders": (False, False),
    }
    assert (summary["without_queues"], summary["without_config"]) == (1, 1)
    orders = next(row for row in rows if row["topic"] == "orders")
    assert (orders["write_queue_nums"], orders["topic_filter_type"], orders["order"]) == (
        3,
        None,
        True,
    )
    assert orders["oldest_store_timestamp"] == BORN + 1000
    assert orders["newest_store_timestamp"] == BORN + 1058
    assert state(store) == before


def test_without_topics_json_nothing_is_said_of_it(cli: Cli, store: Path) -> None:
    done = cli("topics", *NDJSON, store=store)
    assert {row["configured"] for row in done.rows[:-1]} == {None}
    assert done.rows[-1]["without_config"] == 0 and done.err == ""


def test_one_topic_and_none(cli: Cli, store: Path) -> None:
    row, summary = cli("topics", "--topic", "orders", *NDJSON, store=store).rows
    assert (row["topic"], row["queues"], row["messages"]) == ("orders", 2, 59)
    assert summary["topics"] == 1
    assert cli("topics", "--topic", "../x", *NDJSON, store=store).code == 1


def test_no_bytes_reads_no_units(cli: Cli, store: Path) -> None:
    rows = cli("topics", "--no-bytes", *NDJSON, store=store).rows
    assert {row["bytes"] for row in rows} == {None} and rows[-1]["messages"] == 60


def test_a_broken_file_falls_back_to_its_copy(cli: Cli, store: Path) -> None:
    configure(store, {"orders": NORMAL})
    file = store / "config" / "topics.json"
    shutil.copy(file, file.with_name("topics.json.bak"))
    file.write_text("{")
    row = cli("topics", "--topic", "orders", *NDJSON, store=store).rows[0]
    assert row["configured"] is True
    file.with_name("topics.json.bak").unlink()
    done = cli("topics", store=store)
    assert done.code == 5 and "topics.json, line 1" in done.err and "config check" in done.err


def test_the_bytes_are_those_of_the_records_also_after_clean(cli: Cli, store: Path) -> None:
    """Of queues with one message, with many, and with a first offset that is not 0."""
    for _ in range(2):
        sizes: Counter[str] = Counter()
        messages: Counter[str] = Counter()
        for row in cli("walk", "commitlog", *NDJSON, store=store).rows:
            if row["type"] == "message":
                sizes[row["topic"]] += row["total_size"]
                messages[row["topic"]] += 1
        rows = cli("topics", *NDJSON, store=store).rows[:-1]
        assert {row["topic"]: row["bytes"] for row in rows} == dict(sizes)
        assert {row["topic"]: row["messages"] for row in rows} == dict(messages)
        assert 1 in messages.values()
        clean.clean(store, CONFIG, clean.Rule(at=1 << 50, manual=True), lambda removal: None)
    assert messages["orders"] < 59


def test_units_that_point_nowhere_do_not_count(cli: Cli, store: Path) -> None:
    file = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = bytearray(file.read_bytes())
    sizes = [int.from_bytes(data[at + 8 : at + 12], "big") for at in range(0, 600, 20)]
    data[20:40] = bytes(8) + b"\xff" * 4 + bytes(8)
    file.write_bytes(data)
    whole = cli("topics", "--topic", "orders", *NDJSON, store=store).rows[0]
    other = store / "consumequeue" / "orders" / "1" / ("0" * 20)
    rest = other.read_bytes()
    sizes += [int.from_bytes(rest[at + 8 : at + 12], "big") for at in range(0, 580, 20)]
    assert whole["bytes"] == sum(sizes) - sizes[1]
