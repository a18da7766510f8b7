"""Messages that are made from stored ones: of delayed, timed and half messages. Their producers are
gone, so whatever speaks against one is an answer to it, also a further queue that it names
(INNER_MULTI_DISPATCH) and that can be none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    illegal,
)
from rmqctl.errors import TopicNotAllowed

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.engine.store import Store


def check_remade(store: Store, message: MessageExtBrokerInner) -> EncodedMessage | PutMessageResult:
    """The message as a put would store it, or the result that would refuse it, whatever the
    condition of the store."""
    try:
        return store.check_message(message)
    except TopicNotAllowed as error:
        return illegal(str(error))


def put_remade(store: WritableStore, message: MessageExtBrokerInner) -> PutMessageResult:
    """Puts the message, without a flush. :raises CannotWrite: the disk failed."""
    try:
        return store.put_message(message, flush=False)
    except TopicNotAllowed as error:
        return illegal(str(error))
