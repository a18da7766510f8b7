"""``transaction ls|commit|rollback`` as an operator runs it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import transaction
from rmqctl.operations.look.halves import half_messages
from rmqctl.rows import Row
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import BROKER_CONF, CONFIG, Cli, state
from tests.test_safety.support import assert_clean

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def half(number: int, **properties: str) -> MessageExtBrokerInner:
    """As ``TransactionalMessageBridge#parseHalfMessageInner`` leaves it."""
    given = {
        "UNIQ_KEY": f"U{number}",
        "TAGS": "t",
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "REAL_TOPIC": "orders",
        "REAL_QID": str(number % 2),
    } | properties
    return MessageExtBrokerInner(
        HALF,
        b"body %d" % number,
        properties={name: value for name, value in given.items() if value},
        born_timestamp=system_clock(),
    )


def put(root: Path, *messages: MessageExtBrokerInner) -> list[int]:
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        results = [store.put_message(message, flush=False) for message in messages]
    return [result.append.wrote_offset for result in results if result.append is not None]


def records(root: Path, topic: str) -> list[tuple[Record, bytes]]:
    with MessageStore(root, CONFIG) as store:
        walked = [r for r in store.commit_log.walk() if isinstance(r, Record) and r.topic == topic]
        return [(record, store.body(record)) for record in walked]


def run(cli: Cli, root: Path, *line: Any, code: int = 0) -> list[dict[str, Any]]:
    done = cli("transaction", *line, "--format", "ndjson", store=root)
    assert done.code == code, done
    return done.rows


def test_what_is_pending_in_the_golden_stores(
    cli: Cli, golden: Golden, broker_conf_file: Any
) -> None:
    """By the engine's own rows: a half that no op message names."""
    for name in ("transaction", "broker"):
        root = golden(name)
        where = ("--store", root, "--broker-conf", broker_conf_file(name), "--format", "ndjson")
        messages = golden_data.expected(name)["message"]
        expected = {m["queueOffset"]: m["physicalOffset"] for m in messages if m["topic"] == HALF}
        with MessageStore(root, golden_data.broker_conf(name)) as store:
            for m in messages:
                if m["topic"] == OP:
                    op = store.look_message_by_offset(m["physicalOffset"])
                    expected.pop(int(store.body(op)), None)
        *rows, summary = cli("transaction", "ls", "--all", *where).rows
        unended = [r["physical_offset"] for r in rows if r["state"] != "ended"]
        assert unended == list(expected.values())
        done = cli("transaction", "ls", *where)
        if name == "broker":
            # The check has put all of them back, as messages that were ended then.
            assert done.code == 0 and done.rows[-1]["pending"] == 0
            assert summary["checked"] == len(expected) == 16
        else:
            assert done.code == 0 and len(done.rows) == 31
            assert {r["producer_group"] for r in done.rows[:-1]} == {"pg"}


def test_the_golden_halves_are_ended(
    cli: Cli, golden: Golden, tmp_path: Path, broker_conf_file: Any
) -> None:
    root = golden_data.copy_tree(golden("transaction"), tmp_path / "transaction")
    where = ("--broker-conf", broker_conf_file("transaction"), "--format", "ndjson")
    *rows, _ = cli("transaction", "ls", "--store", root, *where).rows
    offsets = [str(row["physical_offset"]) for row in rows]
    before = golden_data.tree_content(root)
    for action in ("commit", "rollback"):
        dry = cli("transaction", action, *offsets, "--dry-run", "--store", root, *where)
        assert dry.code == 0 and dry.rows[-1]["done"] == 30
    assert golden_data.tree_content(root) == before
    some, others = offsets[:20], offsets[20:]
    committed = cli("transaction", "commit", *some, "--store", root, *where)
    rolled = cli("transaction", "rollback", *others, "--store", root, *where)
    assert (committed.code, rolled.code) == (0, 0)
    config = golden_data.broker_conf("transaction")
    assert_clean(root, config)
    with MessageStore(root, config) as store:
        for row in committed.rows[:-1]:
            final = store.look_message_by_offset(row["final_offset"])
            original = store.look_message_by_offset(row["physical_offset"])
            assert final.prepared_transaction_offset == original.physical_offset
            assert (final.topic, final.sys_flag & 12) == (row["real_topic"], 8)
            assert final.properties == original.properties
            assert store.body(final) == store.body(original)
        for row in (*committed.rows[:-1], *rolled.rows[:-1]):
            op = store.look_message_by_offset(row["op_offset"])
            assert (op.topic, store.body(op)) == (OP, b"%d" % row["queue_offset"])
    assert {row["final_offset"] for row in rolled.rows[:-1]} == {None}
    assert cli("transaction", "ls", "--store", root, *where).rows[-1]["pending"] == 0
    again = cli("transaction", "commit", *offsets, "--store", root, *where)
    assert again.code == 1 and {r["status"] for r in again.rows[:-1]} == {"NOT_PENDING"}


def test_a_commit_that_was_cut_off_is_only_completed(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    first, second = put(root, half(0), half(1))
    finals = []
    with MessageStore(root, CONFIG, writable=True) as store:
        for offset in (first, second):
            record = store.look_message_by_offset(offset)
            message = transaction.commit_message(record, store.body(record))
            result = store.put_message(message)
            assert result.append is not None
            finals.append(result.append.wrote_offset)
    *rows, summary = run(cli, root, "commit", second, first)
    assert [row["final_offset"] for row in rows] == finals[::-1] and summary["done"] == 2
    assert len(records(root, "orders")) == 2 and len(records(root, OP)) == 2
    assert_clean(root, CONFIG)


def test_a_commit_that_was_cut_off_is_not_rolled_back(cli: Cli, tmp_path: Path) -> None:
    """Its final message is in its queue: a rollback would take nothing from its consumers."""
    root = tmp_path / "store"
    first, second = put(root, half(0), half(1))
    with MessageStore(root, CONFIG, writable=True) as store:
        record = store.look_message_by_offset(first)
        put_before = store.put_message(transaction.commit_message(record, store.body(record)))
    assert put_before.append is not None
    for options in (("--dry-run",), ()):
        refused, rolled, summary = run(cli, root, "rollback", first, second, *options, code=1)
        assert (refused["status"], refused["op_offset"]) == ("COMMITTED", None)
        assert f"at {put_before.append.wrote_offset}," in refused["reason"]
        assert f"`rmqctl transaction commit {first}`" in refused["reason"]
        assert rolled["status"] == ("DRY_RUN" if options else "PUT_OK")
        assert (summary["done"], summary["refused"]) == (1, 1)
    (waiting,) = run(cli, root, "ls")[:-1]
    assert waiting["physical_offset"] == first
    assert waiting["final_offset"] == put_before.append.wrote_offset
    assert run(cli, root, "commit", first)[-1]["done"] == 1
    assert len(records(root, "orders")) == 1 and len(records(root, OP)) == 2
    assert_clean(root, CONFIG)


def test_a_final_message_is_seen_before_a_start_has_dispatched_it(cli: Cli, tmp_path: Path) -> None:
    """A killed writer stored the final message, but no unit of it: the next start adds that."""
    root = tmp_path / "store"
    first, second = put(root, half(0), half(1, KEYS="k"))
    with MessageStore(root, CONFIG, writable=True) as store:
        record = store.look_message_by_offset(second)
        final = store.put_message(transaction.commit_message(record, store.body(record)))
    assert final.append is not None
    shutil.rmtree(root / "consumequeue" / "orders")
    (root / "abort").touch()
    rows = run(cli, root, "ls")[:-1]
    found = {row["physical_offset"]: row["final_offset"] for row in rows}
    assert found == {first: None, second: final.append.wrote_offset}


def test_a_half_with_a_damaged_body_is_listed(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    first, second = put(root, half(0), half(1))
    with MessageStore(root, CONFIG) as store:
        body = store.body(store.look_message_by_offset(first))
    log = root / "commitlog" / f"{0:020}"
    data = log.read_bytes()
    at = data.index(body, first)
    log.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    rows = run(cli, root, "ls")[:-1]
    assert [row["physical_offset"] for row in rows] == [first, second]


def test_a_delayed_half_is_lost_as_in_a_broker(cli: Cli, tmp_path: Path) -> None:
    """A half with a delay level goes to the schedule topic with the half topic as its real one:
    producers clear the level, and a broker discards what comes back."""
    root = tmp_path / "store"
    (offset,) = put(root, half(1, DELAY="3"))
    assert run(cli, root, "commit", offset, code=1)[0]["status"] == "ILLEGAL"
    line = ("schedule", "deliver", "--until", str(system_clock() + 60_000), "--format", "ndjson")
    done = cli(*line, store=root)
    assert done.code == 1 and done.rows[0]["reason"] == "real-topic-is-half-topic"


@pytest.mark.parametrize(
    ("properties", "status"),
    [
        ({"REAL_TOPIC": "../up"}, "ILLEGAL"),
        ({"REAL_TOPIC": ""}, "ILLEGAL"),
        ({"REAL_QID": "one"}, "ILLEGAL"),
        ({"REAL_QID": "-1"}, "ILLEGAL"),
        ({"PGROUP": ""}, "ILLEGAL"),
        ({"PGROUP": "other"}, "PRODUCER_GROUP_WRONG"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_ended_is_said(
    properties: dict[str, str], status: str, cli: Cli, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    good, bad = put(root, half(0), half(1, **properties))
    group = ("--producer-group", "pg")
    *rows, summary = run(cli, root, "commit", good, bad, *group, code=1)
    assert {row["physical_offset"]: row["status"] for row in rows} == {good: "PUT_OK", bad: status}
    assert all(row["reason"] for row in rows if row["status"] == status)
    assert (summary["done"], summary["refused"], summary["not_tried"]) == (1, 1, 0)
    assert len(records(root, OP)) == 1
    # A half that has nowhere to go can still be rolled back; one that a broker refuses cannot.
    code = int("PGROUP" in properties)
    assert run(cli, root, "rollback", bad, *group, code=code)[-1]["done"] == 1 - code


def test_offsets_that_are_no_half_message(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    ordinary, offset = put(root, MessageExtBrokerInner("orders", b"x"), half(0))
    before = state(root)
    rows = run(cli, root, "commit", ordinary, offset + 1, 10**12, "--dry-run", code=1)
    assert [row["status"] for row in rows[:-1]] == ["ILLEGAL", "NOT_FOUND", "NOT_FOUND"]
    assert state(root) == before
    run(cli, root, "ls", "--producer-group", "nobody", code=1)
    assert cli("transaction", "commit", "-5", store=root).code == 2
    assert cli("transaction", "commit", store=root).code == 2


def test_a_refused_final_leaves_the_half_pending(cli: Cli, tmp_path: Path) -> None:
    """No op message without its final message; what comes behind it is not tried."""
    root = tmp_path / "store"
    offsets = put(root, half(0), half(1, REAL_TOPIC="t" * 128), half(2))
    *rows, summary = run(cli, root, "commit", *offsets, code=1)
    assert [row["status"] for row in rows] == ["PUT_OK", "MESSAGE_ILLEGAL"]
    assert summary == {"type": "summary", "done": 1, "refused": 1, "not_tried": 1}
    assert len(records(root, OP)) == 1
    assert [row["physical_offset"] for row in run(cli, root, "ls")[:-1]] == offsets[1:]


def test_a_half_for_a_queue_that_can_be_none_hides_no_other(cli: Cli, tmp_path: Path) -> None:
    """It names a further queue whose name is no directory, which a producer may."""
    root, conf = tmp_path / "store", tmp_path / "multi.conf"
    offsets = put(root, half(0), half(1, INNER_MULTI_DISPATCH="a/b"), half(2))
    conf.write_text(BROKER_CONF + "enableMultiDispatch=true\n")

    def on(*line: Any, code: int = 0) -> list[dict[str, Any]]:
        where = ("--store", root, "--broker-conf", conf, "--format", "ndjson")
        done = cli("transaction", *line, *where)
        assert done.code == code, done
        return done.rows

    assert [row["physical_offset"] for row in on("ls")[:-1]] == offsets
    for dry, status in ((("--dry-run",), "DRY_RUN"), ((), "PUT_OK")):
        *rows, summary = on("commit", *offsets, *dry, code=1)
        assert [row["status"] for row in rows] == [status, "MESSAGE_ILLEGAL"]
        assert "'a/b'" in rows[1]["reason"] and summary["not_tried"] == 1
    assert on("rollback", offsets[1])[0]["status"] == "PUT_OK"
    assert on("commit", offsets[2])[0]["status"] == "PUT_OK"
    assert [body for _, body in records(root, "orders")] == [b"body 0", b"body 2"]
    assert len(records(root, OP)) == 3


@pytest.mark.parametrize("topics", [("orders", "t" * 128), ("t" * 128, "orders")])
def test_a_dry_run_tells_what_the_run_does(
    topics: tuple[str, str], cli: Cli, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    offsets = put(root, *(half(number, REAL_TOPIC=topic) for number, topic in enumerate(topics)))
    before = state(root)
    planned = run(cli, root, "commit", *offsets, "--dry-run", code=1)
    assert state(root) == before
    done = run(cli, root, "commit", *offsets, code=1)
    told, found = (
        [(row["physical_offset"], row.get("reason")) for row in rows[:-1]]
        for rows in (planned, done)
    )
    assert told == found and planned[-1] == done[-1]


def test_a_damaged_body_is_not_committed(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    (offset,) = put(root, half(0))
    ((record, _),) = records(root, HALF)
    with next((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(record.body_position)
        file.write(b"\xff")
    done = cli("transaction", "commit", offset, "--dry-run", "--format", "ndjson", store=root)
    assert done.code == 1 and done.rows[0]["status"] == "BODY_DAMAGED"


def test_the_brokers_check(cli: Cli, tmp_path: Path) -> None:
    """Its progress ends what it has put back, its copies are pending; an immune copy is ended with
    the first one."""
    root = tmp_path / "store"
    old = {"TRANSACTION_CHECK_TIMES": "15"}
    immune = {"TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "2"}
    offsets = put(
        root,
        half(0),
        half(1),
        half(2),
        half(0, TRANSACTION_CHECK_TIMES="1"),
        half(2, **immune),
        half(5, **old),
        half(6, CHECK_IMMUNITY_TIME_IN_SECONDS="3600"),
        MessageExtBrokerInner(OP, b"2", properties={"TAGS": "d"}),
    )
    rows = run(cli, root, "ls", "--all")
    assert [row["state"] for row in rows[:-1]] == [
        "checked", "pending", "ended", "pending", "ended", "pending", "pending"
    ]  # fmt: skip
    does = {row["physical_offset"]: row["broker_does"] for row in rows[:-1]}
    assert (does[offsets[5]], does[offsets[6]]) == ("discard", "wait")
    assert run(cli, root, "commit", offsets[0], code=1)[0]["status"] == "NOT_PENDING"
    (root / "config").mkdir()
    table = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 3}, f"{OP}@CID_RMQ_SYS_TRANS": {"0": 1}}
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    listed = [row["physical_offset"] for row in run(cli, root, "ls")[:-1]]
    assert offsets[1] not in listed and offsets[3] in listed
    assert run(cli, root, "commit", offsets[1], code=1)[0]["status"] == "NOT_PENDING"


def test_what_the_brokers_check_has_passed(cli: Cli, tmp_path: Path) -> None:
    """A half before its progress is none that waits, also one that it has discarded; an op message
    before its progress ends nothing any more. Halves without a unique key are no copies of each
    other."""
    root = tmp_path / "store"
    unnamed = {"UNIQ_KEY": "", "TRANSACTION_CHECK_TIMES": "1"}
    op = MessageExtBrokerInner(OP, b"1", properties={"TAGS": "d"})
    put(root, half(0), half(1), half(2, **unnamed), half(3, **unnamed), op)
    (root / "config").mkdir()
    table = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 1}, f"{OP}@CID_RMQ_SYS_TRANS": {"0": 1}}
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    states = [row["state"] for row in run(cli, root, "ls", "--all")[:-1]]
    assert states == ["checked", "ended", "pending", "pending"]
    assert [row["queue_offset"] for row in run(cli, root, "ls")[:-1]] == [1, 2, 3]


def test_only_a_group_that_has_none_is_nothing_matched(cli: Cli, tmp_path: Path) -> None:
    """As in every list: an empty one is sound, a filter that matched nothing is exit status 1."""
    root = tmp_path / "store"
    (offset,) = put(root, half(0))
    run(cli, root, "ls", "--producer-group", "pg")
    run(cli, root, "ls", "--producer-group", "absent", code=1)
    run(cli, root, "rollback", offset)
    run(cli, root, "ls")
    run(cli, root, "ls", "--producer-group", "pg", code=1)
    run(cli, root, "ls", "--producer-group", "pg", "--all")


def test_statistics_are_told_on_stderr(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    offsets = put(root, half(0), half(1))
    dry = cli("transaction", "commit", *offsets, "--dry-run", "--stats", store=root)
    assert (dry.code, dry.err) == (0, "")
    done = cli("transaction", "commit", *offsets, "--stats", "--format", "ndjson", store=root)
    assert done.code == 0 and done.rows[-1]["done"] == 2
    assert "stats: topic orders: 2 messages" in done.err
    assert f"stats: topic {OP}: 2 messages" in done.err and "flushes of the log" in done.err


def test_a_broken_consumer_offset_file_is_named(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, half(0))
    (root / "config").mkdir()
    (root / "config/consumerOffset.json").write_text("{")
    done = cli("transaction", "ls", store=root)
    assert done.code == 5 and "consumerOffset.json" in done.err and "config check" in done.err


def test_a_store_in_use_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    (offset,) = put(root, half(0))
    with MessageStore(root, CONFIG, writable=True):
        before = state(root)
        for line in (("transaction", "commit", offset), ("schedule", "deliver")):
            done = cli(*line, store=root)
            assert done.code == 4 and "in use" in done.err
        assert cli("transaction", "ls", store=root).code == 0
        assert state(root) == before


def test_an_offset_that_is_given_twice_is_ended_once(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "store"
    first, second = put(root, half(0), half(1))
    rows = run(cli, root, "commit", first, second, first)
    assert [row["physical_offset"] for row in rows[:-1]] == [first, second]
    assert (rows[-1]["done"], rows[-1]["refused"], rows[-1]["not_tried"]) == (2, 0, 0)
    assert len(records(root, "orders")) == 2 and len(records(root, OP)) == 2


def test_a_final_before_later_halves_is_found(cli: Cli, tmp_path: Path) -> None:
    """A commit that a kill cut off, and transactions that began since: nothing is put twice."""
    root = tmp_path / "store"
    (first,) = put(root, half(0))
    with MessageStore(root, CONFIG, writable=True) as store:
        record = store.look_message_by_offset(first)
        assert store.put_message(transaction.commit_message(record, store.body(record))).is_ok
    (second,) = put(root, half(2))
    *rows, summary = run(cli, root, "commit", first, second)
    assert summary["done"] == 2 and rows[0]["final_offset"] < second < rows[1]["final_offset"]
    assert [body for _, body in records(root, "orders")] == [b"body 0", b"body 2"]


@pytest.mark.parametrize("is_dispatched", [True, False])
def test_a_message_that_only_looks_like_the_final_one_is_none(
    is_dispatched: bool, cli: Cli, tmp_path: Path
) -> None:
    """The first half of a log lies at offset 0, which is what each message that is of no
    transaction has as its half's."""
    root = tmp_path / "store"
    (first,) = put(root, half(0))
    ((record, body),) = records(root, HALF)
    final = transaction.commit_message(record, body)
    (like,) = put(root, replace(final, sys_flag=0))
    ((alike, _),) = records(root, "orders")
    assert (first, alike.prepared_transaction_offset, alike.transaction_type) == (0, 0, 0)
    if not is_dispatched:
        shutil.rmtree(root / "consumequeue" / "orders")
        shutil.rmtree(root / "index")
    (row, _) = run(cli, root, "ls")
    assert row["final_offset"] is None
    done, _ = run(cli, root, "commit", first)
    assert (done["status"], len(records(root, "orders"))) == ("PUT_OK", 2)
    assert done["final_offset"] > like


def test_a_commit_that_was_cut_off_is_known_of_a_half_that_was_put_back(
    cli: Cli, tmp_path: Path
) -> None:
    """The check of a broker that started since knows nothing of the final message: it puts the half
    back (``renewHalfMessageInner``), and its progress passes the one that the final one names."""
    root = tmp_path / "store"
    first, other = put(root, half(0, KEYS="k"), half(2))
    with MessageStore(root, CONFIG, writable=True) as store:
        before = store.look_message_by_offset(first)
        final = store.put_message(transaction.commit_message(before, store.body(before)))
    assert final.append is not None
    again = half(0, KEYS="k", TRANSACTION_CHECK_TIMES="1")
    unlike = half(4, UNIQ_KEY="k", TRANSACTION_CHECK_TIMES="1")
    later, last = put(root, replace(again, born_timestamp=before.born_timestamp), unlike)
    (root / "config").mkdir()
    table = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 1}}
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    where = final.append.wrote_offset
    found = {r["physical_offset"]: r["final_offset"] for r in run(cli, root, "ls")[:-1]}
    assert found == {other: None, later: where, last: None}
    refused, _ = run(cli, root, "rollback", later, code=1)
    assert refused["status"] == "COMMITTED" and f"at {where}," in refused["reason"]
    done, _ = run(cli, root, "commit", later)
    assert (done["status"], done["final_offset"]) == ("PUT_OK", where)
    with MessageStore(root, CONFIG) as store:
        kinds = [r.transaction_type for r in store.commit_log.walk() if isinstance(r, Record)]
    assert kinds.count(8) == 1 and len(records(root, OP)) == 1
    assert_clean(root, CONFIG)


def test_a_half_with_a_damaged_body_can_be_rolled_back(cli: Cli, tmp_path: Path) -> None:
    """A rollback hands its body to nobody."""
    root = tmp_path / "store"
    (offset,) = put(root, half(0))
    ((record, _),) = records(root, HALF)
    with next((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(record.body_position)
        file.write(b"\xff")
    assert run(cli, root, "rollback", offset)[-1]["done"] == 1
    assert not records(root, "orders") and len(records(root, OP)) == 1


@pytest.mark.parametrize(
    ("age", "does"),
    [
        (-1, "ask"),
        (0, "wait"),
        (59_999, "wait"),
        (60_000, "ask"),
        (72 * 3_600_000, "ask"),
        (72 * 3_600_000 + 1, "discard"),
    ],
)
def test_a_half_waits_for_just_its_time(tmp_path: Path, age: int, does: str) -> None:
    """``TransactionalMessageServiceImpl#check``: asked when its age is no longer below the time
    out; a negative one, of a clock set back, is not taken for young. Discarded when it is older
    than ``fileReservedTime`` (``needSkip``)."""
    root = tmp_path / "store"
    put(root, half(0, CHECK_IMMUNITY_TIME_IN_SECONDS="60"))
    ((record, _),) = records(root, HALF)
    with MessageStore(root, CONFIG) as store:
        rows: list[Row] = list(half_messages(store, record.born_timestamp + age))
    row, summary = rows
    assert (row["age_milliseconds"], row["broker_does"], summary["pending"]) == (age, does, 1)
