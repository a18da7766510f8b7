"""``topics.json`` and ``subscriptionGroup.json``: the topics and groups of a broker, and the kinds
of topics by their names (``TopicValidator``, ``MixAll``)."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from formats.constants import (
    DLQ_GROUP_TOPIC_PREFIX,
    LMQ_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)
from rmqctl.engine.state import brokerjson

#: ``TopicValidator#SYSTEM_TOPIC_SET``: a broker makes these itself, or needs no entry for them.
SYSTEM_TOPICS = frozenset(
    (
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    )
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
#: ``MixAll.REPLY_TOPIC_POSTFIX``: it follows the name of a cluster.
REPLY_TOPIC_POSTFIX = "_REPLY_TOPIC"
#: ``SubscriptionGroupManager#init``: groups that every broker adds.
GROUPS_OF_EVERY_BROKER = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
#: ``PermName.PERM_INHERIT``: topics named as the cluster and the broker, which have no queues.
PERM_INHERIT = 1


class TopicKind(Enum):
    """The kind of a topic, by its name."""

    NORMAL = "normal"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    LIGHT = "light"
    SYSTEM = "system"


def topic_kind(topic: str) -> TopicKind:
    """The kind of the topic with this name."""
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
        return TopicKind.DEAD_LETTER
    if topic.startswith(LMQ_PREFIX):
        return TopicKind.LIGHT
    if (
        topic in SYSTEM_TOPICS
        or topic.startswith(SYSTEM_TOPIC_PREFIX)
        or topic.endswith(REPLY_TOPIC_POSTFIX)
    ):
        return TopicKind.SYSTEM
    return TopicKind.NORMAL


def needs_no_config(topic: str) -> bool:
    """Whether a topic may have queues without an entry in ``topics.json``, and an entry without
    queues: light queues and a broker's own topics."""
    return topic_kind(topic) in (TopicKind.LIGHT, TopicKind.SYSTEM)


def is_system_group(group: str) -> bool:
    """Whether a broker itself consumes as this group (``MixAll#isSysConsumerGroup``)."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_made_by_broker(group: str) -> bool:
    """Whether a broker adds the group itself, even if it is not used."""
    return group in GROUPS_OF_EVERY_BROKER or is_system_group(group)


class TopicConfig(NamedTuple):
    """``TopicConfig``: a topic's entry in ``topics.json``. None: the field is missing, or its value
    has another type."""

    read_queue_nums: int | None = None
    write_queue_nums: int | None = None
    perm: int | None = None
    topic_filter_type: str | None = None
    topic_sys_flag: int | None = None
    order: bool | None = None


def topic_configs(root: Path) -> dict[str, TopicConfig] | None:
    """Topic → its entry in ``topics.json``, as a broker loads it; None: there is no such file.

    :raises ConfigFileUnreadable: the file is broken, and its ``.bak`` does not help.
    """
    value = brokerjson.read_config(root, brokerjson.TOPICS)
    if value is None:
        return None
    table = brokerjson.table_of(value, "topicConfigTable")
    return {str(topic): _config(entry) for topic, entry in table.items()}


def _config(entry: Any) -> TopicConfig:
    filter_type = entry.get("topicFilterType") if isinstance(entry, dict) else None
    order = entry.get("order") if isinstance(entry, dict) else None
    return TopicConfig(
        number(entry, "readQueueNums"),
        number(entry, "writeQueueNums"),
        number(entry, "perm"),
        filter_type if isinstance(filter_type, str) else None,
        number(entry, "topicSysFlag"),
        order if isinstance(order, bool) else None,
    )


def subscription_groups(root: Path) -> set[str] | None:
    """The groups of ``subscriptionGroup.json``; None: there is no such file. Raises what
    :func:`topic_configs` raises."""
    value = brokerjson.read_config(root, brokerjson.SUBSCRIPTION_GROUP)
    if value is None:
        return None
    return {str(group) for group in brokerjson.table_of(value, "subscriptionGroupTable")}


def data_version(value: Any) -> dict[str, int]:
    """``DataVersion`` of a file's value. A broker increments it with every change."""
    version = brokerjson.table_of(value, "dataVersion")
    return {name: number(version, name) or 0 for name in ("counter", "timestamp")}


def number(value: Any, name: str) -> int | None:
    """A field of an entry, if it is a whole number; else None."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
