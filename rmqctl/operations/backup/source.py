"""What is copied of a store, file by file: everything of a store that stands still, and a
consistent part of one that is being written.

While a broker writes, the order of copying makes the copy consistent:

1. The offsets of consumers and of delayed messages, and the checkpoint. They may be behind the
   rest, but never ahead. How far the timer of 5.x has come is read.
2. Where the log ends then is noted (``physical_offset``). Queues, batch queues (5.x) and index are
   copied, cut at that offset, when all records before it have been dispatched to every queue
   (:mod:`~rmqctl.operations.backup.derived`). If the dispatch stands still before that, they are
   cut where it stands (``dispatched_offset``). A start then dispatches the rest again
   (``DefaultMessageStore#start``), and adds nothing twice. One of 5.x does so only after a crash;
   at any other time it leaves out the first message (``CommitLog#recoverNormally``).
3. The wheel and the timer log, cut behind the messages that the timer had counted
   (:mod:`~rmqctl.operations.backup.timercut`).
4. The log, up to the noted offset.
5. All other files of ``config/``.

Retention deletes the oldest files of the log, and afterwards what queues and index have of them
(``DefaultMessageStore#cleanFilesPeriodically``). The log is copied after those, and each directory
from its newest file on. So each record of the copy has its units and keys, and nothing has a gap.
Units of records before the log's first one stay, as between two rounds of a broker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rmqctl.engine.files import paths
from rmqctl.engine.files.again import looked_again
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.files.shown import shown
from rmqctl.engine.files.unfinished import (
    KEPT_BY_REBUILD,
    KEPT_BY_REPAIR,
    REPAIR,
    is_amid_repair,
)
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.filesizes import batch_queue_file_size, unproven_log_file
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.engine.timer.timercheck import TimerCheckpoint, read_timer_checkpoint
from rmqctl.errors import CommitLogMissing, FileLengthContradiction
from rmqctl.operations.backup.cut import QueueCuts, index_before, log_before, scratch_copy
from rmqctl.operations.backup.derived import lacking, wanted_before
from rmqctl.operations.backup.errors import StoreChanging
from rmqctl.operations.backup.listing import Found, Listing, SourceFile, found
from rmqctl.operations.backup.timercut import TimerCut
from rmqctl.operations.look.info import irregular_files
from rmqctl.operations.verify.snapshot import newest_batch_end, newest_unit_end

T = TypeVar("T")

_CONFIG = "config/"
_BACKUP, _TEMPORARY = ".bak", ".tmp"
#: Files that may be behind the log and the queues, but never ahead of them.
_FIRST = tuple(_CONFIG + name for name in (*brokerjson.OFFSET_TABLES, brokerjson.DELAY_OFFSET))
#: What is derived from the log.
_DERIVED = (
    paths.CONSUME_QUEUE,
    paths.BATCH_CONSUME_QUEUE,
    paths.CONSUME_QUEUE_EXT,
    paths.INDEX,
    paths.TIMER_WHEEL,
    paths.TIMER_LOG,
)
#: How often a file of ``config/`` is looked for, and seconds between two looks: a broker deletes it
#: before it gives the new one its name (``MixAll#string2File``).
_LOOKS, _BETWEEN_SECONDS = 5, 0.02
#: After so many looks at unchanged newest units, with so many seconds between them, the dispatch
#: counts as standing still.
_DISPATCH_LOOKS, _DISPATCH_SECONDS = 20, 0.05
#: After so many looks, what a dispatch has not written counts as missing for good.
_DERIVED_LOOKS = 100


class Source:
    """A store that is copied. Its offsets are known when all files have come; they are None where
    the log cannot be read as one."""

    min_physical_offset: int | None = None
    physical_offset: int | None = None
    dispatched_offset: int | None = None
    #: The files of the log that are not as long as they must be, or may have been longer.
    cut: Sequence[str] = ()
    #: The space that all files take on disk, known when the first one comes.
    allocated_bytes = 0

    def __init__(self, root: Path, config: MessageStoreConfig, scratch: Path | None) -> None:
        """:param scratch: the directory for a temporary copy of the newest index file; None: the
        system's directory of temporary files.

        Errors as of :class:`Listing`. :raises NotAFile: a file of the log is a link that leads
        nowhere.
        """
        self.root = root
        self.listing = Listing(root, config)
        self._config = config
        self._scratch = scratch

    def whole(self) -> Iterator[Found]:
        """All files as they are.

        :raises StoreChanging: another program has changed one of them meanwhile.
        """
        log = self._log_range()
        if log is not None:
            self.min_physical_offset, self.physical_offset = log
            self.dispatched_offset = self.physical_offset
        # With 100,000 queues each listing takes seconds, so one gives the files and their state.
        before = dict(self.listing.states())
        self.allocated_bytes = sum(state.allocated_bytes for state in before.values())
        for file in before:
            one = found(file)
            if one is None:
                raise StoreChanging(path=file.where, reason="it was removed")
            yield one
        if is_locked(self.root):
            raise StoreChanging(path=str(self.root), reason="a broker has started on it")
        # What is left in the end has gone, and the rest has changed or come.
        changed = [file for file, state in self.listing.states() if before.pop(file, None) != state]
        changed += before
        if changed or self._log_range() != log:
            path = self.root / (min(changed).path if changed else paths.COMMIT_LOG)
            raise StoreChanging(path=str(path), reason="somebody writes there")

    def _log_range(self) -> tuple[int, int] | None:
        """Where the log begins and ends. None: it cannot be read as one, and its files are copied
        as they are."""
        try:
            with MessageStore(self.root, self._config) as store:
                _check_log(store)
                self.cut = _cut_files(store)
                return store.min_offset, store.max_offset
        except FileLengthContradiction:
            return None

    def live(self) -> Iterator[Found]:
        """The consistent part of a store that is being written.

        :raises StoreChanging: the log was cut, or parts of the store were replaced.
        :raises UnsupportedStore: the store has something that rmqctl does not know.
        """
        check_understood(self.root, self._config)
        self.allocated_bytes = self.listing.allocated_bytes()
        repairs = _repairs(self.root)
        for name in _FIRST:
            yield from self._settled(self._named(name))
            yield from self._settled(self._named(name + _BACKUP))
        yield from self._settled(self._named(paths.CHECKPOINT))
        timer = read_timer_checkpoint(self.root / paths.TIMER_CHECKPOINT) or TimerCheckpoint()
        with MessageStore(self.root, self._config) as store:
            _check_log(store)
            self.cut = _cut_files(store)
            begin, end = store.min_offset, store.max_offset
            self.physical_offset = end
            queue_file_size = store.queues.file_size
        dispatched = self._dispatched(end, queue_file_size)
        self.dispatched_offset = min(max(dispatched, begin), end)
        self._await_others(self.dispatched_offset)
        yield from self._derived(self.dispatched_offset)
        yield from self._timer(timer, self.dispatched_offset)
        yield from self._log_of(begin, end)
        yield from self._others()
        log = self._log_range()
        if log is None or log[1] < end:
            raise StoreChanging(path=str(self.root), reason="its log was cut")
        if _repairs(self.root) != repairs:
            raise StoreChanging(path=str(self.root), reason="its parts were made anew")

    def _dispatched(self, end: int, queue_file_size: int) -> int:
        """The physical offset up to which all messages have units; waits for those before ``end``.
        Records behind the last of these messages may be of kinds that get no units."""
        newest, looks = self._newest(queue_file_size), 0
        while newest < end and looks < _DISPATCH_LOOKS:
            time.sleep(_DISPATCH_SECONDS)
            before, newest = newest, self._newest(queue_file_size)
            looks = looks + 1 if newest == before else 0
        return newest

    def _newest(self, queue_file_size: int) -> int:
        """Where the record of the newest unit ends, of queues and of batch queues (5.x)."""
        of_batches = batch_queue_file_size(self.root, self._config)
        return max(
            newest_unit_end(self.root, queue_file_size), newest_batch_end(self.root, of_batches)
        )

    def _await_others(self, limit: int) -> None:
        """Waits until all queues, and the index, have everything of the records before a physical
        offset that one queue has. What does not come is missing for good: it was deleted, or is
        damaged."""
        wanted = self._looked(lambda store: wanted_before(store, limit))
        before: list[str] = []
        looks = 0
        while looks < _DERIVED_LOOKS:
            left = self._looked(lambda store: lacking(store, wanted))
            if not left:
                return
            looks = looks + 1 if left == before else 0
            before = left
            time.sleep(_DISPATCH_SECONDS)

    def _looked(self, look: Callable[[MessageStore], T]) -> T:
        """What a look at the store finds, opened anew for it."""

        def opened() -> T:
            with MessageStore(self.root, self._config) as store:
                return look(store)

        return looked_again(opened)

    def _derived(self, limit: int) -> Iterator[Found]:
        """Queues and index up to a physical offset."""
        has_extension = (self.root / paths.CONSUME_QUEUE_EXT).is_dir()
        cuts = QueueCuts(limit, has_extension=has_extension)
        for file in self.listing.newest_first(paths.CONSUME_QUEUE):
            yield from _some(found(file, cuts.units(file)))
        for file in self.listing.newest_first(paths.BATCH_CONSUME_QUEUE):
            yield from _some(found(file, cuts.batch_units(file)))
        for file in self.listing.newest_first(paths.CONSUME_QUEUE_EXT):
            yield from _some(found(file, cuts.extension(file)))
        copied = partial(scratch_copy, self._scratch)
        with MessageStore(self.root, self._config) as store:
            for file in self.listing.newest_first(paths.INDEX):
                geometry = store.index.geometry
                opener = index_before(limit, file, geometry, store.commit_log, copied)
                yield from _some(found(file, opener))

    def _timer(self, checkpoint: TimerCheckpoint, limit: int) -> Iterator[Found]:
        """The timer as a check point says that it was, without messages from a physical offset
        on."""
        cut = TimerCut(checkpoint, limit, self._looked, partial(scratch_copy, self._scratch))
        yield from _some(found(self._named(paths.TIMER_WHEEL), cut.wheel))
        for file in self.listing.newest_first(paths.TIMER_LOG):
            yield from _some(found(file, cut.log(file)))
        yield from _some(found(self._named(paths.TIMER_CHECKPOINT), cut.checkpoint))

    def _log_of(self, begin: int, end: int) -> Iterator[Found]:
        """The log, which began and ended at these physical offsets when the copy was begun. Notes
        where the copy of it begins.

        :raises StoreChanging: retention has deleted all of it.
        """
        copied = end
        for file in self.listing.newest_first(paths.COMMIT_LOG):
            one, name = found(file, log_before(end, file)), file.place.name
            if one is not None and is_offset_name(name) and int(name) >= begin:
                copied = min(copied, int(name))
            yield from _some(one)
        if begin < copied == end:
            raise StoreChanging(path=str(self.root), reason="retention has deleted all of its log")
        self.min_physical_offset = copied

    def _others(self) -> Iterator[Found]:
        """All files but the log, what is derived from it, and those that were copied first. Left
        out are ``abort``, which a start takes for a crash, and files that a broker is about to
        rename."""
        taken = [paths.COMMIT_LOG, *_DERIVED]
        if not is_amid_repair(self.root):
            taken.append(REPAIR)  # A repair has changed nothing yet: the copy does not need it.
        first = {*_FIRST, *(name + _BACKUP for name in _FIRST), paths.CHECKPOINT}
        first.add(paths.TIMER_CHECKPOINT)
        # 5.x keeps what was in it before.
        first |= {paths.ABORT, paths.ABORT + _BACKUP}
        for file in list(self.listing.files()):
            is_config = file.path.startswith(_CONFIG)
            if file.path in first or file.path.partition("/")[0] in taken:
                continue
            if not (is_config and file.path.endswith(_TEMPORARY)):
                yield from self._settled(file)

    def _settled(self, file: SourceFile) -> Iterator[Found]:
        """A file that a broker replaces at times, if there is one."""
        for _ in range(_LOOKS):
            one = found(file)
            if one is not None:
                yield one
                return
            beside = (file.place.with_name(file.place.name + end) for end in (_BACKUP, _TEMPORARY))
            if not any(path.exists() for path in beside):
                return
            time.sleep(_BETWEEN_SECONDS)

    def _named(self, path: str) -> SourceFile:
        return SourceFile(path, f"{self.root}/{path}")


def _check_log(store: MessageStore) -> None:
    """:raises CommitLogMissing: there are units but no log: the backup would have no messages.
    :raises NotAFile: a file of the log is a link that leads nowhere."""
    store.commit_log.files.check_regular(links_only=True)
    if not store.commit_log.files.entries and store.dispatched_to >= 0:
        raise CommitLogMissing(path=str(store.root / paths.COMMIT_LOG))


def _cut_files(store: MessageStore) -> list[str]:
    """The files of the log that have lost their end, and the only one if nothing confirms its
    length."""
    unproven = unproven_log_file(store.root, store.config)
    if unproven is not None:
        path, size = unproven
        return [f"{shown(store.root, path)}: {size} bytes, which nothing confirms"]
    return irregular_files(store, store.commit_log.files.irregular)


def _repairs(root: Path) -> tuple[list[str], list[str]]:
    """Names that change when a repair or a rebuild replaces parts of the store: the directories
    that keep what was replaced, and the files of a repair that is not ended."""
    heads = (KEPT_BY_REPAIR, KEPT_BY_REBUILD)
    kept = [name for name in paths.scan_names(root) if name.startswith(heads)]
    if not is_amid_repair(root):
        return kept, []
    moved = (f"{where}/{name}" for where, names, _ in os.walk(root / REPAIR) for name in names)
    return kept, sorted(moved)


def _some(one: Found | None) -> Iterator[Found]:
    if one is not None:
        yield one
