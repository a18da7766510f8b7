"""``MultiDispatch``: what an append adds to a message that names extra queues."""

from __future__ import annotations

from dataclasses import replace

from formats import constants
from rmqctl.engine.dispatch import java_split
from rmqctl.engine.message import MessageExtBrokerInner


def multi_queue_names(message: MessageExtBrokerInner) -> list[str]:
    """The extra queues that a message names, in order."""
    names = message.properties.get(constants.PROPERTY_INNER_MULTI_DISPATCH, "")
    return java_split(names) if names.strip() else []


def add_queue_offsets(
    message: MessageExtBrokerInner, queue_offsets: list[int]
) -> MessageExtBrokerInner:
    """The message with INNER_MULTI_QUEUE_OFFSET, and without WAIT, which is not worth storing
    (``MultiDispatch#wrapMultiDispatch``)."""
    properties = dict(message.properties)
    properties[constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET] = (
        constants.MULTI_DISPATCH_QUEUE_SPLITTER.join(map(str, queue_offsets))
    )
    properties.pop(constants.PROPERTY_WAIT_STORE_MSG_OK, None)
    return replace(message, properties=properties, properties_bytes=None)
