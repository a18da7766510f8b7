"""Messages of JSON fields (:mod:`rmqctl.engine.record.fields`), made for a put.

The rows of messages that other commands print are such fields, too. One of type ``message`` is a
record of a store, and stays what it was: a DELAY property delays nothing, as with ``import``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from formats import constants
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.record import fields
from rmqctl.engine.record.fields import NotAMessage
from rmqctl.engine.record.message import LOCALHOST, Host, MessageExtBrokerInner
from rmqctl.engine.write.bulk import SPECIAL, Message, PlainMessage, PropertyEncoder
from rmqctl.errors import TopicNotAllowed, UsageError

#: A broker's own default port, so that ids look as they do everywhere.
STORE_HOST: Host = (LOCALHOST[0], 10911)


@dataclass(slots=True)
class MessageMaker:
    """Makes messages from fields; what a message does not say comes from ``defaults``, which are
    fields already checked.

    :param ignore_body_crc: a body may be another than was stored. :param ignore_unknown: fields
        and types of rows that nobody knows are passed over.
    """

    defaults: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], int] = system_clock
    ignore_body_crc: bool = False
    ignore_unknown: bool = False
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
        values = self.defaults | fields.checked(given, ignore_unknown=self.ignore_unknown)
        topic = values.get("topic")
        if topic is None:
            raise NotAMessage("the field topic is missing")
        if topic not in self._topics:
            self._check_topic(topic)
        properties = dict(values.get("properties", ()))
        was_stored = given.get("type") == fields.MESSAGE
        if was_stored:
            # A record's own checksum is another one's in another place.
            properties.pop(constants.PROPERTY_CRC32, None)
        for name, key in _PROPERTY_FIELDS:
            if name in values:
                _set_property(properties, key, name, values[name])
        body = fields.body_of(values, ignore_body_crc=self.ignore_body_crc)
        sys_flag = values.get("sys_flag", 0) | values.get("transaction", 0)
        # Of what length the hosts are they say themselves.
        sys_flag = fields.plain_sys_flag(values, sys_flag) & ~constants.HOST_V6_MASK
        if sys_flag & constants.COMPRESSED_FLAG:
            from rmqctl.engine.record.bodies import body_problem

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
            was_stored and "delay_level" not in values,
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
        fields.check_property(key, value)
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
        return fields.checked(given)
    except NotAMessage as error:
        raise UsageError(reason=f"{error}.") from None
