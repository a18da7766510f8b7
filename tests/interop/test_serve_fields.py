"""Requests that lack fields, or have fields that no number can be read from: a broker of 4.9.3 and
``serve`` answer them alike."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from tests.golden_data import copy_tree
from tests.interop.commands import only
from tests.interop.conftest import StartEngine
from tests.interop.test_broker import TOPIC
from tests.interop.test_serve import killed, serving

__all__ = ["killed"]
PATIENCE = 60
GROUP = "any-group"
Fields = dict[str, str]
SENT: Fields = {
    "producerGroup": "p",
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "3",
    "properties": "TAGS\1a\2",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "maxReconsumeTimes": "3",
    "batch": "false",
}
SHORT = dict(zip(SENT, "abcdefghijklm", strict=True))
#: Neither commits an offset nor waits, and brings its own subscription.
PULL: Fields = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "4",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "1000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
KEY: Fields = {
    "topic": TOPIC,
    "key": "order-7",
    "maxNum": "4",
    "beginTimestamp": "0",
    "endTimestamp": str((1 << 63) - 1),
}
REQUESTS: dict[str, tuple[RequestCode, Fields]] = {
    "send": (RequestCode.SEND_MESSAGE, SENT),
    "send-v2": (RequestCode.SEND_MESSAGE_V2, {SHORT[n]: text for n, text in SENT.items()}),
    "pull": (RequestCode.PULL_MESSAGE, PULL),
    "pull-and-commit": (RequestCode.PULL_MESSAGE, PULL | {"sysFlag": "5"}),
    "pull-and-wait": (RequestCode.PULL_MESSAGE, PULL | {"sysFlag": "6"}),
    "query": (RequestCode.QUERY_MESSAGE, KEY),
    "query-unique": (RequestCode.QUERY_MESSAGE, KEY | {"_UNIQUE_KEY_QUERY": "true"}),
    "back": (
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {"offset": "0", "group": GROUP, "delayLevel": "3", "maxReconsumeTimes": "3"},
    ),
    "unregister": (
        RequestCode.UNREGISTER_CLIENT,
        {"clientID": "nobody", "consumerGroup": "no-such-group"},
    ),
    "max-offset": (RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}),
    "queue": (
        RequestCode.QUERY_CONSUME_QUEUE,
        {"topic": TOPIC, "queueId": "0", "index": "0", "count": "2"},
    ),
}
#: Errors of both with other codes: a broker looks for a key of ``null``, and finds nothing.
APART = {
    f"{kind}: without {name}" for kind in ("query", "query-unique") for name in ("topic", "key")
}


def variants(fields: Fields) -> Iterator[tuple[str, Fields]]:
    """The request, without each field in turn, and with each number malformed in turn."""
    yield "whole", fields
    for name, text in fields.items():
        yield f"without {name}", {n: one for n, one in fields.items() if n != name}
        if re.fullmatch("[0-9]+", text):
            yield f"bad {name}", fields | {name: "x"}


class Line:
    """A connection without a client."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE)
        self._reader, self._opaque = FrameReader(), 0

    def ask(self, code: int, fields: Fields, body: bytes = b"") -> RemotingCommand:
        self._opaque += 1
        request = RemotingCommand(code, self._opaque, ext_fields=fields, body=body)
        self._socket.sendall(encode_frame(request))
        while data := self._socket.recv(1 << 16):
            for answer in self._reader.feed(data):
                if answer.opaque == self._opaque and answer.is_response:
                    return answer
        raise AssertionError("the connection was closed")


def answers(address: str) -> dict[str, tuple[int, str | None]]:
    line, found = Line(address), {}
    for kind, (code, whole) in REQUESTS.items():
        for name, fields in variants(whole):
            answer = line.ask(code, fields, b"hello" if kind.startswith("send") else b"")
            found[f"{kind}: {name}"] = answer.code, answer.remark
    return found


@only("4.9.3")
@pytest.mark.proves("serve")
def test_fields_that_are_missing_or_malformed(
    killed: tuple[Path, Path], start_engine: StartEngine, tmp_path: Path
) -> None:
    root, conf = killed
    lines = (one.partition("=") for one in conf.read_text("utf-8").splitlines())
    values = {name: value for name, _, value in lines}
    other = copy_tree(root, tmp_path / "of-a-broker")
    engine = start_engine()
    engine.ask("broker", root=str(other), config=values)
    route = Line(engine.ask("address")).ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    (address,) = re.findall(rb"[0-9.]+:[0-9]+", route.body)
    wanted = answers(address.decode())
    engine.ask("stop")
    with serving(root, conf) as server:
        found = answers(server.address)
    codes = {name: code for name, (code, _) in wanted.items()}
    differ = {n: (one, wanted[n]) for n, one in found.items() if one[0] != codes[n]}
    assert differ.keys() == APART, "\n".join(map(str, differ.items()))
    assert all(one and other for (one, _), (other, _) in differ.values())
    assert 0 < sum(map(bool, codes.values())) < len(codes)
    assert not any(codes[f"{kind}: whole"] for kind in REQUESTS)
