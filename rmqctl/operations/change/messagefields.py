"""Messages of JSON fields: what each may be, and the message made of them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from formats import constants
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.record.bodies import body_problem
from rmqctl.engine.record.message import (
    LOCALHOST,
    NOT_IN_PROPERTIES,
    Host,
    MessageExtBrokerInner,
    parse_host,
)
from rmqctl.engine.write.bulk import SPECIAL, Message, PlainMessage, PropertyEncoder
from rmqctl.errors import TopicNotAllowed, UsageError

#: A broker's own default port, so that ids look as they do everywhere.
STORE_HOST: Host = (LOCALHOST[0], 10911)


TRANSACTIONS = {
    "none": constants.TRANSACTION_NOT_TYPE,
    "prepared": constants.TRANSACTION_PREPARED_TYPE,
    "commit": constants.TRANSACTION_COMMIT_TYPE,
    "rollback": constants.TRANSACTION_ROLLBACK_TYPE,
}


_INT = (-0x80000000, 0x7FFFFFFF)


_LONG = (-0x8000000000000000, 0x7FFFFFFFFFFFFFFF)


_CONTAINERS: dict[type, str] = {list: "an array", dict: "an object"}


class NotAMessage(ValueError):
    """The fields make no message; the text says why."""


def _text(name: str, value: Any) -> str:
    if type(value) is not str:
        raise NotAMessage(f"{name} must be a string, not {_spelled(value)}")
    return value


def _spelled(value: Any) -> str:
    """A value for an error message: never long, however long or deep it is."""
    if type(value) in _CONTAINERS:
        return _CONTAINERS[type(value)]
    text = repr(value[:60] if type(value) is str else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _within(limits: tuple[int, int]) -> Callable[[str, Any], int]:
    low, high = limits

    def check(name: str, value: Any) -> int:
        # orjson makes floats of integers beyond 64 bits; True is an int to Python.
        if type(value) is not int:
            raise NotAMessage(f"{name} must be a whole number of 64 bits, not {_spelled(value)}")
        if not low <= value <= high:
            raise NotAMessage(f"{name} {value} is not within {low} to {high}")
        return value

    return check


def _host(name: str, value: Any) -> Host:
    text = _text(name, value)
    try:
        return parse_host(text)
    except ValueError as error:
        raise NotAMessage(f"{name}: {error}") from None


def check_property(name: str, value: Any) -> None:
    """:raises NotAMessage: a property that could not be read back as it is."""
    if type(value) is not str:
        raise NotAMessage(f"property {_spelled(name)} must be a string, not {_spelled(value)}")
    if not name:
        raise NotAMessage("a property has an empty name")
    for mark in NOT_IN_PROPERTIES:
        if mark in name or mark in value:
            raise NotAMessage(
                f"property {_spelled(name)} holds the character {mark!r}: 0x01 and 0x02 separate "
                "properties, and 0x00 counts as damage"
            )


def _properties(_: str, value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise NotAMessage(f"properties must be an object of strings, not {_spelled(value)}")
    for name, text in value.items():
        check_property(name, text)
    return value


def _keys(name: str, value: Any) -> str:
    if type(value) is list:
        return constants.KEY_SEPARATOR.join(_text(name, key) for key in value)
    return _text(name, value)


def _body64(name: str, value: Any) -> bytes:
    text = _text(name, value)
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise NotAMessage(f"{name} is not base64: {error}") from None


def _body(name: str, value: Any) -> bytes:
    return _text(name, value).encode("utf-8", "replace")


def _transaction(name: str, value: Any) -> int:
    kind = TRANSACTIONS.get(_text(name, value))
    if kind is None:
        raise NotAMessage(f"{name} {_spelled(value)} is none of {', '.join(TRANSACTIONS)}")
    return kind


#: Every field of an input line, with its check: JSON value → value.
FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "topic": _text,
    "queue_id": _within((0, _INT[1])),
    "tags": _text,
    "keys": _keys,
    "properties": _properties,
    "body": _body,
    "body_base64": _body64,
    "flag": _within(_INT),
    "sys_flag": _within(_INT),
    "delay_level": _within((0, 0x7FFFFFFF)),
    "transaction": _transaction,
    "born_timestamp": _within(_LONG),
    "born_host": _host,
    "store_host": _host,
    "reconsume_times": _within(_INT),
    "prepared_transaction_offset": _within(_LONG),
}


@dataclass(slots=True)
class MessageMaker:
    """Makes messages from fields; what a message does not say comes from ``defaults``, which are
    fields already checked."""

    defaults: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], int] = system_clock
    _topics: set[str] = field(default_factory=set)
    _encode: PropertyEncoder = field(default_factory=PropertyEncoder)

    def make(self, given: dict[str, Any]) -> Message:
        """:raises NotAMessage: a field is unknown or wrong, or the topic is missing."""
        # The usual line, checked at one glance; whatever is unusual is looked at field by field.
        get = given.get
        topic, queue_id = get("topic"), get("queue_id", 0)
        body, keys, tags = get("body", ""), get("keys", ""), get("tags", "")
        if (
            self.defaults
            or type(topic) is not str
            or topic not in self._topics
            or type(queue_id) is not int
            or not 0 <= queue_id <= 0x7FFFFFFF
            or not (type(body) is type(keys) is type(tags) is str)
            or not _USUAL.issuperset(given)
        ):
            return self.make_full(given)
        properties = self._usual_properties(get("properties", _NO_PROPERTIES), keys, tags)
        if properties is None:
            return self.make_full(given)
        try:
            data = body.encode()
        except UnicodeEncodeError:
            return self.make_full(given)
        row = (topic, queue_id, data, properties, 0, self.clock(), LOCALHOST, STORE_HOST, 0, 0)
        return tuple.__new__(PlainMessage, row)

    def _usual_properties(self, given: Any, keys: str, tags: str) -> bytes | None:
        """The stored properties; None when something about them needs a closer look."""
        if type(given) is not dict or not SPECIAL.isdisjoint(given):
            return None
        properties = given
        if keys or tags:
            properties = {**properties, constants.PROPERTY_KEYS: keys} if keys else {**properties}
            if tags:
                properties[constants.PROPERTY_TAGS] = tags
            if given and not _KEYS_AND_TAGS.isdisjoint(given):
                return None
        if not properties:
            return b""
        if "" in properties or set(map(type, properties.values())) != _STRINGS:
            return None
        try:
            data = self._encode(properties)
        except UnicodeEncodeError:
            return None
        # One more separator than there should be stands in a name or a value.
        count = len(properties)
        sound = data.count(_NAME_VALUE) == count and data.count(_PROPERTY) == count - 1
        sound = sound and b"\0" not in data
        return data if sound else None

    def make_full(self, given: dict[str, Any]) -> MessageExtBrokerInner:
        """:meth:`make` field by field; errors as there."""
        values = dict(self.defaults)
        for name, value in given.items():
            check = FIELDS.get(name)
            if check is None:
                known = ", ".join(FIELDS)
                raise NotAMessage(f"unknown field {_spelled(name)} (known: {known})")
            values[name] = check(name, value)
        if "body" in given and "body_base64" in given:
            raise NotAMessage("body and body_base64 exclude each other")
        topic = values.get("topic")
        if topic is None:
            raise NotAMessage("the field topic is missing")
        if topic not in self._topics:
            self._check_topic(topic)
        properties = dict(values.get("properties", ()))
        for name, key in _PROPERTY_FIELDS:
            if name in values:
                _set_property(properties, key, name, values[name])
        body = values["body_base64"] if "body_base64" in given else values.get("body", b"")
        sys_flag = values.get("sys_flag", 0) | values.get("transaction", 0)
        problem = body_problem(body, sys_flag)
        if problem:
            raise NotAMessage(problem)
        return MessageExtBrokerInner(
            topic,
            body,
            values.get("queue_id", 0),
            values.get("flag", 0),
            sys_flag,
            properties,
            None,
            values["born_timestamp"] if "born_timestamp" in values else self.clock(),
            values.get("born_host", LOCALHOST),
            values.get("store_host", STORE_HOST),
            values.get("reconsume_times", 0),
            values.get("prepared_transaction_offset", 0),
        )

    def _check_topic(self, topic: str) -> None:
        reason = topic_directory_problem(topic)
        if reason is not None:
            raise TopicNotAllowed(topic=topic, reason=reason)
        if len(self._topics) < 10_000:
            self._topics.add(topic)


_NAME_VALUE = constants.NAME_VALUE_SEPARATOR.encode()


_PROPERTY = constants.PROPERTY_SEPARATOR.encode()


_STRINGS = {str}


_NO_PROPERTIES: dict[str, str] = {}


_KEYS_AND_TAGS = {constants.PROPERTY_KEYS, constants.PROPERTY_TAGS}


_USUAL = frozenset(("topic", "queue_id", "tags", "keys", "properties", "body"))


_PROPERTY_FIELDS = (
    ("keys", constants.PROPERTY_KEYS),
    ("tags", constants.PROPERTY_TAGS),
    ("delay_level", constants.PROPERTY_DELAY_TIME_LEVEL),
)


def _set_property(properties: dict[str, str], key: str, name: str, value: Any) -> None:
    if key in properties:
        raise NotAMessage(f"{name} and the property {key} exclude each other")
    if name == "delay_level":
        if value:
            properties[key] = str(value)
    elif value:
        check_property(key, value)
        properties[key] = value


def message_from_fields(
    given: dict[str, Any], clock: Callable[[], int] = system_clock
) -> MessageExtBrokerInner:
    """One message; :raises UsageError: the fields make none."""
    try:
        return MessageMaker(clock=clock).make_full(given)
    except NotAMessage as error:
        raise UsageError(reason=f"{error}.") from None


def checked_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Fields as the defaults of a :class:`MessageMaker`; :raises UsageError: one is wrong."""
    try:
        return {name: FIELDS[name](name, value) for name, value in given.items()}
    except NotAMessage as error:
        raise UsageError(reason=f"{error}.") from None
