"""``rmqctl diff``: what two stores have of each other, its rows and exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.look.diff import Diff
from tests.golden_data import apply_damage, copy_tree, state
from tests.test_cli.conftest import BROKER_CONF, CONFIG, NASTY, Cli, Done, message
from tests.test_operations.test_salvage import patched, records_of


@pytest.fixture
def other(store: Path, tmp_path: Path) -> Path:
    return copy_tree(store, tmp_path / "other")


def compare(cli: Cli, a: Path, b: Path) -> Done:
    before = state(a), state(b)
    conf = a.parent / "broker.conf"
    conf.write_text(BROKER_CONF)
    done = cli("diff", a, b, "--broker-conf", conf, "--format", "ndjson")
    assert (state(a), state(b)) == before
    assert done.code == int(len(done.rows) > 1)
    assert done.rows[-1]["same"] == (not done.code)
    return done


def told(done: Done, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in done.rows[:-1]]


def test_copies_are_the_same(cli: Cli, store: Path, other: Path) -> None:
    done = compare(cli, store, other)
    assert done.rows == [
        {
            "type": "summary",
            "same": True,
            "compared_bytes": 8117,
            "first_divergence": None,
            "commitlog": 0,
            "queues": 0,
            "consumer_offsets": 0,
            "delay_offsets": 0,
            "topics": 0,
            "groups": 0,
        }
    ]
    # What stands behind the blank of a file has no meaning.
    path = other / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[-3:] = b"xyz"
    path.write_bytes(data)
    assert compare(cli, store, other).rows == done.rows
    # A single name is the second store.
    assert cli("diff", other, store=store).code == 0


def test_a_slave_that_is_behind(cli: Cli, store: Path, other: Path) -> None:
    with MessageStore(store, CONFIG, writable=True) as opened:
        opened.put_messages([message(60 + number) for number in range(20)])
    done = compare(cli, store, other)
    log, *queues = done.rows[:-1]
    assert (log["kind"], log["physical_offset"], log["messages"]) == ("only-in-a", 8117, 20)
    assert [(row["kind"], row["queue_offset"], row["messages"]) for row in queues] == [
        ("ranges-differ", 30, 10),
        ("ranges-differ", 29, 10),
    ]
    assert done.rows[-1]["first_divergence"] is None
    back = compare(cli, other, store)
    assert back.rows[0]["kind"] == "only-in-b" and back.rows[0]["messages"] == 20


def test_the_first_divergence(cli: Cli, store: Path, other: Path) -> None:
    offsets = sorted(records_of(store, CONFIG))
    for at in (20, 21, 40):
        patched(other, offsets[at] + 90, b"\x7e")
    done = compare(cli, store, other)
    assert told(done, "structure", "kind", "physical_offset", "messages") == [
        ("commitlog", "differs", offsets[20], 2),
        ("commitlog", "differs", offsets[40], 1),
    ]
    assert told(done, "topic", "queue_id", "queue_offset", "a", "b")[0] == (
        *("orders", 0, 10),
        *("record", "body-crc-mismatch"),
    )
    assert done.rows[-1]["first_divergence"] == offsets[20]


def test_what_expired_and_what_is_lost(cli: Cli, store: Path, other: Path) -> None:
    apply_damage(other, [{"op": "delete", "path": f"commitlog/{at:020d}"} for at in (0, 4096)])
    done = compare(cli, store, other)
    assert told(done, "kind", "physical_offset", "length")[:2] == [
        ("differs", 4096, 2048),
        ("only-in-a", 0, 2048),
    ]
    assert done.rows[0]["b"] == "no file"
    assert {row["structure"] for row in done.rows[:-1]} == {"commitlog"}


def test_stores_that_have_nothing_in_common(cli: Cli, store: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with MessageStore(new, CONFIG, writable=True, create=True) as opened:
        opened.put_messages([message(number, topic="others") for number in range(20)])
    done = compare(cli, store, new)
    assert done.rows[0]["physical_offset"] == 0 and done.rows[-1]["first_divergence"] == 0
    assert {(row["structure"], row["kind"]) for row in done.rows[:-1]} == {
        ("commitlog", "differs"),
        ("commitlog", "only-in-a"),
        ("queue", "only-in-a"),
        ("queue", "only-in-b"),
    }
    with MessageStore(tmp_path / "empty", CONFIG, writable=True, create=True):
        pass
    done = compare(cli, new, tmp_path / "empty")
    assert told(done, "structure", "kind", "messages") == [
        ("commitlog", "only-in-a", 20), ("queue", "only-in-a", 10), ("queue", "only-in-a", 10)
    ]  # fmt: skip


def test_units_and_configuration(cli: Cli, store: Path, other: Path) -> None:
    queue = other / "consumequeue" / "orders" / "1" / ("0" * 20)
    data = bytearray(queue.read_bytes())
    data[5 * 20 + 19] ^= 1
    queue.write_bytes(data)
    for root, offsets, level, topics, groups in (
        (store, '{"orders@g":{0:1,1:2}}', "{3:4}", '{"t":{"perm":6}}', '{"g":{}}'),
        (other, '{"orders@g":{0:1,1:3}}', "{3:5}", '{"t":{"perm":4},"u":{}}', '{"h":{}}'),
    ):
        (root / "config").mkdir()
        for name, text in (
            ("consumerOffset", f'{{"offsetTable":{offsets}}}'),
            ("delayOffset", f'{{"offsetTable":{level}}}'),
            ("topics", f'{{"topicConfigTable":{topics}}}'),
            ("subscriptionGroup", f'{{"subscriptionGroupTable":{groups}}}'),
        ):
            (root / "config" / f"{name}.json").write_text(text)
    done = compare(cli, store, other)
    assert told(done, "structure", "kind", "topic", "queue_id", "queue_offset", "group") == [
        ("queue", "units-differ", "orders", 1, 5, None),
        ("consumer_offset", "differs", "orders", 1, None, "g"),
        ("delay_offset", "differs", "SCHEDULE_TOPIC_XXXX", 2, None, None),
        ("topic", "differs", "t", None, None, None),
        ("topic", "only-in-b", "u", None, None, None),
        ("group", "only-in-a", None, None, None, "g"),
        ("group", "only-in-b", None, None, None, "h"),
    ]
    assert told(done, "a", "b")[1:3] == [("2", "3"), ("4", "5")]


def test_progress_goes_on_from_queue_to_queue(store: Path, other: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders" / "1")
    with MessageStore(store, CONFIG) as a, MessageStore(other, CONFIG) as b:
        diff = Diff(a, b)
        calls: list[int] = []
        rows = list(diff.queue_rows(calls.append))
    assert [(row["topic"], row["queue_id"], row["kind"]) for row in rows] == [
        ("orders", 1, "only-in-b")
    ]
    assert ("orders", 1) in diff.queue_places
    assert calls == list(range(len(diff.queue_places)))


def test_offsets_are_told_in_order_also_of_groups_that_one_store_has(
    cli: Cli, store: Path, other: Path
) -> None:
    for root, offsets in (
        (store, '{"b@g":{10:1,9:1,0:5},"a@h":{0:1},"a@g":{},"c@same":{0:7}}'),
        (other, '{"c@same":{0:7},"b@g":{0:5,9:2,11:3},"a@f":{1:1}}'),
    ):
        (root / "config").mkdir()
        file = root / "config" / "consumerOffset.json"
        file.write_text(f'{{"offsetTable":{offsets}}}')
    done = compare(cli, store, other)
    assert told(done, "topic", "group", "queue_id", "a", "b") == [
        ("a", "f", 1, None, "1"),
        ("a", "h", 0, "1", None),
        ("b", "g", 9, "1", "2"),
        ("b", "g", 10, "1", None),
        ("b", "g", 11, None, "3"),
    ]


@pytest.mark.parametrize("what", ["a file", "a link to nothing"])
def test_what_stands_where_a_queue_lay_is_none(
    cli: Cli, store: Path, other: Path, what: str
) -> None:
    queue = sorted((other / "consumequeue").glob("*/*"))[0]
    for root in (store, other):
        place = root / queue.relative_to(other)
        shutil.rmtree(place)
        if what == "a file":
            place.write_bytes(bytes(20))
        else:
            place.symlink_to("nowhere")
        found = compare(cli, store, other)
        missed = [row for row in found.rows[:-1] if row["structure"] == "queue"]
        assert [row["kind"] for row in missed] == (["only-in-b"] if root == store else [])


def test_bad_input(cli: Cli, store: Path, other: Path, tmp_path: Path) -> None:
    for code, said, line in (
        (2, "name two stores", (store, other, other)),
        (2, "", (store,)),
        (3, "there is no directory", (store, tmp_path / "none")),
        (3, "not a RocketMQ store", (store, tmp_path)),
    ):
        done = cli("diff", *line)
        assert (done.code, done.out) == (code, "") and said in done.err, done
    (other / "config").mkdir()
    (other / "config" / "topics.json").write_text("{")
    done = cli("diff", other, store=store)
    assert done.code == 5 and "topics.json" in done.err


def test_what_is_hostile_reaches_no_terminal(cli: Cli, store: Path, other: Path) -> None:
    patched(other, sorted(records_of(store, CONFIG))[-1] + 89, b"\x7e\x7e")
    golden = [{"op": "delete", "path": f"consumequeue/{path.name}"} for path in
              (other / "consumequeue").iterdir() if path.name.startswith("nasty")]  # fmt: skip
    apply_damage(other, golden)
    done = cli("diff", other, store=store)
    assert done.code == 1 and "nasty" in done.out
    assert not ({*NASTY, "\u202e"} - {*"red egnp.x[31m"}) & {*done.out}


def test_one_store_alone_is_answered_with_how_to_name_two(cli: Cli, store: Path) -> None:
    done = cli("diff", store)
    assert done.code == 2 and "name two stores, or one beside --store" in done.err
