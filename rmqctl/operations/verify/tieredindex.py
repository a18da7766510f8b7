"""Checks the index of tiered storage: the structure of its files, and each item against its
record."""

from __future__ import annotations

from collections.abc import Iterator

from formats.text import index_key_hash
from rmqctl.engine.dispatch.rules import message_keys
from rmqctl.engine.tiered.index import Item, TieredIndexFile
from rmqctl.engine.tiered.openqueues import OpenQueues
from rmqctl.engine.tiered.store import TieredQueue, TieredStore
from rmqctl.operations.verify.findings import Finding, finding


def check_index_structure(file: TieredIndexFile) -> Iterator[Finding]:
    """The findings of one file's header, slots and links.

    :raises CannotRead: the system refuses to read the file.
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
    """Checks each item of all files against its record. Each file has at most one finding: the
    first wrong item, and how many are wrong. Without metadata nothing is checked, because only the
    metadata says which topic an item belongs to.

    :raises CannotRead: the system refuses to read a file.
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
        wrong = _problem(item, file.header.begin_timestamp, topics, queues)
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


def _problem(
    item: Item, begin: int, topics: dict[int, str], queues: OpenQueues
) -> tuple[str, str] | None:
    """``(expected, found)`` of a wrong item. None if it is right, if its topic or its record was
    deleted, and if the log has lost the bytes to which it leads."""
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
    if item.key_hash not in hashes:
        return f"a key with hash {item.key_hash}", "none"
    # By this time a query with times finds the message, or does not.
    times = [_seconds(record.store_timestamp - begin) for record in found]
    if item.time_diff_seconds in times:
        return None
    expected = f"a record stored {item.time_diff_seconds} s after the header's begin_timestamp"
    return expected, f"{times[0]} s"


def _seconds(milliseconds: int) -> int:
    """Whole seconds towards zero, as ``IndexStoreFile#putKey`` counts them."""
    seconds = abs(milliseconds) // 1000
    return seconds if milliseconds >= 0 else -seconds


def _is_told(queue: TieredQueue, item: Item) -> bool:
    """Whether the log does not have the bytes to which an item leads, though it goes on behind
    them: they have expired, or a segment is missing or cut, which is another finding."""
    start, last = item.physical_offset, item.physical_offset + max(item.size, 1) - 1
    if not 0 <= start <= last < queue.log_end:
        return False
    return queue.log.files.find(start) is None or queue.log.files.find(last) is None
