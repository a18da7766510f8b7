"""Light queues (``enableLmq``): each is a topic that nobody has to make, ``%LMQ%…``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.serve.processors.request import Served
from rmqctl.serve.state import offsets
from tests.test_serve.dialogue import Dialogue, json_of
from tests.test_serve.test_sending import CONFIG, TOPIC, send

LIGHT = replace(CONFIG, enable_lmq=True, enable_multi_dispatch=True)
TO_A_AND_B = "INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    MessageStore(root, LIGHT, writable=True, create=True).close()
    (root / "config").mkdir()
    table = {"topicConfigTable": {"orders": TOPIC}}
    (root / "config/topics.json").write_text(json.dumps(table))
    return root


@pytest.fixture
def dialogue(root: Path) -> Iterator[Dialogue]:
    with WritableStore(root, LIGHT) as store:
        yield Dialogue(Served.of(store, broker_name="b", cluster_name="c"))


def test_a_light_queue_is_read_as_soon_as_a_message_names_it(dialogue: Dialogue) -> None:
    client = dialogue.client()
    unseen = client.pull("%LMQ%a", 0, 0)
    assert unseen is not None and unseen.code == ResponseCode.PULL_NOT_FOUND
    assert send(client, properties=TO_A_AND_B).code == 0
    for topic in ("%LMQ%a", "%LMQ%b"):
        found = client.pull(topic, 0, 0)
        assert found is not None and found.remark == "FOUND"
    other = client.pull("%LMQ%a", 1, 0)
    assert other is not None and other.code == ResponseCode.SYSTEM_ERROR
    route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="%LMQ%a")
    assert route.code == ResponseCode.TOPIC_NOT_EXIST  # A name server hears of none.


def test_who_waits_at_a_light_queue_is_woken_by_its_message(dialogue: Dialogue) -> None:
    """``notifyMessageArrive4MultiQueue``, each time anew."""
    client = dialogue.client()
    for offset in range(2):
        assert client.pull("%LMQ%b", 0, offset, sysFlag=6) is None
        assert send(dialogue.client(), properties=TO_A_AND_B).code == 0
        (number,) = client.answers
        answer = client.answers.pop(number)
        assert (answer.remark, answer.ext_fields["nextBeginOffset"]) == ("FOUND", str(offset + 1))


def test_offsets_of_light_queues_last(dialogue: Dialogue, root: Path) -> None:
    """Those of a light group apart, one of each topic (``LmqConsumerOffsetManager``)."""
    client = dialogue.client()
    for group in ("%LMQ%g", "g"):
        place = {"consumerGroup": group, "topic": "%LMQ%a", "queueId": 0}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=7, **place).code == 0
        found = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **place)
        assert found.ext_fields["offset"] == "7"
    of_topic = {"consumerGroup": "%LMQ%g", "topic": "orders", "queueId": 1, "commitOffset": 3}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **of_topic).code == 0
    dialogue.wait(6000)
    assert dialogue.files == ["lmqConsumerOffset.json"]
    file = json.loads((root / "config/lmqConsumerOffset.json").read_text().replace("0:", '"0":'))
    assert file == {
        "offsetTable": {"%LMQ%a@g": {"0": 7}},
        "lmqOffsetTable": {"%LMQ%a@%LMQ%g": 7, "orders@%LMQ%g": 3},
    }
    # A slave asks for the same two tables (``LmqConsumerOffsetManager#encode``).
    assert json_of(client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body) == file
    again = Served.of(dialogue.served.store).offsets
    assert (again.find("%LMQ%a", "%LMQ%g", 0), again.find("%LMQ%a", "g", 0)) == (7, 7)
    assert again.find("orders", "%LMQ%g", 1) == 3
    assert "%LMQ%g" not in [one.name for one in dialogue.served.groups]


@pytest.mark.parametrize(("conf", "offset"), [("true", 6), ("false", 5), (None, 5)])
def test_offsets_are_of_the_file_that_a_broker_reads(
    conf: str | None, offset: int, root: Path
) -> None:
    """The other one is left from before the switch was turned (``BrokerController``)."""
    for name, number in (("consumerOffset.json", 5), ("lmqConsumerOffset.json", 6)):
        (root / "config" / name).write_text(f'{{"offsetTable":{{"orders@g":{{0:{number}}}}}}}')
    said = parse_broker_conf("" if conf is None else f"enableLmq={conf}\n")
    config = replace(CONFIG, enable_lmq=said.enable_lmq, explicit=CONFIG.explicit | said.explicit)
    with WritableStore(root, config) as store:
        client = Dialogue(Served.of(store, broker_name="b", cluster_name="c")).client()
        asked = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **asked)
        assert (answer.code, answer.ext_fields["offset"]) == (0, str(offset))


def test_names_of_light_queues_fill_no_memory(
    dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many as anybody can think of."""
    monkeypatch.setattr(offsets, "MAX_ENTERED", 5)
    client = dialogue.client()
    topics = len(dialogue.served.topics)
    codes = []
    for number in range(7):
        place = {"consumerGroup": "g", "topic": f"%LMQ%{number}", "queueId": 0, "commitOffset": 1}
        codes.append(client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place).code)
    assert codes == [0] * 5 + [ResponseCode.SYSTEM_ERROR] * 2
    assert len(dialogue.served.topics) == topics


def test_without_the_switch_it_is_a_topic_like_any(root: Path) -> None:
    with WritableStore(root, CONFIG) as store:
        client = Dialogue(Served.of(store, broker_name="b", cluster_name="c")).client()
        unknown = client.pull("%LMQ%a", 0, 0)
        assert unknown is not None and unknown.code == ResponseCode.TOPIC_NOT_EXIST
