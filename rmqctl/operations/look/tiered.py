"""tiered ls, walk, query: what a broker of 5.x has uploaded to files, of its logs and its index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from formats.constants import LONG_MAX
from formats.text import index_key_hash
from rmqctl.engine.dispatch.rules import message_keys
from rmqctl.engine.record.record import End, Record
from rmqctl.engine.tiered.files import Owner, Segment
from rmqctl.engine.tiered.metadata import COMMIT_LOG
from rmqctl.engine.tiered.openqueues import OpenQueues
from rmqctl.engine.tiered.store import TieredQueue, TieredStore
from rmqctl.operations.look.rows import bodies_counted, message_row_with_body
from rmqctl.operations.look.walk import Selection, log_row

if TYPE_CHECKING:
    from rmqctl.engine.tiered.index import Item, TieredIndexFile
    from rmqctl.rows.structures import BlankRow, DamageRow, MessageRow
    from rmqctl.rows.tiered import (
        TieredIndexFileRow,
        TieredLsSummary,
        TieredQuerySummary,
        TieredQueueRow,
        TieredSegmentRow,
        TieredWalkSummary,
    )

OK, MISSING, SHORT, LONG, UNKNOWN = "ok", "missing", "short", "long", "unknown"


def state_of(segment: Segment, *, has_metadata: bool) -> str:
    """The state of a segment, as far as it shows without reading the file."""
    if segment.metadata is None:
        return UNKNOWN if has_metadata else OK
    if segment.file is None:
        return MISSING
    if segment.file_size != segment.metadata.size:
        return SHORT if segment.file_size < segment.metadata.size else LONG
    return OK


def tiered_rows(
    store: TieredStore, topic: str | None = None, queue_id: int | None = None
) -> Iterator[TieredQueueRow | TieredSegmentRow | TieredIndexFileRow | TieredLsSummary]:
    """Rows ``tiered_queue`` by topic and queue, ``tiered_segment``, then, unless a queue is chosen,
    ``tiered_index_file``, and at the end ``summary``.

    :raises CannotRead: the system refuses to read a file.
    """
    summary: TieredLsSummary = {
        "type": "summary",
        "directory": None if store.directory is None else str(store.directory),
        "queues": 0,
        "messages": 0,
        "segments": 0,
        "bytes": 0,
        "not_ok": 0,
        "index_files": 0,
        "index_items": 0,
    }
    for queue in store.queues(topic, queue_id):
        row = _queue_row(store, queue)
        summary["queues"] += 1
        summary["messages"] += row["messages"]
        yield row
    for queue in store.queues(topic, queue_id):
        yield from _segment_rows(store, [(queue.owner, one) for one in queue.segments], summary)
    if topic is None and queue_id is None:
        yield from _segment_rows(store, store.index_segments(), summary)
        for file, segment in store.index_files():
            summary["index_files"] += 1
            summary["index_items"] += file.item_count
            yield _index_row(store, file, segment)
    yield summary


def _queue_row(store: TieredStore, queue: TieredQueue) -> TieredQueueRow:
    owner, ends = queue.owner, queue.ends
    ids = {} if store.metadata is None else store.metadata.topic_ids
    entries = queue.log.files.entries
    known = [one.metadata for one in queue.of_kind(COMMIT_LOG) if one.metadata is not None]
    begins = [one.begin_timestamp for one in known if one.begin_timestamp is not None]
    stops = [one.end_timestamp for one in known if one.end_timestamp is not None]
    return {
        "type": "tiered_queue",
        "cluster": owner.cluster or None,
        "broker": owner.broker,
        "topic": owner.topic,
        "topic_id": ids.get(owner.topic),
        "queue_id": owner.queue_id,
        "min_offset": None if ends is None else ends[0],
        "max_offset": None if ends is None else ends[1],
        "messages": queue.unit_count,
        "log_bytes": sum(entry.size for entry in entries),
        "segments": len(queue.segments),
        "begin_timestamp": min(begins, default=None),
        "end_timestamp": max(stops, default=None),
    }


def _segment_rows(
    store: TieredStore, segments: list[tuple[Owner, Segment]], summary: TieredLsSummary
) -> Iterator[TieredSegmentRow]:
    for owner, one in segments:
        row = _segment_row(store, owner, one)
        summary["segments"] += 1
        summary["bytes"] += row["file_size"] or 0
        summary["not_ok"] += row["state"] != OK
        yield row


def _segment_row(store: TieredStore, owner: Owner, one: Segment) -> TieredSegmentRow:
    known = one.metadata
    return {
        "type": "tiered_segment",
        "topic": owner.topic,
        "queue_id": owner.queue_id,
        "kind": one.kind,
        "base_offset": one.base_offset,
        "size": None if known is None else known.size,
        "file_size": None if one.file is None else one.file_size,
        "state": state_of(one, has_metadata=store.metadata is not None),
        "status": None if known is None else known.status,
        "create_timestamp": None if known is None else known.create_timestamp,
        "begin_timestamp": None if known is None else known.begin_timestamp,
        "end_timestamp": None if known is None else known.end_timestamp,
        "path": None if one.file is None else _relative(store, one.file),
    }


def _relative(store: TieredStore, path: Path) -> str:
    """The path of a file in rows: relative to the directory of uploaded files, or to the store."""
    for place in (store.directory, store.root):
        if place is not None and path.is_relative_to(place):
            return str(path.relative_to(place))
    return str(path)


def _index_row(
    store: TieredStore, file: TieredIndexFile, segment: Segment | None
) -> TieredIndexFileRow:
    header = file.header
    return {
        "type": "tiered_index_file",
        "state": "local" if segment is None else "uploaded",
        "begin_timestamp": header.begin_timestamp,
        "end_timestamp": header.end_timestamp,
        "slots": file.slots or None,
        "slots_used": header.slots_used,
        "items": header.item_count,
        "file_size": file.mapped.size,
        "path": _relative(store, file.mapped.path),
    }


@bodies_counted
def walk_tiered(
    store: TieredStore,
    what: Selection,
    body: str = "none",
    *,
    decompress_limit: int | None = None,
) -> Iterator[MessageRow | BlankRow | DamageRow | TieredWalkSummary]:
    """Rows ``message``, ``blank``, ``damage`` of each chosen log, queue by queue, then ``summary``.
    ``physical_offset`` is the offset in the queue's uploaded log.

    :raises TieredFilesNotFound: nothing says where the uploaded files are.
    """
    store.require_files()
    summary: TieredWalkSummary = {
        "type": "summary",
        "queues": 0,
        "messages": 0,
        "blanks": 0,
        "damages": 0,
        "residue": 0,
    }
    left = LONG_MAX if what.limit is None else what.limit
    for queue in store.queues(what.topic, what.queue_id):
        summary["queues"] += 1
        for entry in queue.log.walk():
            if isinstance(entry, End):
                summary["residue"] += entry.residue
                break
            row = log_row(queue.log, entry, what, body, decompress_limit, None)
            if row is None:
                continue
            if not left:
                break
            left -= 1
            summary[_COUNTED[row["type"]]] += 1  # type: ignore[literal-required]
            yield row
        if not left:
            break
    yield summary


_COUNTED = {"message": "messages", "blank": "blanks", "damage": "damages"}


@bodies_counted
def query_tiered(
    store: TieredStore,
    topic: str,
    key: str,
    what: Selection,
    body: str = "none",
    *,
    decompress_limit: int | None = None,
) -> Iterator[MessageRow | TieredQuerySummary]:
    """Rows ``message`` of a topic with a key, those of the newest index file first, then
    ``summary``. Of ``what`` only times and limit are used. Each item is compared with its record.

    :raises TieredFilesNotFound: nothing says where the uploaded files are.
    """
    store.require_files()
    summary: TieredQuerySummary = {
        "type": "summary",
        "messages": 0,
        "collisions": 0,
        "lost": 0,
        "index_files": 0,
        "unreadable": 0,
    }
    left = LONG_MAX if what.limit is None else what.limit
    seen: set[tuple[Owner, int]] = set()
    with OpenQueues(store) as queues:
        for file, _ in store.index_files(newest_first=True):
            summary["index_files"] += 1
            summary["unreadable"] += file.problem() is not None
            for item in file.find(index_key_hash(topic, key)):
                for queue in queues.get(topic, item.queue_id):
                    if (queue.owner, item.physical_offset) in seen:
                        continue
                    seen.add((queue.owner, item.physical_offset))
                    record = _hit(queue, item, topic, key, summary)
                    if record is not None and what.shows_time(record.store_timestamp) and left:
                        left -= 1
                        summary["messages"] += 1
                        yield message_row_with_body(queue.log, record, body, decompress_limit)
    yield summary


def _hit(
    queue: TieredQueue, item: Item, topic: str, key: str, summary: TieredQuerySummary
) -> Record | None:
    """The record that an item leads to, if it has the topic and the key. Otherwise the item is
    counted, and None returned."""
    record = queue.log.find_record(item.physical_offset)
    if record is None:
        summary["lost"] += 1
        return None
    if record.topic != topic or key not in message_keys(record.properties):
        summary["collisions"] += 1
        return None
    return record
