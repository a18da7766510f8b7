"""A broker and its clients without a network: what is asked, and what comes of it at once."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from formats.remotingcodes import CommandFlag, RequestCode, SerializeType
from rmqctl.serve.broker import Broker
from rmqctl.serve.events import (
    Accessed,
    Append,
    Close,
    Event,
    Job,
    Persist,
    Reading,
    Send,
    Upkeep,
)
from rmqctl.serve.processors.put import append_all, keep
from rmqctl.serve.processors.request import Served
from rmqctl.serve.wire.command import RemotingCommand, java_text
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from rmqctl.serve.writer import keep_up

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore

LOCAL = "10.0.0.7:10911"
TAG_SUBSCRIPTION = {"expressionType": "TAG", "subVersion": 1}


class Dialogue:
    """A broker whose looks at the store are taken at once. ``now`` is its time, in milliseconds."""

    def __init__(self, served: Served, **services: Any) -> None:
        self.broker = Broker(served, **services)
        self.served = served
        self.now = 1_000_000
        self.clients: dict[int, Client] = {}
        self.troubles: list[str] = []
        self.accessed: list[Accessed] = []
        #: Names of the files that were written.
        self.files: list[str] = []

    def client(self, kind: SerializeType = SerializeType.JSON, version: int = 399) -> Client:
        peer = f"10.0.0.9:{40_000 + len(self.clients)}"
        number = self.broker.connected(peer, LOCAL, self.now)
        self.clients[number] = Client(self, number, kind, version)
        return self.clients[number]

    def do(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Send):
                self.clients[event.channel].take(event.data)
            elif isinstance(event, Close):
                self.clients[event.channel].closed = event.reason
                self.do(self.broker.lost(event.channel))
            elif isinstance(event, Job):
                self.do(self.broker.finished(event, result_of(event), self.now))
            elif isinstance(event, Append):
                (answer,) = append_all(cast("WritableStore", self.served.store), [event.put])
                self.do(self.broker.finished(event, answer, self.now))
            elif isinstance(event, Persist):
                self.files.append(event.name)
                keep(cast("WritableStore", self.served.store), event.name, event.text)
            elif isinstance(event, Upkeep):
                kept = keep_up(cast("WritableStore", self.served.store), event)
                self.do(self.broker.upkept(event, kept, self.now))
            elif isinstance(event, Reading):
                self.clients[event.channel].is_read = event.goes_on
            elif isinstance(event, Accessed):
                self.accessed.append(event)
            else:
                self.troubles.append(event.text)

    def wait(self, milliseconds: int) -> None:
        """Time goes by, second for second."""
        for _ in range(-(-milliseconds // 1000)):
            self.now += 1000
            self.do(self.broker.tick(self.now))


def result_of(job: Job) -> Any:
    try:
        return job.work()
    except Exception as error:
        return error


class Client:
    """One connection; ``closed`` says why it was closed."""

    def __init__(self, dialogue: Dialogue, number: int, kind: SerializeType, version: int) -> None:
        self._dialogue = dialogue
        self.number = number
        self._kind = kind
        self._version = version
        self._opaque = 0
        self._reader = FrameReader()
        self.is_read = True
        self.closed = ""
        self.answers: dict[int, RemotingCommand] = {}
        #: What the server has asked of its own.
        self.asked: list[RemotingCommand] = []

    def take(self, data: bytes) -> None:
        for command in self._reader.feed(data):
            if not command.is_response:
                self.asked.append(command)
                continue
            assert command.serialize_type is self._kind
            assert command.flag == CommandFlag.RESPONSE
            assert command.version == 399
            self.answers[command.opaque] = command

    def send(self, code: int, body: Any = b"", rpc_type: int = 0, **fields: Any) -> int:
        """Sends a request; its number."""
        self._opaque += 1
        command = RemotingCommand(
            code,
            self._opaque,
            rpc_type,
            version=self._version,
            ext_fields={name: java_text(value) for name, value in fields.items()},
            body=body if isinstance(body, bytes) else json.dumps(body).encode(),
            serialize_type=self._kind,
        )
        self.send_bytes(encode_frame(command))
        return self._opaque

    def send_bytes(self, data: bytes) -> None:
        dialogue = self._dialogue
        dialogue.do(dialogue.broker.received(self.number, data, dialogue.now))

    def ask(self, code: int, body: Any = b"", **fields: Any) -> RemotingCommand:
        """Sends a request that is answered at once."""
        return self.answers.pop(self.send(code, body, **fields))

    def heart_beat(self, group: str, *topics: str, client_id: str = "", **more: Any) -> None:
        subscriptions = [
            {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], **TAG_SUBSCRIPTION}
            | more
            for topic in topics
        ]
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        body = {
            "clientID": client_id or f"10.0.0.9@{self.number}",
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        }
        answer = self.ask(RequestCode.HEART_BEAT, body)
        assert answer.code == 0, answer.remark

    def pull(self, topic: str, queue_id: int, offset: int, **more: Any) -> RemotingCommand | None:
        """A pull of a group that brings its subscription; None: it waits."""
        fields: dict[str, Any] = {
            "consumerGroup": "readers",
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subscription": "*",
            "subVersion": 0,
        }
        place = {"topic": topic, "queueId": queue_id, "queueOffset": offset}
        return self.answers.pop(self.send(RequestCode.PULL_MESSAGE, **fields | place | more), None)


def json_of(body: bytes) -> Any:
    """A body whose numbers may stand bare as keys."""
    return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body))
