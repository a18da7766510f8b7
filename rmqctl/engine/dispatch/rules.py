"""Dispatch: the only place that turns a record into queue units and index keys.

put, rebuild, verify and Spark use it: :meth:`Dispatcher.units` and :meth:`Dispatcher.keys` for one
record, :func:`unit_batch` and :func:`key_batch` for a scanner's batch. Both give the same
(``CommitLogDispatcherBuildConsumeQueue``, ``ConsumeQueue#multiDispatchLmqQueue``,
``IndexService#buildIndex``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats import constants
from formats.text import index_key_hash, is_blank, java_int, java_long, java_split, tags_code
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state import laterversions

if TYPE_CHECKING:
    from rmqctl.engine.queue.batchqueue import BatchUnit

#: The byte offset of a unit with a larger queue offset is no Java long.
MAX_QUEUE_OFFSET = constants.LONG_MAX // constants.CQ_STORE_UNIT_SIZE - 1
_LONG_RANGE = 1 << 64
_SHORT_MAX = (1 << 15) - 1
#: Kinds of transaction records that get no unit.
NO_UNIT = (constants.TRANSACTION_PREPARED_TYPE, constants.TRANSACTION_ROLLBACK_TYPE)
_NOT_IN_LIGHT_QUEUES = (constants.RETRY_GROUP_TOPIC_PREFIX, constants.SYSTEM_TOPIC_PREFIX)
_SEPARATOR = constants.PROPERTY_SEPARATOR.encode()


class QueueUnit(NamedTuple):
    """A unit with its queue and queue offset."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


def is_without_place(record: Record) -> bool:
    """Whether a record belongs to a queue, but with a queue id or queue offset that none can
    have."""
    has_place = record.queue_id >= 0 and 0 <= record.queue_offset <= MAX_QUEUE_OFFSET
    return record.transaction_type not in NO_UNIT and not has_place


class Dispatcher:
    """Dispatch under one configuration: delay levels and light queues.

    :param batch_topics: topics with batch queues (5.x). Their records get no consume queue unit; a
        broker does not start on a store where they have one
        (``ConsumeQueueStore#queueTypeShouldBe``).
    :param compacted_topics: topics (5.x) of which a broker copies the messages while it dispatches;
        rmqctl does not make these copies.
    :param indexes_tags: messages get an index item of their tags, as since 5.4.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        batch_topics: frozenset[str] = frozenset(),
        compacted_topics: frozenset[str] = frozenset(),
        *,
        indexes_tags: bool = False,
    ) -> None:
        self.indexes_tags = indexes_tags
        self.batch_topics = batch_topics
        self.compacted_topics = compacted_topics
        self.delay_levels = config.delay_levels()
        # Only an append with enableMultiDispatch adds INNER_MULTI_QUEUE_OFFSET. So without a
        # broker.conf it counts as on, and the record itself decides.
        self.is_multi = _is_on(config, "enable_multi_dispatch")
        self.has_light_queues = _is_on(config, "enable_lmq")

    @classmethod
    def of_store(cls, root: Path, config: MessageStoreConfig) -> Dispatcher:
        """Dispatch as the brokers that have run on the store at ``root`` do it."""
        return cls(
            config,
            laterversions.batch_topics(root),
            laterversions.compacted_topics(root),
            indexes_tags=laterversions.indexes_tags(root),
        )

    def why_not(self, topic: str) -> str:
        """Why messages of a topic cannot be dispatched here as a broker would; empty if they
        can."""
        if topic in self.batch_topics:
            return "its topic has batch queues (5.x), which only its broker writes"
        if topic in self.compacted_topics:
            return "its topic is compacted (5.x), and consumers get what its broker has copied"
        return ""

    def units(self, record: Record, properties: dict[str, str] | None = None) -> list[QueueUnit]:
        """The units of a record: none, or that of its queue and one for each light queue.

        A topic that cannot be a directory gets none; ``verify`` names it.

        :param properties: the record's properties, if the caller has decoded them already.
        """
        if record.transaction_type in NO_UNIT:
            return []
        topic = record.topic
        properties = record.properties if properties is None else properties
        code = self.tags_code(topic, properties, record.store_timestamp)
        places = [(topic, record.queue_id, record.queue_offset)]
        if topic in self.batch_topics:
            places.clear()
        places += self.multi_dispatch(record, properties)
        return [
            QueueUnit(name, queue_id, offset, record.physical_offset, record.total_size, code)
            for name, queue_id, offset in places
            if queue_id >= 0
            and 0 <= offset <= MAX_QUEUE_OFFSET
            and topic_directory_problem(name) is None
        ]

    def batch_unit(self, record: Record) -> BatchUnit | None:
        """The unit of a record of one of the ``batch_topics``; None when it gets none
        (``CommitLog#setBatchSizeIfNeeded``)."""
        from rmqctl.engine.queue.batchqueue import BatchUnit

        is_allowed = topic_directory_problem(record.topic) is None and record.queue_id >= 0
        if record.transaction_type in NO_UNIT or not is_allowed:
            return None
        properties = record.properties
        base, count = record.queue_offset, 1
        texts = [properties.get(name) for name in ("INNER_BASE", "INNER_NUM")]
        if None not in texts:
            numbers = [java_long(text) for text in texts if text is not None]
            if None in numbers:
                return None
            base, count = (number for number in numbers if number is not None)
        if base < 0 or not 0 <= count <= _SHORT_MAX:
            return None
        code = self.tags_code(record.topic, properties, record.store_timestamp)
        at, size = record.physical_offset, record.total_size
        return BatchUnit(at, size, code, record.store_timestamp, base, count)

    def tags_code(self, topic: str, properties: dict[str, str], store_timestamp: int) -> int:
        """The hash of the tags; for a delayed message the time of its delivery (ms)."""
        tags = properties.get(constants.PROPERTY_TAGS)
        code = tags_code(tags) if tags else 0
        if topic == constants.RMQ_SYS_SCHEDULE_TOPIC:
            level = properties.get(constants.PROPERTY_DELAY_TIME_LEVEL, "")
            return self.delivery_time(level, store_timestamp, code)
        return code

    def delivery_time(self, level_text: str, store_timestamp: int, otherwise: int) -> int:
        """Store time plus the level's delay in ms, as a Java long (``computeDeliverTimestamp``);
        ``otherwise`` when ``level_text`` is no level."""
        level = min(java_int(level_text) or 0, len(self.delay_levels))
        if level <= 0:
            return otherwise
        time = store_timestamp + self.delay_levels[level - 1]
        return (time + _LONG_RANGE // 2) % _LONG_RANGE - _LONG_RANGE // 2

    def multi_dispatch(
        self, record: Record, properties: dict[str, str] | None = None
    ) -> list[tuple[str, int, int]]:
        """``(queue name, queue id, queue offset)`` of each extra queue of a record.
        ``properties`` as in :meth:`units`.

        5.x gives messages of some topics no extra queues (:func:`topic_allows_lmq`). The offsets
        that such a message has nevertheless are those of the message that it is a copy of (a
        retry's). A message that 4.9.3 has stored in such a topic keeps its extra queues, also when
        a broker of 5.x has run since.
        """
        if is_of_later_form(record) and not topic_allows_lmq(record.topic):
            return []
        return self.named_queues(
            record.properties if properties is None else properties, record.queue_id
        )

    def named_queues(self, properties: dict[str, str], queue_id: int) -> list[tuple[str, int, int]]:
        """:meth:`multi_dispatch` by the properties alone."""
        names = properties.get(constants.PROPERTY_INNER_MULTI_DISPATCH, "")
        offsets = properties.get(constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET, "")
        if not self.is_multi or is_blank(names) or is_blank(offsets):
            return []
        name_list, offset_list = multi_split(names), multi_split(offsets)
        if len(name_list) != len(offset_list):
            return []
        return [
            (name, self.multi_queue_id(name, queue_id), offset)
            for name, text in zip(name_list, offset_list, strict=True)
            if (offset := java_long(text)) is not None and offset >= 0
        ]

    def multi_queue_id(self, name: str, queue_id: int) -> int:
        """The queue id of an extra queue: 0 for a light queue, else the message's own
        (``MultiDispatch#queueKey``)."""
        return 0 if self.has_light_queues and name.startswith(constants.LMQ_PREFIX) else queue_id

    def keys(self, record: Record, properties: dict[str, str] | None = None) -> list[int]:
        """Key hashes of a record in the order of their items: UNIQ_KEY, then each of KEYS, and the
        tags where they are indexed. ``properties`` as in :meth:`units`."""
        if record.transaction_type == constants.TRANSACTION_ROLLBACK_TYPE:
            return []
        topic = record.topic
        properties = record.properties if properties is None else properties
        keys = message_keys(properties)
        if self.indexes_tags:
            keys += tags_key(properties)
        return [index_key_hash(topic, key) for key in keys]


def multi_split(text: str) -> list[str]:
    """Splits the names, or the queue offsets, of a message's extra queues."""
    return java_split(text, constants.MULTI_DISPATCH_QUEUE_SPLITTER)


def topic_allows_lmq(topic: str) -> bool:
    """Whether 5.x gives messages of a topic extra queues (``MixAll#topicAllowsLMQ``). 4.9.3 does so
    for every topic."""
    is_delayed = topic == constants.RMQ_SYS_SCHEDULE_TOPIC
    return not is_delayed and not topic.startswith(_NOT_IN_LIGHT_QUEUES)


def is_of_later_form(record: Record) -> bool:
    """Whether 5.2.0 or later has stored a record: its properties end with a separator, which those
    of 4.9.3 never do (``MessageDecoder#messageProperties2String``)."""
    return record.properties_bytes.endswith(_SEPARATOR)


def _is_on(config: MessageStoreConfig, name: str) -> bool:
    """The state of a switch when the store's messages were stored: on, unless a ``broker.conf``
    says off; the opposite when the queues have overruled that."""
    is_on = not config.is_explicit(name) or bool(getattr(config, name))
    return is_on != (name in config.overruled)


def message_keys(properties: dict[str, str]) -> list[str]:
    """The keys that a message is indexed under, in order."""
    unique = properties.get(constants.PROPERTY_UNIQ_KEY)
    keys = properties.get(constants.PROPERTY_KEYS, "").split(constants.KEY_SEPARATOR)
    return ([unique] if unique is not None else []) + [key for key in keys if key]


def tags_key(properties: dict[str, str]) -> list[str]:
    """The key under which 5.4 and later index a message's tags (``IndexService#buildKey``); empty
    without tags."""
    tags = properties.get(constants.PROPERTY_TAGS)
    return [f"{constants.INDEX_TAG_TYPE}#{tags}"] if tags else []


def every_key(properties: dict[str, str]) -> list[str]:
    """The keys under which a message can be indexed, by brokers of any version."""
    return message_keys(properties) + tags_key(properties)


def has_bad_delay(topic: str, properties: dict[str, str]) -> bool:
    """Whether a message is a delayed one whose level is no number: no broker reads such a record
    (``CommitLog#checkMessageAndReturnSize``)."""
    level = properties.get(constants.PROPERTY_DELAY_TIME_LEVEL)
    is_delayed = topic == constants.RMQ_SYS_SCHEDULE_TOPIC and level is not None
    return is_delayed and java_int(str(level)) is None
