"""``TopicConfigManager``: the topics that are served, of ``topics.json`` and of the queues on disk.

What a client makes a broker enter, the retry topic of its group, is entered in memory only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.engine.state.topicconfig import PERM_INHERIT, TopicConfig, topic_configs

if TYPE_CHECKING:
    from rmqctl.engine.store import Store

PERM_READ, PERM_WRITE = 4, 2
#: Queues of a topic that clients are told of: they make something of each.
MAX_QUEUES = 1 << 16
#: Topics that clients may have entered beside those of the store.
MAX_ENTERED = 10_000
_TEMPLATE = "TBW102"
_CLUSTER_QUEUES, _BROKER_QUEUES = 16, 1


class ServedTopic(NamedTuple):
    """A topic as clients see it. ``perm`` is what they may do here: less than its own where the
    store is only read."""

    name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    def as_json(self) -> dict[str, Any]:
        """``TopicConfig``, its keys sorted."""
        return {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }


class TooMany(Exception):
    """A client asks the server to remember more than it will."""


class Topics:
    """The topics of a store.

    :param allowed: bits of the permissions that this server grants at all.
    :raises ConfigFileUnreadable: ``topics.json`` is broken, and its ``.bak`` does not help.
    """

    def __init__(self, store: Store, allowed: int) -> None:
        self._allowed = allowed
        self._entered = 0
        found = topic_configs(store.root)
        configs = found or {}
        self._topics = {name: self._configured(name, one) for name, one in configs.items()}
        self.broker_name, self.cluster_name = _names(configs)
        #: Topics with queues that the file does not have; empty where there is no file.
        self.without_config: list[str] = []
        for where in store.queues.directories():
            if where.topic not in configs and where.queue_id < MAX_QUEUES:
                if found is not None and where.topic not in self._topics:
                    self.without_config.append(where.topic)
                self._add_queue(where.topic, where.queue_id + 1)

    def _configured(self, name: str, config: TopicConfig) -> ServedTopic:
        return ServedTopic(
            name,
            min(max(config.read_queue_nums or 0, 0), MAX_QUEUES),
            min(max(config.write_queue_nums or 0, 0), MAX_QUEUES),
            (config.perm or 0) & self._allowed,
            config.topic_filter_type or "SINGLE_TAG",
            config.topic_sys_flag or 0,
            config.order or False,
        )

    def _add_queue(self, name: str, queues: int) -> None:
        known = self._topics.get(name)
        count = max(queues, known.read_queue_nums if known else 0)
        perm = (PERM_READ | PERM_WRITE) & self._allowed
        self._topics[name] = ServedTopic(name, count, count, perm)

    def find(self, name: str) -> ServedTopic | None:
        return self._topics.get(name)

    def enter(self, name: str, queues: int) -> None:
        """Makes a topic in memory, unless there is one (``createTopicInSendMessageBackMethod``).

        :raises TooMany: clients have made enough.
        """
        if name in self._topics:
            return
        if self._entered >= MAX_ENTERED:
            raise TooMany(f"clients have made {MAX_ENTERED} topics already")
        self._entered += 1
        perm = (PERM_READ | PERM_WRITE) & self._allowed
        self._topics[name] = ServedTopic(name, queues, queues, perm)

    def __iter__(self) -> Any:
        return iter(sorted(self._topics.values()))

    def __len__(self) -> int:
        return len(self._topics)


def _names(configs: dict[str, TopicConfig]) -> tuple[str | None, str | None]:
    """Name of the broker and of its cluster, which every broker enters as topics
    (``TopicConfigManager``): with so many queues, to be inherited from."""
    found: list[str | None] = []
    for queues in (_BROKER_QUEUES, _CLUSTER_QUEUES):
        names = [
            name
            for name, one in configs.items()
            if (one.perm or 0) & PERM_INHERIT
            and one.read_queue_nums == queues
            and name != _TEMPLATE
        ]
        found.append(names[0] if len(names) == 1 else None)
    return found[0], found[1]
