"""JSON bodies: fastjson's dialect out, strict JSON in.

fastjson writes keys that are numbers bare (``{0:"…"}``), and keys that are objects as objects
(``{{"topic":…}:…}``): no parser of JSON reads that, and clients of RocketMQ expect it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from rmqctl.serve.wire import javajson
from rmqctl.serve.wire.fields import BadRequest

#: An entry of a table by queues; names of topics and brokers have no braces.
_QUEUE_ENTRY = re.compile(rb"\s*(?:,\s*)?(\{[^{}]*\})\s*:\s*(-?[0-9]{1,19})\s*")
_END_OF_TABLE = re.compile(rb"\s*\}")
#: A heartbeat names its groups and their subscriptions: some kilobytes.
MAX_BODY = 4 << 20


class MessageQueue(NamedTuple):
    """``MessageQueue``, also as the key of an object."""

    broker_name: str
    queue_id: int
    topic: str

    def as_json(self) -> dict[str, Any]:
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}


def encode_body(value: Any, *, quotes_numbers: bool = False) -> bytes:
    """A value as ``RemotingSerializable#encode`` writes it: compact, in the order of its dicts.

    :param quotes_numbers: keys that are numbers stand in quotes, as clients from 4.9.4 on ask for.
    """
    return "".join(_pieces(value, quotes_numbers)).encode("utf-8", "replace")


def _pieces(value: Any, quotes_numbers: bool) -> Iterator[str]:
    if isinstance(value, MessageQueue):
        value = value.as_json()
    if isinstance(value, dict):
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            if number:
                yield ","
            if isinstance(key, int):
                yield f'"{key}"' if quotes_numbers else str(key)
            else:
                yield from _pieces(key, quotes_numbers)
            yield ":"
            yield from _pieces(item, quotes_numbers)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ","
            yield from _pieces(item, quotes_numbers)
        yield "]"
    else:
        text = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        yield orjson.dumps(text).decode()


def decode_body(body: bytes) -> dict[str, Any]:
    """The object of a request's body. :raises BadRequest: there is none."""
    if len(body) > MAX_BODY:
        raise BadRequest(f"the body has {len(body)} bytes, at most {MAX_BODY} are read as JSON")
    try:
        value = javajson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is no JSON: {error.msg}") from None
    if not isinstance(value, dict):
        raise BadRequest("the body is no JSON object")
    return value


def decode_queue_table(body: bytes, name: str) -> dict[MessageQueue, int]:
    """A field of a body that has numbers by queues, whose keys are objects.

    :raises BadRequest: there is no such field, or something else in it.
    """
    if len(body) > MAX_BODY:
        raise BadRequest(f"the body has {len(body)} bytes, at most {MAX_BODY} are read as JSON")
    start = re.search(rb'"' + name.encode() + rb'"\s*:\s*\{', body)
    if start is None:
        raise BadRequest(f"the body has no {name}")
    table: dict[MessageQueue, int] = {}
    at = start.end()
    while (entry := _QUEUE_ENTRY.match(body, at)) is not None:
        queue = decode_body(entry[1])
        key = MessageQueue(
            text_in(queue, "brokerName"), whole_in(queue, "queueId"), text_in(queue, "topic")
        )
        table[key] = int(entry[2])
        at = entry.end()
    if not _END_OF_TABLE.match(body, at):
        raise BadRequest(f"{name} of the body is no table of queues")
    return table


def objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of an array in a body; empty where it is null or absent. :raises BadRequest: it
    is something else."""
    found = value.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadRequest(f"{name} of the body is no array of objects")
    return found


def text_in(value: dict[str, Any], name: str) -> str:
    """A string of a body. :raises BadRequest: it is none."""
    found = value.get(name)
    if not isinstance(found, str):
        raise BadRequest(f"{name} of the body is no string")
    return found


def whole_in(value: dict[str, Any], name: str, default: int | None = None) -> int:
    """A whole number of a body. :raises BadRequest: it is none."""
    found = value.get(name, default)
    if type(found) is not int:
        raise BadRequest(f"{name} of the body is no whole number")
    return found
