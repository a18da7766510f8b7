"""Messages that are sent: what is checked, what is stored, and what is answered."""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.remotingcodes import CommandFlag, RequestCode, ResponseCode
from formats.text import hash_map_order
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.services import schedule
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state import brokerjson
from rmqctl.engine.write import storeflusher
from rmqctl.errors import CannotRead, CannotWrite
from rmqctl.operations.verify.findings import Finding
from rmqctl.operations.verify.run import verify
from rmqctl.serve import connection
from rmqctl.serve.broker import Append, Event
from rmqctl.serve.connection import MAX_JOBS
from rmqctl.serve.events import Upkeep
from rmqctl.serve.processors import delivery
from rmqctl.serve.processors import put as puts
from rmqctl.serve.processors.checks import Checks
from rmqctl.serve.processors.delivery import Delivery
from rmqctl.serve.processors.request import Served
from rmqctl.serve.processors.table import WRITERS
from rmqctl.serve.state.accounts import Account, Accounts, Addresses, Perm
from rmqctl.serve.state.owntopics import BrokerSwitches
from rmqctl.serve.wire.frames import encode_frame
from tests.forcing import fail_fdatasync, patch_fdatasync
from tests.seeds import times
from tests.test_serve.dialogue import Client, Dialogue, json_of

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 17,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=50,
    max_index_num=500,
    max_message_size=1 << 15,
)
NOW = 1_800_000_000_000
TOPIC = {
    "topicName": "orders", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    MessageStore(root, CONFIG, writable=True, create=True).close()
    (root / "config").mkdir()
    table = {"topicConfigTable": {"orders": TOPIC}, "more": 7}
    (root / "config/topics.json").write_text(json.dumps(table))
    return root


@pytest.fixture
def dialogue(root: Path) -> Iterator[Dialogue]:
    with WritableStore(root, CONFIG, clock=lambda: NOW) as store:
        yield Dialogue(Served.of(store, broker_name="b", cluster_name="c"))
    assert [found for found in verify(root, CONFIG) if isinstance(found, Finding)] == []
    assert not (root / "abort").exists()


V1: dict[str, Any] = {
    "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
    "queueId": 1, "sysFlag": 0, "bornTimestamp": NOW - 5, "flag": 3,
    "properties": "TAGS\1a\2WAIT\1true\2KEYS\1k", "reconsumeTimes": 0, "unitMode": False,
    "batch": False,
}  # fmt: skip
SHORT = dict(zip(V1, "abcdefghijk", strict=False)) | {"batch": "m"}


def send(client: Client, body: bytes = b"hello", **changed: Any) -> Any:
    fields = {SHORT[name]: value for name, value in (V1 | changed).items() if name in SHORT}
    fields |= {"l": changed["maxReconsumeTimes"]} if "maxReconsumeTimes" in changed else {}
    return client.ask(RequestCode.SEND_MESSAGE_V2, body, **fields)


@pytest.mark.parametrize("how", ["missing", "malformed"])
def test_what_a_message_can_do_without(dialogue: Dialogue, how: str) -> None:
    """With long names a broker looks only at what it needs; with short ones it reads all fields
    first (``decodeSendMessageHeaderV2``)."""
    client = dialogue.client()
    numbers = {"defaultTopicQueueNums", "reconsumeTimes", "maxReconsumeTimes"}
    may = numbers if how == "malformed" else {"producerGroup", "defaultTopic", *numbers}
    whole = V1 | {"maxReconsumeTimes": 3}
    short = SHORT | {"maxReconsumeTimes": "l"}
    for name in may:
        changed = {n: v for n, v in whole.items() if n != name}
        changed |= {name: "x"} if how == "malformed" else {}
        assert client.ask(RequestCode.SEND_MESSAGE, b"x", **changed).code == 0, name
        strict = {short[n]: v for n, v in changed.items()}
        code = client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **strict).code
        assert code == (how == "malformed" or "econsumeTimes" not in name), name
    for name in ("topic", "queueId", "sysFlag", "bornTimestamp", "flag"):
        changed = {n: v for n, v in whole.items() if n != name}
        changed |= {name: "x y"} if how == "malformed" else {}
        assert client.ask(RequestCode.SEND_MESSAGE, b"x", **changed).code == 1, name
    for name in ("defaultTopic", "defaultTopicQueueNums"):
        changed = {n: v for n, v in whole.items() if n != name} | {"topic": "new"}
        answer = client.ask(RequestCode.SEND_MESSAGE, b"x", **changed)
        assert answer.code == 1 and "is missing" in (answer.remark or "")
    assert {record.reconsume_times for record in stored(dialogue)} == {0}


def stored(dialogue: Dialogue) -> list[Record]:
    return [e for e in dialogue.served.store.commit_log.walk() if isinstance(e, Record)]


def test_the_map_of_a_message_keeps_the_room_it_had_for_wait(dialogue: Dialogue) -> None:
    """A table of 16 grows at the thirteenth name. As 4.9.3 stores what its client sends."""
    names = [f"key-{number}" for number in range(0, 407, 37)]
    text = "\2".join(f"{name}\1v" for name in names)
    for properties in (text, f"{text}\2WAIT\1true"):
        assert send(dialogue.client(), properties=properties).code == 0
    few, grown = (
        [pair.split("\1")[0] for pair in record.properties_bytes.decode().split("\2")]
        for record in stored(dialogue)
    )
    assert few == hash_map_order([*names, "CLUSTER"])
    assert grown == [one for one in hash_map_order([*names, "WAIT", "CLUSTER"]) if one != "WAIT"]
    assert few != grown and set(few) == set(grown)


def test_a_message_is_stored_as_a_broker_stores_it(dialogue: Dialogue) -> None:
    client = dialogue.client()
    answer = send(client)
    assert (answer.code, answer.remark) == (0, None)
    (record,) = stored(dialogue)
    assert answer.ext_fields == {
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": record.msg_id, "queueId": "1",
        "queueOffset": "0",
    }  # fmt: skip
    # WAIT is not stored, CLUSTER is, in the order of Java's map.
    assert record.properties == {"TAGS": "a", "KEYS": "k", "CLUSTER": "c"}
    assert (record.topic, record.queue_id, record.flag) == ("orders", 1, 3)
    assert (record.born_host, record.store_host) == ("10.0.0.9:40000", "10.0.0.7:10911")
    assert (record.born_timestamp, record.store_timestamp) == (NOW - 5, NOW)
    assert dialogue.served.store.body(record) == b"hello"


def test_a_message_is_stored_whatever_its_properties_are_encoded_in(dialogue: Dialogue) -> None:
    """A header that is no UTF-8 costs nobody the connection, nor a heartbeat its groups."""
    client = dialogue.client()
    fields = {SHORT[name]: str(value) for name, value in V1.items() if name in SHORT}
    header = json.dumps({"code": 310, "opaque": 1, "extFields": fields}).encode()
    for opaque, value in ((1, "中文".encode("gbk")), (2, rb"\ud800")):
        given = header.replace(b'"opaque": 1', b'"opaque": %d' % opaque)
        given = given.replace(rb"KEYS\u0001k", rb"KEYS\u0001" + value)
        client.send_bytes(struct.pack(">iI", 4 + len(given) + 2, len(given)) + given + b"xx")
        assert client.answers[opaque].code == 0
    keys = [record.properties["KEYS"] for record in stored(dialogue)]
    assert keys == ["中文".encode("gbk").decode("utf-8", "replace"), "?"]
    body = b'{"clientID":"\xd6\xd0","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[]}'
    assert client.ask(RequestCode.HEART_BEAT, body).code == 0


def test_the_long_header_says_the_same(dialogue: Dialogue) -> None:
    client = dialogue.client()
    assert send(client).code == 0
    answer = client.ask(RequestCode.SEND_MESSAGE, b"hello", **V1)
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "1")
    one, other = stored(dialogue)
    assert one.properties_bytes == other.properties_bytes


def test_who_waits_for_a_message_gets_it(dialogue: Dialogue) -> None:
    consumer, producer = dialogue.client(), dialogue.client()
    assert consumer.pull("orders", 1, 0, sysFlag=6) is None
    assert send(producer).code == 0
    (answer,) = consumer.answers.values()
    assert answer.remark == "FOUND" and b"hello" in answer.body


def batch_of(*messages: tuple[bytes, bytes]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 0, 0, 0, 7, len(body)) + body + struct.pack(">h", len(own)) + own
        for body, own in messages
    )


def test_a_batch_is_stored_as_one(dialogue: Dialogue) -> None:
    client = dialogue.client()
    own = (b"one", b"TAGS\1x"), (b"two", b""), (b"three", b"TAGS\1y\2")
    answer = send(client, batch_of(*own), batch=True, properties="WAIT\1true")
    assert answer.code == 0
    records = stored(dialogue)
    assert answer.ext_fields["msgId"] == ",".join(record.msg_id for record in records)
    shared = records[1].properties_bytes
    assert set(shared.split(b"\2")) == {b"WAIT\1true", b"CLUSTER\1c"}
    own_first = [b"TAGS\1x\2" + shared, shared, b"TAGS\1y\2" + shared]
    assert [record.properties_bytes for record in records] == own_first
    assert [record.queue_offset for record in records] == [0, 1, 2]
    assert {record.flag for record in records} == {7}


@pytest.mark.parametrize(
    ("body", "more", "code"),
    [
        (b"", {}, ResponseCode.SYSTEM_ERROR),
        (b"\0" * 19, {}, ResponseCode.SYSTEM_ERROR),
        (batch_of((b"x", b""))[:-1], {}, ResponseCode.SYSTEM_ERROR),
        (struct.pack(">iiiii", 0, 0, 0, 0, 2**31 - 1), {}, ResponseCode.SYSTEM_ERROR),
        (struct.pack(">iiiii", 0, 0, 0, 0, -1), {}, ResponseCode.SYSTEM_ERROR),
        (struct.pack(">iiiiih", 0, 0, 0, 0, 0, -1), {}, ResponseCode.SYSTEM_ERROR),
        (batch_of((b"x" * 40_000, b"")), {}, ResponseCode.MESSAGE_ILLEGAL),
        # No more of it is looked at than has room.
        (batch_of(*[(b"", b"")] * 400) + b"cut", {}, ResponseCode.SYSTEM_ERROR),
        (batch_of((b"x", b"")), {"properties": "DELAY\x013"}, ResponseCode.MESSAGE_ILLEGAL),
        (batch_of((b"x", b"")), {"properties": "DELAY\x01x"}, ResponseCode.SYSTEM_ERROR),
        (batch_of((b"x", b"")), {"sysFlag": 4}, ResponseCode.MESSAGE_ILLEGAL),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_batches_that_are_none(
    dialogue: Dialogue, body: bytes, more: dict[str, Any], code: int
) -> None:
    answer = send(dialogue.client(), body, batch=True, **more)
    assert answer.code == code and answer.remark
    assert stored(dialogue) == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"topic": ""}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "../x"}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "t" * 128}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "new", "defaultTopic": "orders"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "new", "defaultTopic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 2}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"bornTimestamp": 2**63}, ResponseCode.SYSTEM_ERROR),
        ({"properties": "a\1" + "x" * 40_000}, ResponseCode.MESSAGE_ILLEGAL),
        ({"properties": "DELAY\1x"}, ResponseCode.SYSTEM_ERROR),
        ({"properties": "DELAY\1x\2TRAN_MSG\1true"}, ResponseCode.SYSTEM_ERROR),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_messages_that_a_check_ends(dialogue: Dialogue, more: dict[str, Any], code: int) -> None:
    answer = send(dialogue.client(), **more)
    assert answer.code == code and answer.remark
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert stored(dialogue) == [] and dialogue.files == []


def test_no_queue_to_write_to_is_no_queue_of_the_brokers_choice(root: Path) -> None:
    """``x % 0``, for a batch and for a reply, too. A queue that is named is taken
    (``msgCheck``)."""
    table = {"orders": TOPIC | {"writeQueueNums": 0}}
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    with WritableStore(root, CONFIG, clock=lambda: NOW) as store:
        dialogue = Dialogue(Served.of(store, broker_name="b", cluster_name="c"))
        client, producer = dialogue.client(), dialogue.client()
        producer.heart_beat("p", "orders", client_id="p1")
        producer.asked.clear()
        answers = [
            send(client, queueId=-1),
            send(client, batch_of((b"x", b"")), queueId=-1, batch=True),
            client.answers.pop(
                reply(client, topic="orders", queueId=-1, properties="REPLY_TO_CLIENT\1p1\2")
            ),
        ]
        for answer in answers:
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark.startswith("java.lang.ArithmeticException: / by zero")
        assert stored(dialogue) == [] and producer.asked == []
        assert send(client, queueId=1).code == 0
        assert [record.queue_id for record in stored(dialogue)] == [1]


def test_a_message_too_long_is_illegal(dialogue: Dialogue) -> None:
    assert send(dialogue.client(), b"x" * (1 << 15)).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_new_topic_is_in_its_file_before_its_message(dialogue: Dialogue, root: Path) -> None:
    client = dialogue.client()
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102").code == 0
    assert send(client, topic="new", queueId=-1).code == 0
    assert dialogue.files == ["topics.json"]
    value = json.loads((root / "config/topics.json").read_text())
    made = TOPIC | {"topicName": "new", "readQueueNums": 4, "writeQueueNums": 4}
    assert value["topicConfigTable"] == {"orders": TOPIC, "new": made}
    assert value["dataVersion"] == {"counter": 1, "timestamp": NOW}
    assert value["more"] == 7
    assert send(client, topic="new").code == 0
    assert dialogue.files == ["topics.json"]


def test_what_a_message_has_kept_of_a_delay_is_not_its_topic(
    delaying: tuple[Dialogue, Clock],
) -> None:
    """Without an entry in ``topics.json`` a broker would delete the queues of a topic."""
    dialogue, clock = delaying
    client = dialogue.client()
    send(client, properties="DELAY\1" + "1\2")
    clock.now += 1000
    dialogue.wait(1000)
    record = stored(dialogue)[-1]
    assert record.topic == record.properties["REAL_TOPIC"] == "orders"
    fields = {"group": "g", "offset": record.physical_offset, "delayLevel": 0}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields).code == 0
    assert send(client, topic="new", properties="REAL_TOPIC\1orders\2").code == 0
    text = (dialogue.served.store.root / "config" / "topics.json").read_text()
    assert {"%RETRY%g", "new"} <= json.loads(text)["topicConfigTable"].keys()


def test_topics_are_made_where_that_is_wanted_only(root: Path) -> None:
    with WritableStore(root, CONFIG) as store:
        client = Dialogue(Served.of(store, switches=BrokerSwitches(auto_creates=False))).client()
        assert send(client, topic="new").code == ResponseCode.TOPIC_NOT_EXIST
        assert send(client).code == 0


# --- consumed again, and dead letters --------------------------------------------------------


def test_a_message_that_is_sent_back_comes_again_later(dialogue: Dialogue) -> None:
    client = dialogue.client()
    send(client)
    client.heart_beat("g", "orders")
    (record,) = stored(dialogue)
    fields = {"group": "g", "offset": record.physical_offset, "delayLevel": 0}
    answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)
    assert (answer.code, answer.remark) == (0, None)
    again = stored(dialogue)[1]
    assert (again.topic, again.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert again.reconsume_times == 1
    assert again.born_host == record.born_host and again.store_host == record.store_host
    assert again.properties == record.properties | {
        "RETRY_TOPIC": "orders", "WAIT": "false", "DELAY": "3", "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0", "ORIGIN_MESSAGE_ID": record.msg_id,
    }  # fmt: skip
    assert dialogue.files == ["topics.json"]
    dead = fields | {"delayLevel": -1}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **dead).code == 0
    letter = stored(dialogue)[2]
    assert (letter.topic, letter.queue_id) == ("%DLQ%g", 0)
    often = fields | {"maxReconsumeTimes": 0}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **often).code == 0
    assert stored(dialogue)[3].topic == "%DLQ%g"
    nothing = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields | {"offset": 1})
    assert nothing.remark == "look message by offset failed, 1"


@pytest.mark.parametrize(
    ("group", "remark"),
    [
        ("my.group", None),
        ("组", None),
        ("g" * 121, "MESSAGE_ILLEGAL"),
        ("组" * 255, "MESSAGE_ILLEGAL"),
    ],
)
def test_a_group_of_any_name_sends_back_what_a_topic_can_be_made_for(
    dialogue: Dialogue, group: str, remark: str | None
) -> None:
    client = dialogue.client()
    send(client)
    client.heart_beat(group, "orders")
    fields = {"group": group, "offset": stored(dialogue)[0].physical_offset, "delayLevel": 0}
    answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)
    assert (answer.code, answer.remark) == (1 if remark else 0, remark)
    assert len(stored(dialogue)) == (1 if remark else 2) and dialogue.troubles == []


def test_nothing_is_sent_back_where_the_retry_topic_takes_nothing(root: Path) -> None:
    """Before the record is looked for, also for what would be a dead letter; of that the own topic
    is not asked (``asyncConsumerSendMsgBack``)."""
    names = {"%RETRY%shut": 4, "%DLQ%open": 4}
    table = {n: TOPIC | {"topicName": n, "perm": perm} for n, perm in names.items()}
    table["orders"] = TOPIC
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    with WritableStore(root, CONFIG, clock=lambda: NOW) as store:
        dialogue = Dialogue(Served.of(store, broker_name="b", cluster_name="c"))
        client = dialogue.client()
        send(client)
        offset = stored(dialogue)[0].physical_offset
        for more in ({"offset": offset}, {"offset": 7}, {"offset": offset, "delayLevel": -1}):
            fields = {"group": "shut", "delayLevel": 0} | more
            answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark == "the topic[%RETRY%shut] sending message is forbidden"
        assert len(stored(dialogue)) == 1
        dead = {"group": "open", "offset": offset, "delayLevel": -1}
        assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **dead).code == 0
        assert stored(dialogue)[1].topic == "%DLQ%open"


def test_who_sends_back_for_longer_than_any_level_waits_for_the_longest(
    dialogue: Dialogue,
) -> None:
    client = dialogue.client()
    send(client)
    client.heart_beat("g", "orders")
    fields = {"group": "g", "offset": stored(dialogue)[0].physical_offset, "delayLevel": 10**9}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields).code == 0
    again = stored(dialogue)[1]
    assert (again.topic, again.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)


def test_in_a_batch_nobody_looks_at_the_levels_of_its_messages(dialogue: Dialogue) -> None:
    """``CommitLog#asyncPutMessages`` looks at the batch's own."""
    answer = send(dialogue.client(), batch_of((b"x", b"DELAY\x013"), (b"y", b"")), batch=True)
    assert answer.code == 0
    assert [(one.topic, one.properties.get("DELAY")) for one in stored(dialogue)] == [
        ("orders", "3"),
        ("orders", None),
    ]


def test_what_a_consumer_sends_to_its_retry_topic_is_counted(dialogue: Dialogue) -> None:
    client = dialogue.client()
    retry: dict[str, Any] = {"topic": "%RETRY%g", "queueId": 0, "properties": ""}
    assert send(client, **retry, reconsumeTimes=1).code == 0
    assert send(client, **retry, reconsumeTimes=16).code == 0
    assert send(client, **retry, reconsumeTimes=2, maxReconsumeTimes=2).code == 0
    assert [record.topic for record in stored(dialogue)] == ["%RETRY%g", "%DLQ%g", "%DLQ%g"]


# --- transactions ----------------------------------------------------------------------------

HALF: dict[str, Any] = {"properties": "TRAN_MSG\1true\2PGROUP\1p\2UNIQ_KEY\1u", "sysFlag": 4}


def end(client: Client, answer: Any, half: Record, kind: int, **changed: Any) -> None:
    fields = {
        "producerGroup": "p",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": half.physical_offset,
        "commitOrRollback": kind,
        "fromTransactionCheck": False,
        "msgId": "u",
    }
    client.send(RequestCode.END_TRANSACTION, b"", CommandFlag.ONEWAY, **fields | changed)
    assert client.answers == {}


def test_a_transaction_is_committed(dialogue: Dialogue) -> None:
    client = dialogue.client()
    answer = send(client, **HALF)
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "1")
    (half,) = stored(dialogue)
    assert (half.topic, half.queue_id, half.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    assert half.properties["REAL_TOPIC"] == "orders" and half.properties["REAL_QID"] == "1"
    end(client, answer, half, 8)
    _, final, op = stored(dialogue)
    assert (final.topic, final.queue_id, final.sys_flag) == ("orders", 1, 8)
    assert final.prepared_transaction_offset == half.physical_offset
    assert (op.topic, dialogue.served.store.body(op)) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"0")
    found = client.pull("orders", 1, 0)
    assert found is not None and found.remark == "FOUND"


def test_a_transaction_is_ended_by_who_may_send(dialogue: Dialogue) -> None:
    """Offsets can be guessed, and a rollback loses somebody's message."""
    client = dialogue.client()
    answer = send(client, **HALF)
    (half,) = stored(dialogue)
    for perm, count in ((Perm.SUB, 1), (Perm.PUB, 2)):
        one = Account("key", b"k", Addresses(""), False, perm, Perm.DENY, {})
        dialogue.served.accounts = Accounts([], {"key": one})
        fields: dict[str, Any] = {
            "producerGroup": "p",
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.physical_offset,
            "commitOrRollback": 12,
            "AccessKey": "key",
        }
        texts = {name: str(value) for name, value in fields.items()}
        client.send(RequestCode.END_TRANSACTION, **fields, Signature=one.signature(texts, b""))
        assert len(stored(dialogue)) == count
    assert answer.code == 0


def test_a_transaction_is_rolled_back_or_left(dialogue: Dialogue) -> None:
    client = dialogue.client()
    answer = send(client, **HALF)
    (half,) = stored(dialogue)
    end(client, answer, half, 0)
    for wrong in (
        {"producerGroup": "other"}, {"tranStateTableOffset": 7}, {"commitLogOffset": 3},
        {"commitOrRollback": 5},
    ):  # fmt: skip
        end(client, answer, half, 8, **wrong)
    assert stored(dialogue) == [half]
    end(client, answer, half, 12)
    assert [record.topic for record in stored(dialogue)[1:]] == ["RMQ_SYS_TRANS_OP_HALF_TOPIC"]


def test_a_producer_may_go_as_soon_as_it_has_said_so(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = dialogue.client()
    answer = send(client, **HALF)
    (half,) = stored(dialogue)
    begun: list[Event] = []
    with monkeypatch.context() as patch:
        patch.setattr(dialogue, "do", begun.extend)
        # More than are begun at once: the last one waits.
        for _ in range(MAX_JOBS):
            client.send(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
        end(client, answer, half, 8)
    begun += dialogue.broker.lost(client.number)
    dialogue.do(begun)
    topics = [record.topic for record in stored(dialogue)[1:]]
    assert topics == ["orders", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]


def test_who_waits_is_not_woken_for_good_by_what_is_in_no_queue(dialogue: Dialogue) -> None:
    """A prepared message, which no producer sends so, has a record and no unit."""
    client = dialogue.client()
    assert send(client, sysFlag=4).code == 0
    assert client.pull("orders", 1, 0, sysFlag=6) is None
    assert send(client).code == 0
    (answer,) = client.answers.values()
    assert answer.remark == "FOUND"


# --- what has gone wrong, and what is kept ---------------------------------------------------


def test_one_flush_serves_all_that_are_stored_together(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = dialogue.served.store
    assert isinstance(store, WritableStore)
    synced: list[Path] = []

    def counted(path: Path, force: Callable[[], None]) -> None:
        synced.append(path)
        force()

    assert send(dialogue.client()).code == 0
    patch_fdatasync(monkeypatch, counted)
    # With each flush that would be one more.
    monkeypatch.setattr(storeflusher, "write_checkpoint", lambda *_: pytest.fail("a checkpoint"))
    taken: list[puts.Put] = []
    monkeypatch.setattr(dialogue, "do", lambda events: taken.extend(e.put for e in events))
    client = dialogue.client()
    for number in range(6):
        body = batch_of((b"x", b"")) if number == 3 else b"x"
        fields = {SHORT[n]: v for n, v in (V1 | {"batch": number == 3}).items()}
        client.send(RequestCode.SEND_MESSAGE_V2, body, **fields)
    answers = puts.append_all(store, taken)
    assert [one.status.value for answer in answers for one in answer] == ["PUT_OK"] * 6  # type: ignore[union-attr]
    assert [r.queue_offset for r in stored(dialogue)] == list(range(7))
    assert [path.parent.name for path in synced] == ["commitlog"]
    assert store.commit_log.flushed_where == store.max_offset
    monkeypatch.undo()


def test_a_disk_that_fails_is_no_message_stored(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What clients are told has the system's words, and no path. It stays so when the disk does
    not fail any more: nobody knows what it has lost."""

    with monkeypatch.context() as patch:
        fail_fdatasync(patch, "commitlog")
        answers = [send(dialogue.client())]
    answers += [send(dialogue.client())]
    assert [(answer.code, answer.remark) for answer in answers] == [
        (1, f"the store cannot answer: {name}: Input/output error")
        for name in ("CannotWrite", "LogNotForced")
    ]
    assert all(str(dialogue.served.store.root) in text for text in dialogue.troubles)
    assert "open the store anew" in dialogue.troubles[1]
    dialogue.served.store.commit_log.lost = None  # type: ignore[attr-defined]


def test_offsets_are_written_now_and_then(dialogue: Dialogue, root: Path) -> None:
    client = dialogue.client()
    place = {"consumerGroup": "g", "topic": "orders", "queueId": 1}
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=3, **place)
    assert dialogue.files == []
    dialogue.wait(6000)
    assert dialogue.files == ["consumerOffset.json"]
    dialogue.wait(20_000)
    assert dialogue.files == ["consumerOffset.json"]
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=4, **place)
    dialogue.do(dialogue.broker.unsaved())
    assert Served.of(dialogue.served.store).offsets.find("orders", "g", 1) == 4
    assert list(dialogue.served.offsets.changed()) == []


def test_files_that_can_be_neither_written_nor_read_are_written_later(
    dialogue: Dialogue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the limit of open files. An error here would lose the answers of all who were served
    together with the file."""
    client = dialogue.client()
    place = {"consumerGroup": "g", "topic": "orders", "queueId": 1}
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=3, **place)
    dialogue.wait(6000)

    def refuse(path: Path, size: int) -> bytes:
        raise CannotRead(path=str(path), reason=os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(brokerjson, "read_start", refuse)
        for name in (brokerjson.TOPICS, brokerjson.CONSUMER_OFFSET):
            dialogue.broker.not_persisted(name)
    (root / "config/consumerOffset.json").unlink()
    dialogue.wait(6000)
    assert dialogue.files == ["consumerOffset.json"] * 2
    assert Served.of(dialogue.served.store).offsets.find("orders", "g", 1) == 3
    assert send(client).code == 0
    assert dialogue.files[2:] == ["topics.json"]


# --- any request -----------------------------------------------------------------------------

VALUES = st.one_of(
    st.integers(-(2**64), 2**64),
    st.integers(-2, 20),
    st.sampled_from(["orders", "%RETRY%g", "g", "", "TBW102", "true", "a\1b\2", "DELAY\x013"]),
    st.text(max_size=8),
)
SOUND = (
    V1
    | {SHORT[name]: value for name, value in V1.items()}
    | {"group": "g", "offset": 0, "delayLevel": 0, "commitOrRollback": 8, "commitLogOffset": 0}
    | {"tranStateTableOffset": 0, "fromTransactionCheck": False}
)


@pytest.fixture
def all_taken(root: Path) -> Iterator[Dialogue]:
    """As a broker does it, the server takes a body by the word of its sender that it is compressed
    (``SendMessageProcessor``): of these alone verify says something, as consumers lose them."""
    with WritableStore(root, CONFIG, clock=lambda: NOW) as store:
        yield Dialogue(Served.of(store, broker_name="b", cluster_name="c"))
    found = [one for one in verify(root, CONFIG) if isinstance(one, Finding)]
    assert {one.code for one in found} <= {"message-not-decodable"}
    with MessageStore(root, CONFIG) as written:
        records = [one for one in written.commit_log.walk() if isinstance(one, Record)]
        wrong = [
            one.physical_offset
            for one in records
            if one.sys_flag & 1 and not is_decompressed(written.body(one), one.sys_flag)
        ]
    assert [one.physical_offset for one in found] == wrong
    assert not (root / "abort").exists()


def is_decompressed(body: bytes, sys_flag: int) -> bool:
    """Whether a client can decompress a body; it leaves an empty one as it is."""
    stream = zlib.decompressobj()
    try:
        stream.decompress(body)
    except zlib.error:
        return not body
    # No flag of a kind means ZLIB (4.9.3); what is drawn is none of the others of 5.x.
    return not body or (stream.eof and sys_flag >> 8 & 7 in (0, 3))


@given(data=st.data())
@settings(
    max_examples=times(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_send_is_answered_and_leaves_a_sound_store(
    all_taken: Dialogue, data: st.DataObject
) -> None:
    """The fixture verifies the store at the end."""
    dialogue, client = all_taken, all_taken.client()
    code = data.draw(st.sampled_from(sorted(WRITERS)))
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(SOUND)), VALUES, max_size=4))
    bodies = st.sampled_from([batch_of((b"a", b""), (b"b", b"k\1v")), zlib.compress(b"whole")])
    body = data.draw(st.binary(max_size=60) | bodies)
    number = client.send(code, body, **SOUND | changed)
    assert not client.closed
    assert number in client.answers or code == RequestCode.END_TRANSACTION
    assert dialogue.troubles == []


# --- replies -------------------------------------------------------------------------------------


def reply(client: Client, body: bytes = b"done", **changed: Any) -> int:
    fields = V1 | {"topic": "c_REPLY_TOPIC", "queueId": 0} | changed
    return client.send(RequestCode.SEND_REPLY_MESSAGE, body, **fields)


def test_a_reply_goes_to_the_producer_that_waits_for_it(dialogue: Dialogue) -> None:
    producer, consumer = dialogue.client(), dialogue.client()
    producer.heart_beat("p", "orders")
    producer.asked.clear()
    properties = "REPLY_TO_CLIENT\x0110.0.0.9@1\2CORRELATION_ID\1x\2"
    number = reply(consumer, properties=properties)
    assert number not in consumer.answers
    (pushed,) = producer.asked
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"done")
    assert pushed.ext_fields["bornHost"] == "/10.0.0.9:40001"
    assert f"PUSH_REPLY_TIME\1{NOW}" in pushed.ext_fields["properties"]
    producer.send_bytes(encode_frame(pushed.answer(0)))
    (record,) = stored(dialogue)
    answer = consumer.answers.pop(number)
    assert (answer.code, answer.ext_fields["msgId"]) == (0, record.msg_id)
    assert (record.topic, record.properties_bytes.decode()) == ("c_REPLY_TOPIC", properties)


@pytest.mark.parametrize("properties", ["", "REPLY_TO_CLIENT\1nobody\2"])
def test_a_reply_that_nobody_waits_for_is_stored_all_the_same(
    dialogue: Dialogue, properties: str
) -> None:
    client = dialogue.client()
    answer = client.answers.pop(reply(client, properties=properties))
    assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
    assert len(stored(dialogue)) == 1


def test_a_reply_that_its_producer_does_not_take_is_told(dialogue: Dialogue) -> None:
    producer, consumer = dialogue.client(), dialogue.client()
    producer.heart_beat("p", "orders")
    number = reply(consumer, properties="REPLY_TO_CLIENT\x0110.0.0.9@1\2")
    dialogue.wait(10_000)
    assert consumer.answers.pop(number).code == ResponseCode.SYSTEM_ERROR
    assert len(stored(dialogue)) == 1


# --- delayed messages ----------------------------------------------------------------------------


class Clock:
    now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def delaying(root: Path) -> Iterator[tuple[Dialogue, Clock]]:
    """A server that delivers delayed messages, and its clock."""
    clock = Clock()
    with WritableStore(root, CONFIG, clock=clock) as store:
        served = Served.of(store, broker_name="b", cluster_name="c")
        yield Dialogue(served, delivery=Delivery(store)), clock
    assert [found for found in verify(root, CONFIG) if isinstance(found, Finding)] == []


def test_a_delayed_message_comes_when_it_is_time(delaying: tuple[Dialogue, Clock]) -> None:
    dialogue, clock = delaying
    consumer, producer = dialogue.client(), dialogue.client()
    assert consumer.pull("orders", 1, 0, sysFlag=6) is None
    for body, level in ((b"later", 3), (b"soon", 1)):
        answer = send(producer, body, properties=f"DELAY\1{level}\2TAGS\1a\2")
        assert answer.code == 0
    dialogue.wait(1000)
    assert consumer.answers == {}
    clock.now += 1000
    dialogue.wait(1000)
    (found,) = consumer.answers.values()
    assert b"soon" in found.body
    saved = dialogue.served.store.root / "config" / "delayOffset.json"
    assert json_of(saved.read_bytes()) == {"offsetTable": {"1": 1}}
    clock.now += 9000
    dialogue.wait(1000)
    assert json_of(saved.read_bytes()) == {"offsetTable": {"1": 1, "3": 1}}
    delivered = [one for one in stored(dialogue) if one.topic == "orders"]
    assert [dialogue.served.store.body(one) for one in delivered] == [b"soon", b"later"]
    dialogue.wait(5000)
    assert len(stored(dialogue)) == 4 and dialogue.troubles == []


def test_whatever_is_due_is_delivered_at_once(
    delaying: tuple[Dialogue, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much it is: a round has a bound for the sake of producers. A stop waits for one."""
    dialogue, clock = delaying
    monkeypatch.setattr(delivery, "_MOST_AT_ONCE", 4)
    producer = dialogue.client()
    for _ in range(10):
        send(producer, properties="DELAY\1" + "1\2")
    clock.now += 1000
    dialogue.wait(1000)
    assert [one.topic for one in stored(dialogue)].count("orders") == 10
    for _ in range(10):
        send(producer, properties="DELAY\1" + "1\2")
    clock.now += 1000
    events = dialogue.broker.tick(dialogue.now + 1000)
    (round_,) = [one for one in events if isinstance(one, Upkeep)]
    dialogue.do(dialogue.broker.stop(dialogue.now))
    dialogue.do([round_])
    assert [one.topic for one in stored(dialogue)].count("orders") == 14


def test_a_delayed_message_for_a_queue_that_can_be_none_stops_its_level_only(root: Path) -> None:
    """It names a further queue whose name is no directory."""
    clock = Clock()
    with WritableStore(root, CONFIG, clock=clock) as store:
        for given in ({"DELAY": "1", "INNER_MULTI_DISPATCH": "a/b"}, {"DELAY": "2"}):
            message = MessageExtBrokerInner("orders", b"x", 0, properties=given)
            assert store.put_message(message).is_ok
    config = replace(CONFIG, enable_multi_dispatch=True)
    with WritableStore(root, config, clock=clock) as store:
        served = Served.of(store, broker_name="b", cluster_name="c")
        dialogue = Dialogue(served, delivery=Delivery(store))
        clock.now += 10_000
        dialogue.wait(3000)
        assert [one.topic for one in stored(dialogue)].count("orders") == 1
        (told,) = dialogue.troubles
        assert "level 1 stands still at queue offset 0: MESSAGE_ILLEGAL" in told


def test_what_cannot_be_delivered_is_told_once_and_harms_no_other_level(
    delaying: tuple[Dialogue, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue, clock = delaying
    producer, find = dialogue.client(), schedule.message_of_unit
    for level in (1, 2):
        send(producer, b"x", properties=f"DELAY\1{level}\2")

    def broken(store: Any, unit: Any, encode: Any) -> Any:
        if unit.tags_code == NOW + 1000:
            return schedule.Undeliverable("unit-mismatch", False, "no record stands there")
        return find(store, unit, encode)

    monkeypatch.setattr(schedule, "message_of_unit", broken)
    clock.now += 10_000
    dialogue.wait(3000)
    assert [one.topic for one in stored(dialogue)].count("orders") == 1
    (told,) = dialogue.troubles
    assert "level 1 stands still at queue offset 0: unit-mismatch" in told


def test_a_disk_that_fails_is_told_once_and_tried_again(
    delaying: tuple[Dialogue, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue, clock = delaying
    send(dialogue.client(), b"x", properties="DELAY\1" + "1\2")

    def fails(*arguments: Any, **named: Any) -> None:
        raise CannotWrite(path="log", reason="full")

    clock.now += 1000
    with monkeypatch.context() as patch:
        patch.setattr(WritableStore, "put_message", fails)
        dialogue.wait(3000)
        assert len(dialogue.troubles) == 1
    dialogue.wait(1000)
    assert [one.topic for one in stored(dialogue)].count("orders") == 1


def test_nobody_is_told_to_pass_over_what_waits_for_the_disk(
    delaying: tuple[Dialogue, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue, clock = delaying
    send(dialogue.client(), b"x", properties="DELAY\1" + "1\2")

    def is_full(*arguments: Any, **named: Any) -> PutMessageResult:
        reason = os.strerror(errno.ENOSPC)
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, None, reason=reason)

    clock.now += 1000
    with monkeypatch.context() as patch:
        patch.setattr(WritableStore, "put_message", is_full)
        dialogue.wait(3000)
        (told,) = dialogue.troubles
        assert "No space left on device. It is tried again" in told and "--skip" not in told
    dialogue.wait(1000)
    assert [one.topic for one in stored(dialogue)].count("orders") == 1


def test_what_the_log_has_is_not_delivered_again(
    delaying: tuple[Dialogue, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put whose queue file gets no name has failed, and the log has the message."""
    dialogue, clock = delaying
    send(dialogue.client(), b"x", properties="DELAY\1" + "1\2")

    def no_room(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    clock.now += 1000
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_room)
        dialogue.wait(3000)
    dialogue.wait(3000)
    assert [one.topic for one in stored(dialogue)].count("orders") == 1
    # It appears as soon as there is room, though nobody puts anything any more.
    queue = dialogue.served.store.consume_queue("orders", 1)
    assert queue is not None and queue.max_offset == 1


def test_who_may_read_one_topic_has_no_other_come_back(dialogue: Dialogue) -> None:
    client = dialogue.client()
    assert send(client).code == 0
    (record,) = stored(dialogue)
    dialogue.served.accounts = Accounts([Addresses("10.0.0.9")], {})
    asked = {"offset": record.physical_offset, "group": "g", "delayLevel": 1}
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    assert client.ask(code, **asked, originTopic="payments").code == ResponseCode.SYSTEM_ERROR
    assert len(stored(dialogue)) == 1
    assert client.ask(code, **asked, originTopic="orders").code == 0


# --- transactions that nobody has ended ----------------------------------------------------------


@pytest.fixture
def checking(root: Path) -> Iterator[tuple[Dialogue, Clock]]:
    clock = Clock()
    with WritableStore(root, CONFIG, clock=clock) as store:
        served = Served.of(store, broker_name="b", cluster_name="c")
        yield Dialogue(served, checks=Checks(served)), clock
    assert [found for found in verify(root, CONFIG) if isinstance(found, Finding)] == []


def half_of(client: Client, group: str, body: bytes = b"half") -> Any:
    properties = f"TRAN_MSG\1true\2PGROUP\1{group}\2UNIQ_KEY\1{group}-1\2"
    return send(client, body, properties=properties, sysFlag=4, flag=0, producerGroup=group)


def produce(client: Client, group: str) -> None:
    body = {"clientID": f"c-{group}", "producerDataSet": [{"groupName": group}]}
    assert client.ask(RequestCode.HEART_BEAT, body).code == 0


def minutes(dialogue: Dialogue, clock: Clock, count: int, *clients: tuple[Client, str]) -> None:
    """Time goes by, on both clocks; these stay connected."""
    for _ in range(count * 2):
        for client, group in clients:
            produce(client, group)
        clock.now += 30_000
        dialogue.wait(30_000)


def halves(dialogue: Dialogue) -> list[Record]:
    return [one for one in stored(dialogue) if one.topic == "RMQ_SYS_TRANS_HALF_TOPIC"]


def test_a_producer_is_asked_and_what_it_says_then_counts(
    checking: tuple[Dialogue, Clock],
) -> None:
    dialogue, clock = checking
    producer = dialogue.client()
    assert half_of(producer, "p").code == 0
    minutes(dialogue, clock, 2, (producer, "p"))
    (asked,) = producer.asked
    assert asked.code == RequestCode.CHECK_TRANSACTION_STATE and asked.is_oneway
    first, again = halves(dialogue)
    assert asked.ext_fields == {
        "tranStateTableOffset": "1", "commitLogOffset": str(again.physical_offset),
        "msgId": "p-1", "transactionId": "p-1", "offsetMsgId": again.msg_id,
    }  # fmt: skip
    assert again.properties == first.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    # The half as the message that it is to become.
    assert b"orders" in asked.body and b"half" in asked.body
    end = {"producerGroup": "p", "commitOrRollback": 8, "msgId": "x", "fromTransactionCheck": True}
    place = {name: asked.ext_fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    assert producer.ask(RequestCode.END_TRANSACTION, **end, **place).code == 0
    assert [one.topic for one in stored(dialogue)].count("orders") == 1
    producer.asked.clear()
    minutes(dialogue, clock, 3, (producer, "p"))
    assert producer.asked == [] and len(halves(dialogue)) == 2
    saved = json_of((dialogue.served.store.root / "config/consumerOffset.json").read_bytes())
    group = {key: of for key, of in saved["offsetTable"].items() if "CID_RMQ_SYS_TRANS" in key}
    assert group == {
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 2},
        "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 1},
    }


def refuse(monkeypatch: pytest.MonkeyPatch, store: Any, topic: str) -> None:
    """The disk has no room for the messages of a topic."""
    put = store.put_message

    def put_message(message: Any, **named: Any) -> PutMessageResult:
        if message.topic != topic:
            return put(message, **named)  # type: ignore[no-any-return]
        status = PutMessageStatus.SERVICE_NOT_AVAILABLE
        return PutMessageResult(status, None, topic, 0, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "put_message", put_message)


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_commit_whose_op_message_has_no_room_is_none_twice(
    checking: tuple[Dialogue, Clock], monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    """The producer commits again, or the next round makes up for the op message; nobody is asked
    about the half."""
    dialogue, clock = checking
    producer = dialogue.client()
    answer = half_of(producer, "p")
    (half,) = halves(dialogue)
    place = {
        "producerGroup": "p",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": half.physical_offset,
    }
    with monkeypatch.context() as patch:
        refuse(patch, dialogue.served.store, "RMQ_SYS_TRANS_OP_HALF_TOPIC")
        told = producer.ask(RequestCode.END_TRANSACTION, **place, commitOrRollback=8)
        assert told.remark == "SERVICE_NOT_AVAILABLE"
        told = producer.ask(RequestCode.END_TRANSACTION, **place, commitOrRollback=12)
        assert told.remark == "The transaction is committed already"
        if is_asked:
            minutes(dialogue, clock, 3, (producer, "p"))
            assert dialogue.troubles[-1] == (
                "transactions: an op message is not put: SERVICE_NOT_AVAILABLE"
            )
        assert [one.topic for one in stored(dialogue)] == [half.topic, "orders"]
    if not is_asked:
        assert producer.ask(RequestCode.END_TRANSACTION, **place, commitOrRollback=8).code == 0
    minutes(dialogue, clock, 3, (producer, "p"))
    assert producer.asked == [] and dialogue.served.owed_ops == {}
    op = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert [one.topic for one in stored(dialogue)] == [half.topic, "orders", op]


def test_a_commit_that_the_log_has_is_none_twice(
    checking: tuple[Dialogue, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its queue has no room yet."""
    dialogue, clock = checking
    producer = dialogue.client()
    answer = half_of(producer, "p")
    (half,) = halves(dialogue)

    def no_room(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_room)
        end(producer, answer, half, 8)
    minutes(dialogue, clock, 3, (producer, "p"))
    assert producer.asked == []
    topics = [half.topic, "orders", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
    assert [one.topic for one in stored(dialogue)] == topics
    queue = dialogue.served.store.consume_queue("orders", 1)
    assert queue is not None and queue.max_offset == 1


def test_a_half_is_given_up_when_its_producer_never_knows(
    checking: tuple[Dialogue, Clock],
) -> None:
    dialogue, clock = checking
    producer = dialogue.client()
    half_of(producer, "p")
    minutes(dialogue, clock, 20, (producer, "p"))
    assert len(producer.asked) == CONFIG.transaction_check_max
    topics = [one.topic for one in stored(dialogue)]
    assert topics.count("TRANS_CHECK_MAX_TIME_TOPIC") == 1
    assert topics.count("RMQ_SYS_TRANS_HALF_TOPIC") == 1 + CONFIG.transaction_check_max


def test_a_half_waits_for_a_producer_that_is_not_here(checking: tuple[Dialogue, Clock]) -> None:
    dialogue, clock = checking
    producer, other = dialogue.client(), dialogue.client()
    half_of(producer, "gone")
    dialogue.do(dialogue.broker.lost(producer.number))
    minutes(dialogue, clock, 30, (other, "p"))
    assert len(halves(dialogue)) == 1
    # One that can be asked lies behind it: the first one goes on behind that, and nothing counts.
    half_of(other, "p")
    minutes(dialogue, clock, 2, (other, "p"))
    groups = [one.properties["PGROUP"] for one in halves(dialogue)]
    assert groups[:4] == ["gone", "p", "gone", "p"]
    assert "TRANSACTION_CHECK_TIMES" not in halves(dialogue)[2].properties
    back = dialogue.client()
    minutes(dialogue, clock, 2, (back, "gone"))
    assert {one.ext_fields["msgId"] for one in back.asked} == {"gone-1"}


def test_a_half_that_wants_to_be_left_alone_keeps_nobody_behind_it(
    checking: tuple[Dialogue, Clock],
) -> None:
    """It goes behind the others, with the queue offset that it had first, and is not counted; its
    producer may end it there, or at its first place."""
    dialogue, clock = checking
    producer = dialogue.client()
    own = "TRAN_MSG\1true\2PGROUP\1p\2UNIQ_KEY\1early\2CHECK_IMMUNITY_TIME_IN_SECONDS\x013600\2"
    assert send(producer, b"e", properties=own, sysFlag=4, flag=0, producerGroup="p").code == 0
    half_of(producer, "p")
    minutes(dialogue, clock, 2, (producer, "p"))
    assert [one.ext_fields["msgId"] for one in producer.asked] == ["p-1"]
    early = [one for one in halves(dialogue) if one.properties["UNIQ_KEY"] == "early"]
    assert [one.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for one in early] == [None, "0"]
    minutes(dialogue, clock, 3, (producer, "p"))
    assert {one.ext_fields["msgId"] for one in producer.asked} == {"p-1"}
    early = [one for one in halves(dialogue) if one.properties["UNIQ_KEY"] == "early"]
    assert all("TRANSACTION_CHECK_TIMES" not in one.properties for one in early)
    # Its time is over: it is asked about.
    clock.now += 3600 * 1000
    minutes(dialogue, clock, 2, (producer, "p"))
    assert "early" in {one.ext_fields["msgId"] for one in producer.asked}


# --- more than the disk takes --------------------------------------------------------------------


def test_who_sends_more_than_waits_for_the_disk_is_told_so(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_SENDS", 3)
    clients = [dialogue.client() for _ in range(3)]
    waiting: list[Event] = []
    fields = {SHORT[name]: value for name, value in V1.items()}
    with monkeypatch.context() as patch:
        patch.setattr(dialogue, "do", waiting.extend)
        for client in (*clients, clients[0], clients[0]):
            client.send(RequestCode.SEND_MESSAGE_V2, b"x", **fields)
    appends = [one for one in waiting if isinstance(one, Append)]
    assert len(appends) == 3
    dialogue.do([one for one in waiting if not isinstance(one, Append)])
    assert {one.code for one in clients[0].answers.values()} == {ResponseCode.SYSTEM_BUSY}
    # Who goes before his turn makes room, and so does what is stored.
    dialogue.do([*appends])
    assert len(stored(dialogue)) == 3
    assert send(clients[1]).code == 0


def test_sends_of_who_has_gone_take_no_room(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_APPENDS", 1)
    monkeypatch.setattr(connection, "MAX_SENDS", 3)
    client = dialogue.client()
    fields = {SHORT[name]: value for name, value in V1.items()}
    events: list[Event] = []
    with monkeypatch.context() as patch:
        patch.setattr(dialogue, "do", events.extend)
        for _ in range(3):
            client.send(RequestCode.SEND_MESSAGE_V2, b"x", **fields)
    events += dialogue.broker.lost(client.number)
    del dialogue.clients[client.number]
    # One was under way, two waited for it.
    begun = [one for one in events if isinstance(one, Append)]
    dialogue.do([*begun])
    assert len(stored(dialogue)) == 1
    other = dialogue.client()
    assert [send(other).code for _ in range(4)] == [0] * 4


def test_a_large_send_alone_is_taken(dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_SEND_BYTES", 10)
    assert send(dialogue.client(), b"x" * 100).code == 0
