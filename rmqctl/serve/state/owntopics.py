"""The topics that every broker enters by itself at its start, whatever its ``topics.json`` says
(``TopicConfigManager``'s constructor)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from formats.constants import RMQ_SYS_SCHEDULE_TOPIC
from formats.text import java_int
from rmqctl.engine.state.topicconfig import PERM_INHERIT, REPLY_TOPIC_POSTFIX
from rmqctl.serve.state.topics import (
    BROKER_QUEUES,
    CLUSTER_QUEUES,
    MAX_QUEUES,
    PERM_ALL,
    PERM_READ,
    PERM_WRITE,
    TEMPLATE,
    ServedTopic,
)

_READS_AND_WRITES = PERM_READ | PERM_WRITE
_SELF_TEST, _BENCHMARK = "SELF_TEST_TOPIC", "BenchmarkTest"
_OFFSET_MOVED_EVENT, _TRACE = "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC"
_BENCHMARK_QUEUES, _SCHEDULE_QUEUES = 1024, 18


class BrokerSwitches(NamedTuple):
    """What a ``broker.conf`` says of what a broker makes by itself (``BrokerConfig``), by its
    defaults.

    ``trace_topic`` is the name of the topic of traces; None: there is to be none.
    ``template_queues`` is how many queues TBW102 has, ``defaultTopicQueueNums``.
    ``creates_groups``: groups that nobody knew are entered, ``autoCreateSubscriptionGroup``.
    """

    auto_creates: bool = True
    cluster_topic: bool = True
    broker_topic: bool = True
    trace_topic: str | None = None
    template_queues: int = 8
    creates_groups: bool = True

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> BrokerSwitches:
        """Those of the lines of a ``broker.conf``."""

        def is_on(name: str, default: str) -> bool:
            return conf.get(name, default).strip().lower() == "true"

        queues = java_int(conf.get("defaultTopicQueueNums", "").strip())
        usual = cls().template_queues
        return cls(
            is_on("autoCreateTopicEnable", "true"),
            is_on("clusterTopicEnable", "true"),
            is_on("brokerTopicEnable", "true"),
            conf.get("msgTraceTopicName", _TRACE) if is_on("traceTopicEnable", "false") else None,
            usual if queues is None else min(max(queues, 0), MAX_QUEUES),
            is_on("autoCreateSubscriptionGroup", "true"),
        )


DEFAULT_SWITCHES = BrokerSwitches()


def own_topics(broker: str, cluster: str, switches: BrokerSwitches) -> dict[str, ServedTopic]:
    """The topics by their names. Of one name the later counts: a broker that is called as its
    cluster has that topic with one queue."""

    def topic(name: str, queues: int, perm: int = _READS_AND_WRITES) -> ServedTopic:
        return ServedTopic(name, queues, queues, perm)

    topics = [topic(_SELF_TEST, 1)]
    if switches.auto_creates:
        topics.append(topic(TEMPLATE, switches.template_queues, PERM_ALL))
    topics += [
        topic(_BENCHMARK, _BENCHMARK_QUEUES),
        topic(cluster, CLUSTER_QUEUES, PERM_ALL if switches.cluster_topic else PERM_INHERIT),
        topic(broker, BROKER_QUEUES, PERM_ALL if switches.broker_topic else PERM_INHERIT),
        topic(_OFFSET_MOVED_EVENT, 1),
        topic(RMQ_SYS_SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
    ]
    if switches.trace_topic is not None:
        topics.append(topic(switches.trace_topic, 1))
    topics.append(topic(cluster + REPLY_TOPIC_POSTFIX, 1))
    return {one.name: one for one in topics}
