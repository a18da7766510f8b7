"""``Store``: one broker store, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services.anyqueue import queue_directories
from rmqctl.engine.settings.logdirectories import at_root
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, load_broker_conf
from rmqctl.library.message import Message
from rmqctl.library.messages import LogMessages
from rmqctl.library.queue import Queue
from rmqctl.library.topic import Topic, Topics

if TYPE_CHECKING:
    from rmqctl.operations.verify import Finding

PathLike = str | os.PathLike[str]


def open(
    path: PathLike,
    *,
    writable: bool = False,
    create: bool = False,
    broker_conf: PathLike | MessageStoreConfig | None = None,
) -> Store:
    """Opens a store, for reading unless it is to be ``writable``; close it, or use ``with``.

    Reading changes no byte and takes no lock, so it is safe beside a running broker. What that
    appends after the opening is not seen in the queues. A store opened for writing takes the lock,
    and first does what a broker's start would do.

    :param path: the directory that holds ``commitlog/`` and ``consumequeue/``.
    :param create: make the store where there is none; this needs ``writable``.
    :param broker_conf: the broker's own ``broker.conf``; needed where its sizes are not the
        defaults.
    :raises StoreNotFound, NotAStore: there is no store at ``path``.
    :raises StoreInUse: it is opened for writing, and a broker or another program holds its lock.
    :raises DamagedStore: it is opened for writing, and a start would lose messages.
    :raises BrokerConfError: ``broker_conf`` cannot be read, or is no such file.
    """
    if create and not writable:
        raise ValueError("a store that is created is writable: say writable=True as well")
    root = Path(path)
    if isinstance(broker_conf, MessageStoreConfig):
        config = broker_conf
    elif broker_conf is not None:
        config = at_root(load_broker_conf(Path(broker_conf)), root)
    else:
        config = MessageStoreConfig()
    if writable:
        return Store(MessageStore(root, config, writable=True, create=create))
    return Store(MessageStore(root, config))


class Store(LogMessages):
    """A store that :func:`open` has opened: its messages in the order of the log, and its topics.

    After :meth:`close`, whatever would read from the store raises ``ValueError``, also in the
    topics, queues and messages that were taken from it; the copied parts of a message stay. Any
    thread may read.
    """

    def __init__(self, engine: MessageStore) -> None:
        """:param engine: the engine's store, which is closed with this one."""
        super().__init__(self)
        self._engine = engine
        self._closed = False

    @property
    def path(self) -> Path:
        return self._engine.root

    @property
    def writable(self) -> bool:
        return self._engine.writable

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def engine(self) -> MessageStore:
        """The engine's store, for whatever this class lacks. :raises ValueError: the store is
        closed."""
        self.check_open()
        return self._engine

    def check_open(self) -> None:
        """:raises ValueError: the store is closed."""
        if self._closed:
            raise ValueError(f"the store {self.path} is closed")

    # --- reading -------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that have queues, by name and sorted."""
        self.check_open()
        return Topics(self)

    def topic(self, name: str) -> Topic:
        """``topics[name]``. :raises KeyError: the topic has no queues."""
        return self.topics[name]

    @property
    def queues(self) -> list[Queue]:
        """Every queue, by topic and number."""
        found = {(where.topic, where.queue_id) for where in queue_directories(self.engine)}
        return [Queue(self, topic, queue_id) for topic, queue_id in sorted(found)]

    def message(self, place: int | str) -> Message:
        """The message at a physical offset, or that of an offset message id.

        :raises NoRecordAt: there is no record.
        :raises UsageError: the text is no message id.
        """
        from rmqctl.operations.look.message import parse_physical_offset
        from rmqctl.operations.look.recordstarts import require_record

        engine = self.engine
        offset = place if isinstance(place, int) else parse_physical_offset(place)
        return Message(self, require_record(engine, offset))

    def find(
        self, text: str, topic: str | None = None, *, scan: bool = False, limit: int = 100
    ) -> Iterator[Message]:
        """The messages with a key, a unique key or an offset message id, looked up in the index.

        :param topic: messages of this topic only.
        :param scan: read the whole log afterwards, for messages that the index does not have, or
            that have the text in a property or the body.
        :param limit: give so many messages at most.
        :raises UsageError: the text is empty.
        """
        from rmqctl.operations.look.find import Wanted, find

        wanted = Wanted(text, topic, scans=scan, limit=limit)
        for row in find(self.engine, wanted):
            if row["type"] == "message":
                yield self.message(row["physical_offset"])

    def verify(self) -> Iterator[Finding]:
        """The findings of ``rmqctl verify``. A sound store yields only findings that are worth
        knowing (``severity`` ``info``)."""
        from rmqctl.operations.verify import Finding, verify

        engine = self.engine
        for found in verify(engine.root, engine.config):
            if isinstance(found, Finding):
                yield found

    # --- writing -------------------------------------------------------------------------

    def put(
        self,
        topic: str,
        body: bytes | str = b"",
        *,
        queue_id: int = 0,
        keys: str | Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
    ) -> Message:
        """Appends a message as a broker does. It is on disk when this returns: the message as it is
        stored, so a delayed one is in the schedule topic.

        :param body: text is stored as UTF-8.
        :raises PutRefused: a broker would not take the message, or the disk is full.
        :raises UsageError: a value could not be read back as it was given.
        :raises NotWritable: the store is open for reading.
        """
        from rmqctl.library.writing import put_one

        fields: dict[str, Any] = {"topic": topic, "queue_id": queue_id, "delay_level": delay_level}
        fields["keys"] = keys if isinstance(keys, str) else list(keys)
        fields |= {"tags": tags, "properties": dict(properties or {})}
        return put_one(self, fields, body.encode() if isinstance(body, str) else body)

    def put_all(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        ignore_body_crc: bool = False,
        ignore_unknown: bool = False,
    ) -> int:
        """Appends many messages in order, and forces them to disk in bulks. Returns how many they
        are.

        A mapping has the fields of a line of ``rmqctl put --from``. A message of another store
        keeps all its fields. A generator may give any number of messages. It must not itself put
        messages into this store, which is refused with a RuntimeError.

        :param ignore_body_crc: take bodies that do not agree with their CRC.
        :param ignore_unknown: pass over fields that no message has.
        :raises PutRefused, UsageError: as of :meth:`put`; the messages before it are stored.
        :raises NotWritable: the store is open for reading.
        """
        from rmqctl.library.writing import put_all

        return put_all(
            self, messages, ignore_body_crc=ignore_body_crc, ignore_unknown=ignore_unknown
        )

    def flush(self) -> None:
        """Forces everything to disk and advances the checkpoint.

        :raises NotWritable: the store is open for reading. :raises CannotWrite: the disk failed.
        """
        from rmqctl.library.writing import writable_engine

        writable_engine(self).flush()

    # --- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the store; a second call does nothing. A store that was open for writing is closed
        as a broker's stop does it."""
        if not self._closed:
            self._closed = True
            self._engine.close()

    def __enter__(self) -> Self:
        self.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "writable" if self.writable else "for reading"
        return f"<Store {str(self.path)!r}, {state}>"
