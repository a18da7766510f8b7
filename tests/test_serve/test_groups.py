"""Groups that every broker knows, and those that nobody knew (``SubscriptionGroupManager``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.serve.processors.request import Served
from rmqctl.serve.state.owntopics import BrokerSwitches
from tests.test_serve.dialogue import Dialogue, json_of
from tests.test_serve.test_sending import CONFIG, send

#: Of a broker of 4.9.3 on an empty store: what it answers to 201 and, without queues, to 317.
OWN = {
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
}
UNKNOWN = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Dialogue]:
    """A server whose ``broker.conf`` has no group entered that nobody knew."""
    root = tmp_path / "store"
    MessageStore(root, CONFIG, writable=True, create=True).close()
    switches = BrokerSwitches.of({"autoCreateSubscriptionGroup": "false"})
    with WritableStore(root, CONFIG) as store:
        yield Dialogue(Served.of(store, broker_name="b", cluster_name="c", switches=switches))


def groups(dialogue: Dialogue) -> set[str]:
    body = dialogue.client().ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    return set(json_of(body)["subscriptionGroupTable"])


def test_a_broker_has_groups_of_its_own(dialogue: Dialogue) -> None:
    whole = dialogue.client().ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
    for name in OWN:
        assert f'{{"{name}":['.encode() in whole.body
    assert groups(dialogue) > OWN


def test_no_group_is_entered_where_none_is_to_be(closed: Dialogue) -> None:
    client = closed.client()
    assert send(client, topic="orders", queueId=0).code == 0
    answer = client.pull("orders", 0, 0, consumerGroup="new")
    assert answer is not None and answer.code == UNKNOWN
    assert "new" in (answer.remark or "")
    assert send(client, topic="%RETRY%other").code == UNKNOWN
    back = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, offset=0, group="new", delayLevel=0)
    assert back.code == UNKNOWN
    queue = {"topic": "orders", "queueId": 0}
    commit = client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="new", commitOffset=1, **queue
    )
    assert commit.code == UNKNOWN
    # Its members are known, and hear of each other; it has no topic of retries.
    client.heart_beat("new", "orders")
    members = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="new")
    assert len(json_of(members.body)["consumerIdList"]) == 1
    assert closed.served.topics.find("%RETRY%new") is None
    assert groups(closed) == OWN


@pytest.mark.parametrize("group", ["TOOLS_CONSUMER", "CID_RMQ_SYS_SCHEDULE"])
def test_what_brokers_ask_by_themselves_is_always_answered(closed: Dialogue, group: str) -> None:
    client = closed.client()
    assert send(client, topic="orders", queueId=0).code == 0
    answer = client.pull("orders", 0, 0, consumerGroup=group)
    assert answer is not None and answer.code == ResponseCode.SUCCESS
