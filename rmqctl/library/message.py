"""``Message``: a record of the log, as a program sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import (
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from rmqctl.engine.record.bodies import DEFAULT_LIMIT, decompress, is_as_stored
from rmqctl.engine.record.status import BODY_CRC_MISMATCH, OK, BodyStatus
from rmqctl.errors import BodyUnreadable
from rmqctl.library.times import moment_of
from rmqctl.operations.look.rows import message_row_with_body

if TYPE_CHECKING:
    from datetime import datetime

    from rmqctl.engine.record.record import Record
    from rmqctl.library.store import Store
    from rmqctl.rows.structures import MessageRow


class Message:
    """One message of a store.

    Everything but its body is copied, and so available after the store is closed. The body is read
    from the store each time that it is asked for.
    """

    __slots__ = ("_properties", "_record", "_store")

    def __init__(self, store: Store, record: Record) -> None:
        """:param record: one of the store's log; see :meth:`Store.message`."""
        self._store = store
        self._record = record
        self._properties: dict[str, str] | None = None

    @property
    def topic(self) -> str:
        return self._record.topic

    @property
    def queue_id(self) -> int:
        return self._record.queue_id

    @property
    def queue_offset(self) -> int:
        """Its queue offset; 0 for prepared and rollback messages, which are in no queue."""
        return self._record.queue_offset

    @property
    def physical_offset(self) -> int:
        """Where its record starts in the log, in bytes."""
        return self._record.physical_offset

    @property
    def size(self) -> int:
        """Bytes of its record."""
        return self._record.total_size

    @property
    def msg_id(self) -> str:
        """Its offset message id: the broker's address and the physical offset, in hexadecimal."""
        return self._record.msg_id

    @property
    def properties(self) -> dict[str, str]:
        """All its properties; to change them changes nothing in the store."""
        if self._properties is None:
            self._properties = self._record.properties
        return self._properties

    @property
    def keys(self) -> tuple[str, ...]:
        """The producer's keys (``KEYS``), one by one."""
        return tuple(filter(None, self.properties.get(PROPERTY_KEYS, "").split(KEY_SEPARATOR)))

    @property
    def unique_key(self) -> str | None:
        """The id that the client made for it (``UNIQ_KEY``); clients call it the message id."""
        return self.properties.get(PROPERTY_UNIQ_KEY)

    @property
    def tags(self) -> str | None:
        return self.properties.get(PROPERTY_TAGS)

    @property
    def store_timestamp(self) -> int:
        """When the broker stored it, in milliseconds."""
        return self._record.store_timestamp

    @property
    def store_time(self) -> datetime | None:
        """``store_timestamp`` in UTC; None where the calendar does not go that far."""
        return moment_of(self.store_timestamp)

    @property
    def born_timestamp(self) -> int:
        """When the producer made the message, in milliseconds."""
        return self._record.born_timestamp

    @property
    def born_time(self) -> datetime | None:
        """``born_timestamp`` in UTC; None where the calendar does not go that far."""
        return moment_of(self.born_timestamp)

    @property
    def born_host(self) -> str:
        """The producer, ``address:port``."""
        return self._record.born_host

    @property
    def store_host(self) -> str:
        """The broker, ``address:port``."""
        return self._record.store_host

    @property
    def reconsume_times(self) -> int:
        """How often a consumer has sent it back."""
        return self._record.reconsume_times

    @property
    def body(self) -> bytes:
        """The body as a consumer gets it: decompressed where it is stored compressed.

        :raises BodyUnreadable: it does not agree with its CRC, or cannot be decompressed.
        :raises ValueError: the store is closed.
        """
        stored = self.stored_body
        if not is_as_stored(stored, self._record.body_crc):
            raise self._unreadable(BODY_CRC_MISMATCH, "its CRC-32 is another than that stored")
        found = decompress(stored, self._record.sys_flag)
        if found.data is not None:
            return found.data
        reason = found.reason
        if found.status is BodyStatus.OVER_LIMIT:
            reason = f"decompressing it takes more than {DEFAULT_LIMIT} bytes"
        raise self._unreadable(found.status.value, reason)

    @property
    def stored_body(self) -> bytes:
        """The body's bytes as they are in the log, unchecked. :raises ValueError: the store is
        closed."""
        return self._store.engine.body(self._record)

    @property
    def status(self) -> str:
        """``ok``, or ``body-crc-mismatch`` where the body does not agree with its CRC.

        :raises ValueError: the store is closed.
        """
        is_sound = is_as_stored(self.stored_body, self._record.body_crc)
        return OK if is_sound else BODY_CRC_MISMATCH

    def to_dict(self, body: str = "base64") -> MessageRow:
        """The row that ``rmqctl walk commitlog`` prints, which :meth:`Store.put_all` takes.

        :param body: how the stored body is written: ``base64``, ``hex`` or ``utf8``; ``none``
            leaves it out.
        :raises ValueError: the store is closed, or ``body`` is none of these.
        """
        if body not in ("none", "base64", "hex", "utf8"):
            raise ValueError(f"a body is spelled base64, hex or utf8, or none: not {body!r}")
        return message_row_with_body(self._store.engine, self._record, body)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same record of the same store."""
        if not isinstance(other, Message):
            return NotImplemented
        return (self._record, self._store.path) == (other._record, other._store.path)

    def __hash__(self) -> int:
        return hash((self._record.physical_offset, self._store.path))

    def __repr__(self) -> str:
        told = f"<Message {self.topic!r} queue {self.queue_id} offset {self.queue_offset}"
        told += f", {self._record.body_length} bytes"
        told += f", keys {' '.join(self.keys)!r}" if self.keys else ""
        told += f", tags {self.tags!r}" if self.tags else ""
        return f"{told}>"

    def _unreadable(self, status: str, reason: str) -> BodyUnreadable:
        return BodyUnreadable(
            physical_offset=self.physical_offset,
            topic=self.topic,
            status=status,
            reason=reason,
        )
