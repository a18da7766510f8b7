"""``ConsumerOffsetManager``: how far each group has consumed. What clients commit is in memory; of
a store that is written somebody writes it to ``config/consumerOffset.json`` now and then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.constants import LMQ_PREFIX
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.brokerjson import consumer_offsets
from rmqctl.errors import RmqctlError
from rmqctl.serve.state.topics import TooMany

if TYPE_CHECKING:
    from rmqctl.engine.store import Store

#: Topics of groups of which clients may have committed an offset beside those of the file: the
#: names of light queues are without an end.
MAX_ENTERED = 200_000


class BeyondEnd(NamedTuple):
    """A group whose offset lies beyond the end of the queue: a broker of 4.9.3 has it consume the
    whole queue again (``OFFSET_OVERFLOW_BADLY``), for the log has lost its end."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_offset: int


class Committed(NamedTuple):
    """An offset that a client has committed; ``stored`` is the one of the file, None without."""

    group: str
    topic: str
    queue_id: int
    stored: int | None
    offset: int


class Offsets:
    """The offsets of every group.

    :raises ConfigFileUnreadable: the file is broken, and its ``.bak`` does not help.
    """

    def __init__(self, root: Path, enable_lmq: bool | None) -> None:
        """:param enable_lmq: the broker keeps its offsets in the file of light queues, and there
        those of a light group apart, one of each topic (``LmqConsumerOffsetManager``). None: no
        ``broker.conf`` says it; they are written as without it, and read from both files."""
        #: Name of the file.
        self.name = brokerjson.LMQ_CONSUMER_OFFSET if enable_lmq else brokerjson.CONSUMER_OFFSET
        self._root = root
        self._enable_lmq = enable_lmq
        #: Topics of groups that clients have brought.
        self._entered = 0
        self._stored = consumer_offsets(root, enable_lmq)
        self._table = {owner: dict(offsets) for owner, offsets in self._stored.items()}

    def find(self, topic: str, group: str, queue_id: int) -> int | None:
        """The offset that the group consumes next; None: it has none, or a negative one."""
        queue_id = 0 if self._is_light(group) else queue_id
        offset = self._table.get((topic, group), {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def topics_of(self, group: str) -> list[str]:
        """Topics of which the group has offsets (``whichTopicByConsumer``), sorted."""
        return sorted(topic for topic, owner in self._table if owner == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of the topic (``whichGroupByTopic``), sorted."""
        return sorted(group for owned, group in self._table if owned == topic)

    def table(self) -> dict[str, dict[int, int]]:
        """``topic@group`` → queue → offset."""
        separator = brokerjson.TOPIC_GROUP_SEPARATOR
        return {
            f"{topic}{separator}{group}": dict(sorted(offsets.items()))
            for (topic, group), offsets in sorted(self._table.items())
        }

    def encoded(self) -> dict[str, dict[str, Any]]:
        """The tables of the file (``ConsumerOffsetManager#encode``): of a broker with light queues
        two, the second with the offset of each light group and topic."""
        tables: dict[str, dict[str, Any]] = {"offsetTable": self.table()}
        if self._enable_lmq:
            every, separator = tables["offsetTable"], brokerjson.TOPIC_GROUP_SEPARATOR
            light = (owner for owner in sorted(self._table) if self._is_light(owner[1]))
            keys = map(separator.join, light)
            tables[brokerjson.LMQ_OFFSET_TABLE] = {key: every.pop(key).get(0, -1) for key in keys}
        return tables

    def of_all(self, most: int) -> list[tuple[str, str, dict[int, int]]]:
        """Topic, group and offsets by queue, of so many of them, sorted."""
        owners = sorted(self._table)[:most]
        return [(topic, group, self._table[topic, group]) for topic, group in owners]

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Notes an offset. :raises TooMany: clients have brought enough of them."""
        owner = topic, group
        if owner not in self._table:
            if self._entered >= MAX_ENTERED:
                raise TooMany(f"clients have committed to {MAX_ENTERED} topics of groups already")
            self._entered += 1
        queue_id = 0 if self._is_light(group) else queue_id
        self._table.setdefault(owner, {})[queue_id] = offset

    def _is_light(self, group: str) -> bool:
        return bool(self._enable_lmq) and group.startswith(LMQ_PREFIX)

    def changed(self) -> Iterator[Committed]:
        """What clients have committed that is not in the file, sorted."""
        for (topic, group), offsets in sorted(self._table.items()):
            stored = self._stored.get((topic, group), {})
            for queue_id, offset in sorted(offsets.items()):
                if stored.get(queue_id) != offset:
                    yield Committed(group, topic, queue_id, stored.get(queue_id), offset)

    def text(self) -> str | None:
        """The text of the file with what has changed (``ConsumerOffsetManager#encode``), which
        counts as written then; None: nothing has changed.

        :raises ConfigFileUnreadable: the file has become unreadable.
        """
        changes: dict[str, dict[int, int]] = {}
        light: dict[str, int] = {}
        for one in self.changed():
            key = f"{one.topic}{brokerjson.TOPIC_GROUP_SEPARATOR}{one.group}"
            if self._is_light(one.group):
                light[key] = one.offset
            else:
                changes[key] = dict(sorted(self._table[one.topic, one.group].items()))
        if not changes and not light:
            return None
        value = brokerjson.read_config(self._root, self.name)
        parts: tuple[dict[str, Any], ...] = (changes, light)
        whole = dict(value) if isinstance(value, dict) else {}
        # Without light groups there is one table, and nothing for another.
        for name, found in zip(brokerjson.OFFSET_TABLES[self.name], parts, strict=False):
            whole[name] = brokerjson.table_of(value, name) | found
        self._stored = {owner: dict(offsets) for owner, offsets in self._table.items()}
        return fastjson.dumps(whole)

    def not_saved(self) -> None:
        """The file could not be written: what it has is looked for again. Where it cannot be read
        either, nothing counts as written."""
        try:
            self._stored = consumer_offsets(self._root, self._enable_lmq)
        except RmqctlError:
            self._stored = {}

    def beyond_end(self, store: Store) -> list[BeyondEnd]:
        """Offsets behind the end of queues that are there, sorted."""
        found: list[BeyondEnd] = []
        owners: dict[str, list[tuple[str, dict[int, int]]]] = {}
        for (topic, group), offsets in self._table.items():
            owners.setdefault(topic, []).append((group, offsets))
        for topic, every in owners.items():
            for where in store.queues.directories_of(topic):
                number = where.queue_id
                read = [(group, at) for group, of in every if (at := of.get(number, 0)) > 0]
                queue = store.consume_queue(topic, number) if read else None
                if queue is not None:
                    end = queue.max_offset
                    found += [BeyondEnd(g, topic, number, at, end) for g, at in read if at > end]
        return sorted(found)
