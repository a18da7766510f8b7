"""A topic that the store does not have, mostly because its name is mistyped: which one was meant.
Looked up only when nothing was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.meant import near

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore


def absent_topic(store: MessageStore, topic: str) -> str | None:
    """A note about a topic of which there is no queue, and which config/topics.json does not have;
    None when there is such a topic."""
    known = _topics(store)
    if topic in known:
        return None
    return f"note: the store has no queue of topic {topic!r}{meant_topic(topic, known)}"


def meant_topic(topic: str, known: set[str]) -> str:
    """How a sentence about a topic ends: with the one that was meant, or where all stand."""
    meant = near(topic, sorted(known))
    return f": did you mean {meant!r}?" if meant else ": `rmqctl topics` lists all."


def absent_queue(store: MessageStore, topic: str, queue_id: int) -> str:
    """A note about a queue that is not there."""
    known = _topics(store)
    instead = ": `rmqctl queues` lists all." if topic in known else meant_topic(topic, known)
    return f"note: there is no queue {queue_id} of topic {topic!r}{instead}"


def _topics(store: MessageStore) -> set[str]:
    """Names of topics, as far as they can be had."""
    from rmqctl.engine.state.topicconfig import topic_configs
    from rmqctl.errors import RmqctlError

    found = {*store.queues.topics(), *(where.topic for where in store.batch_queues())}
    try:
        return found | set(topic_configs(store.root) or ())
    except RmqctlError:
        return found  # `config check` says what is wrong with the file.
