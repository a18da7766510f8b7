"""``Messages``: messages of a store that are read while a loop goes over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from rmqctl.engine.log.times import stretches
from rmqctl.engine.record.record import Damage, Record
from rmqctl.library.damage import DamageTeller
from rmqctl.library.message import Message
from rmqctl.library.times import Moment, milliseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.library.store import Store


class Messages(ABC):
    """Messages of a store, in an order. Each loop reads them anew, and none of them is held.

    A store, a topic and a queue are such messages, and so are their parts. Messages that cannot be
    read are passed over with a :class:`~rmqctl.library.damage.DamageWarning`.
    """

    def __init__(self, store: Store, since: int | None = None, until: int | None = None) -> None:
        """:param since: the earliest store time in milliseconds. :param until: the latest."""
        self._store = store
        self._since = since
        self._until = until

    def __iter__(self) -> Iterator[Message]:
        """:raises ValueError: the store is closed, before the loop or while it runs."""
        store = self._store
        for record in self._records():
            yield Message(store, record)
            store.check_open()

    def between(self, since: Moment | None = None, until: Moment | None = None) -> Messages:
        """The messages among them that were stored from ``since`` to ``until``, both inclusive.

        A time is a ``datetime``, text in ISO 8601 (both local when they name no zone), or epoch
        milliseconds; None is no limit. A queue or a topic is searched for the time by bisection, as
        ``rmqctl offset`` does. Of a whole store, those files of the log are read that may hold such
        messages, judged by the first record of each: where a clock was set back by more than an
        hour, some messages may be missing.

        :raises ValueError: one of them is no time, or ``since`` is later than ``until``.
        """
        low, high = milliseconds(since), milliseconds(until)
        if low is not None and high is not None and low > high:
            raise ValueError(f"{since!r} is behind {until!r}: swap them")
        known = [one for one in (low, self._since) if one is not None]
        limits = [one for one in (high, self._until) if one is not None]
        return self._between(max(known, default=None), min(limits, default=None))

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatchReader:
        """The same messages as columns, read batch by batch. The reader's ``read_all`` makes a
        table of them, ``read_pandas`` a data frame; polars and duckdb take the reader, or these
        messages themselves.

        A row whose ``status`` is ``damage`` stands for a stretch of the log that cannot be read.
        Only the columns that say which one, and why, have values in it. Without the column
        ``status`` a :class:`~rmqctl.library.damage.DamageWarning` takes the place of such rows.

        :param columns: the columns in their order; None: all but ``body``. That is the stored body,
            which may be compressed. Names and types are those of Spark's data source.
        :raises ArrowMissing: pyarrow is not installed.
        :raises ValueError: there is no such column, or the store is closed.
        """
        from rmqctl.library.columns import reader

        return reader(self, columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The messages as an Arrow stream (the PyCapsule interface)."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @property
    def store(self) -> Store:
        """The store that they belong to."""
        return self._store

    @abstractmethod
    def _between(self, since: int | None, until: int | None) -> Messages:
        """The same messages, limited to other times."""

    @abstractmethod
    def _records(self) -> Iterator[Record]:
        """Their records, in order, as long as the store is open."""

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Their columns, batch by batch."""
        from rmqctl.library.columns import of_records

        return of_records(self._store, schema, self._records())

    def _shows(self, record: Record) -> bool:
        return (self._since is None or record.store_timestamp >= self._since) and (
            self._until is None or record.store_timestamp <= self._until
        )

    def _times_told(self) -> str:
        """The times as the ``repr`` shows them."""
        told = ""
        if self._since is not None:
            told += f" since {self._since}"
        if self._until is not None:
            told += f" until {self._until}"
        return told


def log_end(store: Store) -> int | None:
    """The physical offset at which a loop over the log that begins now ends; None: at the end of
    the log. A store open for writing may grow meanwhile, even by what the loop itself puts."""
    engine = store.engine
    return engine.max_offset if engine.writable else None


class LogMessages(Messages):
    """Messages in the order of the log. They include those that a crash has left out of the queues,
    and those of deleted topics."""

    def _between(self, since: int | None, until: int | None) -> Messages:
        return LogMessages(self._store, since, until)

    def _records(self) -> Iterator[Record]:
        damage = DamageTeller()
        log = self._store.engine.commit_log
        parts = stretches(log, self._since, self._until, log_end(self._store))
        for entry in chain.from_iterable(log.walk(*part) for part in parts):
            if isinstance(entry, Record):
                if self._shows(entry):
                    yield entry
            elif isinstance(entry, Damage):
                damage.of_log(entry)

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        from rmqctl.engine.scan.choice import Choice
        from rmqctl.library.columns import of_log

        return of_log(self._store, schema, Choice(None, self._since, self._until))

    def __repr__(self) -> str:
        return f"<Messages of {str(self._store.path)!r}{self._times_told()}>"
