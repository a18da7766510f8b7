"""What is checked of a message before its put takes the lock: what ``DefaultMessageStore`` checks,
and what would keep a broker from going on behind the message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from formats import constants
from formats.text import encode_utf8
from rmqctl.engine.dispatch.rules import NO_UNIT, Dispatcher, has_bad_delay
from rmqctl.engine.files import paths
from rmqctl.engine.record.form import FORM_OF_4_9_3, RecordForm, room_of
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    check_lengths,
    delay_rewritten,
    encode,
    illegal,
    port_problem,
)
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import TopicNotAllowed

_BARE = (
    "the message has no properties, and with enableMultiDispatch a broker of 4.9.3 stops "
    "dispatching for good at such a one: give it a property, as tags or keys"
)
_NO_DELAY = "its delay level (DELAY) is no number"
_BAD_DELAY = (
    f"{_NO_DELAY}: in this topic a broker could not read it, and would "
    "delete it at its start, with all behind it"
)
_NO_OFFSETS = (
    "the offsets of its further queues (INNER_MULTI_QUEUE_OFFSET) are no numbers, and a broker "
    "stops dispatching for good at such a message: leave that property out"
)


def check_message(
    message: MessageExtBrokerInner,
    config: MessageStoreConfig,
    dispatcher: Dispatcher,
    file_size: int,
    form: RecordForm = FORM_OF_4_9_3,
    *,
    as_stored: bool = False,
    in_batch: bool = False,
    check_lmq: Callable[[], PutMessageResult | None] = lambda: None,
) -> EncodedMessage | PutMessageResult:
    """Checks and encodes a message without the lock, in the engine's order: names, lengths, light
    queues, delay, host flags, encoding. Returns a result when the message is refused.

    :param file_size: bytes of a log file. :param as_stored: the message is a record of another
        store: its delay level delays nothing, and further queues that it names get nothing.
    :param in_batch: it is in a batch, where the delay level is ignored
        (``CommitLog#asyncPutMessages``), and no record refers to a prepared message
        (``MessageExtEncoder#encode``).
    :param check_lmq: may refuse a message that names further queues.
    :raises TopicNotAllowed: the topic, or a further queue, could leave ``consumequeue/``.
    """
    _check_topic(message.topic)
    if reason := dispatcher.why_not(message.topic):
        return illegal(reason)
    if message.queue_id < 0:
        return illegal(f"queue id {message.queue_id} is negative")
    problem = port_problem(message)
    if problem:
        return illegal(problem)
    refused = check_lengths(message, form)
    if refused is not None:
        return refused
    if has_bad_delay(message.topic, message.properties):
        return illegal(_BAD_DELAY)
    if not as_stored:
        refused = _check_further(message, check_lmq) if config.enable_multi_dispatch else None
        if refused is not None:
            return refused
        kind = message.sys_flag & constants.TRANSACTION_TYPE_MASK
        stops_at_bare = config.enable_multi_dispatch and form == FORM_OF_4_9_3
        if stops_at_bare and kind not in NO_UNIT and not message.properties_data():
            return illegal(_BARE)
        if not (in_batch or message.was_stored or kind in NO_UNIT):
            level = message.delay_time_level
            if level is None:
                return illegal(_NO_DELAY)
            if level > 0:
                message = delay_rewritten(message, len(dispatcher.delay_levels))
        if constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET in message.properties:
            gets_offsets = config.enable_multi_dispatch and not in_batch
            if _keeps_bad_offsets(message, form, gets_offsets=gets_offsets):
                return illegal(_NO_OFFSETS)
    if in_batch and message.prepared_transaction_offset:
        message = replace(message, prepared_transaction_offset=0)
    encoded, room = encode(message, config.max_message_size, form), room_of(file_size)
    if isinstance(encoded, EncodedMessage) and encoded.size > room:
        return illegal(f"the record has {encoded.size} bytes, a commit log file holds {room}")
    return encoded


def _check_topic(topic: str) -> None:
    """:raises TopicNotAllowed: the topic could leave ``consumequeue/``; or its record, where a
    question mark stands for what UTF-8 cannot encode, would name another topic."""
    if topic != encode_utf8(topic).decode():
        raise TopicNotAllowed(topic=topic, reason="UTF-8 cannot encode it")
    paths.check_topic_directory(topic)


def _check_further(
    message: MessageExtBrokerInner, check_lmq: Callable[[], PutMessageResult | None]
) -> PutMessageResult | None:
    """What refuses a message for the further queues that it names; None when they are fine.

    :raises TopicNotAllowed: one could leave ``consumequeue/``.
    """
    from rmqctl.engine.dispatch.multi import multi_queue_names, names_queues

    for name in multi_queue_names(message):
        _check_topic(name)
    return check_lmq() if names_queues(message) else None


def _keeps_bad_offsets(
    message: MessageExtBrokerInner, form: RecordForm, *, gets_offsets: bool
) -> bool:
    """Whether a message would be stored with offsets of further queues at which a broker's
    dispatch stops.

    :param gets_offsets: the append gives it other ones, if it names further queues.
    """
    from rmqctl.engine.dispatch.multi import gets_queue_offsets, stops_dispatch

    if gets_offsets and gets_queue_offsets(message, form):
        return False
    return stops_dispatch(message.topic, message.properties, is_of_5=form != FORM_OF_4_9_3)
