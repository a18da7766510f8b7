"""Messages of JSON fields, thousands a second: what ``put --from`` makes of its lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from formats import constants
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.record import fields
from rmqctl.engine.record.message import LOCALHOST, MessageExtBrokerInner
from rmqctl.engine.write.bulk import SPECIAL, Message, PlainMessage, PropertyEncoder
from rmqctl.operations.change.messagefields import STORE_HOST, full_message

_NAME_VALUE = constants.NAME_VALUE_SEPARATOR.encode()
_PROPERTY = constants.PROPERTY_SEPARATOR.encode()
_STRINGS = {str}
_NO_PROPERTIES: dict[str, str] = {}
_KEYS_AND_TAGS = {constants.PROPERTY_KEYS, constants.PROPERTY_TAGS}
_USUAL = frozenset(("topic", "queue_id", "tags", "keys", "properties", "body"))
#: Topics that are remembered as allowed.
_MOST_TOPICS = 10_000


@dataclass(slots=True)
class MessageMaker:
    """Makes messages from fields.

    :param defaults: fields, already checked, for what a message does not say.
    :param ignore_body_crc: a body need not match body_crc and body_length.
    :param ignore_unknown: unknown fields, and rows of unknown types, are passed over.
    """

    defaults: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], int] = system_clock
    ignore_body_crc: bool = False
    ignore_unknown: bool = False
    _topics: set[str] = field(default_factory=set)
    _encode: PropertyEncoder = field(default_factory=PropertyEncoder)

    def make(self, given: dict[str, Any]) -> Message:
        """:raises NotAMessage: a field is unknown or wrong, or the topic is missing."""
        # The usual line takes a few checks; anything unusual is checked field by field.
        get = given.get
        topic, queue_id = get("topic"), get("queue_id", 0)
        body, keys, tags = get("body", ""), get("keys", ""), get("tags", "")
        if (
            self.defaults
            or type(topic) is not str
            or topic not in self._topics
            or type(queue_id) is not int
            or not 0 <= queue_id <= constants.INT_MAX
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
        # More separators than names and values need would be in a name or a value.
        count = len(properties)
        sound = data.count(_NAME_VALUE) == count and data.count(_PROPERTY) == count - 1
        sound = sound and b"\0" not in data
        return data if sound else None

    def make_full(self, given: dict[str, Any]) -> MessageExtBrokerInner:
        """:meth:`make` field by field; errors as there."""
        values = self.defaults | fields.checked(given, ignore_unknown=self.ignore_unknown)
        message = full_message(
            values,
            self.clock,
            was_stored=given.get("type") == fields.MESSAGE,
            ignore_body_crc=self.ignore_body_crc,
            known_topics=self._topics,
        )
        if len(self._topics) < _MOST_TOPICS:
            self._topics.add(message.topic)
        return message
