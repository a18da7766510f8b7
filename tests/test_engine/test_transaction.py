"""Half messages: what the engine wrote to end them is what these rules write."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, encode
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import transaction
from tests import golden_data
from tests.conftest import Golden

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT = 8


def records(store: MessageStore) -> list[Record]:
    return [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]


def made(message: MessageExtBrokerInner, like: Record) -> bytes:
    """The record of a message at the place and time of another one."""
    encoded = encode(message, 4 << 20)
    assert isinstance(encoded, EncodedMessage)
    return encoded.record(like.queue_offset, like.physical_offset, like.store_timestamp)


def stored_bytes(store: MessageStore, record: Record) -> bytes:
    mapped, position = store.commit_log.locate(record.physical_offset)
    return mapped.read(position, record.total_size)


def test_what_a_broker_committed_is_written_byte_for_byte(golden: Golden) -> None:
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        finals = [r for r in records(store) if r.sys_flag & 12 == COMMIT]
        assert len(finals) == 33
        for final in finals:
            half = store.look_message_by_offset(final.prepared_transaction_offset)
            assert transaction.half_problem(half) is None
            assert transaction.commit_problem(half) is None
            message = transaction.commit_message(half, store.body(half))
            assert (message.topic, message.queue_id) == (final.topic, final.queue_id)
            assert made(message, final) == stored_bytes(store, final)


def test_what_a_broker_noted_as_ended_is_written_byte_for_byte(golden: Golden) -> None:
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        halves = {r.queue_offset: r for r in records(store) if r.topic == HALF}
        ops = [r for r in records(store) if r.topic == OP]
        assert len(ops) == 50
        for op in ops:
            half = halves[int(store.body(op))]
            message = transaction.op_message(half, op.born_timestamp)
            assert made(message, op) == stored_bytes(store, op)


@pytest.mark.parametrize(("name", "count"), [("broker", 50), ("transaction", 60)])
def test_ended_halves_are_what_the_op_messages_name(name: str, count: int, golden: Golden) -> None:
    with MessageStore(golden(name), golden_data.broker_conf(name)) as store:
        ended = transaction.ended_halves(store, 0, 0)
        assert len(ended) == count
        for half, op in ended.items():
            assert store.body(store.look_message_by_offset(op)) == b"%d" % half
        assert transaction.half_queue_ids(store) == [0]


def test_the_progress_of_the_check(golden: Golden) -> None:
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        assert transaction.check_progress(store, 0) == (66, 50)
    with MessageStore(golden("transaction"), golden_data.broker_conf("transaction")) as store:
        assert transaction.check_progress(store, 0) == (0, 0)


def test_op_messages_of_any_kind_are_read(tmp_path: Path) -> None:
    """Garbage ends nothing, as in the engine; a list is what brokers of 5.x write."""
    bodies = [b"0", b"x", b"", b"1,2,", b"9" * 30, b"\xff\xfe", b" 5", b"-1", b"7" * 2_000_000]
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        for body in bodies:
            assert store.put_message(
                MessageExtBrokerInner(OP, body, properties={"TAGS": "d"})
            ).is_ok
        assert store.put_message(MessageExtBrokerInner(OP, b"8", properties={"TAGS": "x"})).is_ok
        assert set(transaction.ended_halves(store, 0, 0)) == {0, 1, 2, -1}
        assert set(transaction.ended_halves(store, 0, 1)) == {1, 2, -1}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, 6000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, 60_000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, 6000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, 6000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": str(1 << 63)}, 6000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": str((1 << 63) - 1)}, -1000),
    ],
)
def test_time_out(properties: dict[str, str], expected: int) -> None:
    assert transaction.time_out_of(properties, 6000) == expected


def test_a_commit_keeps_every_flag_but_the_transactions_kind(golden: Golden) -> None:
    """``MessageSysFlag#resetTransactionValue``: a half that is stored as prepared (none of a broker
    is, and ``endMessageTransaction`` does not rely on it) becomes a commit, not 8 and 4 together,
    which is a rollback and has no unit."""
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        half = next(r for r in records(store) if r.topic == HALF)
        for flags in (0, 1, 4, 12, 0x31, 0x35):
            stored = half._replace(sys_flag=flags)
            message = transaction.commit_message(stored, b"")
            assert message.sys_flag == flags & ~12 | COMMIT


def test_an_op_message_goes_to_the_queue_of_its_half(golden: Golden) -> None:
    """``makeOpMessageInner``: the op queue of the same number; 5.x may have more than one."""
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        half = next(r for r in records(store) if r.topic == HALF)
        assert transaction.op_message(half._replace(queue_id=3), 1).queue_id == 3


@pytest.mark.parametrize(
    ("text", "times"),
    [
        *((None, 0), ("0", 0), ("15", 15), ("-2", -2), ("x", -1), ("", -1), (" 1", -1)),
        *(("1" * 11, -1), ("3000000000", -1), ("00000000003", 3)),
    ],
)
def test_how_often_a_half_was_asked_about(text: str | None, times: int) -> None:
    """``needDiscard``: ``getInt`` gives -1 for what is no number."""
    properties = {} if text is None else {"TRANSACTION_CHECK_TIMES": text}
    assert transaction.check_times(properties) == times


def test_an_op_body_that_no_broker_writes_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of a megabyte would be split into as many numbers: what is longer ends nothing."""
    monkeypatch.setattr(transaction, "_LARGEST_OP_BODY", 8)
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        for body in (b"1,2,3,45", b"6,7,8,901"):
            op = MessageExtBrokerInner(OP, body, properties={"TAGS": "d"})
            assert store.put_message(op).is_ok
        assert set(transaction.ended_halves(store, 0, 0)) == {1, 2, 3, 45}


def test_a_unit_of_another_size_gives_no_record(tmp_path: Path) -> None:
    """What stands there is not the message that was put into the queue."""
    root = tmp_path / "store"
    with MessageStore(root, writable=True, create=True) as store:
        for number in range(3):
            assert store.put_message(MessageExtBrokerInner(OP, b"%d" % number)).is_ok
    (queue,) = (root / "consumequeue" / OP / "0").iterdir()
    with queue.open("r+b") as file:
        file.seek(20 + 8)
        file.write((1).to_bytes(4, "big"))
    with MessageStore(root) as store:
        assert [at for at, _ in transaction.records_of(store, OP, 0, 0)] == [0, 2]
        assert [at for at, _ in transaction.records_of(store, OP, 0, 2)] == [2]
        assert [at for at, _ in transaction.records_of(store, OP, 0, -5)] == [0, 2]
