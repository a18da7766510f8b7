"""The topics that a broker knows. They distinguish a lost queue from one that was deleted with its
topic."""

from __future__ import annotations

from pathlib import Path

from formats.constants import LMQ_PREFIX, RMQ_SYS_SCHEDULE_TOPIC
from rmqctl.engine.state import brokerjson as files
from rmqctl.errors import CannotRead, ConfigFileUnreadable

#: ``DefaultMessageStore#cleanUnusedTopic`` keeps the queues of these, and of light queues.
_KEPT = (RMQ_SYS_SCHEDULE_TOPIC, "RMQ_SYS_TRANS_OP_HALF_TOPIC")


def known_topics(root: Path) -> frozenset[str] | None:
    """The topics of ``topics.json``. None if it names none or cannot be read, which
    ``config check`` reports."""
    try:
        value = files.read(root / files.CONFIG / files.TOPICS, [])
    except (CannotRead, ConfigFileUnreadable):
        return None
    return frozenset(map(str, files.table_of(value, "topicConfigTable"))) or None


def is_deleted(topic: str, topics: frozenset[str] | None) -> bool:
    """Whether a broker that knows ``topics`` has deleted this topic, and its queues with it."""
    if topics is None or topic in topics or topic in _KEPT:
        return False
    return not topic.startswith(LMQ_PREFIX)
