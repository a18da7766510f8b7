"""topics: one row for each topic, with its queues, messages and bytes, and its ``topics.json``
entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import PRE_BLANK_UNIT
from rmqctl.engine.state.topicconfig import (
    PERM_INHERIT,
    TopicConfig,
    TopicKind,
    needs_no_config,
    topic_configs,
    topic_kind,
)

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
    from rmqctl.engine.queue.consumequeue import ConsumeQueue, Unit
    from rmqctl.operations.progress import Progress
    from rmqctl.rows.summaries import TopicsSummary
    from rmqctl.rows.topics import TopicRow

#: How many units are summed at once (1.3 MB).
_UNITS_AT_ONCE = 1 << 16


class _Held(NamedTuple):
    """Sums over the queues of a topic. Times are None without a readable message."""

    queues: int = 0
    messages: int = 0
    size: int = 0
    oldest: int | None = None
    newest: int | None = None


def topics(
    store: MessageStore,
    topic: str | None = None,
    *,
    sums_bytes: bool = True,
    progress: Progress = lambda queues: None,
) -> Iterator[TopicRow | TopicsSummary]:
    """Rows ``topic``, sorted by name, then ``summary``: topics that have queues, topics that
    ``topics.json`` has, or both.

    ``bytes`` sums the records that the queues point to. For it every unit is read, but no message;
    without ``sums_bytes`` it is None. ``progress`` is called with the number of queues done.

    :raises ConfigFileUnreadable: ``topics.json`` is broken, and so is its ``.bak``.
    """
    listed = list_topics(store, topic_configs(store.root))
    names = listed.names if topic is None else [topic] if topic in listed.names else []
    found = queues = messages = size = without_queues = without_config = 0
    done = 0

    def advance(of_topic: int) -> None:
        progress(done + of_topic)

    for name in names:
        row = look_at_topic(store, listed, name, sums_bytes=sums_bytes, progress=advance)
        done += listed.count(name)
        found += 1
        queues += row["queues"]
        messages += row["messages"]
        size += row["bytes"] or 0
        without_queues += row["without_queues"]
        without_config += row["without_config"]
        yield row
    yield {
        "type": "summary",
        "topics": found,
        "queues": queues,
        "messages": messages,
        "bytes": size if sums_bytes else None,
        "without_queues": without_queues,
        "without_config": without_config,
    }


class TopicList(NamedTuple):
    """The topics of a store: the queue numbers of those that have queues, and the entries of
    ``topics.json``, None without that file."""

    queue_ids: dict[str, list[int]]
    configs: dict[str, TopicConfig] | None
    #: The queue numbers of topics with batch queues (5.x), which ``topics.json`` says.
    batch_queue_ids: dict[str, list[int]]

    @property
    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted({*self.queue_ids, *self.batch_queue_ids, *(self.configs or ())})

    def count(self, name: str) -> int:
        """How many queues of a topic have a directory."""
        return len(self.queue_ids.get(name, ())) + len(self.batch_queue_ids.get(name, ()))


def list_topics(store: MessageStore, configs: dict[str, TopicConfig] | None) -> TopicList:
    """The topics by their directories and by their entries. No queue is opened."""
    queue_ids: dict[str, list[int]] = {}
    for where in store.queues.directories():
        queue_ids.setdefault(where.topic, []).append(where.queue_id)
    batch_queue_ids: dict[str, list[int]] = {}
    for where in store.batch_queues():
        if where.topic in store.dispatcher.batch_topics:
            batch_queue_ids.setdefault(where.topic, []).append(where.queue_id)
    return TopicList(queue_ids, configs, batch_queue_ids)


def look_at_topic(
    store: MessageStore,
    listed: TopicList,
    name: str,
    *,
    sums_bytes: bool = True,
    progress: Progress = lambda queues: None,
) -> TopicRow:
    """The row of one listed topic. Its queues are opened; ``progress`` is called with their
    number."""
    held, done = _Held(), 0
    for done, queue_id in enumerate(listed.queue_ids.get(name, ()), 1):
        queue = store.consume_queue(name, queue_id)
        if queue is not None:
            held = _with(held, store, queue, sums_bytes)
        progress(done)
    for more, queue_id in enumerate(listed.batch_queue_ids.get(name, ()), 1):
        batches = store.batch_queue(name, queue_id)
        if batches is not None:
            with closing(batches):
                held = _with_batches(held, batches, sums_bytes)
        progress(done + more)
    config = None if listed.configs is None else listed.configs.get(name)
    row = topic_row(name, held, listed.configs is not None, config)
    if not sums_bytes:
        row["bytes"] = None
    return row


def topic_row(name: str, held: _Held, has_configs: bool, config: TopicConfig | None) -> TopicRow:
    """The row of one topic. ``without_queues`` and ``without_config`` are false for topics that a
    broker makes without an entry, or enters without queues."""
    is_free = needs_no_config(name)
    said = config or TopicConfig()
    is_template = config is not None and bool((config.perm or 0) & PERM_INHERIT)
    return {
        "type": "topic",
        "topic": name,
        # A broker counts its own name and the cluster's to the system topics.
        "kind": (TopicKind.SYSTEM if is_template else topic_kind(name)).value,
        "queues": held.queues,
        "messages": held.messages,
        "bytes": held.size,
        "oldest_store_timestamp": held.oldest,
        "newest_store_timestamp": held.newest,
        "configured": config is not None if has_configs else None,
        "read_queue_nums": said.read_queue_nums,
        "write_queue_nums": said.write_queue_nums,
        "perm": said.perm,
        "topic_filter_type": said.topic_filter_type,
        "topic_sys_flag": said.topic_sys_flag,
        "order": said.order,
        "without_queues": not (held.queues or is_free or is_template),
        "without_config": has_configs and config is None and not is_free,
    }


def _with(held: _Held, store: MessageStore, queue: ConsumeQueue, sums_bytes: bool) -> _Held:
    oldest, newest = (store_timestamp(store, unit) for unit in queue.ends())
    return _Held(
        held.queues + 1,
        held.messages + max(queue.max_offset - queue.min_offset, 0),
        held.size + (unit_bytes(queue) if sums_bytes else 0),
        min((time for time in (held.oldest, oldest) if time is not None), default=None),
        max((time for time in (held.newest, newest) if time is not None), default=None),
    )


def _with_batches(held: _Held, queue: BatchConsumeQueue, sums_bytes: bool) -> _Held:
    """The sums with a batch queue added. Its units tell store times and sizes, one for a record."""
    times = [held.oldest, held.newest]
    if queue.first < queue.end:
        times += [queue.stored_at(queue.first), queue.stored_at(queue.end - 1)]
    known = [time for time in times if time is not None]
    units = queue.units(queue.first, queue.end) if sums_bytes else ()
    return _Held(
        held.queues + 1,
        held.messages + max(queue.max_offset - queue.min_offset, 0),
        held.size + sum(unit.size for _, unit in units),
        min(known, default=None),
        max(known, default=None),
    )


def store_timestamp(store: MessageStore, unit: Unit | None) -> int | None:
    """The store time of the message of a unit; None where no record can be read."""
    record = None if unit is None else store.commit_log.find_record(unit.physical_offset)
    return None if record is None else record.store_timestamp


def unit_bytes(queue: ConsumeQueue) -> int:
    """The bytes of all records that a queue's units point to."""
    size, start = 0, queue.min_offset
    if queue.max_offset - start <= 1:  # In a store of very many queues, most of them.
        _, last = queue.ends()
        is_record = last is not None and last.is_written and last.size != PRE_BLANK_UNIT[1]
        return last.size if last is not None and is_record else 0
    while start < queue.max_offset:
        units = queue.window(start, min(_UNITS_AT_ONCE, queue.max_offset - start))
        if not len(units):
            break
        sizes = units["size"].astype("i8")
        is_written = (units["physical_offset"] >= 0) & (sizes > 0)
        # fillPreBlank's, which stands for no record.
        is_written &= sizes != PRE_BLANK_UNIT[1]
        size += int(sizes[is_written].sum())
        start += len(units)
    return size
