"""Follows a store that a broker is writing: each look yields what has become whole since.

A writer copies a record into the map piece by piece, and nothing locks a reader out. So the last
record counts as whole when another entry stands behind it, or when two looks find it the same and
its body matches its CRC. An irregular place is reported when two looks find it the same and
something stands behind it; else it may be a record that is being written.

The end can also move back: a broker that recovers cuts its log at the first bad record and
overwrites everything behind. A follower remembers what it yielded last and notices the change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from formats.constants import DLEDGER_MAGIC_CODE
from rmqctl.engine.files import paths
from rmqctl.engine.filters.tags import MessageFilter
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.consumequeue import ConsumeQueue, Unit
from rmqctl.engine.queue.queuetable import open_queue_table
from rmqctl.engine.record.record import (
    BLANK,
    Blank,
    Damage,
    End,
    Entry,
    Record,
    body_seen,
    crc_matches,
)
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.rocksdb import RocksDBUnreadable
from rmqctl.errors import CannotRead, FileLengthContradiction, NotAStore, StoreNotFound

_REMEMBERED = 256
#: Looks in a row that may fail because the store is between two states (a file has no length yet,
#: or has just gone).
_PATIENCE = 50


class Moved(NamedTuple):
    """The follower's place has jumped. Offsets are physical ones, or queue offsets for a queue.

    ``reason`` is ``end-moved-back`` (entries yielded from ``to_offset`` on are no longer there) or
    ``files-deleted`` (entries before ``to_offset`` have gone unread).
    """

    reason: str
    from_offset: int
    to_offset: int


class LogGone(NotAStore):
    """A store that is followed has lost its log: a disk that is no longer mounted, or a directory
    that somebody has emptied."""

    template = "{path} is followed, and its log has no file any more."
    step = command_step = "Follow it again when it is back."


class LiveStore:
    """The files of a store as they were at the last :meth:`look`."""

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self.root = root
        self.config = config
        self._failures = 0
        self._has_had_log = False
        self._open()

    def _open(self) -> None:
        if not self.root.is_dir():  # Everything else may still come.
            raise StoreNotFound(path=str(self.root))
        file_size = commit_log_file_size(self.root, self.config)
        self.commit_log = open_commit_log(self.root, self.config, file_size)
        self.queues = open_queue_table(
            self.root,
            self.config,
            lambda: (self.commit_log.min_offset, self.commit_log.files.end_offset),
            # A file without a length will get one: it must not be passed over meanwhile.
            strict=True,
        )
        has_log = bool(self.commit_log.files.entries)
        if self._has_had_log and not has_log:
            raise LogGone(path=str(self.root))
        self._has_had_log = has_log

    def look(self) -> bool:
        """Opens the files as they are now. False when the store is between two states.

        :raises CannotRead, FileLengthContradiction, StoreNotFound, LogGone: it has been for many
            looks.
        """
        self.close()
        try:
            self._open()
        except (CannotRead, FileLengthContradiction, StoreNotFound, LogGone) as error:
            self.failed(error)
            return False
        return True

    def succeeded(self) -> None:
        """Notes that a look went through."""
        self._failures = 0

    def failed(self, error: Exception) -> None:
        """Notes that a look failed; raises the error after too many in a row."""
        self._failures += 1
        if self._failures > _PATIENCE:
            raise error

    def body(self, record: Record) -> bytes:
        """The stored body of a record of this look."""
        return self.commit_log.body(record)

    def close(self) -> None:
        self.commit_log.close()
        self.queues.close()

    def __enter__(self) -> LiveStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LogFollower:
    """Follows the log from physical offset ``offset``: the start of an entry, or the log's end."""

    def __init__(self, live: LiveStore, offset: int) -> None:
        self.live = live
        self.offset = offset
        self._history: deque[Record] = deque(maxlen=_REMEMBERED)
        self._pending: Entry | None = None
        self._looks = 0

    def look(self) -> Iterator[Record | Blank | Damage | Moved]:
        """Yields the entries that have become whole since the last look, in order of place."""
        if not self.live.look():
            return
        log = self.live.commit_log
        try:
            moved = self._check_history(log)
            if moved is not None:
                yield moved
            while (found := self._next(log)) is not None:
                yield found
            self.live.succeeded()
        except CannotRead as error:  # A file has gone between two steps.
            self.live.failed(error)

    def _next(self, log: CommitLog) -> Record | Blank | Damage | Moved | None:
        """Returns the entry at the place if it is whole, and goes on behind it; None: not yet."""
        number = log.files.index_of(self.offset)
        if number < 0:
            return self._outside(log)
        # In this order: an entry is whole if it is read after its successor was found.
        is_followed = self._is_followed(log)
        entry = log.entry_at(self.offset)
        if isinstance(entry, Record):
            if not is_followed and not self._is_settled(log, entry):
                return None
            self._history.append(entry)
        elif not isinstance(entry, Blank):
            return self._irregular(log, number, entry)
        self._go_on(entry.physical_offset + entry.total_size)
        return entry

    def _go_on(self, offset: int) -> None:
        self.offset = offset
        self._pending = None
        self._looks = 0

    def _is_followed(self, log: CommitLog) -> bool:
        """Whether an entry stands where the one at the place should end, by its size."""
        mapped, position = log.locate(self.offset)
        size, other = BLANK.unpack(mapped.read(position, BLANK.size).ljust(BLANK.size, b"\0"))
        if mapped.framed and size == DLEDGER_MAGIC_CODE:
            size = other
        if not 0 < size < mapped.size - position:
            return False
        return isinstance(log.entry_at(self.offset + size), Record | Blank)

    def _is_settled(self, log: CommitLog, record: Record) -> bool:
        """Whether the newest record was the same at the last look, its body matches its CRC, and
        its last byte is there: a writer copies it from its first byte on."""
        if record == self._pending:
            text = record.properties_bytes or record.topic_bytes
            mapped, _ = log.locate(record.physical_offset)
            return text[-1:] != b"\0" and crc_matches(body_seen(mapped, record), record)
        self._pending = record
        return False

    def _irregular(self, log: CommitLog, number: int, entry: Damage | End) -> Damage | None:
        """Returns an irregular place as damage, once it stays so and something stands behind it."""
        if isinstance(entry, End) and not _has_data(log, number + 1):
            self._pending = None
            return None
        if entry != self._pending:
            self._pending, self._looks = entry, 0
            return None
        self._looks += 1
        # Searching what stands behind may read much, so it is done less and less often.
        if self._looks & (self._looks - 1) and self._looks % 64:
            return None
        position = self.offset - log.files.entries[number].file_from_offset
        found = log.step(number, position).entry
        if not isinstance(found, Damage):
            return None
        self._go_on(found.physical_offset + found.length)
        return found

    def _outside(self, log: CommitLog) -> Damage | Moved | None:
        """Handles a place in no file: before all files, behind them, or between two."""
        files = log.files
        if not files.entries or self.offset == files.end_offset:
            return None
        if self.offset < log.min_offset:
            return self._move("files-deleted", log.min_offset)
        if self.offset > files.end_offset:
            return self._move("end-moved-back", files.entries[-1].file_from_offset)
        number = next(n for n, e in enumerate(files.entries) if e.file_from_offset > self.offset)
        gap = log.step(number, -1).entry
        if gap != self._pending:
            self._pending = gap
            return None
        assert isinstance(gap, Damage)
        self._go_on(gap.physical_offset + gap.length)
        return gap

    def _move(self, reason: str, offset: int) -> Moved:
        moved = Moved(reason, self.offset, offset)
        self._go_on(offset)
        return moved

    def _check_history(self, log: CommitLog) -> Moved | None:
        """Goes back to the first remembered record that has changed; None: none has."""
        kept: deque[Record] = deque(maxlen=_REMEMBERED)
        for record in self._history:
            if record.physical_offset < log.min_offset:
                continue
            if log.find_record(record.physical_offset) == record:
                kept.append(record)
                continue
            self._history = kept
            to_offset = record.physical_offset
            if not kept or log.files.index_of(to_offset) < 0:
                # How far the end moved is unknown, so it goes back to the start of the file: an
                # entry begins there.
                number = max(log.files.index_of(to_offset), -1)
                if not log.files.entries:
                    return None
                to_offset = log.files.entries[number].file_from_offset
                kept.clear()
            return self._move("end-moved-back", to_offset)
        return None


def _has_data(log: CommitLog, number: int) -> bool:
    """Whether a file's first bytes are not zeros. A broker makes the next file beforehand."""
    return number < len(log.files.entries) and log.files.file(number).first_nonzero(0, 8) < 8


class QueueFollower:
    """Follows a queue from queue offset ``offset`` (None: its first message, once there is one)."""

    def __init__(
        self,
        live: LiveStore,
        topic: str,
        queue_id: int,
        offset: int | None,
        message_filter: MessageFilter | None = None,
    ) -> None:
        paths.check_topic_directory(topic)
        self.live = live
        self.offset = offset
        self.min_offset = self.max_offset = 0
        self._where = topic, queue_id
        self._filter = message_filter
        self._history: deque[tuple[int, Unit]] = deque(maxlen=_REMEMBERED)
        self._pending: tuple[int, Unit] | None = None

    def look(self) -> Iterator[Record | Moved]:
        """Yields messages that have become whole since the last look and pass the filter, in order.

        A unit without a record (retention, damage) is passed over when a later unit has one. The
        last units wait for theirs.
        """
        if not self.live.look():
            return
        try:
            queue = self.live.queues.find(*self._where)
            if queue is not None:
                yield from self._look(queue)
            self.live.succeeded()
        except (
            CannotRead,
            FileLengthContradiction,
            RocksDBUnreadable,
        ) as error:  # A file has just come or gone.
            self.live.failed(error)

    def _look(self, queue: ConsumeQueue) -> Iterator[Record | Moved]:
        self.min_offset, self.max_offset = queue.min_offset, queue.max_offset
        if self.offset is None:
            self.offset = queue.min_offset
        moved = self._moved(queue, self.offset)
        if moved is not None:
            self.offset = moved.to_offset
            yield moved
        yield from self._messages(queue, self.offset)

    def _messages(self, queue: ConsumeQueue, start: int) -> Iterator[Record]:
        log = self.live.commit_log
        for queue_offset, unit in queue.units(start, self._settled_end(queue)):
            record = log.find_record(unit.physical_offset)
            if record is None or record.total_size != unit.size:
                continue
            self.offset = queue_offset + 1
            self._history.append((queue_offset, unit))
            wanted = self._filter is None or (
                self._filter.matches_code(queue.tags_code(unit)) and self._filter.matches(record)
            )
            if wanted:
                yield record

    def _settled_end(self, queue: ConsumeQueue) -> int:
        """The queue's end, without the last unit unless the last look found it the same."""
        last = queue.max_offset - 1
        unit = queue.unit(last)
        if unit is None:
            return queue.max_offset
        before, self._pending = self._pending, (last, unit)
        return queue.max_offset if before == self._pending else last

    def _moved(self, queue: ConsumeQueue, offset: int) -> Moved | None:
        """Where to go on when the end has moved back or files were deleted; None: at the place."""
        for number, (queue_offset, unit) in enumerate(self._history):
            if queue_offset < queue.min_offset:
                continue
            if queue_offset >= queue.max_offset or queue.unit(queue_offset) != unit:
                for _ in range(len(self._history) - number):
                    self._history.pop()
                return Moved("end-moved-back", offset, min(queue_offset, queue.max_offset))
        if offset < queue.min_offset:
            return Moved("files-deleted", offset, queue.min_offset)
        # Until something was yielded, a place behind the end is waited for.
        if offset > queue.max_offset and self._history:
            return Moved("end-moved-back", offset, queue.max_offset)
        return None
