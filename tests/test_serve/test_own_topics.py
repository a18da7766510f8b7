"""The topics that a broker enters by itself, whatever the files of its store say
(``TopicConfigManager``'s constructor)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.serve.processors.request import Served
from rmqctl.serve.state.owntopics import BrokerSwitches
from tests.test_serve.dialogue import Dialogue, json_of
from tests.test_serve.test_sending import CONFIG, send

#: Of a broker with the usual ``broker.conf``: queues and permissions.
OWN = {
    "SELF_TEST_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    "c": (16, 7),
    "b": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "c_REPLY_TOPIC": (1, 6),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    MessageStore(root, CONFIG, writable=True, create=True).close()
    return root


def routes(root: Path, conf: dict[str, str], cluster: str = "c") -> dict[str, tuple[int, int]]:
    """Queues and permissions of every topic."""
    with WritableStore(root, CONFIG) as store:
        named = {"broker_name": "b", "cluster_name": cluster}
        served = Served.of(store, switches=BrokerSwitches.of(conf), **named)  # type: ignore[arg-type]
        client = Dialogue(served).client()
        names = json_of(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)
        found = {}
        for name in names["topicList"]:
            route = json_of(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=name).body)
            (queues,) = route["queueDatas"]
            assert queues["readQueueNums"] == queues["writeQueueNums"]
            found[name] = queues["readQueueNums"], queues["perm"]
        return found


def test_a_broker_has_topics_of_its_own(root: Path) -> None:
    """They are in memory: no file says so before anything else does."""
    assert routes(root, {}) == OWN
    assert not (root / "config/topics.json").exists()


@pytest.mark.parametrize(
    ("conf", "changed"),
    [
        ({"autoCreateTopicEnable": "false"}, {"TBW102": None}),
        ({"defaultTopicQueueNums": "3"}, {"TBW102": (3, 7)}),
        ({"defaultTopicQueueNums": "x"}, {}),
        ({"clusterTopicEnable": "false"}, {"c": (16, 1)}),
        ({"brokerTopicEnable": "FALSE"}, {"b": (1, 1)}),
        ({"traceTopicEnable": "true"}, {"RMQ_SYS_TRACE_TOPIC": (1, 6)}),
        ({"traceTopicEnable": "true", "msgTraceTopicName": "t"}, {"t": (1, 6)}),
        ({"msgTraceTopicName": "t"}, {}),
    ],
)
def test_switches_of_a_broker_conf_count(
    root: Path, conf: dict[str, str], changed: dict[str, Any]
) -> None:
    expected = {name: one for name, one in (OWN | changed).items() if one is not None}
    assert routes(root, conf) == expected


def test_what_the_file_says_counts_more(root: Path) -> None:
    """But for TBW102, which gives no topics when there are to be none; and a broker that is called
    as its cluster has that topic once."""
    table = {n: {"readQueueNums": 2, "writeQueueNums": 2, "perm": 7} for n in ("c", "TBW102")}
    (root / "config").mkdir()
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    found = routes(root, {"autoCreateTopicEnable": "false"})
    assert (found["c"], found["TBW102"]) == ((2, 7), (2, 6))
    assert routes(root, {}, cluster="b")["b"] == (1, 7)


def test_a_first_message_to_one_of_them_finds_its_queues(root: Path) -> None:
    """BenchmarkTest was made after TBW102, with four; and after a start it has all of them, though
    no file names it and its queues on disk are fewer."""
    for number in range(2):
        with WritableStore(root, CONFIG) as store:
            served = Served.of(store, broker_name="b", cluster_name="c")
            client = Dialogue(served).client()
            assert send(client, topic="BenchmarkTest", queueId=1023 - number).code == 0
            refused = send(client, topic="BenchmarkTest", queueId=1024)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert send(client, topic=f"new{number}", defaultTopic="c").code == 0
    assert routes(root, {})["BenchmarkTest"] == (1024, 6)


def test_of_a_store_that_is_only_read_what_it_has_is_shown(root: Path) -> None:
    with MessageStore(root, CONFIG) as store:
        served = Served.of(store, broker_name="b", cluster_name="c")
        assert [topic.name for topic in served.topics] == []
