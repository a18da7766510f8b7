"""``rmqctl groups``: lag in messages and time, and offsets that fit no queue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services import anyqueue
from rmqctl.engine.services.retention import Removal
from rmqctl.operations.change import clean
from rmqctl.operations.look import groups
from tests.conftest import Golden
from tests.test_cli.conftest import BORN, CONFIG, Cli, message, state

NDJSON = ("--format", "ndjson")


def configure(store: Path, offsets: str, groups: tuple[str, ...] | None = None) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{offsets}}}')
    if groups is not None:
        table = json.dumps({"subscriptionGroupTable": {group: {} for group in groups}})
        (store / "config" / "subscriptionGroup.json").write_text(table)


def by_queue(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["group"], row["queue_id"]): row for row in rows if row["type"] == "group_queue"}


def test_lag_in_messages_and_time(cli: Cli, store: Path) -> None:
    """Message n has store time BORN + 1000 + n and lies in queue n % 2."""
    configure(store, '{"orders@a":{0:30,1:29},"orders@b":{0:20}}', ("a", "idle", "TOOLS_CONSUMER"))
    before = state(store)
    done = cli("groups", *NDJSON, store=store)
    a, b, idle, summary = done.rows
    assert (done.code, done.err, state(store)) == (0, "", before)
    assert (a["lag"], a["behind_milliseconds"], a["next_store_timestamp"]) == (0, 0, None)
    assert (a["queues"], a["queues_without_offset"], a["state"]) == (2, 0, "ok")
    # The next one of b is message 40, the newest of its queue message 58.
    assert (b["lag"], b["behind_milliseconds"]) == (10, 18)
    assert b["next_store_timestamp"] == BORN + 1040
    assert (b["queues"], b["queues_without_offset"], b["configured"]) == (1, 1, False)
    assert (idle["group"], idle["topic"], idle["state"]) == ("idle", None, "no-offset")
    assert summary == {
        "type": "summary",
        "groups": 3,
        "queues": 3,
        "lag": 10,
        "missed": 0,
        "past_queue": 0,
    }


def test_offsets_that_fit_no_queue(cli: Cli, store: Path) -> None:
    configure(store, '{"orders@g":{0:31,1:-1,7:3},"../x@..":{0:1},"gone@g":{0:0}}')
    done = cli("groups", "--queues", *NDJSON, store=store)
    assert done.code == 0 and "1 offset lies past the end" in done.err
    orders = {row["queue_id"]: row for row in done.rows if row.get("topic") == "orders"}
    assert [orders[n]["state"] for n in (0, 1, 7)] == ["past-queue", "before-queue", "no-queue"]
    assert [orders[n]["lag"] for n in (0, 1, 7)] == [0, 29, 0]
    assert orders[1]["next_store_timestamp"] == BORN + 1001
    assert {row["state"] for row in done.rows if row.get("topic") in ("../x", "gone")} == {
        "no-queue"
    }
    states = {row["topic"]: row["state"] for row in cli("groups", *NDJSON, store=store).rows[:-1]}
    assert states == {"orders": "past-queue", "../x": "no-queue", "gone": "no-queue"}


def test_what_retention_has_deleted_unread_is_missed(cli: Cli, store: Path) -> None:
    configure(store, '{"orders@g":{0:2,1:3}}')
    removed: list[Removal] = []
    clean.clean(store, CONFIG, clean.Rule(at=1 << 50, manual=True), removed.append)
    assert removed
    rows = by_queue(cli("groups", "--queues", *NDJSON, store=store).rows)
    for queue_id, offset in ((0, 2), (1, 3)):
        row = rows["g", queue_id]
        assert row["min_offset"] > offset and row["state"] == "before-queue"
        assert row["missed"] == row["min_offset"] - offset
        assert row["lag"] == row["max_offset"] - row["min_offset"]
        assert row["next_store_timestamp"] == BORN + 1000 + 2 * row["min_offset"] + queue_id


def test_a_brokers_store_agrees_with_clean(
    cli: Cli, golden: Golden, broker_conf_file: Callable[[str], Path]
) -> None:
    where = ("--store", golden("broker"), "--broker-conf", broker_conf_file("broker"))
    rows = cli("groups", "--queues", *NDJSON, *where).rows
    fields = ("topic", "queue_id", "group", "consumer_offset", "max_offset", "lag")
    told = {tuple(row[field] for field in fields) for row in rows if row["type"] == "group_queue"}
    plan = cli("clean", "--dry-run", *NDJSON, *where).rows
    assert told == {
        tuple(row[field] for field in fields)
        for row in plan
        if row["type"] == "progress" and row["group"]
    }
    assert len(told) == 7


def test_filters(cli: Cli, store: Path) -> None:
    configure(store, '{"orders@a":{0:30},"orders@b":{0:20},"other@a":{0:0}}', ("idle",))
    topics = [row["topic"] for row in cli("groups", "--group", "a", *NDJSON, store=store).rows[:-1]]
    assert topics == ["orders", "other"]
    rows = cli("groups", "--topic", "orders", *NDJSON, store=store).rows
    assert [row["group"] for row in rows[:-1]] == ["a", "b"]
    assert cli("groups", "--group", "idle", *NDJSON, store=store).code == 0
    assert cli("groups", "--group", "absent", store=store).code == 1
    assert cli("groups", "--topic", "absent", store=store).code == 1


def test_the_rows_are_sorted_however_the_file_is(cli: Cli, store: Path) -> None:
    configure(
        store,
        '{"orders@b":{1:20,0:20},"other@a":{0:0},"orders@a":{0:30}}',
        ("idle", "b", "active"),
    )
    rows = cli("groups", *NDJSON, store=store).rows[:-1]
    assert [(row["group"], row["topic"]) for row in rows] == [
        ("a", "orders"),
        ("a", "other"),
        ("b", "orders"),
        ("active", None),
        ("idle", None),
    ]
    rows = cli("groups", "--queues", *NDJSON, store=store).rows[:-1]
    assert [(row["group"], row["topic"], row["queue_id"]) for row in rows] == [
        ("a", "orders", 0),
        ("a", "other", 0),
        ("b", "orders", 0),
        ("b", "orders", 1),
    ]


def test_a_queue_without_messages_lacks_no_offset(cli: Cli, store: Path) -> None:
    """Queue 1 has messages and queue 2 has none; the group has an offset in neither."""
    configure(store, '{"orders@g":{0:30}}', ("g", "idle"))
    empty = store / "consumequeue" / "orders" / "2"
    empty.mkdir()
    (empty / ("0" * 20)).write_bytes(bytes(2000))
    g, idle, _ = cli("groups", *NDJSON, store=store).rows
    assert (g["queues"], g["queues_without_offset"]) == (1, 1)
    assert (idle["queues"], idle["queues_without_offset"]) == (0, 0)


def test_a_queue_is_opened_once_for_many_groups(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may have more queues than stay open, and a thousand groups that read all of them."""
    offsets = (30, 20, 30, 20, 20, 30)
    told = ",".join(f'"orders@g{n}":{{0:{at},1:{at}}}' for n, at in enumerate(offsets))
    configure(store, f'{{{told},"orders@other":{{9:1}}}}')
    asked: list[int] = []
    original = anyqueue.opened_queue

    def counted(store: MessageStore, topic: str, queue_id: int) -> Any:
        asked.append(queue_id)
        return original(store, topic, queue_id)

    monkeypatch.setattr(groups, "opened_queue", counted)
    done = cli("groups", *NDJSON, store=store)
    assert sorted(asked) == [0, 0, 1, 1]  # Once for the end, and once for the lag.
    rows = {row["group"]: row for row in done.rows if row["type"] == "group"}
    assert rows["other"]["queues_without_offset"] == 2
    for group, row in rows.items():
        alone = cli("groups", "--group", group, *NDJSON, store=store).rows[0]
        assert row == alone


def test_records_that_cannot_be_read_leave_the_time_unknown(cli: Cli, store: Path) -> None:
    configure(store, '{"orders@g":{0:2}}')
    file = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = bytearray(file.read_bytes())
    data[40:48] = (7).to_bytes(8, "big")
    file.write_bytes(data)
    row = by_queue(cli("groups", "--queues", *NDJSON, store=store).rows)["g", 0]
    assert (row["lag"], row["behind_milliseconds"], row["next_store_timestamp"]) == (28, None, None)


def test_watching_tells_what_has_come_since(store: Path) -> None:
    configure(store, '{"orders@g":{0:30}}')
    line = ("groups", "--watch", "--interval", "0.02", *NDJSON, "--store", str(store))
    (store.parent / "broker.conf").write_text("mappedFileSizeCommitLog=2048\n")
    with subprocess.Popen(
        [sys.executable, "-m", "rmqctl", *line, "--broker-conf", store.parent / "broker.conf"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        first = json.loads(process.stdout.readline())
        assert (first["type"], first["lag"]) == ("group", 0)
        with MessageStore(store, CONFIG, writable=True) as opened:
            opened.put_messages([message(60), message(62)])
        # It may look between the two.
        assert 2 in (json.loads(row).get("lag") for row in process.stdout)
        os.kill(process.pid, signal.SIGINT)
        rest = process.stdout.read().splitlines()
        assert process.wait(100) == 130 and process.stderr.read() == b""
        assert not rest or json.loads(rest[-1])["type"] == "summary"


def test_watching_ends_with_its_reader(store: Path) -> None:
    line = f"{sys.executable} -m rmqctl groups --watch --interval 0.01 --store {store} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
