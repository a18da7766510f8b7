"""The index of tiered storage: its files by themselves, and each item with its record."""

from __future__ import annotations

from collections.abc import Iterator

from formats.text import index_key_hash
from rmqctl.engine.dispatch.rules import message_keys
from rmqctl.engine.tiered.index import Item, TieredIndexFile
from rmqctl.engine.tiered.openqueues import OpenQueues
from rmqctl.engine.tiered.store import TieredStore
from rmqctl.operations.verify.findings import Finding, finding


def check_index_structure(file: TieredIndexFile) -> Iterator[Finding]:
    """Header, slots and links of one file.

    :raises CannotRead: the system refuses.
    """
    code, problem = "tiered-index-unreadable", file.problem()
    problems = iter(()) if problem is not None else file.unreachable()
    for one in [problem] if problem is not None else problems:
        yield finding(
            code if problem is not None else "tiered-index-broken",
            path=file.mapped.path,
            position=one.position,
            expected=one.expected,
            found=one.found,
        )


def check_index_items(store: TieredStore) -> Iterator[Finding]:
    """Each item of all files with its record; of neighbours that are wrong the first, and how many.
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
    told: Finding | None = None
    count = 0
    for item in file.items():
        wrong = _problem(item, topics, queues)
        if wrong is None and told is not None:
            yield _with_count(told, count)
            told = None
        elif wrong is not None and told is None:
            told, count = _finding(file, item, *wrong), 1
        elif wrong is not None:
            count += 1
    if told is not None:
        yield _with_count(told, count)


def _with_count(found: Finding, count: int) -> Finding:
    more = f", and {count - 1} items behind it" if count > 1 else ""
    return found._replace(found=f"{found.found}{more}")


def _finding(file: TieredIndexFile, item: Item, expected: str, found: str) -> Finding:
    return finding(
        "tiered-index-item-mismatch",
        path=file.mapped.path,
        physical_offset=item.physical_offset,
        position=item.position,
        expected=expected,
        found=found,
    )


def _problem(item: Item, topics: dict[int, str], queues: OpenQueues) -> tuple[str, str] | None:
    """``(expected, found)`` of an item that leads nowhere; None of a sound one, and of one whose
    topic, or record, was deleted."""
    topic = topics.get(item.topic_id)
    if topic is None:
        return None if item.topic_id >= 0 else ("a topic's number", str(item.topic_id))
    owned = queues.get(topic, item.queue_id)
    if not owned:
        return f"a queue of {topic}", f"queue {item.queue_id}"
    if any(0 <= item.physical_offset < queue.log.min_offset for queue in owned):
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
