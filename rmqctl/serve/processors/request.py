"""The arguments of a processor, and what it may return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.constants import PROPERTY_REAL_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from formats.remotingcodes import CommandFlag, RequestCode
from rmqctl.engine.record.message import LOCALHOST, Host, MessageExtBrokerInner, parse_host
from rmqctl.engine.state.brokerjson import TOPICS
from rmqctl.engine.state.topicconfig import SYSTEM_TOPICS
from rmqctl.serve.processors.put import Put
from rmqctl.serve.state.accounts import Accounts
from rmqctl.serve.state.clients import Channel, Clients
from rmqctl.serve.state.groups import Groups
from rmqctl.serve.state.locks import QueueLocks
from rmqctl.serve.state.offsets import Offsets
from rmqctl.serve.state.owntopics import DEFAULT_SWITCHES, BrokerSwitches, own_topics
from rmqctl.serve.state.parked import ParkedPulls
from rmqctl.serve.state.statistics import Statistics
from rmqctl.serve.state.topics import PERM_ALL, PERM_READ, Topics
from rmqctl.serve.wire.command import RemotingCommand, java_text
from rmqctl.serve.wire.fields import Fields

if TYPE_CHECKING:
    from rmqctl.engine.store import Store
    from rmqctl.serve.processors.pull import Pull


class Request(NamedTuple):
    """One request, and the time (ms) at which it came."""

    command: RemotingCommand
    channel: Channel
    now: int

    @property
    def fields(self) -> Fields:
        return Fields(self.command.ext_fields)


class Later(NamedTuple):
    """An answer that needs a look at the store. ``work`` may run in any thread; ``then`` makes the
    answer from its result, in the thread of the request. Brief work takes little time unless the
    disk has to be read."""

    work: Callable[[], Any]
    then: Callable[[Any, int], Outcome]
    is_brief: bool = False


class Call(NamedTuple):
    """An answer that needs a client's answer first. ``then`` makes it from that; it gets None where
    the client does not answer within ``timeout`` (ms), or has gone."""

    channel: Channel
    command: RemotingCommand
    timeout: int
    then: Callable[[RemotingCommand | None, int], Outcome]


#: What a processor returns: an answer; a look at the store, messages to be stored or a call to a
#: client, from which the answer follows; or None for no answer.
Outcome = RemotingCommand | Later | Put | Call | None
Processor = Callable[["Served", Request], Outcome]


class NoAnswer(Exception):
    """A request that must not be answered, not even with an error: its connection is closed."""


@lru_cache(maxsize=4096)
def host_of(address: str) -> Host:
    """A connection's address as records have it. It is needed for every message.

    :raises ValueError: the text is no address.
    """
    return parse_host(address)


def _no_clock() -> int:
    return 0


class Names(NamedTuple):
    """The names under which a store is served. ``advertise`` is the address that clients are told;
    None: the address at which the client has connected."""

    broker: str
    cluster: str
    advertise: str | None = None


@dataclass(slots=True)
class Served:
    """One store that is served, and the state of its clients. ``outgoing`` are requests to clients,
    ``files`` the new texts of files of ``config/``, by name."""

    store: Store
    names: Names
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients = field(default_factory=Clients)
    locks: QueueLocks = field(default_factory=QueueLocks)
    parked: ParkedPulls[Pull] = field(default_factory=ParkedPulls)
    #: The port for slaves; 0: no slaves are served.
    ha_port: int = 0
    outgoing: list[tuple[Channel, RemotingCommand]] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    #: Whether a committed offset beyond the end of its queue is answered as that end.
    ends_offsets: bool = False
    #: Names that a broker takes for its own, whether it has such topics or not.
    system_topics: frozenset[str] = SYSTEM_TOPICS
    #: Milliseconds since the epoch, for a store that has no clock, and when the server began.
    clock: Callable[[], int] = _no_clock
    started: int = 0
    #: The permissions of accounts; None: everybody may do everything.
    accounts: Accounts | None = None
    statistics: Statistics = field(default_factory=lambda: Statistics(""))
    #: Of halves whose message is committed and whose op message is not stored yet, by their queue
    #: offsets: that op message.
    owed_ops: dict[int, MessageExtBrokerInner] = field(default_factory=dict)
    _opaque: int = 0
    _turns: int = 0

    @classmethod
    def of(
        cls,
        store: Store,
        *,
        broker_name: str | None = None,
        cluster_name: str | None = None,
        advertise: str | None = None,
        host_name: str = "localhost",
        ends_offsets: bool = False,
        switches: BrokerSwitches = DEFAULT_SWITCHES,
        answers_first: bool = False,
        clock: Callable[[], int] = _no_clock,
        accounts: Accounts | None = None,
    ) -> Served:
        """Serves a store, under the given names or else under those of its broker, as far as its
        files tell them. A store open for reading grants no permission to write.

        :param switches: which of a broker's own topics exist, and whether unknown groups are
            entered.
        :param answers_first: ASYNC_FLUSH: a message is answered before it is on disk, and consumers
            see it then; slaves do not.
        :param clock: milliseconds since the epoch, for a store without a clock of its own.
        :raises ConfigFileUnreadable: a file of ``config/`` is broken, and so is its ``.bak``.
        :raises CannotWrite: the disk failed.
        """
        from rmqctl.engine.messagestore import WritableStore

        if isinstance(store, WritableStore):
            # Consumers and slaves see only what is on disk, so the whole log is forced to it first.
            store.flush_structures(("commitlog",))
            store.writer.flusher.answers_first = answers_first
        allowed = PERM_ALL if store.writable else PERM_READ
        topics = Topics(store, allowed)
        names = Names(
            broker_name or topics.broker_name or host_name,
            cluster_name or topics.cluster_name or "DefaultCluster",
            advertise,
        )
        own = own_topics(names.broker, names.cluster, switches)
        if store.writable:
            topics.enter_own(own)
        groups = Groups(store.root, store.config.enable_lmq, switches.creates_groups)
        offsets = Offsets(store.root, store.config.told_lmq)
        statistics = Statistics(names.cluster)
        served = cls(
            store,
            names,
            topics,
            groups,
            offsets,
            ends_offsets=ends_offsets,
            clock=clock,
            accounts=accounts,
            statistics=statistics,
            system_topics=SYSTEM_TOPICS.union(own),
        )
        served.started = served.now()
        return served

    def address_for(self, channel: Channel) -> str:
        """The address at which a client finds this broker."""
        return self.names.advertise or channel.local

    def now(self) -> int:
        """Milliseconds since the epoch, by the store's clock if it is open for writing, or else by
        the clock given to :meth:`of`."""
        from rmqctl.engine.messagestore import WritableStore

        return self.store.clock() if isinstance(self.store, WritableStore) else self.clock()

    def save_topic(self, message: MessageExtBrokerInner) -> None:
        """Enters the topic of a message in ``topics.json`` before the message is stored. A broker
        would not serve a topic that is not there, and could delete its queues."""
        topic = message.topic
        if topic == RMQ_SYS_TRANS_HALF_TOPIC:
            # In other topics REAL_TOPIC is left over from an earlier delay of the message.
            topic = message.properties.get(PROPERTY_REAL_TOPIC, topic)
        text = self.topics.saved_with(topic, self.now())
        if text is not None:
            self.files.append((TOPICS, text))

    def turn(self, count: int) -> int:
        """The next number below ``count`` (positive), in turn. A broker takes a random one."""
        self._turns += 1
        return self._turns % count

    def store_host(self, channel: Channel) -> Host:
        """The broker's own address in the records that it stores. An advertised host name is no
        address, and so not used."""
        for text in (self.address_for(channel), channel.local):
            try:
                return host_of(text)
            except ValueError:
                continue
        return LOCALHOST

    def notify_members(self, group: str) -> None:
        """Tells all members of a group that its members or topics have changed, so that they
        rebalance (``DefaultConsumerIdsChangeListener``)."""
        found = self.clients.consumers.get(group)
        for member in found.members.values() if found is not None else ():
            self.send(
                member.channel,
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                {"consumerGroup": group},
            )

    def send(
        self,
        channel: Channel,
        code: RequestCode,
        ext_fields: Mapping[str, object],
        body: bytes = b"",
    ) -> None:
        """Sends a client a request that needs no answer."""
        command = self.request_to(channel, code, ext_fields, body, CommandFlag.ONEWAY)
        self.outgoing.append((channel, command))

    def request_to(
        self,
        channel: Channel,
        code: int,
        ext_fields: Mapping[str, object],
        body: bytes = b"",
        flag: int = 0,
    ) -> RemotingCommand:
        """A request to a client, in the encoding that the client itself uses."""
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        return RemotingCommand(
            code,
            self._opaque,
            flag,
            ext_fields={name: java_text(value) for name, value in ext_fields.items()},
            body=body,
            serialize_type=channel.serialize_type,
        )
