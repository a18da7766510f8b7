"""Names of topics and groups: a broker checks them where it stores and where it makes a topic, and
nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.serve import metrics
from rmqctl.serve.processors.request import Served
from tests import golden_data
from tests.conftest import Golden
from tests.test_serve.dialogue import Client, Dialogue

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 17, mapped_file_size_consume_queue=200)
#: Of golden store ``basic``, with 33 messages in its only queue.
ODD_TOPIC = "Topic-中文_测试"
HOSTILE = ["", "..", "../x", "/x", "a\\b", "a\0b", "a\x1b[31m", "a\nb", "a\x85b", "a@b", "g" * 256]


@pytest.fixture
def basic(golden: Golden) -> Iterator[Dialogue]:
    with MessageStore(golden("basic"), golden_data.broker_conf("basic")) as store:
        yield Dialogue(Served.of(store))


def consumes(client: Client, group: str, topic: str) -> None:
    """What a consumer asks before its first message, and with it."""
    retry = f"%RETRY%{group}"
    client.heart_beat(group, topic, retry)
    for name in (topic, retry):
        place: dict[str, Any] = {"consumerGroup": group, "topic": name, "queueId": 0}
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **place)
        assert (answer.code, answer.ext_fields["offset"]) == (0, "0")
        committed = {"commitOffset": 0} | place
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **committed).code == 0
    pulled = client.pull(retry, 0, 0, consumerGroup=group, sysFlag=0)
    assert pulled is not None and pulled.code == ResponseCode.PULL_NOT_FOUND
    listed = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    assert listed.code == 0
    for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_CONSUMER_CONNECTION_LIST):
        assert client.ask(code, consumerGroup=group).code == 0
    left = client.ask(RequestCode.UNREGISTER_CLIENT, clientID="c", consumerGroup=group)
    assert left.code == 0 and not client.closed


@pytest.mark.parametrize(
    "group", ["g" * 121, "g" * 127, "g" * 255, "my.group", "组" * 255, "a b", "$group:1"]
)
def test_a_group_is_served_whatever_its_name(basic: Dialogue, group: str) -> None:
    """Java's clients take groups of 255 characters (``CHARACTER_MAX_LENGTH``), of which the topic
    of retries is longer than a topic may be to which is sent, and than a directory's name."""
    consumes(basic.client(), group, "TopicA")
    store = basic.served.store
    assert metrics.text_of(metrics.numbers_of(basic.broker, 1, 1), store)


def test_a_topic_of_the_store_is_served_whatever_its_name(basic: Dialogue) -> None:
    client = basic.client()
    answer = client.ask(RequestCode.GET_MAX_OFFSET, topic=ODD_TOPIC, queueId=0)
    assert (answer.code, answer.ext_fields["offset"]) == (0, "33")
    pulled = client.pull(ODD_TOPIC, 0, 0)
    assert pulled is not None and pulled.code == 0 and pulled.body
    consumes(client, "readers", ODD_TOPIC)
    found = client.ask(
        RequestCode.QUERY_MESSAGE,
        topic=ODD_TOPIC,
        key="no such key",
        maxNum=1,
        beginTimestamp=0,
        endTimestamp=1 << 60,
    )
    assert found.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_name_is_kept(basic: Dialogue, name: str) -> None:
    client = basic.client()
    topics, groups = len(basic.served.topics), len(list(basic.served.groups))
    place: dict[str, Any] = {"queueId": 0}
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        assert client.ask(code, topic=name, **place).code == ResponseCode.SYSTEM_ERROR
    pulled = client.pull("TopicA", 0, 0, consumerGroup=name)
    assert pulled is not None and pulled.code == ResponseCode.SYSTEM_ERROR
    body: dict[str, Any] = {"clientID": "c", "consumerDataSet": [{"groupName": name}]}
    assert client.ask(RequestCode.HEART_BEAT, body).code == ResponseCode.SYSTEM_ERROR
    subscribed = [{"groupName": "g", "subscriptionDataSet": [{"topic": name}]}]
    body["consumerDataSet"] = subscribed
    assert client.ask(RequestCode.HEART_BEAT, body).code == ResponseCode.SYSTEM_ERROR
    assert (len(basic.served.topics), len(list(basic.served.groups))) == (topics, groups)
    client.send(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=name, topic="TopicA", **place)
    assert "is no name" in client.closed


def test_what_the_files_of_a_store_name_is_known(tmp_path: Path) -> None:
    """Also what nobody may bring; it is looked at, and stored nowhere."""
    root = tmp_path / "store"
    MessageStore(root, CONFIG, writable=True, create=True).close()
    (root / "config").mkdir()
    entry = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    topics = {"topicConfigTable": {name: {"topicName": name, **entry} for name in ("a@b", "../x")}}
    (root / "config/topics.json").write_text(json.dumps(topics))
    groups = {"subscriptionGroupTable": {"g@h": {"groupName": "g@h"}}}
    (root / "config/subscriptionGroup.json").write_text(json.dumps(groups))
    with WritableStore(root, CONFIG) as store:
        dialogue = Dialogue(Served.of(store, broker_name="b", cluster_name="c"))
        client = dialogue.client()
        for topic in ("a@b", "../x"):
            answer = client.ask(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0)
            assert (answer.code, answer.ext_fields["offset"]) == (0, "0")
            pulled = client.pull(topic, 0, 0, consumerGroup="g@h")
            assert pulled is not None and pulled.code == ResponseCode.PULL_NOT_FOUND
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
