"""Administration that only looks: tables, progress, connections, and how the server does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode, SerializeType
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.properties import properties
from rmqctl.engine.state.topicconfig import SYSTEM_TOPICS
from rmqctl.serve import broker
from rmqctl.serve.processors.progress import _date
from rmqctl.serve.processors.request import Served
from rmqctl.serve.state.calls import MAX_CALLS
from rmqctl.serve.state.statistics import Rate, StatsItem
from rmqctl.serve.wire.bodies import decode_queue_table
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest
from rmqctl.serve.wire.frames import encode_frame
from tests import golden_data
from tests.conftest import Golden
from tests.test_serve.dialogue import Client, Dialogue, json_of

EPOCH = 1_900_000_000_000


@pytest.fixture
def dialogue(golden: Golden) -> Iterator[Dialogue]:
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        yield Dialogue(Served.of(store, clock=lambda: EPOCH))


def queues_in(body: bytes) -> dict[tuple[str, int], Any]:
    """The table of a body whose keys are queues, which no parser of JSON reads."""
    found = {}
    for part in body.decode().split('{"brokerName":')[1:]:
        key, _, value = ('{"brokerName":' + part).partition("}:")
        queue = json.loads(key + "}")
        found[queue["topic"], queue["queueId"]] = json.JSONDecoder().raw_decode(value)[0]
    return found


def test_tables_are_those_of_the_broker(dialogue: Dialogue) -> None:
    client, config = dialogue.client(), dialogue.served.store.root / "config"
    topics = json_of(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
    stored = json.loads((config / "topics.json").read_text())
    table = topics["topicConfigTable"]
    assert {name: table[name] for name in stored["topicConfigTable"]} == stored["topicConfigTable"]
    assert topics["dataVersion"] == stored["dataVersion"]
    groups = json_of(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    stored = json.loads((config / "subscriptionGroup.json").read_text())
    assert groups == stored
    offsets = json_of(client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body)
    assert offsets == json_of((config / "consumerOffset.json").read_bytes())
    assert set(json_of(client.ask(RequestCode.GET_ALL_DELAY_OFFSET).body)) == {"offsetTable"}


def test_the_configuration_tells_sizes_and_no_paths(dialogue: Dialogue) -> None:
    answer = dialogue.client().ask(RequestCode.GET_BROKER_CONFIG)
    values = {one.name: one.value for one in properties(answer.body.decode())}
    assert values["brokerName"] == "broker-a"
    assert int(values["mappedFileSizeCommitLog"]) == dialogue.served.store.commit_log.file_size
    assert values["enableLmq"] == "false"
    assert str(dialogue.served.store.root) not in answer.body.decode()
    assert set(json.loads(answer.ext_fields["version"])) == {"counter", "timestamp"}


def test_how_far_queues_and_groups_are(dialogue: Dialogue) -> None:
    client = dialogue.client()
    stats = queues_in(client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="orders").body)
    store = dialogue.served.store
    assert len(stats) == 4
    for (topic, queue_id), one in stats.items():
        queue = store.consume_queue(topic, queue_id)
        assert queue is not None
        assert (one["minOffset"], one["maxOffset"]) == (queue.min_offset, queue.max_offset)
        unit = queue.unit(queue.max_offset - 1)
        assert unit is not None
        record = store.look_message_by_offset(unit.physical_offset)
        assert one["lastUpdateTimestamp"] == record.store_timestamp
    group = "cg_orders"
    code = RequestCode.GET_CONSUME_STATS
    progress = queues_in(client.ask(code, consumerGroup=group, topic="orders").body)
    for (topic, queue_id), row in progress.items():
        assert row["brokerOffset"] == stats[topic, queue_id]["maxOffset"]
        assert row["consumerOffset"] == dialogue.served.offsets.find(topic, group, queue_id)
    everything = queues_in(client.ask(code, consumerGroup=group).body)
    assert progress.items() <= everything.items()
    span = client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="orders", group=group)
    spans = json.loads(span.body)["consumeTimeSpanSet"]
    assert [one["messageQueue"]["queueId"] for one in spans] == [0, 1, 2, 3]
    for one in spans:
        assert one["minTimeStamp"] <= one["consumeTimeStamp"] <= one["maxTimeStamp"]
        for name in ("minTimeStamp", "consumeTimeStamp", "maxTimeStamp"):
            moment = datetime.fromtimestamp(one[name] / 1000)
            shown = f"{moment:%Y-%m-%d#%H:%M:%S}:{moment.microsecond // 1000:03d}"
            assert one[f"{name}Str"] == shown
    whole = client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
    assert b'"cg_orders":[{"consumeTps":0.0' in whole.body
    who = json.loads(client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders").body)
    assert group in who["groupList"]


def test_units_stand_as_they_are(dialogue: Dialogue) -> None:
    client, queue = dialogue.client(), dialogue.served.store.consume_queue("orders", 1)
    assert queue is not None
    asked: dict[str, Any] = {"topic": "orders", "queueId": 1, "index": 0, "count": 2}
    code = RequestCode.QUERY_CONSUME_QUEUE
    body = json.loads(client.ask(code, **asked).body)
    unit = queue.unit(0)
    assert unit is not None
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (queue.min_offset, queue.max_offset)
    first = body["queueData"][0]
    assert (first["physicOffset"], first["physicSize"], first["tagsCode"]) == unit
    assert len(body["queueData"]) == min(2, queue.max_offset)
    beyond = client.ask(code, **asked | {"index": 10**9})
    assert (beyond.code, beyond.body) == (0, b"") and beyond.remark
    assert client.ask(code, **asked | {"topic": "unknown"}).code == ResponseCode.SYSTEM_ERROR
    client.heart_beat("workers", "orders")
    online = json.loads(client.ask(code, **asked, consumerGroup="workers").body)
    assert online["subscriptionData"]["subString"] == "*"


def test_totals_until_midnight(dialogue: Dialogue) -> None:
    """Those that ``mqadmin brokerStatus`` and the dashboard make days of."""
    client, names = dialogue.client(), ("Yesterday", "Today")
    begin = int(time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))) * 1000
    day, now = 86_400_000, begin
    dialogue.served.clock = lambda: now

    def totals() -> list[str]:
        dialogue.wait(1000)
        table = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        found = [table[f"msgGetTotal{name}Morning"] for name in names]
        return [*found, table["msgGetTotalTodayNow"]]

    assert totals() == ["0", "0", "0"]
    assert client.pull("orders", 1, 0, maxMsgNums=3) is not None
    assert totals() == ["0", "0", "3"]
    now = begin + day
    assert totals() == ["0", "3", "3"]
    assert client.pull("orders", 1, 0, maxMsgNums=2) is not None
    now = begin + day - 1000  # A clock that is set back begins no day.
    assert totals() == ["0", "3", "5"]
    now = begin + 2 * day
    assert totals() == totals() == ["3", "5", "5"]


def test_names_of_the_cluster(dialogue: Dialogue) -> None:
    client = dialogue.client()
    topics = json.loads(
        client.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster").body
    )
    assert "orders" in topics["topicList"]
    other = json.loads(client.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="other").body)
    assert other["topicList"] == []
    names = json.loads(client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert names["topicList"] == ["DefaultCluster", "broker-a"]
    own = json.loads(client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body)["topicList"]
    # All that a broker takes for its own, whether this store has them or not.
    others = {"DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"}
    assert set(own) == SYSTEM_TOPICS | others and dialogue.served.topics.find("TBW102")
    for code in (RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE):
        answer = client.ask(code, namespace="ORDER_TOPIC_CONFIG", key="orders")
        assert answer.code == ResponseCode.QUERY_NOT_FOUND


def test_who_is_connected(dialogue: Dialogue) -> None:
    client, looker = dialogue.client(), dialogue.client()
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    assert looker.ask(code, consumerGroup="workers").code == ResponseCode.CONSUMER_NOT_ONLINE
    client.heart_beat("workers", "orders", subString="a || b", codeSet=[97, 98])
    found = json.loads(looker.ask(code, consumerGroup="workers").body)
    assert found["connectionSet"] == [
        {
            "clientAddr": "10.0.0.9:40000",
            "clientId": "10.0.0.9@1",
            "language": "JAVA",
            "version": 399,
        }
    ]
    assert (found["consumeType"], found["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert found["subscriptionTable"]["orders"]["tagsSet"] == ["a", "b"]
    assert found["subscriptionTable"]["orders"]["codeSet"] == [97, 98]
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    found = json.loads(looker.ask(code, producerGroup="CLIENT_INNER_PRODUCER").body)
    assert [one["clientId"] for one in found["connectionSet"]] == ["10.0.0.9@1"]
    assert looker.ask(code, producerGroup="none").code == ResponseCode.SYSTEM_ERROR


def answer_calls(client: Client, body: bytes, code: int = 0) -> None:
    """The client answers what it was asked."""
    for asked in client.asked:
        if not asked.is_oneway:
            client.send_bytes(encode_frame(asked.answer(code, body=body)))
    client.asked.clear()


@pytest.mark.parametrize("kind", SerializeType)
def test_a_client_is_asked_for_what_it_alone_knows(dialogue: Dialogue, kind: SerializeType) -> None:
    client, looker = dialogue.client(kind), dialogue.client()
    client.heart_beat("workers", "orders")
    client.asked.clear()
    asked: dict[str, Any] = {"consumerGroup": "workers", "clientId": "10.0.0.9@1"}
    asked["jstackEnable"] = False
    number = looker.send(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    assert number not in looker.answers
    assert client.asked[0].ext_fields["jstackEnable"] == "false"
    answer_calls(client, b'{"properties":{}}')
    assert looker.answers.pop(number).body == b'{"properties":{}}'
    # One that is not there, one that goes, and one that says nothing.
    gone = looker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked | {"clientId": "other"})
    assert gone.code == ResponseCode.SYSTEM_ERROR and "not online" in (gone.remark or "")
    number = looker.send(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    dialogue.wait(10_000)
    assert looker.answers.pop(number).code == ResponseCode.CONSUME_MSG_TIMEOUT
    answer_calls(client, b"too late")
    number = looker.send(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    dialogue.do(dialogue.broker.lost(client.number))
    assert looker.answers.pop(number).code == ResponseCode.CONSUME_MSG_TIMEOUT


def test_nobody_can_make_a_client_be_asked_without_end(dialogue: Dialogue) -> None:
    client, looker = dialogue.client(), dialogue.client()
    client.heart_beat("workers", "orders")
    client.asked.clear()
    asked: dict[str, Any] = {"consumerGroup": "workers", "clientId": "10.0.0.9@1"}
    for _ in range(MAX_CALLS + 5):
        looker.send(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    assert len(client.asked) == MAX_CALLS and len(looker.answers) == 5


def test_what_goes_on_to_a_client_fits_into_its_frames(dialogue: Dialogue) -> None:
    client, looker = dialogue.client(SerializeType.ROCKETMQ), dialogue.client()
    client.heart_beat("workers", "orders")
    asked: dict[str, Any] = {"consumerGroup": "workers", "clientId": "10.0.0.9@1"}
    asked["x" * 40_000] = 1
    looker.send(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    assert "a name of 40000 characters" in looker.closed and client.closed == ""


def test_who_holds_most_is_cut_off_and_not_who_comes_last(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "MAX_PENDING", 5000)
    hoarder, honest = dialogue.client(), dialogue.client()
    hoarder.send_bytes((1 << 20).to_bytes(4) + bytes(4900))
    request = encode_frame(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, 1, body=bytes(500)))
    honest.send_bytes(request[:-1])
    honest.send_bytes(request[-1:])
    assert honest.answers[1].code == 0 and honest.closed == ""
    assert "hold too much" in hoarder.closed
    monkeypatch.setattr(broker, "MAX_PENDING", 0)
    honest.send_bytes(request[:-1])
    assert "hold too much" in honest.closed
    assert dialogue.broker._pending == 0


def test_a_message_is_given_to_one_client(dialogue: Dialogue) -> None:
    client, looker = dialogue.client(), dialogue.client()
    client.heart_beat("workers", "orders")
    client.asked.clear()
    store = dialogue.served.store
    record = store.look_message_by_offset(store.min_offset)
    asked: dict[str, Any] = {"consumerGroup": "workers", "clientId": "10.0.0.9@1"}
    asked["msgId"] = record.msg_id
    number = looker.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, **asked)
    (call,) = client.asked
    mapped, position = store.commit_log.locate(record.physical_offset)
    assert call.body == mapped.read(position, record.total_size)
    assert call.ext_fields["brokerName"] == "broker-a"
    answer_calls(client, b"{}")
    assert looker.answers.pop(number).code == 0
    for wrong in ("", "zz" * 16, "00" * 15 + "7f", record.msg_id[:-2]):
        answer = looker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, **asked | {"msgId": wrong})
        assert answer.code == ResponseCode.SYSTEM_ERROR


def test_members_are_told_where_to_go_on(dialogue: Dialogue) -> None:
    client, looker = dialogue.client(), dialogue.client()
    asked = {"topic": "orders", "group": "cg_orders", "timestamp": -1, "isForce": True}
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    assert looker.ask(code, **asked).code == ResponseCode.CONSUMER_NOT_ONLINE
    assert looker.ask(code, **asked | {"topic": "none"}).code == ResponseCode.SYSTEM_ERROR
    assert looker.ask(code, **asked | {"group": "none"}).code == ResponseCode.SYSTEM_ERROR
    client.heart_beat("cg_orders", "orders")
    client.asked.clear()
    before = dict(dialogue.served.offsets.table())
    answer = looker.ask(code, **asked)
    (told,) = client.asked
    assert told.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert told.body == answer.body
    for (topic, queue_id), offset in queues_in(answer.body).items():
        queue = dialogue.served.store.consume_queue(topic, queue_id)
        assert queue is not None and offset == queue.max_offset
    first = queues_in(looker.ask(code, **asked | {"timestamp": 0}).body)
    assert set(first.values()) == {0}
    # Without force no group is moved forward.
    mild = queues_in(looker.ask(code, **asked | {"isForce": False}).body)
    assert {key[1]: offset for key, offset in mild.items()} == before["orders@cg_orders"]
    assert dialogue.served.offsets.table() == before


def test_members_say_how_far_they_are(dialogue: Dialogue) -> None:
    """Of three one has gone when it is asked, and one answers nonsense."""
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    asked: dict[str, Any] = {"topic": "orders", "group": "workers"}
    looker, clients = dialogue.client(), [dialogue.client() for _ in range(3)]
    assert "online" in (looker.ask(code, **asked).remark or "")
    for number, client in enumerate(clients):
        client.heart_beat("workers", "orders", client_id=f"c{number}")
    for client in clients:
        client.asked.clear()
    number = looker.send(code, **asked)
    assert not clients[1].asked
    (call,) = clients[0].asked
    assert call.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    assert call.ext_fields == asked
    body = b'{"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"orders"}:12}}'
    answer_calls(clients[0], body)
    answer_calls(clients[1], b'{"messageQueueTable":{{"queueId":[1]}:12}}')
    dialogue.do(dialogue.broker.lost(clients[2].number))
    table = b'{"c0":{{"brokerName":"b","queueId":1,"topic":"orders"}:12}}'
    told = looker.answers.pop(number)
    assert told.body == b'{"consumerTable":' + table + b',"messageQueueTable":{}}'
    # The only one that is to be asked, and nobody.
    number = looker.send(code, **asked, clientAddr="c1")
    answer_calls(clients[1], b'{"messageQueueTable":{}}')
    assert looker.answers.pop(number).body.startswith(b'{"consumerTable":{"c1":{}},')
    assert b'"consumerTable":{},' in looker.ask(code, **asked, clientAddr="c7").body
    # Who says nothing is waited for once, for all of them.
    number = looker.send(code, **asked)
    dialogue.wait(5000)
    answer_calls(clients[1], b'{"messageQueueTable":{}}')
    dialogue.wait(2000)
    assert looker.answers.pop(number).body.startswith(b'{"consumerTable":{')


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"t":{', b'{"t":{{"a":1}:1}}', b'{"t":{{"brokerName":"b"}:x}}', b'{"t":[]}'],
)
def test_what_is_no_table_of_queues(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_queue_table(body, "t")


def test_how_the_server_does(dialogue: Dialogue) -> None:
    client = dialogue.client()
    for _ in range(15):
        client.pull("orders", 0, 0)
        dialogue.wait(1000)
    table = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    store = dialogue.served.store
    assert table["commitLogMaxOffset"] == str(store.max_offset)
    assert table["bootTimestamp"] == str(EPOCH)
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    assert table["brokerVersionDesc"] == "V4_9_3"
    assert 0 < float(table["commitLogDiskRatio"]) <= 1
    assert table["getFoundTps"] == "1.0  "
    assert table["getTotalTps"] == "1.0 0.0 0.0"
    assert table["putTps"] == "0.0  "
    assert int(table["msgGetTotalTodayNow"]) >= 15
    assert str(store.root) not in json.dumps(table)
    name, key = "GROUP_GET_NUMS", "orders@readers"
    stats = json.loads(
        client.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key).body
    )
    assert stats["statsMinute"]["sum"] > stats["statsHour"]["sum"]
    for wrong in ({"statsName": "QUEUE", "statsKey": key}, {"statsName": name, "statsKey": "x"}):
        answer = client.ask(RequestCode.VIEW_BROKER_STATS_DATA, **wrong)
        assert answer.code == ResponseCode.SYSTEM_ERROR


def test_rates_are_counted_as_a_broker_counts_them() -> None:
    item, rate = StatsItem(), Rate()
    for minute in range(8):
        item.add(60, 3)
        item.sample(0, minute * 10_000)
        rate.total += 10
        rate.sample(minute * 1000)
    minute_, hour, _ = item.snapshots()
    # Seven samples stay, the first of them the second one taken.
    assert minute_ == (360, 6.0, 20.0)
    assert hour == (0, 0.0, 0.0)
    assert rate.tps(7) == 10.0 and rate.tps(8) is None


def test_times_of_any_year_are_told() -> None:
    """A store time may be any number: Java has such years."""
    assert _date(1_700_000_000_007).endswith(":007")
    assert _date(-1).startswith(("1969-12-31#", "1970-01-01#")) and _date(-1).endswith(":59:999")
    assert _date(2**63 - 1).startswith("292278994-08-1")
