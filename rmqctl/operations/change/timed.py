"""put --deliver-at, --delay: a message with a time of delivery, as a client and a broker of 5.x
make it (``Message#setDeliverTimeMs``, ``HookUtils#transformTimerMessage``)."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from formats import constants
from formats.text import CAPACITY_OF_5, encode_properties
from rmqctl.engine.state.laterversions import is_of_5
from rmqctl.errors import UsageError

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.record.message import MessageExtBrokerInner


def timed_message(
    store: MessageStore,
    message: MessageExtBrokerInner,
    now: int,
    *,
    deliver_at: int | None = None,
    delay: int | None = None,
) -> MessageExtBrokerInner:
    """The message as it waits in the timer's topic until ``deliver_at``, or for ``delay`` from
    ``now`` on (all in milliseconds). One whose time is over is delivered at once: it keeps its
    topic, and only gets the property that asks for the time.

    It gets a UNIQ_KEY where it has none: without one nothing tells whether it was delivered.

    :raises UsageError: the store is no store of 5.x, the time is further away than
        ``timerMaxDelaySec``, or the message waits for something else.
    """
    if not is_of_5(store.root):
        raise UsageError(
            reason="no broker of 5.x has run on this store, and others deliver by level only: give "
            "--delay-level."
        )
    kind = message.sys_flag & constants.TRANSACTION_TYPE_MASK
    if message.delay_time_level != 0 or kind:
        raise UsageError(
            reason="a message with a delay level, or of a transaction, has no time: leave one "
            "of the two out."
        )
    properties = dict(message.properties)
    properties.setdefault(constants.PROPERTY_UNIQ_KEY, _unique_key(now))
    if delay is not None:
        properties[constants.PROPERTY_TIMER_DELAY_MS] = str(delay)
        at = now + delay
    else:
        at = now if deliver_at is None else deliver_at
        properties[constants.PROPERTY_TIMER_DELIVER_MS] = str(at)
    if at <= now:
        return replace(message, properties=properties)
    most = store.config.timer_max_delay_sec
    if at - now > most * 1000:
        raise UsageError(
            reason=f"a broker delays for {most} seconds at most (timerMaxDelaySec in broker.conf, "
            "which --broker-conf names)."
        )
    # A message whose time is a multiple of the precision is delivered with the slot before it.
    precision = _precision(store)
    properties[constants.PROPERTY_TIMER_OUT_MS] = str((at - 1) // precision * precision)
    properties[constants.PROPERTY_REAL_TOPIC] = message.topic
    properties[constants.PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    return replace(
        message,
        topic=constants.TIMER_TOPIC,
        queue_id=0,
        properties=properties,
        properties_bytes=encode_properties(properties, CAPACITY_OF_5),
    )


def _precision(store: MessageStore) -> int:
    from rmqctl.engine.services.timer import Timer

    timer = Timer(store)
    try:
        return timer.precision
    finally:
        timer.close()


def _unique_key(now: int) -> str:
    """A key in the form of a client's (``MessageClientIDSetter#createUniqID``): address, process,
    random bytes, time."""
    address, process = "7F000001", os.getpid() & 0xFFFF
    return f"{address}{process:04X}{os.urandom(6).hex().upper()}{now & 0xFFFFFFFF:08X}"
