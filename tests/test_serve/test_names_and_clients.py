"""Routes, heartbeats and groups, and what is never done."""

from __future__ import annotations

import json

import pytest

from formats.remotingcodes import CommandFlag, RequestCode, ResponseCode, SerializeType
from rmqctl.serve.connection import MAX_FRAME_TIME, MAX_IDLE
from rmqctl.serve.processors import refused
from rmqctl.serve.processors.table import PROCESSORS, WRITERS, processor_of
from tests.test_serve.dialogue import LOCAL, Dialogue, json_of

ROUTE = (
    '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.7:10911"},"brokerName":"broker-a",'
    '"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    '"perm":4,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)


@pytest.mark.parametrize("kind", SerializeType)
def test_a_route_leads_to_where_the_client_has_come(
    dialogue: Dialogue, kind: SerializeType
) -> None:
    """The broker's own name and cluster are told by its topics; nobody may write."""
    client = dialogue.client(kind)
    answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
    assert answer.code == 0
    assert answer.body.decode() == ROUTE
    again = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
    assert again.body == answer.body


def test_later_clients_get_their_route_in_json(dialogue: Dialogue) -> None:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    later = dialogue.client(version=401).ask(code, topic="orders")
    asking = dialogue.client().ask(code, topic="orders", acceptStandardJsonOnly=True)
    assert later.body == asking.body == ROUTE.replace("{0:", '{"0":').encode()


def test_an_unknown_topic_has_no_route_and_none_is_made(dialogue: Dialogue) -> None:
    client = dialogue.client()
    for topic in ("unknown", "", "../../etc", "\x1b[31m"):
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark is not None and answer.remark.startswith("No topic route info")
        assert answer.body == b""


def test_the_cluster_is_this_broker(dialogue: Dialogue) -> None:
    client = dialogue.client()
    cluster = json_of(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert cluster["clusterAddrTable"] == {"DefaultCluster": ["broker-a"]}
    assert cluster["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": LOCAL}
    topics = json_of(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)["topicList"]
    assert {"orders", "payments", "%RETRY%cg_orders"} <= set(topics)


def test_members_of_a_group_hear_of_each_other(dialogue: Dialogue) -> None:
    one, other = dialogue.client(), dialogue.client(SerializeType.ROCKETMQ)
    one.heart_beat("workers", "orders", "%RETRY%workers")
    assert [asked.code for asked in one.asked] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    one.asked.clear()
    one.heart_beat("workers", "orders", "%RETRY%workers")
    assert one.asked == []  # Nothing has changed.
    other.heart_beat("workers", "orders", "%RETRY%workers")
    for client in (one, other):
        (asked,) = client.asked
        assert asked.ext_fields == {"consumerGroup": "workers"}
        assert asked.flag == CommandFlag.ONEWAY
        client.asked.clear()
    listed = one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="workers")
    assert json.loads(listed.body) == {"consumerIdList": ["10.0.0.9@1", "10.0.0.9@2"]}
    dialogue.do(dialogue.broker.lost(other.number))
    assert len(one.asked) == 1
    answer = one.ask(RequestCode.UNREGISTER_CLIENT, clientID="x", consumerGroup="workers")
    assert answer.code == 0
    gone = one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="workers")
    assert gone.code == ResponseCode.SYSTEM_ERROR


def test_one_client_behind_two_connections_is_two_members(dialogue: Dialogue) -> None:
    """As a broker has them until one is lost; what is asked of the client goes to the newer."""
    old, new = dialogue.client(), dialogue.client()
    producers = {"groupName": "senders"}
    consumers = {"groupName": "workers", "subscriptionDataSet": []}
    body = {"clientID": "c", "consumerDataSet": [consumers], "producerDataSet": [producers]}
    clients = dialogue.served.clients

    def listed() -> list[str]:
        answer = new.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="workers")
        ids: list[str] = json.loads(answer.body)["consumerIdList"]
        return ids

    for client in (new, old):
        assert client.ask(RequestCode.HEART_BEAT, body).code == 0
    assert listed() == ["c", "c"]
    found = clients.find_producer("c")
    assert found is not None and found.channel.number == new.number
    dialogue.do(dialogue.broker.lost(old.number))
    assert listed() == ["c"] and clients.find_producer("c") == found


def test_a_group_brings_its_retry_topic(dialogue: Dialogue) -> None:
    client = dialogue.client()
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    assert client.ask(code, topic="%RETRY%workers").code == ResponseCode.TOPIC_NOT_EXIST
    client.heart_beat("workers", "orders")
    route = json_of(client.ask(code, topic="%RETRY%workers").body)
    assert route["queueDatas"][0]["readQueueNums"] == 1


def test_whoever_is_silent_is_forgotten(dialogue: Dialogue) -> None:
    one, other, silent = dialogue.client(), dialogue.client(), dialogue.client()
    one.heart_beat("workers", "orders")
    other.heart_beat("workers", "orders")
    one.asked.clear()
    for _ in range(9):
        dialogue.wait(30_000)
        one.heart_beat("workers", "orders")
        # It asks, and sends no heartbeat any more.
        if not other.closed:
            other.send(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert other.closed == "no heartbeat for two minutes"
    assert silent.closed == "nothing was received for two minutes"
    assert not one.closed
    assert [asked.code for asked in one.asked] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert MAX_IDLE == 120_000


def test_half_a_frame_is_not_waited_for_forever(dialogue: Dialogue) -> None:
    client = dialogue.client()
    for _ in range(MAX_FRAME_TIME // 20_000 + 1):
        assert not client.closed
        client.send_bytes(b"\0")
        dialogue.wait(20_000)
    assert client.closed == "a frame takes too long"


def test_no_bytes_harm_another_connection(dialogue: Dialogue) -> None:
    good, bad = dialogue.client(), dialogue.client()
    good.heart_beat("workers", "orders")
    bad.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert bad.closed
    assert good.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        {"clientID": 7},
        {"clientID": "a", "consumerDataSet": {}},
        {"clientID": "a", "consumerDataSet": [7]},
        {"clientID": "a", "consumerDataSet": [{"groupName": "../x"}]},
        {"clientID": "a", "consumerDataSet": [{"groupName": "g" * 256}]},
        {"clientID": "a", "producerDataSet": [{"groupName": None}]},
        {"clientID": "a", "producerDataSet": [{"groupName": f"g{n}"} for n in range(3000)]},
        {"clientID": "a", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{}]}]},
    ],
)
def test_a_heartbeat_that_is_none_changes_nothing(dialogue: Dialogue, body: object) -> None:
    client = dialogue.client()
    answer = client.ask(RequestCode.HEART_BEAT, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
    assert not dialogue.served.clients.consumers
    assert not dialogue.served.clients.producers
    assert client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


def test_what_clients_may_have_remembered_has_a_bound(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.serve.state.groups.MAX_ENTERED", 5)
    client = dialogue.client()
    codes = [
        client.pull("orders", 0, 0, consumerGroup=f"g{number}").code  # type: ignore[union-attr]
        for number in range(8)
    ]
    assert codes == [0] * 5 + [ResponseCode.SYSTEM_ERROR] * 3


@pytest.mark.parametrize("code", sorted(refused.NEVER))
def test_what_is_never_done_is_refused(dialogue: Dialogue, code: int) -> None:
    answer = dialogue.client().ask(code, b"rocketmqHome=/tmp")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert code not in PROCESSORS


def test_no_entry_brings_back_what_is_never_done(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = RequestCode.UPDATE_BROKER_CONFIG
    monkeypatch.setitem(PROCESSORS, code, PROCESSORS[RequestCode.HEART_BEAT])
    assert processor_of(code, writes=True) is refused.never


def test_nothing_that_is_never_done_has_a_processor() -> None:
    assert not refused.NEVER & {*PROCESSORS, *WRITERS}
    assert set(WRITERS) == refused.WRITING


@pytest.mark.parametrize("code", sorted(refused.WRITING))
def test_who_sends_learns_that_the_store_is_read_only(dialogue: Dialogue, code: int) -> None:
    answer = dialogue.client().ask(code, b"body")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"


def test_what_nobody_has_built_is_not_supported(dialogue: Dialogue) -> None:
    client = dialogue.client()
    for code in (0, 13, 400, 200050, 2**31 - 1, -1):
        answer = client.ask(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {code} not supported"


def test_a_request_without_a_wish_for_an_answer_gets_none(dialogue: Dialogue) -> None:
    client = dialogue.client()
    for code in (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.END_TRANSACTION, 13):
        client.send(code, rpc_type=CommandFlag.ONEWAY)
    # Nor does an answer to something that nobody has asked.
    client.send(0, rpc_type=CommandFlag.RESPONSE)
    assert client.answers == {}


def test_codes_of_tags_may_be_texts(dialogue: Dialogue) -> None:
    """As the client for Go writes them; what is no number ends the request."""
    client, code = dialogue.client(), RequestCode.GET_CONSUMER_CONNECTION_LIST
    client.heart_beat("workers", "orders", subString="a || b", codeSet=["97", "-98", 5])
    found = json.loads(client.ask(code, consumerGroup="workers").body)
    assert found["subscriptionTable"]["orders"]["codeSet"] == [-98, 5, 97]
    for codes in (["x"], [""], ["1" * 5000], ["٣"], [True], [1.0], [None], "97", {"97": 1}):
        subscription = {"topic": "orders", "subString": "a", "codeSet": codes}
        consumer = {"groupName": "workers", "subscriptionDataSet": [subscription]}
        body = {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}
        answer = client.ask(RequestCode.HEART_BEAT, body)
        assert "codeSet" in (answer.remark or ""), codes
