"""Lists of messages: those of a queue by queue offset, and those that a search has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from formats.constants import COMPRESSED_FLAG, PROPERTY_KEYS, PROPERTY_TAGS
from rmqctl.cli.browse.model.job import Job
from rmqctl.cli.browse.model.lines import DIM, ERROR, Column, Counted, Line, Place, Stop
from rmqctl.cli.browse.model.shown import short_time, size
from rmqctl.engine.read.batchunits import BatchUnits
from rmqctl.engine.read.bytime import Boundary
from rmqctl.engine.read.getbatch import INNER_BATCH, InnerMessage, inner_messages
from rmqctl.engine.record.bodies import DEFAULT_LIMIT, is_as_stored
from rmqctl.engine.record.record import Damage, Record
from rmqctl.engine.record.status import BODY_CRC_MISMATCH
from rmqctl.operations.look.find import Wanted, find
from rmqctl.operations.look.offset import offset_by_time
from rmqctl.operations.look.places import message_of_unit

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.consumequeue import ConsumeQueue

#: How many bytes of a body a list shows at most.
_PREVIEW = 200
#: How many messages a search shows at most.
MOST_FOUND = 1000


#: The mark before a body that does not match its CRC.
_DAMAGED = "DAMAGED"


class Preview(NamedTuple):
    """The begin of a body; if it does not match its CRC, also a ``mark`` and a ``note``."""

    text: str
    mark: str = ""
    note: str = ""


def preview(store: MessageStore, record: Record) -> Preview:
    """The begin of a body. All of the body is read, so that damage is shown wherever it is."""
    body = store.body(record)
    if record.sys_flag & COMPRESSED_FLAG:
        text = f"({size(record.body_length)}, compressed)"
    else:
        text = body[:_PREVIEW].decode("utf-8", "replace")
    if is_as_stored(body, record.body_crc):
        return Preview(text)
    return Preview(text, _DAMAGED, f"{BODY_CRC_MISMATCH}: the body is not what was stored")


def _inner(store: MessageStore, record: Record, queue_offset: int) -> InnerMessage | None:
    """The message with a queue offset, if it is one of several in a record's body; None if the
    record itself is the message."""
    if not record.sys_flag & INNER_BATCH:
        return None
    inner = inner_messages(record, store.body(record), DEFAULT_LIMIT) or ()
    number = queue_offset - record.queue_offset
    return inner[number] if 0 <= number < len(inner) else None


def place_of(record: Record) -> Place:
    return Place(record.physical_offset, record.topic, record.queue_id, record.queue_offset)


class QueueMessages(Counted):
    """The messages of one queue. The number of a line is its queue offset. In a batch queue (5.x)
    each message in a record has a line, which leads to that record.

    For a unit that leads to no message, the line says why.
    """

    noun = "messages"

    def __init__(self, opened: Opened, topic: str, queue_id: int) -> None:
        self._store = opened.store
        self.topic = topic
        self.queue_id = queue_id
        self._queue: ConsumeQueue | BatchUnits | None = None
        self._low = self._high = 0

    def prepare(self, stop: Stop) -> None:
        batches = self._store.batch_queue(self.topic, self.queue_id)
        if batches is not None:
            self._queue = BatchUnits(batches)
        else:
            self._queue = self._store.consume_queue(self.topic, self.queue_id)
        if self._queue is not None:
            self._low, self._high = self._queue.min_offset, self._queue.max_offset
        self.columns = (
            Column("offset", max(len(str(self._high)), 6), right=True),
            Column("stored", 23),
            Column("size", 9, right=True, rank=2),
            Column("tags", 8, rank=1),
            Column("keys", 12, grows=1),
            Column("body", 12, grows=2, rank=3),
        )

    def bounds(self) -> tuple[int, int]:
        return self._low, self._high

    def first(self) -> int:
        return self._low

    def last(self) -> int:
        return max(self._high - 1, self._low)

    def count(self) -> int:
        return self._high

    def where(self, number: int) -> str:
        if self._high == self._low:
            return "no messages"
        return f"offset {number} of {self._low} to {self._high - 1}"

    def line(self, number: int, stop: Stop) -> Line:
        assert self._queue is not None
        found = message_of_unit(self._store, self._queue, number)
        if isinstance(found, Damage):
            place = Place(
                found.physical_offset if found.physical_offset >= 0 else None,
                self.topic,
                self.queue_id,
                number,
            )
            why = f"{found.reason}: expected {found.expected}, found {found.found}"
            return Line((str(number), found.reason), ERROR, place, why)
        inner = _inner(self._store, found, number)
        properties = found.properties if inner is None else inner.properties
        # A wrong unit may lead to a message of another queue. verify reports that.
        strays = (found.topic, found.queue_id) != (self.topic, self.queue_id)
        note = f"a message of {found.topic!r}, queue {found.queue_id}" if strays else ""
        body = preview(self._store, found)
        if inner is not None:
            body = body._replace(text=inner.body[:_PREVIEW].decode("utf-8", "replace"))
        return Line(
            (
                str(number),
                short_time(found.store_timestamp),
                size(found.total_size),
                properties.get(PROPERTY_TAGS, ""),
                properties.get(PROPERTY_KEYS, ""),
                f"{body.mark} {body.text}" if body.mark else body.text,
            ),
            ERROR if strays or body.note else "",
            place_of(found)._replace(queue_offset=number),
            "; ".join(filter(None, (note, body.note))),
        )

    def at_time(self, time: int) -> int | None:
        """The queue offset of the first message with this store time or a later one; None: there is
        none."""
        row = offset_by_time(self._store, self.topic, self.queue_id, time, Boundary.CEIL.value)
        return row["queue_offset"]


class Found(Job, Counted):
    """The results of a search for a text, as it finds them: messages by id, key and unique key, and
    with ``scans`` by any text in the whole log."""

    noun = "messages"
    columns: tuple[Column, ...] = (
        Column("stored", 23),
        Column("topic", 14, grows=1),
        Column("found by", 10),
        Column("keys", 12, grows=1),
        Column("size", 9, right=True, rank=1),
    )

    def __init__(self, opened: Opened, text: str, topic: str | None, *, scans: bool) -> None:
        super().__init__()
        self._store = opened.store
        self.wanted = Wanted(text, topic, limit=MOST_FOUND, scans=scans)
        self.not_searched: list[str] = []
        self._lines: list[Line] = []

    def work(self, stop: Stop) -> None:
        if self.wanted.scans:
            self.total = self._store.max_offset - self._store.min_offset
        for row in find(self._store, self.wanted, self.advance(stop)):
            if row["type"] == "summary":
                self.not_searched = row["not_searched"]
                continue
            properties = row["properties"]
            cells = (
                short_time(row["store_timestamp"]),
                row["topic"],
                row["found_by"],
                properties.get(PROPERTY_KEYS, ""),
                size(row["total_size"]),
            )
            place = Place(
                row["physical_offset"], row["topic"], row["queue_id"], row["queue_offset"]
            )
            self._lines.append(Line(cells, DIM if row["queue_id"] < 0 else "", place))

    def count(self) -> int:
        return len(self._lines)

    def line(self, number: int, stop: Stop) -> Line:
        return self._lines[number]
