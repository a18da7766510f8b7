"""``rmqctl config check``: what a broker wrote is clean, and every harm has its code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state import fastjson
from rmqctl.operations.change import clean
from rmqctl.operations.verify import CODES, configcheck
from rmqctl.operations.verify.configcheck import Summary
from tests import golden_data
from tests.seeds import times
from tests.test_cli.conftest import BROKER_CONF, Cli, state
from tests.test_engine.test_lock import broker_holding

CONFIG_CODES = {name for name, code in CODES.items() if code.structure == "config"}


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        path = root / "config" / name
        text = path.read_text()
        assert text.count(old) >= 1, old
        path.write_text(text.replace(old, new, 1))

    return change


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / "config" / name).write_bytes(text.encode("latin-1"))


def delete(*names: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for name in names:
            path = root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def both(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda root: [change(root) for change in changes]


#: Harm, and the codes that it must show beside those of the sound store.
HARM: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    # The copy is older, and does not have the last topic.
    "cut off": (
        write("topics.json", '{"topicConfigTable":{'),
        {"config-unreadable", "queue-without-topic-config"},
    ),
    "not UTF-8": (
        write("topics.json", "{\xff"),
        {"config-unreadable", "queue-without-topic-config"},
    ),
    "other JSON": (
        write("other.json", "{'a':1}"),
        {"config-unreadable"},
    ),
    "copy cut off": (write("topics.json.bak", "{"), {"config-backup-unreadable"}),
    "copy a list": (write("topics.json.bak", "[]"), {"config-backup-unreadable"}),
    "copy a number": (write("consumerOffset.json.bak", "7"), {"config-backup-unreadable"}),
    "copy with another table": (
        write("delayOffset.json.bak", '{"offsetTable":[]}'),
        {"config-backup-unreadable"},
    ),
    "file gone": (delete("config/consumerOffset.json"), {"config-missing"}),
    "file empty": (
        write("topics.json", ""),
        {"config-missing", "queue-without-topic-config"},
    ),
    "both gone": (
        delete("config/topics.json", "config/topics.json.bak"),
        {"config-absent"},
    ),
    "offsets gone": (
        delete("config/consumerOffset.json", "config/consumerOffset.json.bak"),
        {"config-offsets-lost"},
    ),
    "offsets empty": (
        both(delete("config/consumerOffset.json.bak"), write("consumerOffset.json", "")),
        {"config-offsets-lost"},
    ),
    "delay offsets gone": (
        delete("config/delayOffset.json", "config/delayOffset.json.bak"),
        {"config-offsets-lost"},
    ),
    "killed while writing": (write("topics.json.tmp", "{}"), {"config-temporary-left"}),
    "killed while copying": (write("topics.json.bak.tmp", "{}"), {"config-temporary-left"}),
    "put back": (
        edit("topics.json", '"timestamp":17951647334', '"timestamp":17951647234'),
        {"config-older-than-backup"},
    ),
    "key twice": (
        edit("topics.json", '"order":false', '"order":false,"order":true'),
        {"config-duplicate-key"},
    ),
    "no table": (
        write("delayOffset.json", '{"offsetTable":null}'),
        {"config-entry-malformed"},
    ),
    "a list": (write("delayOffset.json", "[]"), {"config-entry-malformed"}),
    "no group": (
        edit("consumerOffset.json", "orders@cg_orders", "orders"),
        {"config-entry-malformed"},
    ),
    "no number": (
        edit("consumerOffset.json", "0:124", '"x":124'),
        {"config-entry-malformed"},
    ),
    "no queue numbers": (
        edit("topics.json", '"readQueueNums":4,', ""),
        {"config-entry-malformed"},
    ),
    "past the queue": (
        edit("consumerOffset.json", "0:124", "0:125"),
        {"consumer-offset-past-queue"},
    ),
    "before the queue": (
        edit("consumerOffset.json", "0:124", "0:-1"),
        {"consumer-offset-before-queue", "consumer-offset-moved-back"},
    ),
    "moved back": (
        edit("consumerOffset.json", "0:124", "0:100"),
        {"consumer-offset-moved-back"},
    ),
    "queue gone": (
        delete("consumequeue/orders/0"),
        {"consumer-offset-without-queue"},
    ),
    "group unknown": (
        edit("subscriptionGroup.json", '"cg_orders":{', '"cg_other":{'),
        {"group-without-config"},
    ),
    "topic unknown": (
        edit("topics.json", '"orders":{', '"other":{'),
        {"queue-without-topic-config", "topic-without-queue"},
    ),
    "fewer queues": (
        edit("topics.json", '"readQueueNums":4,', '"readQueueNums":2,'),
        {"queue-not-readable"},
    ),
    "fewer queues to write": (
        edit("topics.json", '"writeQueueNums":4', '"writeQueueNums":3'),
        {"queue-not-writable"},
    ),
    "delivered too much": (
        edit("delayOffset.json", "1:2,", "1:4,"),
        {"delay-offset-past-queue"},
    ),
    "delivered too little": (
        edit("delayOffset.json", "1:2,", "1:-2,"),
        {"delay-offset-before-queue"},
    ),
    "no such level": (
        edit("delayOffset.json", "4:3", "4:3,19:0"),
        {"delay-level-unknown"},
    ),
}


@pytest.fixture
def broker(copy_store: Any) -> Path:
    root: Path = copy_store("broker")
    (root.parent / "b.conf").write_text(golden_data.broker_conf_text("broker"))
    return root


def check(cli: Cli, root: Path, *arguments: str) -> Any:
    conf = root.parent / "b.conf"
    return cli("config", "check", "--store", root, "--broker-conf", conf, *arguments)


def test_what_a_broker_wrote_is_clean(cli: Cli, broker: Path) -> None:
    before = state(broker)
    done = check(cli, broker, "--format", "ndjson")
    assert done.code == 0 and state(broker) == before
    # The broker was stopped before it came to these two levels.
    assert [row["code"] for row in done.rows[:-1]] == ["delay-offset-missing"] * 2
    assert done.rows[-1] == {
        "type": "summary",
        "files": 9,
        "topics": 14,
        "groups": 9,
        "offsets": 7,
        "errors": 0,
        "warnings": 0,
        "infos": 2,
    }


@pytest.mark.parametrize("harm", HARM)
def test_harm_is_named(harm: str, cli: Cli, broker: Path) -> None:
    change, expected = HARM[harm]
    change(broker)
    before = state(broker)
    done = check(cli, broker, "--format", "ndjson")
    assert state(broker) == before
    rows = [row for row in done.rows if row["type"] == "finding"]
    found = {row["code"] for row in rows}
    assert found - {"delay-offset-missing"} == expected, rows
    bad = [row for row in rows if row["severity"] != "info"]
    assert done.code == (1 if bad else 0)
    assert all(row["path"].startswith("config/") and row["advice"] for row in rows)
    assert done.rows[-1]["errors"] + done.rows[-1]["warnings"] == len(bad)


def test_offsets_that_no_broker_has_written_are_not_lost(cli: Cli, store: Path) -> None:
    """Without topics.json none has run; without delayed messages nothing asks for their offsets."""
    rows = cli("config", "check", "--format", "ndjson", store=store).rows
    assert {row["code"] for row in rows[:-1]} == {"config-absent"}
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_text('{"topicConfigTable":{}}')
    rows = cli("config", "check", "--format", "ndjson", store=store).rows
    lost = [row["path"] for row in rows if row.get("code") == "config-offsets-lost"]
    assert lost == ["config/consumerOffset.json"]


@pytest.mark.parametrize(
    ("told", "there", "lost"),
    [
        ("enableLmq=true", "lmqConsumerOffset.json", None),
        ("enableLmq=true", "lmqConsumerOffset.json.bak", None),
        ("enableLmq=true", "consumerOffset.json", "lmqConsumerOffset.json"),
        ("enableLmq=false", "lmqConsumerOffset.json", "consumerOffset.json"),
        ("enableLmq=false", "consumerOffset.json", None),
        ("", "lmqConsumerOffset.json", None),
        ("", "consumerOffset.json", None),
        ("", "other.json", "consumerOffset.json"),
    ],
)
def test_a_broker_has_one_file_of_offsets(
    told: str, there: str, lost: str | None, cli: Cli, store: Path
) -> None:
    """With ``enableLmq`` it never writes ``consumerOffset.json`` (``LmqConsumerOffsetManager``)."""
    (store / "config").mkdir()
    (store / "config/topics.json").write_text('{"topicConfigTable":{}}')
    (store / "config" / there).write_text('{"offsetTable":{},"lmqOffsetTable":{}}')
    (store.parent / "b.conf").write_text(f"{BROKER_CONF}{told}\n")
    rows = check(cli, store, "--format", "ndjson").rows
    found = [row["path"] for row in rows if row.get("code") == "config-offsets-lost"]
    assert found == ([f"config/{lost}"] if lost else [])
    assert not [
        row for row in rows if row.get("code") == "config-absent" and "ffset" in row["path"]
    ]


def test_offsets_that_a_running_broker_has_not_written_yet_are_not_lost(
    cli: Cli, store: Path
) -> None:
    """It writes them some seconds after its start."""
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_text('{"topicConfigTable":{}}')
    with broker_holding(store):
        rows = cli("config", "check", "--format", "ndjson", store=store).rows
    absent = {row["path"]: row["code"] for row in rows[:-1]}
    assert absent["config/consumerOffset.json"] == "config-absent"


def test_every_code_is_shown_by_some_harm() -> None:
    shown = set().union(*(codes for _, codes in HARM.values()))
    assert shown | {"delay-offset-missing"} == CONFIG_CODES


def test_a_broken_file_tells_the_place_and_the_table_the_advice(cli: Cli, broker: Path) -> None:
    edit("topics.json", '"perm":6,', '"perm":6')(broker)
    done = check(cli, broker)
    assert done.code == 1
    assert "line 10, column 4: ',' or '}' is expected" in done.out
    assert "config-unreadable: A broker takes the .bak copy" in done.out


def test_each_advice_of_a_code_is_shown(cli: Cli, broker: Path) -> None:
    """Of two broken files one has a sound copy, one has a broken one: they need other steps."""
    (broker / "config/topics.json").write_text("{")
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (broker / "config" / name).write_bytes(bytes(9))
    text = " ".join(check(cli, broker).out.split())
    assert "config-unreadable (3)" in text.partition("severity")[0], "the verdict counts the code"
    assert "config-unreadable: A broker takes the .bak copy" in text
    assert "config-unreadable (2 times): Neither the file nor its .bak copy can be used" in text


@pytest.mark.parametrize("name", golden_data.STORES)
def test_stores_without_a_broker_have_no_errors(
    name: str, cli: Cli, golden: Any, broker_conf_file: Any
) -> None:
    where = ("--store", golden(name), "--broker-conf", broker_conf_file(name))
    done = cli("config", "check", *where, "--format", "ndjson")
    assert done.code == 0, done.out


NAMES = st.sampled_from(["orders", "orders@cg_orders", "SCHEDULE_TOPIC_XXXX", "offsetTable"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES | st.integers(-2, 30) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
TABLES = st.dictionaries(
    st.sampled_from(
        [
            "topicConfigTable",
            "offsetTable",
            "lmqOffsetTable",
            "subscriptionGroupTable",
            "dataVersion",
        ]
    ),
    VALUES,
)


@settings(
    deadline=None,
    max_examples=times(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(TABLES | VALUES, min_size=6, max_size=6))
def test_any_value_is_checked_without_a_fault(broker: Path, values: list[Any]) -> None:
    names = ("topics", "consumerOffset", "lmqConsumerOffset", "subscriptionGroup", "delayOffset")
    for name, value in zip((*(f"{n}.json" for n in names), "topics.json.bak"), values, strict=True):
        text = fastjson.dumps(value).encode("utf-8", "replace")
        (broker / "config" / name).write_bytes(text)
    with MessageStore(broker) as store:
        summary = Summary()
        found = list(configcheck.check(store, summary))
        assert sum(summary.severities.values()) == len(found)
    clean.plan_clean(broker, MessageStoreConfig(), clean.Rule(percent=91))


def test_names_from_a_file_reach_no_terminal_raw(cli: Cli, broker: Path) -> None:
    edit("consumerOffset.json", "orders@cg_orders", "\\u001b[2J\\u202e@\\u0007x")(broker)
    for form in ("table", "csv", "ndjson"):
        out = check(cli, broker, "--format", form).out
        assert "[2J" in out and not {"\x1b", "\x07", "\u202e"} & set(out)


def test_a_file_and_its_copy_that_are_both_broken(cli: Cli, broker: Path) -> None:
    """A broker does not start then: the copy's harm is an error too."""
    for name in ("topics.json", "topics.json.bak"):
        (broker / "config" / name).write_text("{")
    rows = check(cli, broker, "--format", "ndjson").rows
    bad = [(row["code"], row["path"]) for row in rows[:-1] if row["severity"] == "error"]
    assert bad == [
        ("config-unreadable", "config/topics.json"),
        ("config-unreadable", "config/topics.json.bak"),
    ]
    _nothing_to_type(cli, broker, "a broker does not start")


def test_a_broken_file_without_a_copy(cli: Cli, broker: Path) -> None:
    (broker / "config/topics.json").write_text("{")
    (broker / "config/topics.json.bak").unlink()
    _nothing_to_type(cli, broker, "starts as if the file were empty")


def _nothing_to_type(cli: Cli, broker: Path, told: str) -> None:
    """A repair has no copy to put there: no plan is advised, and one that is made says as much."""
    rows = check(cli, broker, "--format", "ndjson").rows
    found = [row for row in rows if row.get("code") == "config-unreadable"]
    assert found and all(row["command"] is None for row in found)
    assert all(told in row["advice"] and "backup" in row["advice"] for row in found)
    plan = ("repair", "--plan", broker.parent / "plan.json", "--format", "ndjson")
    done = cli(*plan, "--store", broker, "--broker-conf", broker.parent / "b.conf")
    left = [row for row in done.rows if row.get("code") == "config-unreadable"]
    assert left and "RESTORE" not in done.out and "let `rmqctl repair`" not in done.out


def test_a_file_in_place_of_the_directory(cli: Cli, broker: Path) -> None:
    shutil.rmtree(broker / "config")
    (broker / "config").touch()
    done = check(cli, broker, "--format", "ndjson")
    assert done.code == 1
    assert [row["path"] for row in done.rows if row.get("code") == "not-a-directory"] == ["config"]


@pytest.mark.parametrize("content", ["", "[]"])
@pytest.mark.parametrize("copy", ["[]", "{"])
def test_a_copy_that_a_broker_needs_and_cannot_take(
    content: str, copy: str, cli: Cli, broker: Path
) -> None:
    """It is not said to be taken, nor that the file is sound."""
    (broker / "config/topics.json").write_text(content)
    (broker / "config/topics.json.bak").write_text(copy)
    rows = check(cli, broker, "--format", "ndjson").rows
    bad = {(row["code"], row["path"]) for row in rows[:-1] if row["severity"] == "error"}
    assert ("config-unreadable", "config/topics.json.bak") in bad
    assert not {"config-missing", "config-absent"} & {row["code"] for row in rows[:-1]}


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        # Nothing was read yet: that a queue is not there tells nothing.
        (edit("consumerOffset.json", "orders@cg_orders", "never@cg_orders"), None),
        (write("delayOffset.json", '{"offsetTable":{1:2,2:1,3:3,4:3,"x":1}}'), "malformed"),
        (write("delayOffset.json", '{"offsetTable":{1:2,2:1,3:3,4:"many"}}'), "malformed"),
        # Just at the first message, and just at the end.
        (write("delayOffset.json", '{"offsetTable":{1:0,2:0,3:0,4:0,5:0,6:0}}'), None),
        (write("delayOffset.json", '{"offsetTable":{1:3,2:2,3:32,4:32,5:3,6:8}}'), None),
        (write("delayOffset.json", '{"offsetTable":{1:3,2:2,3:33,4:32,5:3,6:8}}'), "past-queue"),
    ],
    ids=range(6),
)
def test_the_bounds_of_offsets(
    change: Callable[[Path], object], codes: str | None, cli: Cli, broker: Path
) -> None:
    backup = broker / "config/consumerOffset.json.bak"
    backup.unlink(missing_ok=True)
    path = broker / "config/consumerOffset.json"
    path.write_text(re.sub(r"(\d+):\d+", r"\1:0", path.read_text()))
    change(broker)
    rows = check(cli, broker, "--format", "ndjson").rows
    found = {row["code"] for row in rows[:-1]} - {"delay-offset-missing"}
    wanted = {"malformed": "config-entry-malformed", "past-queue": "delay-offset-past-queue"}
    assert found == ({wanted[codes]} if codes is not None else set())


def test_where_nothing_was_sent_no_file_is_absent(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    queue = root / "consumequeue" / "orders" / "0" / ("0" * 20)
    queue.parent.mkdir(parents=True)
    queue.write_bytes(bytes(2000))
    done = cli("config", "check", "--format", "ndjson", store=root)
    assert (done.code, [row["type"] for row in done.rows]) == (0, ["summary"])


def test_a_level_without_messages_needs_no_offset(cli: Cli, broker: Path) -> None:
    rows = check(cli, broker, "--format", "ndjson").rows
    queue = broker / "consumequeue/SCHEDULE_TOPIC_XXXX/9"
    queue.mkdir()
    beside = next((queue.parent / "0").iterdir())
    (queue / beside.name).write_bytes(bytes(beside.stat().st_size))
    assert check(cli, broker, "--format", "ndjson").rows == rows


def test_a_file_of_the_same_time_is_older_by_its_count(cli: Cli, broker: Path) -> None:
    version = '{"dataVersion":{"counter":%d,"timestamp":5},"delayOffset":{}}'
    for own, copy, older in ((7, 7, False), (8, 7, False), (6, 7, True)):
        (broker / "config/other.json").write_text(version % own)
        (broker / "config/other.json.bak").write_text(version % copy)
        rows = check(cli, broker, "--format", "ndjson").rows
        assert ("config-older-than-backup" in {row["code"] for row in rows[:-1]}) is older
