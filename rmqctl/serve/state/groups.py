"""``SubscriptionGroupManager``: how groups may consume. Groups that clients bring are entered in
memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from formats.constants import LMQ_PREFIX
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.topicconfig import (
    GROUPS_OF_EVERY_BROKER,
    SYSTEM_GROUP_PREFIX,
    data_version,
    number,
)
from rmqctl.serve.state.topics import MAX_QUEUES, TooMany

#: Groups that clients may have entered beside those of the store.
MAX_ENTERED = 10_000


class UnknownGroup(Exception):
    """A group is asked for that is not there, and groups are not to be entered."""


class GroupConfig(NamedTuple):
    """``SubscriptionGroupConfig``."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

    def as_json(self) -> dict[str, Any]:
        """Its keys sorted."""
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }


class Groups:
    """The groups of ``subscriptionGroup.json``, and those that every broker has.

    :raises ConfigFileUnreadable: the file is broken, and its ``.bak`` does not help.
    """

    def __init__(self, root: Path, enable_lmq: bool = False, creates: bool = True) -> None:
        """:param enable_lmq: groups of light queues are known without being entered.
        :param creates: a group that nobody knew is entered (``autoCreateSubscriptionGroup``)."""
        value = brokerjson.read_config(root, brokerjson.SUBSCRIPTION_GROUP)
        table = brokerjson.table_of(value, "subscriptionGroupTable")
        self._groups = {name: GroupConfig(name) for name in GROUPS_OF_EVERY_BROKER}
        self._groups |= {str(name): _group(str(name), entry) for name, entry in table.items()}
        self._creates = creates
        self._entered = 0
        self._has_light = enable_lmq
        self._data_version = data_version(value)

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(sorted(self._groups.values()))

    def __contains__(self, name: object) -> bool:
        """Whether it is known, without being entered."""
        return name in self._groups

    def table(self) -> dict[str, Any]:
        """``SubscriptionGroupManager#encode``."""
        table = {one.name: one.as_json() for one in self}
        return {"dataVersion": self._data_version, "subscriptionGroupTable": table}

    def find(self, name: str) -> GroupConfig:
        """The group, as :meth:`known`. :raises UnknownGroup: there is none, nor is to be."""
        found = self.known(name)
        if found is None:
            raise UnknownGroup(f"subscription group not exist, {name}")
        return found

    def known(self, name: str) -> GroupConfig | None:
        """The group; one that nobody knew is entered, unless a ``broker.conf`` says otherwise. One
        of a light queue is none of them (``LmqSubscriptionGroupManager``).

        :raises TooMany: clients have entered enough.
        """
        if self._has_light and name.startswith(LMQ_PREFIX):
            return GroupConfig(name)
        found = self._groups.get(name)
        if found is None and (self._creates or name.startswith(SYSTEM_GROUP_PREFIX)):
            if self._entered >= MAX_ENTERED:
                raise TooMany(f"clients have entered {MAX_ENTERED} groups already")
            self._entered += 1
            found = self._groups[name] = GroupConfig(name)
        return found


def _group(name: str, entry: Any) -> GroupConfig:
    usual = GroupConfig(name)

    def flag(field: str, default: bool) -> bool:
        value = entry.get(field) if isinstance(entry, dict) else None
        return value if isinstance(value, bool) else default

    def whole(field: str, default: int) -> int:
        value = number(entry, field)
        return default if value is None else value

    return GroupConfig(
        name,
        flag("consumeEnable", usual.consume_enable),
        flag("consumeFromMinEnable", usual.consume_from_min_enable),
        flag("consumeBroadcastEnable", usual.consume_broadcast_enable),
        min(max(whole("retryQueueNums", usual.retry_queue_nums), 0), MAX_QUEUES),
        whole("retryMaxTimes", usual.retry_max_times),
        whole("brokerId", usual.broker_id),
        whole("whichBrokerWhenConsumeSlowly", usual.which_broker_when_consume_slowly),
        flag("notifyConsumerIdsChangedEnable", usual.notify_consumer_ids_changed_enable),
    )
