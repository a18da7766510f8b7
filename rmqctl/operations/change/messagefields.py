"""Makes the message of a put from JSON fields (:mod:`rmqctl.engine.record.fields`).

The rows of messages that other commands print are such fields, too. A row of type ``message`` is a
record of a store, and its message stays what it was: as with ``import``, a DELAY property does not
delay it again.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from formats import constants
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.record import fields
from rmqctl.engine.record.fields import NotAMessage
from rmqctl.engine.record.message import LOCALHOST, Host, MessageExtBrokerInner
from rmqctl.errors import TopicNotAllowed, UsageError

#: A broker's own default port, so that ids look as they do everywhere.
STORE_HOST: Host = (LOCALHOST[0], 10911)
_PROPERTY_FIELDS = (
    ("keys", constants.PROPERTY_KEYS),
    ("tags", constants.PROPERTY_TAGS),
    ("delay_level", constants.PROPERTY_DELAY_TIME_LEVEL),
)


def full_message(
    values: dict[str, Any],
    clock: Callable[[], int] = system_clock,
    *,
    was_stored: bool = False,
    ignore_body_crc: bool = False,
    known_topics: Container[str] = (),
) -> MessageExtBrokerInner:
    """Makes the message of fields that were checked (:func:`~rmqctl.engine.record.fields.checked`).

    :param was_stored: they are those of a record. :param ignore_body_crc: the body need not match
        body_crc and body_length. :param known_topics: topics that were checked before.
    :raises NotAMessage: the topic is missing, or fields exclude each other.
    :raises TopicNotAllowed: the topic could leave ``consumequeue/``.
    """
    topic = values.get("topic")
    if topic is None:
        raise NotAMessage("the field topic is missing")
    if topic not in known_topics:
        reason = topic_directory_problem(topic)
        if reason is not None:
            raise TopicNotAllowed(topic=topic, reason=reason)
    properties = dict(values.get("properties", ()))
    if was_stored:
        # The checksum covers the record's own offset, and does not hold in another place.
        properties.pop(constants.PROPERTY_CRC32, None)
    for name, key in _PROPERTY_FIELDS:
        if name in values:
            _set_property(properties, key, name, values[name])
    body = fields.body_of(values, ignore_body_crc=ignore_body_crc)
    sys_flag = values.get("sys_flag", 0) | values.get("transaction", 0)
    # The flags of the hosts' lengths follow from the hosts themselves.
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
        values["born_timestamp"] if "born_timestamp" in values else clock(),
        values.get("born_host", LOCALHOST),
        values.get("store_host", STORE_HOST),
        values.get("reconsume_times", 0),
        values.get("prepared_transaction_offset", 0),
        was_stored and "delay_level" not in values,
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
        return full_message(fields.checked(given), clock)
    except NotAMessage as error:
        raise UsageError(reason=f"{error}.") from None


def checked_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Checks the fields that are the defaults of many messages. :raises UsageError: one is
    wrong."""
    try:
        return fields.checked(given)
    except NotAMessage as error:
        raise UsageError(reason=f"{error}.") from None
