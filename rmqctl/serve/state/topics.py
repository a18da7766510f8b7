"""``TopicConfigManager``: the topics that are served, of ``topics.json`` and of the queues on disk.

What a client makes a broker enter is in memory first; the file gets it with the first message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.constants import LMQ_PREFIX
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.topicconfig import (
    PERM_INHERIT,
    TopicConfig,
    data_version,
    needs_no_config,
    number,
    topic_configs,
)
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from rmqctl.engine.store import Store

PERM_READ, PERM_WRITE = 4, 2
PERM_ALL = PERM_READ | PERM_WRITE | PERM_INHERIT
#: Queues of a topic that clients are told of: they make something of each.
MAX_QUEUES = 1 << 16
#: Topics that clients may have entered beside those of the store.
MAX_ENTERED = 10_000
#: ``TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC``: new topics are made after it.
TEMPLATE = "TBW102"
#: Queues of the topics that have the names of the cluster and of the broker.
CLUSTER_QUEUES, BROKER_QUEUES = 16, 1


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

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    def with_queues(self, other: ServedTopic) -> ServedTopic:
        """This topic with at least as many queues as another has."""
        reads = max(self.read_queue_nums, other.read_queue_nums)
        writes = max(self.write_queue_nums, other.write_queue_nums)
        return self._replace(read_queue_nums=reads, write_queue_nums=writes)

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
        self._root = store.root
        self._allowed = allowed
        self._entered = 0
        self._has_light = store.config.enable_lmq
        self._value = brokerjson.read_config(store.root, brokerjson.TOPICS)
        found = topic_configs(store.root)
        configs = found or {}
        #: What topics may by ``topics.json``, whatever is granted here.
        self._own_perms = {name: one.perm or 0 for name, one in configs.items()}
        self._topics = {name: self._configured(name, one) for name, one in configs.items()}
        self._saved = set(self._topics)
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

    def enter_own(self, own: Mapping[str, ServedTopic]) -> None:
        """Enters the topics that a broker makes at its start, of a store that is written; of one
        that is only read what it has is shown. Those of ``topics.json`` stay as they are there,
        but that TBW102 gives no topics when there are to be none: then it is not among them
        (``createTopicInSendMessageMethod``)."""
        for name, topic in own.items():
            if name not in self._own_perms:
                known = self._topics.get(name)
                self._topics[name] = topic if known is None else topic.with_queues(known)
        template = self._topics.get(TEMPLATE)
        if template is not None and TEMPLATE not in own:
            self._topics[TEMPLATE] = template._replace(perm=template.perm & ~PERM_INHERIT)
        self.without_config = [name for name in self.without_config if name not in own]

    def create(self, name: str, template: str, queues: int) -> ServedTopic | None:
        """Makes a topic after another one; None where that does not allow it.

        :raises TooMany: clients have made enough.
        """
        base = self._topics.get(template)
        if base is None or not base.perm & PERM_INHERIT:
            return None
        count = max(min(queues, base.write_queue_nums), 0)
        self.enter(name, count)
        made = self._topics[name]._replace(
            perm=base.perm & ~PERM_INHERIT, topic_filter_type=base.topic_filter_type
        )
        self._topics[name] = made
        return made

    def saved_with(self, name: str, now: int) -> str | None:
        """The text of ``topics.json`` when it has to have a topic that it has not; None: it has it,
        or needs no entry of it. :param now: milliseconds since the epoch."""
        topic = self._topics.get(name)
        if topic is None or name in self._saved or needs_no_config(name):
            return None
        self._saved.add(name)
        if not isinstance(self._value, dict):
            self._value = {}
        version = brokerjson.table_of(self._value, "dataVersion")
        counter = number(version, "counter") or 0
        self._value["dataVersion"] = {"counter": counter + 1, "timestamp": now}
        table = brokerjson.table_of(self._value, "topicConfigTable")
        self._value["topicConfigTable"] = table | {name: topic.as_json()}
        return fastjson.dumps(self._value)

    def not_saved(self) -> None:
        """The file could not be written: what it has is looked for again. Where it cannot be read
        either, no topic counts as written."""
        try:
            self._saved = set(topic_configs(self._root) or ())
        except RmqctlError:
            self._saved = set()

    def table(self) -> dict[str, Any]:
        """``TopicConfigSerializeWrapper``: every topic with its own permissions. Who asks wants to
        know, or to copy, what the broker has."""
        return {
            "dataVersion": data_version(self._value),
            "topicConfigTable": {
                one.name: one.as_json() | {"perm": self._own_perms.get(one.name, one.perm)}
                for one in self
            },
        }

    def __contains__(self, name: object) -> bool:
        """Whether it is known by name, and not only by its kind."""
        return name in self._topics

    def find(self, name: str) -> ServedTopic | None:
        """The topic, as ``selectTopicConfig`` has it: with ``enableLmq`` every light queue is one,
        also before its first message (``LmqTopicConfigManager``)."""
        if self._has_light and name.startswith(LMQ_PREFIX):
            return ServedTopic(name, 1, 1, (PERM_READ | PERM_WRITE) & self._allowed)
        return self._topics.get(name)

    def find_registered(self, name: str) -> ServedTopic | None:
        """The topic, if a name server knows of it."""
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
    for queues in (BROKER_QUEUES, CLUSTER_QUEUES):
        names = [
            name
            for name, one in configs.items()
            if (one.perm or 0) & PERM_INHERIT and one.read_queue_nums == queues and name != TEMPLATE
        ]
        found.append(names[0] if len(names) == 1 else None)
    return found[0], found[1]
