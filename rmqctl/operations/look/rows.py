"""Makes rows: plain dicts of what a store has, with the field names that scripts rely on."""

from __future__ import annotations

import functools
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from formats.constants import PROPERTY_TAGS
from formats.text import tags_code
from rmqctl.engine.record.bodies import decompress, is_as_stored
from rmqctl.engine.record.status import BODY_CRC_MISMATCH, OK

if TYPE_CHECKING:
    from rmqctl.engine.index.header import IndexItem
    from rmqctl.engine.queue.consumequeue import Unit
    from rmqctl.engine.read.lines import Lines
    from rmqctl.engine.record.record import Blank, Damage, Record
    from rmqctl.rows import Row
    from rmqctl.rows.structures import BlankRow, DamageRow, IndexItemRow, MessageRow, UnitRow

P = ParamSpec("P")
R = TypeVar("R", bound="Row | Lines")
BODY_CRC_MISMATCHES = "body_crc_mismatches"


def message_row(record: Record) -> MessageRow:
    """The row of a record, without its body."""
    properties = record.properties
    tags = properties.get(PROPERTY_TAGS)
    return {
        "type": "message",
        "physical_offset": record.physical_offset,
        "total_size": record.total_size,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "body_crc": record.body_crc,
        "born_timestamp": record.born_timestamp,
        "born_host": record.born_host,
        "store_timestamp": record.store_timestamp,
        "store_host": record.store_host,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_length": record.body_length,
        "tags_code": tags_code(tags) if tags else 0,
        "msg_id": record.msg_id,
        "properties": properties,
    }


class BodySource(Protocol):
    """Something that gives the stored body of a record: a store, opened or followed."""

    def body(self, record: Record) -> bytes: ...


def message_row_with_body(
    store: BodySource, record: Record, spelling: str, decompress_limit: int | None = None
) -> MessageRow:
    """The row of a record, with its stored body as :func:`spelled_body` gives it; ``none`` leaves
    the body out. ``status`` tells whether the body agrees with its CRC.

    With ``decompress_limit`` it is the body that a consumer gets, of at most so many bytes. It is
    null where it cannot be made; ``body_status`` and ``body_reason`` say why.
    """
    row = message_row(record)
    if spelling == "none":
        return row
    stored = store.body(record)
    status = OK if is_as_stored(stored, record.body_crc) else BODY_CRC_MISMATCH
    if decompress_limit is None:
        row["body"], row["body_encoding"] = spelled_body(stored, spelling)
        row["status"] = status
        return row
    body = decompress(stored, record.sys_flag, decompress_limit)
    row["body"] = row["body_encoding"] = None
    if body.data is not None:
        row["body"], row["body_encoding"] = spelled_body(body.data, spelling)
    row["status"] = status
    row["body_compression"] = body.compression
    row["body_status"] = body.status.value
    row["body_reason"] = body.reason
    return row


def spelled_body(body: bytes, spelling: str) -> tuple[str, str]:
    """A body as ``base64``, ``hex`` or ``utf8`` text, and which of them it is. A body that is no
    UTF-8 becomes base64, for the text must give the same bytes again."""
    if spelling == "hex":
        return body.hex(), spelling
    if spelling == "utf8":
        try:
            return body.decode(), spelling
        except UnicodeDecodeError:
            pass
    return b64encode(body).decode("ascii"), "base64"


def bodies_counted(rows: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Adds ``body_crc_mismatches`` to the summary of some rows, if there are any: how many of the
    bodies shown do not agree with their CRC."""

    @functools.wraps(rows)
    def counted(*args: P.args, **options: P.kwargs) -> Iterator[R]:
        mismatches = 0
        for row in rows(*args, **options):
            if isinstance(row, tuple):  # Lines; to import them takes a while.
                mismatches += cast("Lines", row).mismatches
            elif row["type"] == "message":
                mismatches += row.get("status", OK) != OK
            elif row["type"] == "summary" and mismatches:
                cast("dict[str, Any]", row)[BODY_CRC_MISMATCHES] = mismatches
            yield row

    return counted


def unit_row(topic: str, queue_id: int, queue_offset: int, unit: Unit) -> UnitRow:
    """The row of a queue unit as it is stored."""
    return {
        "type": "unit",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "physical_offset": unit.physical_offset,
        "size": unit.size,
        "tags_code": unit.tags_code,
    }


def index_item_row(file: str, index_no: int, item: IndexItem, store_timestamp: int) -> IndexItemRow:
    """The row of an index item as it is stored; its ``store_timestamp`` has whole seconds only."""
    return {
        "type": "index_item",
        "file": file,
        "index_no": index_no,
        "key_hash": item.key_hash,
        "physical_offset": item.physical_offset,
        "time_diff_seconds": item.time_diff_seconds,
        "prev_index_no": item.prev_index_no,
        "store_timestamp": store_timestamp,
    }


def blank_row(blank: Blank) -> BlankRow:
    return {
        "type": "blank",
        "physical_offset": blank.physical_offset,
        "total_size": blank.total_size,
    }


def damage_row(damage: Damage) -> DamageRow:
    return {
        "type": "damage",
        "physical_offset": damage.physical_offset,
        "length": damage.length,
        "reason": damage.reason,
        "expected": damage.expected,
        "found": damage.found,
    }
