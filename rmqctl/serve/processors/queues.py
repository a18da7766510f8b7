"""Looks up the queue that a client names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.engine.files.paths import topic_directory_problem

if TYPE_CHECKING:
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.store import Store


def queue_of(store: Store, topic: str, queue_id: int) -> ConsumeQueue | None:
    """A queue; None where it does not exist, or where no directory can have the topic's name. A
    broker has an empty queue in memory then (``DefaultMessageStore#findConsumeQueue``)."""
    if topic_directory_problem(topic) is not None:
        return None
    return store.consume_queue(topic, queue_id)
