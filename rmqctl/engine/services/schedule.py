"""``ScheduleMessageService``: the rules by which delayed messages go back to their real topic.

A delayed message waits in ``SCHEDULE_TOPIC_XXXX``, queue ``level - 1``; the tags code of its unit
is its delivery time. ``config/delayOffset.json`` has the progress of each level.

The progress that 4.9.3 stores lags behind: ``DeliverDelayedMessageTimerTask#syncDeliver`` counts
from the first message of a round, so after a round of five deliveries it has advanced by one. A
restarted broker delivers the other four again. Here the true progress is stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from isal.isal_zlib import crc32

from formats import constants
from formats.constants import INT_MAX, LONG_MAX
from formats.text import java_int
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import ConsumeQueue, Unit, is_ext_addr
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.persist import persist
from rmqctl.engine.write.bulk import PropertyEncoder
from rmqctl.errors import ConfigFileUnreadable

_WINDOW = 1 << 16
#: ``new ConcurrentHashMap(32)`` has a table of 64 entries, and a broker writes levels in its order.
_TABLE_SIZE = 64


def queue_id_of(level: int) -> int:
    """``delayLevel2QueueId``."""
    return level - 1


# --- delayOffset.json --------------------------------------------------------------------------


class DelayOffsets(NamedTuple):
    """``offsetTable``: level → queue offset of the next message to deliver. ``path`` is the file
    that was read; None without one: then every level begins at its first message."""

    table: dict[int, int]
    path: Path | None

    @property
    def is_backup(self) -> bool:
        return self.path is not None and self.path.name.endswith(brokerjson.BACKUP)


def load_delay_offsets(root: Path) -> DelayOffsets:
    """Loads the table as ``ConfigManager#load`` does: from the file, else from its ``.bak``.

    If the file is broken and there is no ``.bak``, a broker begins every level anew and delivers
    all messages in the log again. Here that is an error.

    :raises ConfigFileUnreadable: neither can be used. :raises CannotRead: the system refuses.
    """
    path = root / brokerjson.CONFIG / brokerjson.DELAY_OFFSET
    broken: ConfigFileUnreadable | None = None
    for candidate in (path, path.with_name(path.name + brokerjson.BACKUP)):
        try:
            value = brokerjson.read(candidate, [])
            if value is not None:
                return DelayOffsets(_checked(value, candidate), candidate)
        except ConfigFileUnreadable as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return DelayOffsets({}, None)


def _checked(value: object, path: Path) -> dict[int, int]:
    """``DelayOffsetSerializeWrapper#getOffsetTable``. An entry that a broker could not read is an
    error: without it the level would begin anew."""

    def error(reason: str) -> ConfigFileUnreadable:
        return ConfigFileUnreadable(path=str(path), line=1, column=1, reason=reason)

    table = value.get("offsetTable", {}) if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise error("it holds no offsetTable of levels and offsets")
    offsets = brokerjson.offset_table(table)
    if len(offsets) != len(table):
        raise error("an entry of offsetTable is not a level and an offset")
    for level, offset in offsets.items():
        if not -INT_MAX <= level <= INT_MAX or not -LONG_MAX <= offset <= LONG_MAX:
            raise error(f"level {level}, offset {offset} are beyond Java's numbers")
    return offsets


def encode_delay_offsets(table: dict[int, int]) -> str:
    """The text of ``ScheduleMessageService#encode(true)``, in a broker's order."""
    ordered = dict(sorted(table.items(), key=lambda entry: entry[0] % _TABLE_SIZE))
    return fastjson.dumps({"offsetTable": ordered})


def save_delay_offsets(root: Path, table: dict[int, int], *, keep_backup: bool = False) -> None:
    """Stores the table durably. Raises what :func:`~rmqctl.engine.state.persist.persist` raises."""
    persist(root, brokerjson.DELAY_OFFSET, encode_delay_offsets(table), keep_backup=keep_backup)


def first_to_deliver(offset: int | None, queue: ConsumeQueue) -> int:
    """Queue offset of a level's next message: ``offset`` moved into the queue's range
    (``correctDelayOffset``)."""
    return min(max(offset or 0, queue.min_offset), queue.max_offset)


# --- when ----------------------------------------------------------------------------------------


class Due(NamedTuple):
    """Which delivery times (ms) are due: those up to ``until``, and those behind ``horizon``.

    ``correctDeliverTimestamp`` delivers a message at once if its time lies further away than the
    level's delay. So after a delay was made shorter, messages do not wait for the old one.
    ``horizon`` is None if the levels are not known for sure: then none is delivered early.
    """

    until: int
    horizon: int | None

    def is_due(self, deliver_timestamp: int) -> bool:
        return deliver_timestamp <= self.until or (
            self.horizon is not None and deliver_timestamp > self.horizon
        )


def deliver_timestamp(store: MessageStore, level: int, queue: ConsumeQueue, unit: Unit) -> int:
    """Delivery time (ms) of a unit's message: its tags code, or the one in its extension."""
    if queue.ext is None or not is_ext_addr(unit.tags_code):
        return unit.tags_code
    found = queue.tags_code(unit)
    if found is not None:
        return found
    record = store.commit_log.find_record(unit.physical_offset)
    levels = store.dispatcher.delay_levels
    delay = levels[level - 1] if 0 < level <= len(levels) else 1000
    return (record.store_timestamp if record is not None else 0) + delay


def end_of_due(store: MessageStore, level: int, queue: ConsumeQueue, start: int, due: Due) -> int:
    """Queue offset of the first unit from ``start`` on that is not due. A level is delivered in
    order, so all units behind it wait with it. Reads only units, except with an extension."""
    while start < queue.max_offset:
        units = queue.window(start, min(_WINDOW, queue.max_offset - start))
        if not len(units):
            return start
        times = units["tags_code"]
        waits = times > due.until
        if due.horizon is not None:
            waits &= times <= due.horizon
        if queue.ext is not None:
            for at in (times <= constants.MAX_ADDR).nonzero()[0].tolist():
                unit = Unit._make(units[at].item())
                waits[at] = not due.is_due(deliver_timestamp(store, level, queue, unit))
        if waits.any():
            return start + int(waits.argmax())
        start += len(units)
    return start


# --- what ----------------------------------------------------------------------------------------


class Undeliverable(NamedTuple):
    """Why a message cannot go back to its topic. If it ``passes``, a broker skips it and goes on;
    else the level stops there, in a broker for good."""

    reason: str
    passes: bool
    detail: str


def message_of_unit(
    store: MessageStore, unit: Unit, encode: PropertyEncoder
) -> tuple[Record, MessageExtBrokerInner] | Undeliverable:
    """The scheduled record, and the message that a broker would put for it (``executeOnTimeup``,
    ``messageTimeup``).

    One thing is stricter: without a sound record a broker may deliver whatever it decodes there,
    with a new checksum that matches.
    """
    offset = unit.physical_offset
    if unit.is_pre_blank:
        return Undeliverable("pre-blank-unit", True, "it fills the place before the first message")
    if not store.min_offset <= offset < store.max_offset:
        where = f"the log has {store.min_offset} to {store.max_offset}"
        return Undeliverable("record-gone", True, where)
    record = store.commit_log.find_record(offset)
    if record is None or record.total_size != unit.size:
        stands = "no record" if record is None else f"a record of {record.total_size} bytes"
        return Undeliverable(
            "unit-mismatch", False, f"the unit names {unit.size} bytes, {stands} stands there"
        )
    body = store.body(record)
    if body and crc32(body) & 0x7FFFFFFF != record.body_crc:
        return Undeliverable("body-crc-mismatch", False, "the body is not what was stored")
    found = message_timeup(record, body, encode)
    return found if isinstance(found, Undeliverable) else (record, found)


def message_timeup(
    record: Record, body: bytes, encode: PropertyEncoder
) -> MessageExtBrokerInner | Undeliverable:
    """``ScheduleMessageService#messageTimeup``: the message for its real queue.

    Properties are encoded before DELAY is cleared, so DELAY, REAL_TOPIC and REAL_QID stay in the
    stored bytes and in what is indexed. The store checks the cleared ones, for example whether the
    message is delayed. Store host, times and body stay; the prepared offset does not.
    """
    properties = record.properties
    topic = properties.get(constants.PROPERTY_REAL_TOPIC)
    queue_id = properties.get(constants.PROPERTY_REAL_QUEUE_ID, "")
    if topic is None:
        return Undeliverable("real-topic-missing", False, "the property REAL_TOPIC is not there")
    if topic == constants.RMQ_SYS_TRANS_HALF_TOPIC:
        return Undeliverable("real-topic-is-half-topic", True, f"REAL_TOPIC is {topic}")
    problem = topic_directory_problem(topic)
    if problem is not None:
        return Undeliverable("real-topic-not-allowed", False, f"REAL_TOPIC {topic!r}: {problem}")
    number = java_int(queue_id)
    if number is None or number < 0:
        return Undeliverable("real-queue-id-not-allowed", False, f"REAL_QID is {queue_id!r}")
    data = encode(properties)
    cleared = properties.keys() & {constants.PROPERTY_DELAY_TIME_LEVEL}
    for name in cleared:
        del properties[name]
    properties[constants.PROPERTY_WAIT_STORE_MSG_OK] = "false"
    return MessageExtBrokerInner(
        topic,
        body,
        number,
        record.flag,
        record.sys_flag,
        properties,
        data,
        record.born_timestamp,
        (record.born_address, record.born_port),
        (record.store_address, record.store_port),
        record.reconsume_times,
        cleared=tuple(cleared),
    )


def is_copy(record: Record, scheduled: Record, encoded: EncodedMessage) -> bool:
    """Whether ``record`` is from an earlier delivery of ``scheduled``. ``encoded`` is what a
    delivery would put now.

    A producer's message is never equal: a copy's properties name delay, real topic and real queue.
    Two scheduled messages without UNIQ_KEY may be equal in everything; then copies are counted.
    """
    return (
        encoded.has_properties(record.properties_bytes)
        and record.body_crc == scheduled.body_crc
        and record.born_timestamp == scheduled.born_timestamp
        and record.born_address == scheduled.born_address
        and record.born_port == scheduled.born_port
        and record.flag == scheduled.flag
        and record.reconsume_times == scheduled.reconsume_times
    )
