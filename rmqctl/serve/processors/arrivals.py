"""The queues in which a message arrives (``MessageArrivingListener``, and
``ReputMessageService#notifyMessageArrive4MultiQueue``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.dispatch.rules import NO_UNIT
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from rmqctl.engine.record.message import PutMessageResult
    from rmqctl.engine.store import Store


def arrivals(store: Store, result: PutMessageResult) -> Iterator[tuple[str, int, int]]:
    """Topic and number of each queue (light queues too) that got the message, and the queue offset
    behind it. Empty where the message was not stored."""
    stored = result.stored
    if stored is None:
        return
    yield result.topic, result.queue_id, stored.queue_offset + stored.msg_num
    if not store.config.enable_multi_dispatch:
        # Without it a put gives nothing a place in further queues.
        return
    try:
        record = store.look_message_by_offset(stored.wrote_offset)
    except (RmqctlError, OSError):
        # Who waits asks again when his time is over.
        return
    if record.transaction_type not in NO_UNIT:
        for name, queue_id, offset in store.dispatcher.multi_dispatch(record):
            yield name, queue_id, offset + 1
