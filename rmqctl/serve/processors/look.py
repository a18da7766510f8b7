"""Messages by key and by offset, as they are stored in the log (``QueryMessageProcessor``)."""

from __future__ import annotations

from typing import NamedTuple

from formats.constants import INDEX_TAG_TYPE, LONG_MAX
from formats.remotingcodes import ResponseCode
from rmqctl.engine.record.record import Record
from rmqctl.engine.store import Store
from rmqctl.errors import NoRecordAt
from rmqctl.serve.processors.access import may
from rmqctl.serve.processors.pull import MAX_RECORDS, stored_bytes, unreadable
from rmqctl.serve.processors.request import Later, Outcome, Request, Served
from rmqctl.serve.state.accounts import Perm
from rmqctl.serve.wire.fields import BadRequest

#: ``defaultQueryMaxNum`` for unique keys, and ``maxMsgsNumBatch``.
_DEFAULT_QUERY_MAX_NUM, _MAX_MSGS_NUM_BATCH = 32, 64
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class _Found(NamedTuple):
    """The messages found, and the time (ms) and physical offset up to which the index goes; both
    are 0 where nothing is found."""

    records: list[Record]
    body: bytes
    last_timestamp: int
    last_offset: int


def query_message(served: Served, request: Request) -> Outcome:
    """``queryMessage``. A broker answers with all messages whose key has the same hash, and clients
    compare the key; here only messages with that key are answered."""
    fields, command = request.fields, request.command
    topic = fields.topic("topic", served.topics)
    key, most = fields.text("key"), _DEFAULT_QUERY_MAX_NUM
    if fields.find("indexType") == INDEX_TAG_TYPE:  # Of a client of 5.4 or later: messages by tag.
        key = f"{INDEX_TAG_TYPE}#{key}"
    begin, end = fields.int64("beginTimestamp"), fields.int64("endTimestamp")
    if not fields.boolean(_UNIQUE_KEY_QUERY):
        most = fields.int32("maxNum")
    if most < 0:
        raise BadRequest(f"the field maxNum is {most}")  # Java makes no list of such a size.
    most = min(most, _MAX_MSGS_NUM_BATCH)

    def answer(found: _Found, now: int) -> Outcome:
        headers = {
            "indexLastUpdatePhyoffset": found.last_offset,
            "indexLastUpdateTimestamp": found.last_timestamp,
        }
        problem = unreadable(found.records)
        if problem:
            return command.answer(ResponseCode.SYSTEM_ERROR, problem, headers)
        if found.records:
            return command.answer(ResponseCode.SUCCESS, None, headers, found.body)
        remark = "can not find message, maybe time range not correct"
        return command.answer(ResponseCode.QUERY_NOT_FOUND, remark, headers)

    return Later(lambda: _query(served.store, topic, key, most, max(begin, 0), end), answer)


def _query(store: Store, topic: str, key: str, most: int, begin: int, end: int) -> _Found:
    """The newest messages that fit into one answer, in the order of the log."""
    records: list[Record] = []
    size = 0
    for match in store.query_message(topic, key, begin, min(end, LONG_MAX)):
        if match.record is None or not match.matches:
            continue
        size += match.record.total_size
        if len(records) >= most or size > MAX_RECORDS:
            break
        records.append(match.record)
    records.sort()
    index = store.index
    # Without a hit a broker has asked no index file (DefaultMessageStore#queryMessage).
    last = index.last_header() if records else None
    body = b"" if unreadable(records) else stored_bytes(store, records)
    return _Found(
        records,
        body,
        last.end_timestamp if last else 0,
        last.end_phy_offset if last else 0,
    )


def record_with_body(store: Store, offset: int) -> tuple[Record, bytes] | None:
    """The record at a physical offset, and its body as stored; None: no record is there."""
    try:
        record = store.look_message_by_offset(offset)
    except NoRecordAt:
        return None
    return record, store.body(record)


def view_message(served: Served, request: Request) -> Outcome:
    """``viewMessageById``. A broker takes the four bytes at any offset for a size; here the offset
    has to be that of a record."""
    offset, command = request.fields.int64("offset"), request.command

    def work() -> tuple[list[Record], bytes]:
        try:
            records = [served.store.look_message_by_offset(offset)]
        except NoRecordAt:
            return [], b""
        return records, b"" if unreadable(records) else stored_bytes(served.store, records)

    def answer(found: tuple[list[Record], bytes], now: int) -> Outcome:
        records, body = found
        problem = unreadable(records)
        if not records:
            problem = f"can not find message by the offset, {offset}"
        elif not may(served, request, records[0].topic, Perm.SUB):
            problem = "No permission SUB for the topic of the message"
        if problem:
            return command.answer(ResponseCode.SYSTEM_ERROR, problem)
        return command.answer(ResponseCode.SUCCESS, body=body)

    return Later(work, answer)
