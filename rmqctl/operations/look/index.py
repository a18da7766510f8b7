"""index: messages by key, with hash collisions told apart, and what the index files hold."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from formats.constants import LONG_MAX
from rmqctl.operations.look.rows import bodies_counted, index_item_row, message_row_with_body

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.index.lookup import KeyRows, RowMaker
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.record.record import Record
    from rmqctl.rows.structures import IndexFileRow, IndexItemRow, MessageRow
    from rmqctl.rows.summaries import IndexInfoSummary, IndexQueryRawSummary, IndexQuerySummary

#: How many messages, or items, a query gives unless another number is given.
DEFAULT_MAX = 64


def query(
    store: MessageStore,
    topic: str,
    key: str,
    *,
    max_messages: int = DEFAULT_MAX,
    since: int | None = None,
    until: int | None = None,
    body: str = "none",
    decompress_limit: int | None = None,
) -> Iterator[MessageRow | IndexQuerySummary]:
    """Rows ``message`` whose topic and key really match, in log order, then ``summary``.

    As by RocketMQ, the newest ``max_messages`` hits are taken, and a message that has the same key
    twice is two hits. ``collisions`` counts hits of another topic or key with the same hash,
    ``missing`` counts hits for which the log has no record.
    """
    is_plain = body == "none" and since is None and until is None
    made = _quick_rows(store, topic, key, max_messages) if is_plain else None
    if made is not None:
        rows, collisions = made
        yield from rows
        yield _summary(store, len(rows), collisions, 0)
    else:
        times = since or 0, LONG_MAX if until is None else until
        yield from _read_rows(store, topic, key, times, max_messages, body, decompress_limit)


def _summary(
    store: MessageStore, messages: int, collisions: int, missing: int
) -> IndexQuerySummary:
    return {
        "type": "summary",
        "messages": messages,
        "collisions": collisions,
        "missing": missing,
        "index_files": len(store.index.paths),
    }


@bodies_counted
def _read_rows(
    store: MessageStore,
    topic: str,
    key: str,
    times: tuple[int, int],
    most: int,
    body: str,
    decompress_limit: int | None,
) -> Iterator[MessageRow | IndexQuerySummary]:
    """:func:`query` record by record."""
    found, collisions, missing = _matches(store, topic, key, times, most)
    for record in found:
        yield message_row_with_body(store, record, body, decompress_limit)
    yield _summary(store, len(found), collisions, missing)


def _matches(
    store: MessageStore, topic: str, key: str, times: tuple[int, int], most: int
) -> tuple[list[Record], int, int]:
    """The newest ``most`` hits in log order, collisions, and items without a record."""
    found: list[Record] = []
    collisions = missing = 0
    for match in store.query_message(topic, key, *times):
        if match.record is None:
            missing += 1
        elif not match.matches:
            collisions += 1
        else:
            found.append(match.record)
        if len(found) == most:
            break
    return sorted(found, key=itemgetter(0)), collisions, missing


def _quick_rows(store: MessageStore, topic: str, key: str, most: int) -> KeyRows | None:
    """The rows of a key where the kernel makes all of them."""
    compiled = store.index.compiled
    if compiled is None:
        return None
    return store.key_rows(_row_maker(compiled), topic, key, most)


@functools.cache
def _row_maker(compiled: ModuleType) -> RowMaker:
    """The maker of rows, made only once for many queries."""
    from rmqctl.operations.look.lines import REQUIRED

    cells = [(name, "message" if name == "type" else None) for name in REQUIRED]
    maker: RowMaker = compiled.Rows(cells)
    return maker


def query_items(
    store: MessageStore,
    topic: str,
    key: str,
    *,
    max_items: int = DEFAULT_MAX,
    since: int | None = None,
    until: int | None = None,
) -> Iterator[IndexItemRow | IndexQueryRawSummary]:
    """Rows ``index_item`` of the key's hash, newest first, then ``summary``.

    ``matches`` says whether the record has that topic and key; it is null without a record.
    """
    items = 0
    for match in store.query_message(topic, key, since or 0, LONG_MAX if until is None else until):
        hit = match.hit
        row = index_item_row(hit.path.name, hit.index_no, hit.item, hit.store_time)
        row["matches"] = None if match.record is None else match.matches
        yield row
        items += 1
        if items == max_items:
            break
    yield {"type": "summary", "items": items, "index_files": len(store.index.paths)}


def index_info(store: MessageStore) -> Iterator[IndexFileRow | IndexInfoSummary]:
    """Rows ``index_file``: header and fill of every file, in order, then ``summary``."""
    files = items = 0
    for file in store.index.files():
        files += 1
        items += file.item_count
        header, geometry = file.header, file.geometry
        yield {
            "type": "index_file",
            "file": file.path.name,
            "begin_timestamp": header.begin_timestamp,
            "end_timestamp": header.end_timestamp,
            "begin_phy_offset": header.begin_phy_offset,
            "end_phy_offset": header.end_phy_offset,
            "hash_slot_count": header.hash_slot_count,
            "index_count": header.index_count,
            "items": file.item_count,
            "max_hash_slot_num": geometry.hash_slot_num,
            "max_index_num": geometry.index_num,
            "is_full": file.is_full,
        }
    yield {"type": "summary", "index_files": files, "items": items}
