"""The index of tiered storage: its files by themselves, and each item with its record."""

from __future__ import annotations

from collections.abc import Iterator

from formats.text import index_key_hash
from rmqctl.engine.dispatch.rules import message_keys
from rmqctl.engine.tiered.index import Item, TieredIndexFile
from rmqctl.engine.tiered.openqueues import OpenQueues
from rmqctl.engine.tiered.store import TieredQueue, TieredStore
from rmqctl.operations.verify.findings import Finding, finding


def check_index_structure(file: TieredIndexFile) -> Iterator[Finding]:
    """Header, slots and links of one file.

    :raises CannotRead: the system refuses.
    """
    problem, code = file.problem(), "tiered-index-broken"
    if problem is not None:
        code = f"tiered-index-{'slots-unknown' if file.lacks_its_slots else 'unreadable'}"
    for one in file.unreachable() if problem is None else [problem]:
        yield finding(
            code,
            path=file.mapped.path,
            position=one.position,
            expected=one.expected,
            found=one.found,
        )


def check_index_items(store: TieredStore) -> Iterator[Finding]:
    """Each item of all files with its record; of a file the first that is wrong, and how many are.
    Without metadata nothing says which topic an item is of.

    :raises CannotRead: the system refuses.
    """
    if store.metadata is None:
        return
    topics = {number: name for name, number in store.metadata.topic_ids.items()}
    with OpenQueues(store) as queues:
        for file, _ in store.index_files():
            if file.problem() is None:
                yield from _items(file, topics, queues)


def _items(file: TieredIndexFile, topics: dict[int, str], queues: OpenQueues) -> Iterator[Finding]:
    first: tuple[Item, str, str] | None = None
    count = 0
    for item in file.items():
        wrong = _problem(item, topics, queues)
        if wrong is not None:
            first = first or (item, *wrong)
            count += 1
    if first is not None:
        item, expected, found = first
        yield finding(
            "tiered-index-item-mismatch",
            path=file.mapped.path,
            physical_offset=item.physical_offset,
            position=item.position,
            expected=expected,
            found=f"{found} ({count} of {file.item_count} items)",
        )


def _problem(item: Item, topics: dict[int, str], queues: OpenQueues) -> tuple[str, str] | None:
    """``(expected, found)`` of an item that leads nowhere; None of a sound one, of one whose topic,
    or record, was deleted, and of one for which the log has lost the place."""
    topic = topics.get(item.topic_id)
    if topic is None:
        return None if item.topic_id >= 0 else ("a topic's number", str(item.topic_id))
    owned = queues.get(topic, item.queue_id)
    if not owned:
        return f"a queue of {topic}", f"queue {item.queue_id}"
    if any(_is_told(queue, item) for queue in owned):
        return None
    records = [queue.log.find_record(item.physical_offset) for queue in owned]
    found = [record for record in records if record is not None]
    if not found:
        return "a record", f"none at {item.physical_offset} of queue {item.queue_id} of {topic}"
    if all(record.total_size != item.size for record in found):
        return f"size {item.size}", f"size {found[0].total_size}"
    hashes = {
        index_key_hash(topic, key) for record in found for key in message_keys(record.properties)
    }
    return None if item.key_hash in hashes else (f"a key with hash {item.key_hash}", "none")


def _is_told(queue: TieredQueue, item: Item) -> bool:
    """Whether the log has not the bytes of such a record any more, and the index cannot help it:
    they were deleted when their time was over, or a segment is missing or cut."""
    start, last = item.physical_offset, item.physical_offset + max(item.size, 1) - 1
    if not 0 <= start <= last < queue.log_end:
        return False
    return queue.log.files.find(start) is None or queue.log.files.find(last) is None
