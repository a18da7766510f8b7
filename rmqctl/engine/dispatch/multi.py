"""``MultiDispatch``: the extra queues that a message names, and what an append adds for them."""

from __future__ import annotations

from dataclasses import replace

from formats import constants
from formats.text import encode_properties, is_blank, java_long
from rmqctl.engine.dispatch.rules import Dispatcher, multi_split, topic_allows_lmq
from rmqctl.engine.record.form import FORM_OF_4_9_3, RecordForm
from rmqctl.engine.record.message import MessageExtBrokerInner


def multi_queue_names(message: MessageExtBrokerInner) -> list[str]:
    """The names of the extra queues of a message, in its order (INNER_MULTI_DISPATCH)."""
    if not names_queues(message):
        return []
    return multi_split(message.properties[constants.PROPERTY_INNER_MULTI_DISPATCH])


def names_queues(message: MessageExtBrokerInner) -> bool:
    """Whether INNER_MULTI_DISPATCH is more than white space. Commas alone are, though they name no
    queue."""
    return not is_blank(message.properties.get(constants.PROPERTY_INNER_MULTI_DISPATCH, ""))


def gets_queue_offsets(message: MessageExtBrokerInner, form: RecordForm) -> bool:
    """Whether an append with ``enableMultiDispatch`` rewrites a message's properties
    (:func:`add_queue_offsets`), also for no queue (``MultiDispatch#wrapMultiDispatch``). In a store
    of 5.x, only messages of some topics are (:func:`topic_allows_lmq`); the topic is that under
    which it is stored."""
    return names_queues(message) and (form == FORM_OF_4_9_3 or topic_allows_lmq(message.topic))


def multi_queues(
    message: MessageExtBrokerInner, form: RecordForm, dispatcher: Dispatcher
) -> list[tuple[str, int]]:
    """The extra queues that a message goes to: names and queue ids."""
    if not gets_queue_offsets(message, form):
        return []
    return [
        (name, dispatcher.multi_queue_id(name, message.queue_id))
        for name in multi_queue_names(message)
    ]


def add_queue_offsets(
    message: MessageExtBrokerInner, queue_offsets: list[int]
) -> MessageExtBrokerInner:
    """The message with the property INNER_MULTI_QUEUE_OFFSET and without WAIT, which a broker does
    not store here (``MultiDispatch#wrapMultiDispatch``).

    Properties that were removed still count for the order of the others: Java's hash map keeps the
    table size that it had with them.
    """
    properties = dict(message.properties)
    properties[constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET] = (
        constants.MULTI_DISPATCH_QUEUE_SPLITTER.join(map(str, queue_offsets))
    )
    wait = constants.PROPERTY_WAIT_STORE_MSG_OK
    unsaid = dict.fromkeys([*message.cleared, *properties.keys() & {wait}])
    data = encode_properties({**properties, **unsaid})
    properties.pop(wait, None)
    return replace(message, properties=properties, properties_bytes=data)


def offsets_are_numbers(properties: dict[str, str]) -> bool:
    """Whether a broker can read the queue offsets of a stored message's extra queues. It parses
    them when there are as many as names, and fails on one that is no Java long."""
    names = properties.get(constants.PROPERTY_INNER_MULTI_DISPATCH, "")
    offsets = properties.get(constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET, "")
    if is_blank(names) or is_blank(offsets):
        return True
    parts = multi_split(offsets)
    return len(parts) != len(multi_split(names)) or None not in map(java_long, parts)


def stops_dispatch(topic: str, properties: dict[str, str], *, is_of_5: bool) -> bool:
    """Whether a broker's dispatch stops at a message for good. It parses the offsets of further
    queues for waiting consumers whatever the switches say; 5.x does not in topics of retries
    (``notifyMessageArrive4MultiQueue``)."""
    if is_of_5 and topic.startswith(constants.RETRY_GROUP_TOPIC_PREFIX):
        return False
    return not offsets_are_numbers(properties)
