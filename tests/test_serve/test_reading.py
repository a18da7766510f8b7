"""Pulls, queries and offsets: what the store has, as a broker of 4.9.3 answers it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.remotingcodes import RequestCode, ResponseCode, SerializeType
from formats.text import tags_code
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotRead
from rmqctl.serve.broker import Broker, Job
from rmqctl.serve.connection import MAX_JOBS
from rmqctl.serve.events import Reading
from rmqctl.serve.processors import pull
from rmqctl.serve.processors.request import Served
from rmqctl.serve.processors.table import PROCESSORS
from rmqctl.serve.state.locks import LOCK_MAX_LIVE_TIME
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import encode_frame
from tests import golden_data
from tests.conftest import Golden
from tests.seeds import times
from tests.test_serve.dialogue import Client, Dialogue, json_of

SMALL = MessageStoreConfig(mapped_file_size_commit_log=65536)


def expected_units(topic: str, queue_id: int) -> list[golden_data.ExpectedRow]:
    rows = golden_data.expected("broker")["cq"]
    return [row for row in rows if row["topic"] == topic and row["queueId"] == queue_id]


def stored(dialogue: Dialogue, offset: int, size: int) -> bytes:
    return (dialogue.served.store.root / "commitlog" / ("0" * 20)).read_bytes()[
        offset : offset + size
    ]


@pytest.mark.parametrize("kind", SerializeType)
def test_a_queue_is_pulled_to_its_end_record_for_record(
    dialogue: Dialogue, kind: SerializeType
) -> None:
    client, offset, body = dialogue.client(kind), 0, b""
    while True:
        answer = client.pull("orders", 0, offset)
        if answer is None or answer.code != 0:
            break
        assert answer.remark == "FOUND"
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"
        assert (answer.ext_fields["minOffset"], answer.ext_fields["maxOffset"]) == ("0", "124")
        body += answer.body
        offset = int(answer.ext_fields["nextBeginOffset"])
    assert offset == 124
    with MessageStore(dialogue.served.store.root, golden_data.broker_conf("broker")) as store:
        queue = store.consume_queue("orders", 0)
        assert queue is not None
        units = [unit for _, unit in queue.units(0, 124)]
    assert body == b"".join(stored(dialogue, u.physical_offset, u.size) for u in units)


def test_tags_are_compared_by_their_hash_alone(tmp_path: Path) -> None:
    """Aa and BB have one hash: a broker gives both, and the client knows."""
    with MessageStore(tmp_path / "s", SMALL, writable=True, create=True) as store:
        for tag in ("Aa", "x", "BB", ""):
            properties = {"TAGS": tag} if tag else {}
            assert store.put_message(
                MessageExtBrokerInner("t", tag.encode() or b"-", properties=properties)
            ).is_ok
    with MessageStore(tmp_path / "s", SMALL) as store:
        dialogue = Dialogue(Served.of(store))
        client = dialogue.client()
        for expression, bodies in (("Aa", 2), (" x || Aa ", 3), ("*", 4), ("", 4), ("y", 0)):
            answer = client.pull("t", 0, 0, subscription=expression)
            assert answer is not None
            found = [
                body for body in (b"\0\0\0\2Aa", b"\0\0\0\1x", b"\0\0\0\2BB") if body in answer.body
            ]
            assert len(found) == min(bodies, 3), expression
            code = 0 if bodies else ResponseCode.PULL_RETRY_IMMEDIATELY
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (code, "4")
        client.heart_beat("workers", "t", subString="BB", codeSet=[tags_code("BB")])
        fields = {"consumerGroup": "workers", "sysFlag": 0, "subVersion": 1}
        answer = client.pull("t", 0, 0, **fields)
        assert answer is not None
        assert b"Aa" in answer.body and b"BB" in answer.body and b"\1x" not in answer.body


def test_a_sql_filter_is_evaluated(dialogue: Dialogue) -> None:
    client = dialogue.client()
    with MessageStore(dialogue.served.store.root, golden_data.broker_conf("broker")) as store:
        records = store.get_message("orders", 0, 0).records
    tags = {record.properties.get("TAGS") for record in records}
    tag = sorted(t for t in tags if t)[0]
    wanted = [r for r in records if r.properties.get("TAGS") == tag]
    sql: dict[str, object] = {"expressionType": "SQL92", "subscription": f"TAGS = '{tag}'"}
    answer = client.pull("orders", 0, 0, maxMsgNums=len(wanted), **sql)
    assert answer is not None
    first = b"".join(stored(dialogue, r.physical_offset, r.total_size) for r in wanted)
    assert answer.body == first
    for expression in ("TAGS =", "", "a" * 17_000):
        wrong = client.pull("orders", 0, 0, expressionType="SQL92", subscription=expression)
        assert wrong is not None
        assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED, expression
    client.heart_beat("workers", "orders", subString=f"TAGS = '{tag}'", expressionType="SQL92")
    fields = {"consumerGroup": "workers", "sysFlag": 0, "subVersion": 1}
    again = client.pull("orders", 0, 0, maxMsgNums=len(wanted), **fields)
    assert again is not None and again.body == first
    for text, code in (("a >", ResponseCode.SUBSCRIPTION_PARSE_FAILED), ("a > 1", 0)):
        subscription = {"topic": "orders", "subString": text, "expressionType": "SQL92"}
        body = {"clientId": "c", "group": "workers", "subscriptionData": subscription}
        assert client.ask(RequestCode.CHECK_CLIENT_CONFIG, body).code == code


@pytest.mark.parametrize(
    ("offset", "code", "status", "next_offset"),
    [
        (125, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "0"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
        (124, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "124"),
    ],
)
def test_offsets_outside_of_a_queue(
    dialogue: Dialogue, offset: int, code: int, status: str, next_offset: str
) -> None:
    answer = dialogue.client().pull("orders", 0, offset)
    assert answer is not None
    assert (answer.code, answer.remark) == (code, status)
    assert answer.ext_fields["nextBeginOffset"] == next_offset


def test_a_queue_without_messages(dialogue: Dialogue) -> None:
    client = dialogue.client()
    for offset, code in ((0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)):
        answer = client.pull("metrics", 1, offset)
        assert answer is not None
        assert (answer.code, answer.remark) == (code, "NO_MESSAGE_IN_QUEUE")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "../x"}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": 4}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": -1}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": "1 "}, ResponseCode.SYSTEM_ERROR),
        ({"queueOffset": 2**63}, ResponseCode.SYSTEM_ERROR),
        ({"queueOffset": "9" * 5000}, ResponseCode.SYSTEM_ERROR),
        ({"consumerGroup": ""}, ResponseCode.SYSTEM_ERROR),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "GROOVY", "subscription": "x"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"sysFlag": 0, "consumerGroup": "others"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (
            {"sysFlag": 0, "consumerGroup": "workers", "subVersion": 2},
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ),
    ],
)
def test_pulls_that_a_check_ends(dialogue: Dialogue, more: dict[str, Any], code: int) -> None:
    client = dialogue.client()
    client.heart_beat("workers", "orders")
    client.heart_beat("others", "payments")
    place = {"topic": "orders", "queue_id": more.pop("queueId", 0), "offset": 0} | {
        name: more.pop(key) for name, key in (("topic", "topic"),) if key in more
    }
    answer = client.pull(**place, **more)
    assert answer is not None
    assert answer.code == code and answer.remark


def test_an_empty_type_of_expression_is_one_of_tags_without_codes(dialogue: Dialogue) -> None:
    """``FilterAPI#build`` computes codes of the type TAG alone: `*` matches all, and no tag any."""
    client = dialogue.client()
    for text, code in (
        ("*", 0),
        ("paid", ResponseCode.PULL_RETRY_IMMEDIATELY),
        ("", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ):
        answer = client.pull("orders", 0, 0, expressionType="", subscription=text)
        assert answer is not None and answer.code == code, text
    # Of a heartbeat the codes are the client's.
    fields = {"consumerGroup": "workers", "sysFlag": 0, "subVersion": 1}
    for text, code in (("*", 0), ("", ResponseCode.PULL_RETRY_IMMEDIATELY)):
        client.heart_beat("workers", "orders", subString=text, codeSet=[], expressionType="")
        answer = client.pull("orders", 0, 0, **fields)
        assert answer is not None and answer.code == code, text
        client.ask(RequestCode.UNREGISTER_CLIENT, clientID="x", consumerGroup="workers")


def test_less_than_no_messages_are_an_error(dialogue: Dialogue) -> None:
    """Java makes no list of such a size: of an offset outside its queue a broker makes none."""
    client = dialogue.client()
    assert dialogue.served.store.get_message("orders", 0, 0).records
    found = client.pull("orders", 0, 0, maxMsgNums=-1)
    assert found is not None and not found.body
    assert (found.code, found.remark) == (1, "the field maxMsgNums is -1")
    none = client.pull("orders", 0, 124, maxMsgNums=-1)
    assert none is not None and none.code == ResponseCode.PULL_NOT_FOUND
    asked = {"topic": "orders", "key": "k", "beginTimestamp": 0, "endTimestamp": 1}
    answer = client.ask(RequestCode.QUERY_MESSAGE, maxNum=-1, **asked)
    assert (answer.code, answer.remark) == (1, "the field maxNum is -1")
    answer = client.ask(RequestCode.QUERY_MESSAGE, maxNum=-1, **asked, _UNIQUE_KEY_QUERY=True)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("expression", [" ", " || ", "|| ||", "a\u3000", "\u00a0a"])
def test_an_expression_of_which_no_message_has_a_tag(dialogue: Dialogue, expression: str) -> None:
    """``String#trim`` takes away what is no more than a space, and no other space."""
    answer = dialogue.client().pull("orders", 0, 0, subscription=expression)
    assert answer is not None and answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_a_missing_field_is_named(dialogue: Dialogue) -> None:
    answer = dialogue.client().ask(RequestCode.PULL_MESSAGE, consumerGroup="g")
    assert (answer.code, answer.remark) == (1, "the field sysFlag is missing")


@pytest.mark.parametrize(
    ("flags", "needed"),
    [(4, ""), (4 | 1, "commitOffset"), (4 | 2, "suspendTimeoutMillis"), (0, "subVersion")],
)
def test_a_pull_needs_only_the_fields_that_its_flags_ask_for(
    dialogue: Dialogue, flags: int, needed: str
) -> None:
    """``PullMessageProcessor#processRequest``; tests/interop asks a broker the same."""
    client = dialogue.client()
    client.heart_beat("online", "orders")
    fields = {"consumerGroup": "online", "topic": "orders", "queueId": 0, "queueOffset": 0}
    fields |= {"maxMsgNums": 1, "sysFlag": flags}
    more: dict[str, Any] = {"commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0}
    del more[needed or "subVersion"]
    for some in (more, {name: more.get(name, "x") for name in (*more, needed) if name}):
        answer = client.ask(RequestCode.PULL_MESSAGE, **fields, **some)
        assert answer.code == bool(needed), answer.remark
        assert needed in (answer.remark or "")
    if needed:
        bad = dict.fromkeys(more, "x" * 10_000)
        answer = client.ask(RequestCode.PULL_MESSAGE, **fields, **bad | {needed: 0})
        assert answer.code == 0, answer.remark


def test_numbers_of_a_queue_that_is_asked_for_are_0_without_a_field(dialogue: Dialogue) -> None:
    asked = {"topic": "orders", "count": 2}
    ask = dialogue.client().ask
    whole = ask(RequestCode.QUERY_CONSUME_QUEUE, **asked, queueId=0, index=0)
    assert whole.code == 0 and json_of(whole.body)["queueData"]
    assert ask(RequestCode.QUERY_CONSUME_QUEUE, **asked) == whole._replace(opaque=2)


@pytest.mark.parametrize("name", pull._HEAD_FIELDS)
def test_of_what_pulls_have_alike_only_what_is_sound_is_kept(dialogue: Dialogue, name: str) -> None:
    """It is kept as it came: anybody may send a megabyte of it."""
    client = dialogue.client()
    pull._head.cache_clear()
    for offset in (3, 4):
        found = client.pull("orders", 0, offset)
        assert found is not None and found.ext_fields["nextBeginOffset"] == str(offset + 32)
    for value in ("1" * 10_000, ""):
        fields: dict[str, Any] = {"topic": "orders", "queue_id": 0, "offset": 0, "sysFlag": 6}
        given = {"topic": "topic", "queueId": "queue_id"}.get(name, name)
        found = client.pull(**fields | {given: value})
        assert found is not None and found.code == ResponseCode.SYSTEM_ERROR
        assert found.remark is not None and name in found.remark and len(found.remark) < 200
    for unneeded in ("subVersion", "suspendTimeoutMillis"):
        assert client.pull("orders", 0, 0, **{unneeded: "1" * 10_000}) is not None
    assert pull._head.cache_info().currsize == 1


# --- waiting ---------------------------------------------------------------------------------

SUSPENDS = 4 | 2


def test_a_pull_at_the_end_waits_for_its_time(dialogue: Dialogue) -> None:
    client = dialogue.client()
    assert client.pull("orders", 0, 124, sysFlag=SUSPENDS, suspendTimeoutMillis=5000) is None
    dialogue.wait(4000)
    assert client.answers == {}
    dialogue.wait(1000)
    ((_, answer),) = client.answers.items()
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
    assert len(dialogue.served.parked) == 0


def test_who_goes_away_waits_no_longer(dialogue: Dialogue) -> None:
    client, other = dialogue.client(), dialogue.client()
    for one in (client, other):
        assert one.pull("orders", 0, 124, sysFlag=SUSPENDS) is None
    dialogue.do(dialogue.broker.lost(client.number))
    assert len(dialogue.served.parked) == 1
    dialogue.do(dialogue.broker.stop(dialogue.now))
    assert [answer.code for answer in other.answers.values()] == [ResponseCode.PULL_NOT_FOUND]
    assert client.answers == {}


def test_a_message_wakes_who_waits_for_it(tmp_path: Path) -> None:
    def message(tag: str) -> MessageExtBrokerInner:
        return MessageExtBrokerInner("t", b"x", properties={"TAGS": tag})

    with MessageStore(tmp_path / "s", SMALL, writable=True, create=True) as store:
        assert store.put_message(message("a")).is_ok
        dialogue = Dialogue(Served.of(store))
        client = dialogue.client()
        assert client.pull("t", 0, 1, sysFlag=SUSPENDS) is None
        assert client.pull("t", 0, 1, sysFlag=SUSPENDS, subscription="b") is None
        assert store.put_message(message("a")).is_ok
        dialogue.do(dialogue.broker.arrived("t", 0, 1, dialogue.now))
        assert client.answers == {}
        dialogue.do(dialogue.broker.arrived("t", 0, 2, dialogue.now))
        found, passed = client.answers.values()
        assert (found.remark, passed.remark) == ("FOUND", "NO_MATCHED_MESSAGE")
        assert passed.ext_fields["nextBeginOffset"] == "2"


def test_a_message_that_comes_while_the_store_is_asked_is_not_missed(tmp_path: Path) -> None:
    with MessageStore(tmp_path / "s", SMALL, writable=True, create=True) as store:
        assert store.put_message(MessageExtBrokerInner("t", b"x")).is_ok
        dialogue = Dialogue(Served.of(store))
        client = dialogue.client()
        looks: list[Job] = []
        do, dialogue.do = dialogue.do, looks.extend  # type: ignore[assignment,method-assign]
        client.send(
            RequestCode.PULL_MESSAGE, consumerGroup="g", topic="t", queueId=0, queueOffset=1,
            maxMsgNums=1, sysFlag=SUSPENDS, commitOffset=0, suspendTimeoutMillis=9, subVersion=0,
        )  # fmt: skip
        (look,) = looks
        found = look.work()
        assert store.put_message(MessageExtBrokerInner("t", b"y")).is_ok
        assert dialogue.broker.arrived("t", 0, 2, dialogue.now) == []
        dialogue.do = do  # type: ignore[method-assign]
        do(dialogue.broker.finished(look, found, dialogue.now))
        assert [answer.remark for answer in client.answers.values()] == ["FOUND"]


# --- messages by key and by offset -----------------------------------------------------------


def test_a_message_by_its_key_and_by_its_offset(dialogue: Dialogue) -> None:
    client = dialogue.client()
    record = dialogue.served.store.get_message("orders", 0, 0).records[3]
    raw = stored(dialogue, record.physical_offset, record.total_size)
    answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=record.physical_offset)
    assert (answer.code, answer.body) == (0, raw)
    key = record.properties["UNIQ_KEY"]
    asked = {"topic": "orders", "key": key, "maxNum": 64, "beginTimestamp": 0}
    answer = client.ask(
        RequestCode.QUERY_MESSAGE, endTimestamp=2**63 - 1, **asked, _UNIQUE_KEY_QUERY=True
    )
    assert (answer.code, answer.body) == (0, raw)
    assert int(answer.ext_fields["indexLastUpdateTimestamp"]) >= record.store_timestamp
    assert int(answer.ext_fields["indexLastUpdatePhyoffset"]) >= record.physical_offset
    asked["key"] = "none"
    answer = client.ask(RequestCode.QUERY_MESSAGE, endTimestamp=2**63 - 1, **asked)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.ext_fields == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
    for offset in (1, -1, 2**62):
        answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
        assert answer.remark == f"can not find message by the offset, {offset}"


def test_a_client_of_5_4_asks_for_the_messages_with_a_tag(tmp_path: Path) -> None:
    golden_data.make_one_of_5_4(tmp_path)
    with MessageStore(tmp_path, writable=True) as store:
        for tag in ("a", "b", "a"):
            message = MessageExtBrokerInner("t", tag.encode(), properties={"TAGS": tag})
            assert store.put_message(message).is_ok
        client = Dialogue(Served.of(store)).client()
        asked = {"topic": "t", "key": "a", "maxNum": 9, "beginTimestamp": 0}
        asked |= {"endTimestamp": 2**63 - 1}
        answer = client.ask(RequestCode.QUERY_MESSAGE, indexType="T", **asked)
        first, last = (store.get_message("t", 0, at).records[0] for at in (0, 2))
        assert len(answer.body) == first.total_size + last.total_size
        answer = client.ask(RequestCode.QUERY_MESSAGE, **asked)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND


# --- offsets ---------------------------------------------------------------------------------


def offset_of(client: Client, code: RequestCode, field: str = "offset", **place: object) -> int:
    answer = client.ask(code, **{"topic": "orders", "queueId": 0} | place)
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields[field])


def test_offsets_of_queues(dialogue: Dialogue) -> None:
    client = dialogue.client()
    times = [r.store_timestamp for r in dialogue.served.store.get_message("orders", 0, 0).records]
    assert offset_of(client, RequestCode.GET_MAX_OFFSET) == 124
    assert offset_of(client, RequestCode.GET_MIN_OFFSET) == 0
    earliest = RequestCode.GET_EARLIEST_MSG_STORETIME
    assert offset_of(client, earliest, "timestamp") == times[0]
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert offset_of(client, search, timestamp=0) == 0
    assert offset_of(client, search, timestamp=times[5]) == times.index(times[5])
    assert offset_of(client, search, timestamp=2**60) == 123
    for topic in ("unknown", "metrics"):
        assert offset_of(client, RequestCode.GET_MAX_OFFSET, topic=topic) == 0
        assert offset_of(client, search, topic=topic, timestamp=7) == 0
        assert offset_of(client, earliest, "timestamp", topic=topic) == -1


def committed(client: Client, group: str, topic: str = "orders", queue_id: int = 0) -> Any:
    answer = client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id
    )
    return int(answer.ext_fields["offset"]) if answer.code == 0 else answer.code


def test_groups_go_on_where_they_were_and_commit_in_memory(dialogue: Dialogue) -> None:
    client = dialogue.client()
    assert committed(client, "cg_orders", queue_id=1) == 122
    # A new group begins at 0 while the queue's first message counts as in memory.
    assert committed(client, "new") == committed(client, "new", "unknown") == 0
    place = {"consumerGroup": "cg_orders", "topic": "orders", "queueId": 1}
    answer = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=7, **place)
    assert answer.code == 0
    assert committed(client, "cg_orders", queue_id=1) == 7
    assert client.pull("orders", 1, 9, sysFlag=4 | 1, commitOffset=9, consumerGroup="new")
    assert committed(client, "new", queue_id=1) == 9
    for wrong in ({"queueId": 4}, {"topic": "unknown"}, {"commitOffset": -1}):
        fields: dict[str, Any] = place | {"commitOffset": 1} | wrong
        answer = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_new_group_of_an_old_queue_decides_itself(golden: Golden) -> None:
    config = replace(golden_data.broker_conf("broker"), access_message_in_memory_max_ratio=0)
    with MessageStore(golden("broker"), config) as store:
        client = Dialogue(Served.of(store)).client()
        assert committed(client, "new") == ResponseCode.QUERY_NOT_FOUND


def test_an_offset_that_cannot_be_told_is_no_error(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would take one for a new group, and pass over what is there."""

    def fails(*_: object) -> None:
        raise CannotRead(path="x", reason="I/O error")

    client, other = dialogue.client(), dialogue.client()
    monkeypatch.setattr(dialogue.served.store, "consume_queue", fails)
    client.send(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="cg_orders", topic="orders", queueId=0
    )
    assert client.answers == {}
    assert client.closed.startswith("the offset cannot be told")
    other.send(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="cg_orders")
    assert other.answers == {} and other.closed


def test_what_the_system_refuses_names_no_file_to_a_client(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise CannotRead(path="/data/store", reason="I/O error")

    monkeypatch.setattr(dialogue.served.store, "consume_queue", fails)
    answer = dialogue.client().ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
    assert (answer.code, answer.remark) == (1, "the store cannot answer: CannotRead: I/O error")
    assert "/data/store" in dialogue.troubles[0]


def test_offsets_beyond_the_end_are_named_and_may_end_there(golden: Golden, tmp_path: Path) -> None:
    root = golden_data.copy_tree(golden("broker"), tmp_path / "store")
    table = {"orders@lost": {"0": 500, "1": 3, "9": 9}, "metrics@lost": {"3": 21}}
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    with MessageStore(root, golden_data.broker_conf("broker")) as store:
        served = Served.of(store, ends_offsets=True)
        beyond = [("lost", "metrics", 3, 21, 20), ("lost", "orders", 0, 500, 124)]
        assert served.offsets.beyond_end(store) == beyond
        client = Dialogue(served).client()
        assert committed(client, "lost") == 124
        assert committed(client, "lost", queue_id=1) == 3
        assert committed(Dialogue(Served.of(store)).client(), "lost") == 500


def test_a_queue_is_opened_once_for_the_offsets_of_all_groups(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_data.copy_tree(golden("broker"), tmp_path / "store")
    table = {f"orders@g{n}": {"0": 500, "1": 3} for n in range(9)}
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    with MessageStore(root, golden_data.broker_conf("broker")) as store:
        served = Served.of(store)
        asked: list[tuple[str, int]] = []
        original = store.consume_queue

        def counted(topic: str, queue_id: int) -> object:
            asked.append((topic, queue_id))
            return original(topic, queue_id)

        monkeypatch.setattr(store, "consume_queue", counted)
        beyond = served.offsets.beyond_end(store)
    assert asked == [("orders", 0), ("orders", 1)]
    assert beyond == [(f"g{n}", "orders", 0, 500, 124) for n in range(9)]


# --- queues in order -------------------------------------------------------------------------


def test_a_queue_in_order_has_one_client_of_a_group(dialogue: Dialogue) -> None:
    client = dialogue.client()
    queues = [{"brokerName": "broker-a", "queueId": n, "topic": "orders"} for n in (0, 1)]

    def locked(client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> list[int]:
        body = {"consumerGroup": "workers", "clientId": client_id, "mqSet": queues}
        answer = client.ask(code, body)
        assert answer.code == 0, answer.remark
        return [one["queueId"] for one in json.loads(answer.body or b"{}").get("lockOKMQSet", ())]

    assert locked("a") == [0, 1]
    assert locked("b") == []
    dialogue.now += LOCK_MAX_LIVE_TIME
    assert locked("a") == [0, 1]
    dialogue.now += LOCK_MAX_LIVE_TIME + 1
    assert locked("b") == [0, 1]
    locked("a", RequestCode.UNLOCK_BATCH_MQ)
    assert locked("a") == []
    locked("b", RequestCode.UNLOCK_BATCH_MQ)
    assert locked("a") == [0, 1]
    for wrong in ({"queueId": 4}, {"topic": "unknown"}, {"brokerName": "other"}):
        body = {"consumerGroup": "workers", "clientId": "a", "mqSet": [queues[0] | wrong]}
        assert client.ask(RequestCode.LOCK_BATCH_MQ, body).code == ResponseCode.SYSTEM_ERROR


# --- many requests, and any --------------------------------------------------------------------


def test_who_takes_no_answers_is_not_worked_for(dialogue: Dialogue) -> None:
    broker = Broker(dialogue.served)
    number = broker.connected("10.0.0.9:1", "10.0.0.7:10911", 0)
    fields = {"topic": "orders", "queueId": "0"}
    asked = encode_frame(RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields=fields))
    events = broker.received(number, asked * 40, 0)
    begun = [event for event in events if isinstance(event, Job)]
    assert len(begun) == MAX_JOBS
    assert events[-1] == Reading(number, False)
    assert broker.takes_answers(number, False) == []
    done = [event for job in begun for event in broker.finished(job, 124, 0)]
    assert not [event for event in done if isinstance(event, Job)]
    events = broker.takes_answers(number, True)
    assert len(events) == MAX_JOBS
    events = [
        event for job in events if isinstance(job, Job) for event in broker.finished(job, 1, 0)
    ]
    assert Reading(number, True) in events


VALUES = st.one_of(
    st.integers(-(2**64), 2**64),
    st.integers(-2, 200),
    st.sampled_from(
        ["orders", "%RETRY%cg_orders", "cg_orders", "", "a || b", "TRUE", "SQL92", "TAG"]
    ),
    st.text(max_size=8).filter(lambda text: text.isprintable()),
)
#: Fields with which every request is sound.
SOUND: dict[str, Any] = {
    "consumerGroup": "readers", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 3,
    "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 999, "subscription": "*",
    "subVersion": 0, "expressionType": "TAG", "key": "a", "maxNum": 3, "beginTimestamp": 0,
    "endTimestamp": 2**62, "offset": 0, "timestamp": 0, "clientID": "c",
    "producerGroup": "readers", "group": "cg_orders", "index": 0, "count": 3, "clientId": "c",
    "msgId": "7F00000100002A9F0000000000000000", "statsName": "GROUP_GET_NUMS", "cluster": "c",
    "statsKey": "orders@readers", "namespace": "n", "isForce": "true", "isOrder": "false",
}  # fmt: skip


@given(data=st.data())
@settings(max_examples=times(40))
def test_any_request_is_answered_or_closes_its_connection(
    served_for_any: Served, data: st.DataObject
) -> None:
    dialogue = Dialogue(served_for_any)
    client = dialogue.client()
    code = data.draw(st.sampled_from(sorted(PROCESSORS)) | st.integers(-1, 400))
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(SOUND)), VALUES, max_size=3))
    body = data.draw(
        st.binary(max_size=20) | st.dictionaries(st.sampled_from(["mqSet", "clientID"]), VALUES)
    )
    number = client.send(code, body, **SOUND | changed)
    dialogue.wait(1000)
    if client.closed:
        assert code == RequestCode.QUERY_CONSUMER_OFFSET
    else:
        assert number in client.answers or len(dialogue.served.parked)
    dialogue.do(dialogue.broker.lost(client.number))
    assert len(dialogue.served.parked) == 0
    assert dialogue.troubles == []


@pytest.fixture(scope="module")
def served_for_any(golden: Golden) -> Iterator[Served]:
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        yield Served.of(store)
