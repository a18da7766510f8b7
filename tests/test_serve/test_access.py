"""Accounts: who is who, who may do what, and what a file of them may hold."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.serve.errors import AccountsUnreadable
from rmqctl.serve.processors.access import _OF_BODIES, NEEDS, OPEN
from rmqctl.serve.processors.request import Served
from rmqctl.serve.processors.table import PROCESSORS, WRITERS
from rmqctl.serve.state.accounts import Addresses, load_accounts
from rmqctl.serve.wire.command import RemotingCommand, java_text
from tests import golden_data
from tests.conftest import Golden
from tests.test_serve.dialogue import Client, Dialogue

FILE = """
globalWhiteRemoteAddresses:
- 10.0.0.8
accounts:
- accessKey: reader
  secretKey: of-orders
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=SUB
  - payments=DENY
  - ledger=PUB|SUB
  groupPerms:
  - secret=DENY
- accessKey: keeper
  secretKey: of-the-keys
  admin: true
- accessKey: machine
  secretKey: in-the-cellar
  whiteRemoteAddress: 10.0.0.*
  admin: false
"""
#: Administrators alone may ask.
ADMINISTRATION = {21, 26, 43, 45, 201, 222, 223, 307, 309, 317}


@pytest.fixture
def dialogue(golden: Golden, tmp_path: Path) -> Iterator[Dialogue]:
    path = tmp_path / "plain_acl.yml"
    path.write_text(FILE)
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        yield Dialogue(Served.of(store, accounts=load_accounts(path)))


def ask(
    client: Client, key: str, secret: str, code: int, body: Any = b"", **fields: Any
) -> RemotingCommand | None:
    """A signed request, as ``AclClientRPCHook`` signs it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    texts: dict[str, Any] = {name: java_text(value) for name, value in fields.items()} | {
        "AccessKey": key
    }
    content = "".join(texts[name] for name in sorted(texts)).encode() + data
    digest = hmac.new(secret.encode(), content, hashlib.sha1).digest()
    texts["Signature"] = base64.b64encode(digest).decode()
    return client.answers.pop(client.send(code, data, **texts), None)


def pull(topic: str, **more: Any) -> dict[str, Any]:
    return {
        "consumerGroup": "readers", "topic": topic, "queueId": 0, "queueOffset": 0,
        "maxMsgNums": 3, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
        "subVersion": 0, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "secret", "fields", "problem"),
    [
        ("reader", "of-orders", pull("orders"), ""),
        ("keeper", "of-the-keys", pull("payments"), ""),
        ("reader", "of-orders", pull("payments"), "No permission SUB for topic payments"),
        ("reader", "of-orders", pull("others"), "No permission SUB for topic others"),
        ("reader", "of-orders", pull("orders", consumerGroup="secret"), "for group secret"),
        ("reader", "guessed", pull("orders"), "Check signature failed"),
        ("nobody", "of-orders", pull("orders"), "No acl config for nobody"),
        ("", "of-orders", pull("orders"), "No accessKey is configured"),
        ("machine", "whatever", pull("payments"), ""),
    ],
)
def test_who_may_pull(
    dialogue: Dialogue, key: str, secret: str, fields: dict[str, Any], problem: str
) -> None:
    answer = ask(dialogue.client(), key, secret, RequestCode.PULL_MESSAGE, **fields)
    assert answer is not None
    assert (answer.code == 0) is not bool(problem), answer.remark
    if problem:
        assert answer.code == ResponseCode.SYSTEM_ERROR and answer.body == b""
        assert (answer.remark or "").startswith("org.apache.rocketmq.acl.common.AclException: ")
        assert problem in (answer.remark or "")


def test_the_signature_is_that_of_4_9_3(tmp_path: Path) -> None:
    """By a request that a client of Java has signed, its key in the field's place."""
    path = tmp_path / "acl.yml"
    path.write_text("accounts:\n- {accessKey: rocketmq2, secretKey: '12345678'}\n")
    fields = {"AccessKey": "rocketmq2", "topic": "t", "_UNIQUE_KEY_QUERY": "true"}
    account = load_accounts(path)._accounts["rocketmq2"]
    signed = account.signature(fields, b"body")
    content = b"rocketmq2tbody"
    assert signed == base64.b64encode(hmac.digest(b"12345678", content, hashlib.sha1)).decode()


def test_what_was_signed_cannot_be_changed(dialogue: Dialogue) -> None:
    client = dialogue.client()
    fields = pull("orders")
    content = "".join(java_text(v) for _, v in sorted((fields | {"AccessKey": "reader"}).items()))
    digest = hmac.new(b"of-orders", content.encode(), hashlib.sha1).digest()
    signed = fields | {"AccessKey": "reader", "Signature": base64.b64encode(digest).decode()}
    assert client.ask(RequestCode.PULL_MESSAGE, **signed).code == 0
    for changed in ({"queueOffset": 1}, {"more": "x"}, {"Signature": "ä"}, {"Signature": ""}):
        assert client.ask(RequestCode.PULL_MESSAGE, **signed | changed).code != 0
    assert client.ask(RequestCode.PULL_MESSAGE, b"body", **signed).code != 0


def test_routes_are_open_and_free_addresses_too(dialogue: Dialogue) -> None:
    client = dialogue.client()
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").code == 0
    assert client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code != 0
    number = dialogue.broker.connected("10.0.0.8:5", "10.0.0.7:10911", dialogue.now)
    free = dialogue.clients[number] = Client(dialogue, number, client._kind, 399)
    assert free.ask(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0


def test_an_offset_is_never_answered_with_a_refusal(dialogue: Dialogue) -> None:
    """A client of 4.x would take the group for a new one, and go to the end."""
    client = dialogue.client()
    fields = {"consumerGroup": "readers", "topic": "payments", "queueId": 0}
    assert ask(client, "reader", "of-orders", RequestCode.QUERY_CONSUMER_OFFSET, **fields) is None
    assert client.closed == "No permission SUB for topic payments"


def test_a_heartbeat_needs_what_it_subscribes_to(dialogue: Dialogue) -> None:
    client = dialogue.client()

    def beat(group: str, topic: str) -> int:
        one = {"topic": topic, "subString": "*"}
        body = {
            "clientID": "a",
            "consumerDataSet": [{"groupName": group, "subscriptionDataSet": [one]}],
        }
        answer = ask(client, "reader", "of-orders", RequestCode.HEART_BEAT, body)
        assert answer is not None
        return answer.code

    assert beat("readers", "orders") == 0
    assert beat("readers", "%RETRY%readers") == 0
    assert beat("readers", "payments") != 0 and beat("secret", "orders") != 0
    assert set(dialogue.served.clients.consumers) == {"readers"}


def test_what_is_in_no_table_is_for_administrators(dialogue: Dialogue) -> None:
    client = dialogue.client()
    everything = {*PROCESSORS, *WRITERS}
    assert everything - {*NEEDS, *_OF_BODIES, *OPEN} == ADMINISTRATION | {33, 103, 104}
    assert {*NEEDS, *_OF_BODIES, *OPEN} <= everything
    for code in ADMINISTRATION | {33, 103, 104, 400}:
        answer = ask(client, "reader", "of-orders", code)
        assert answer is not None and "AclException" in (answer.remark or "")
    answer = ask(client, "keeper", "of-the-keys", RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer is not None and answer.code == 0


def test_a_client_that_is_asked_does_not_learn_who_has_asked(dialogue: Dialogue) -> None:
    """A signature holds for other requests with the same fields, too."""
    client = dialogue.client()
    group = {"groupName": "readers", "subscriptionDataSet": []}
    body = {"clientID": "one", "consumerDataSet": [group], "producerDataSet": []}
    assert ask(client, "reader", "of-orders", RequestCode.HEART_BEAT, body) is not None
    client.asked.clear()
    asked = {"consumerGroup": "readers", "clientId": "one"}
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    assert ask(dialogue.client(), "keeper", "of-the-keys", code, **asked) is None
    assert client.asked[0].ext_fields == asked


def test_messages_by_offset_are_those_of_topics_that_one_may_read(
    dialogue: Dialogue, tmp_path: Path
) -> None:
    path = tmp_path / "acl.yml"
    path.write_text(
        "accounts:\n- {accessKey: reader, secretKey: of-orders, defaultTopicPerm: SUB, "
        "defaultGroupPerm: SUB, topicPerms: [orders=DENY]}\n"
    )
    dialogue.served.accounts = load_accounts(path)
    client, found = dialogue.client(), set()
    for record in dialogue.served.store.commit_log.walk():
        if isinstance(record, Record):
            fields = {"offset": record.physical_offset}
            answer = ask(client, "reader", "of-orders", RequestCode.VIEW_MESSAGE_BY_ID, **fields)
            assert answer is not None and (answer.body == b"") is (record.topic == "orders")
            found.add(record.topic)
    assert "orders" in found and len(found) > 1


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [], ["10.0.0.1", ""]),
        ("*", ["10.0.0.1", "::1"], []),
        ("*.*.*.*", ["10.0.0.1"], ["::1", "host"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.2", "10.0.0.11"]),
        ("10.0.0.1,10.0.0.3", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.{1,3}", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.1-100", ["10.0.0.1", "10.0.0.100"], ["10.0.0.101", "10.0.1.1"]),
        ("10.0.*.*", ["10.0.7.200"], ["10.1.0.0"]),
        ("::1", ["::1", "[::1]"], ["::2", "0.0.0.1"]),
    ],
)
def test_white_lists(pattern: str, matching: list[str], others: list[str]) -> None:
    addresses = Addresses(pattern)
    assert [one for one in matching if not addresses.match(one)] == []
    assert [one for one in others if addresses.match(one)] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "accounts: 7",
        "accounts: [7]",
        "accounts:\n- accessKey: short\n  secretKey: 12345678",
        "accounts:\n- {accessKey: reader, secretKey: secret7, topicPerm: [a=SUB]}",
        "accounts:\n- {accessKey: reader, secretKey: secret7, admin: 'yes'}",
        "accounts:\n- {accessKey: reader, secretKey: secret7, topicPerms: [orders]}",
        "accounts:\n- {accessKey: reader, secretKey: secret7, topicPerms: [orders=READ]}",
        "accounts:\n- {accessKey: reader, secretKey: secret7, whiteRemoteAddress: 10.0.0.300}",
        "accounts:\n" + "- {accessKey: reader, secretKey: secret7}\n" * 2,
        "accounts:\n- &a {accessKey: reader, secretKey: secret7}\n- *a",
        "globalWhiteRemoteAddresses: [10.0.0.x]\naccounts: []",
        "accounts: !!python/object/apply:os.system ['true']",
        "a: " + "[" * 5000,
        "\0",
        "x" * (1 << 20) + "y",
    ],
)
def test_what_is_no_file_of_accounts_is_said_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    with pytest.raises(AccountsUnreadable, match=r"plain_acl\.yml"):
        load_accounts(path)
