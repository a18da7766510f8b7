"""Who is connected, and as what: ``ProducerManager``, ``ConsumerManager``.

A client is one process behind one connection, and may belong to many groups; what a group
subscribes to is what its member said last (``ConsumerGroupInfo``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from formats.remotingcodes import SerializeType
from rmqctl.serve.state.subscription import Subscription

#: ``ClientManager`` drops a channel without a heartbeat for so long (ms).
CHANNEL_EXPIRED = 120_000
#: Groups that one connection may be of. A process has a handful; without a bound one connection
#: could have the server remember millions.
MAX_GROUPS = 1024


@dataclass(slots=True)
class Channel:
    """One connection. ``number`` is its name here; ``local`` is the address at which the server
    was reached. ``serialize_type`` is that of the last frame: in which requests go out to it."""

    number: int
    peer: str
    local: str
    serialize_type: SerializeType = SerializeType.JSON
    last_active: int = 0
    #: Since when a frame is under way that is not whole; 0: none is.
    frame_since: int = 0


@dataclass(slots=True)
class Member:
    """A client as a member of a group (``ClientChannelInfo``)."""

    channel: Channel
    client_id: str
    language: str
    version: int
    last_heartbeat: int

    def as_json(self) -> dict[str, object]:
        """``Connection``, its keys sorted."""
        return {
            "clientAddr": self.channel.peer,
            "clientId": self.client_id,
            "language": self.language or None,
            "version": self.version,
        }


@dataclass(slots=True)
class ConsumerGroup:
    """``ConsumerGroupInfo``: members by channel, subscriptions by topic."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[int, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    @property
    def client_ids(self) -> list[str]:
        """In the order in which they came; one behind two connections twice, until one of them is
        lost (``ConsumerGroupInfo#getAllClientId``)."""
        return [member.client_id for member in self.members.values()]

    def find(self, client_id: str) -> Member | None:
        """The member of this id (``ConsumerGroupInfo#findChannel``)."""
        found = (one for one in self.members.values() if one.client_id == client_id)
        return next(found, None)

    def update_member(self, member: Member) -> bool:
        """Whether the member is new. Another client id on a known channel takes the old one's
        place, and counts as no change (``updateChannel``)."""
        is_new = member.channel.number not in self.members
        self.members[member.channel.number] = member
        return is_new

    def update_subscriptions(self, subscriptions: Iterable[Subscription]) -> bool:
        """Whether the set of topics changed (``updateSubscription``): a newer version takes an
        older one's place, and what is not among them goes."""
        wanted = {one.topic: one for one in subscriptions}
        is_changed = wanted.keys() != self.subscriptions.keys()
        for topic, one in wanted.items():
            before = self.subscriptions.get(topic)
            if before is not None and before.version >= one.version:
                wanted[topic] = before
        self.subscriptions = wanted
        return is_changed


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """One group of a heartbeat."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: tuple[Subscription, ...]


class Clients:
    """Every channel's groups."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[int, Member]] = {}

    def register_consumer(self, data: ConsumerData, member: Member) -> bool:
        """Whether the other members have to know (``ConsumerManager#registerConsumer``)."""
        group = self.consumers.get(data.group)
        if group is None:
            group = self.consumers[data.group] = ConsumerGroup(
                data.group, data.consume_type, data.message_model, data.consume_from_where
            )
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        is_new = group.update_member(member)
        return group.update_subscriptions(data.subscriptions) or is_new

    def register_producer(self, group: str, member: Member) -> None:
        self.producers.setdefault(group, {})[member.channel.number] = member

    def find_producer(self, client_id: str) -> Member | None:
        """A producer of this id, at its newest connection: an older one may be lost, and nobody
        have noticed yet (``ProducerManager#findChannel``)."""
        tables = self.producers.values()
        found = (one for t in tables for one in t.values() if one.client_id == client_id)
        return max(found, key=lambda one: one.channel.number, default=None)

    def subscription(self, group: str, topic: str) -> tuple[Subscription | None, int]:
        """What a group has subscribed of a topic, and of how many topics it has."""
        found = self.consumers.get(group)
        subscriptions = found.subscriptions if found is not None else {}
        return subscriptions.get(topic), len(subscriptions)

    def consumers_of(self, topic: str) -> list[str]:
        """Groups that are here and subscribe to a topic (``queryTopicConsumeByWho``)."""
        return [name for name, one in self.consumers.items() if topic in one.subscriptions]

    def groups_of(self, channel: Channel) -> int:
        """How many groups a channel is of."""
        tables = [one.members for one in self.consumers.values()]
        tables += self.producers.values()
        return sum(channel.number in members for members in tables)

    def unregister_consumer(self, name: str, channel: Channel) -> bool:
        """Takes a channel out of a group; whether it was there."""
        group = self.consumers.get(name)
        if group is None or group.members.pop(channel.number, None) is None:
            return False
        if not group.members:
            del self.consumers[name]
        return True

    def unregister_producer(self, name: str, channel: Channel) -> None:
        members = self.producers.get(name, {})
        members.pop(channel.number, None)
        if not members:
            self.producers.pop(name, None)

    def lost(self, channel: Channel) -> list[str]:
        """Takes a channel out of everything; the consumer groups that it was of."""
        for name in [n for n, members in self.producers.items() if channel.number in members]:
            self.unregister_producer(name, channel)
        return [name for name in list(self.consumers) if self.unregister_consumer(name, channel)]

    def expired(self, now: int) -> Iterator[Channel]:
        """The channels of members whose last heartbeat is too old (``scanNotActiveChannel``)."""
        tables = [one.members for one in self.consumers.values()]
        tables += self.producers.values()
        for members in tables:
            for member in members.values():
                if now - member.last_heartbeat > CHANNEL_EXPIRED:
                    yield member.channel
