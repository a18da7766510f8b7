"""What is copied of a store, file by file: of one that stands still all, of one that is being
written what agrees with itself.

While a broker writes, the order makes the copy. The offsets of consumers and of delayed messages,
how far the timer of 5.x has delivered, and the checkpoint come first: they may say less than the
rest, and never more. Then the end of the log is named (``physical_offset``), and the log copied up
to there, from its newest file back, for retention takes the oldest. Queues and index are copied
when all before that has been dispatched, into the last queue
(:mod:`~rmqctl.operations.backup.derived`), and cut there. Where the dispatch stands still before
it, they are cut where it stands (``dispatched_offset``): a start dispatches the rest again
(``DefaultMessageStore#start``) and adds nothing twice; one of 5.x does so after a crash only, and
leaves out the first message at any other time (``CommitLog#recoverNormally``).
What else is in ``config/`` comes last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.files.unfinished import (
    KEPT_BY_REBUILD,
    KEPT_BY_REPAIR,
    REPAIR,
    is_amid_repair,
)
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.errors import CommitLogMissing, FileLengthContradiction
from rmqctl.operations.backup.cut import QueueCuts, index_before, log_before, scratch_copy
from rmqctl.operations.backup.derived import lacking, wanted_before
from rmqctl.operations.backup.errors import StoreChanging
from rmqctl.operations.backup.listing import Found, Listing, SourceFile, found
from rmqctl.operations.verify.snapshot import newest_unit_end

_CONFIG = "config/"
_BACKUP, _TEMPORARY = ".bak", ".tmp"
#: What may say less than log and queues, and never more.
_FIRST = ("config/consumerOffset.json", "config/delayOffset.json", paths.TIMER_CHECKPOINT)
#: Times that a file of ``config/`` is looked for, and seconds between: a broker deletes it before
#: it renames the new one (``MixAll#string2File``).
_LOOKS, _BETWEEN_SECONDS = 5, 0.02
#: Looks at the newest units, and seconds between, before the dispatch counts as standing still.
_DISPATCH_LOOKS, _DISPATCH_SECONDS = 20, 0.05
#: Looks at what a dispatch under way has still to write, before it counts as missing for good.
_DERIVED_LOOKS = 100


class Source:
    """A store that is copied. The offsets are known when all files have come; None where the log
    cannot be read as one."""

    min_physical_offset: int | None = None
    physical_offset: int | None = None
    dispatched_offset: int | None = None

    def __init__(self, root: Path, config: MessageStoreConfig, scratch: Path | None) -> None:
        """:param scratch: where a copy of the newest index file lies meanwhile; None: where the
        system has temporary files. Errors as of :class:`Listing`. :raises NotAFile: a file of the
        log is a link that leads nowhere."""
        self.root = root
        self.listing = Listing(root, config)
        self._config = config
        self._scratch = scratch

    def whole(self) -> Iterator[Found]:
        """All files as they are.

        :raises StoreChanging: somebody has changed one of them meanwhile.
        """
        end = self.physical_offset = self.dispatched_offset = self._log_end()
        before = self.listing.state()
        for file in list(self.listing.files()):
            one = found(file)
            if one is None:
                raise StoreChanging(path=str(file.place), reason="it was removed")
            yield one
        if is_locked(self.root):
            raise StoreChanging(path=str(self.root), reason="a broker has started on it")
        after = self.listing.state()
        names = before.keys() | after.keys()
        changed = sorted(name for name in names if before.get(name) != after.get(name))
        if changed or self._log_end() != end:
            path = self.root / (changed[0] if changed else paths.COMMIT_LOG)
            raise StoreChanging(path=str(path), reason="somebody writes there")

    def _log_end(self) -> int | None:
        try:
            with MessageStore(self.root, self._config) as store:
                _check_log(store)
                self.min_physical_offset = store.min_offset
                return store.max_offset
        except FileLengthContradiction:
            return None  # It is copied as it is, to be looked at elsewhere.

    def live(self) -> Iterator[Found]:
        """What agrees with itself of a store that is written meanwhile.

        :raises StoreChanging: the log was cut. :raises UnsupportedStore: it has more than is known.
        """
        check_understood(self.root, self._config)
        repairs = _repairs(self.root)
        for name in _FIRST:
            yield from self._settled(self._named(name))
            yield from self._settled(self._named(name + _BACKUP))
        yield from self._settled(self._named(paths.CHECKPOINT))
        with MessageStore(self.root, self._config) as store:
            _check_log(store)
            self.min_physical_offset = store.min_offset
            end = self.physical_offset = store.max_offset
            queue_file_size = store.queues.file_size
        for file in self.listing.newest_first(paths.COMMIT_LOG):
            yield from _some(found(file, log_before(end, file)))
        dispatched = self._dispatched(end, queue_file_size)
        self.dispatched_offset = min(max(dispatched, self.min_physical_offset), end)
        self._await_others(self.dispatched_offset)
        yield from self._derived(self.dispatched_offset)
        yield from self._others()
        if (self._log_end() or 0) < end:
            raise StoreChanging(path=str(self.root), reason="its log was cut")
        if _repairs(self.root) != repairs:
            raise StoreChanging(path=str(self.root), reason="its parts were made anew")

    def _dispatched(self, end: int, queue_file_size: int) -> int:
        """Up to where all messages have units; waits for those before ``end``. Behind the last of
        them may be records that get none."""
        newest, looks = newest_unit_end(self.root, queue_file_size), 0
        while newest < end and looks < _DISPATCH_LOOKS:
            time.sleep(_DISPATCH_SECONDS)
            before, newest = newest, newest_unit_end(self.root, queue_file_size)
            looks = looks + 1 if newest == before else 0
        return newest

    def _await_others(self, limit: int) -> None:
        """Waits until all queues, and the index, have what one of them has of the records before a
        physical offset. What does not come is missing for good: it was deleted, or is damaged."""
        with MessageStore(self.root, self._config) as store:
            wanted = wanted_before(store, limit)
        before: list[str] = []
        looks = 0
        while looks < _DERIVED_LOOKS:
            with MessageStore(self.root, self._config) as store:
                left = lacking(store, wanted)
            if not left:
                return
            looks = looks + 1 if left == before else 0
            before = left
            time.sleep(_DISPATCH_SECONDS)

    def _derived(self, limit: int) -> Iterator[Found]:
        """Queues and index up to a physical offset."""
        has_extension = (self.root / paths.CONSUME_QUEUE_EXT).is_dir()
        cuts = QueueCuts(limit, has_extension=has_extension)
        for file in self.listing.newest_first(paths.CONSUME_QUEUE):
            yield from _some(found(file, cuts.units(file)))
        for file in self.listing.newest_first(paths.CONSUME_QUEUE_EXT):
            yield from _some(found(file, cuts.extension(file)))
        copied = partial(scratch_copy, self._scratch)
        with MessageStore(self.root, self._config) as store:
            for file in self.listing.newest_first(paths.INDEX):
                geometry = store.index.geometry
                opener = index_before(limit, file, geometry, store.commit_log, copied)
                yield from _some(found(file, opener))

    def _others(self) -> Iterator[Found]:
        """What is neither log nor made of it; what a start would take for a crash, and what a
        broker is about to rename, are left out."""
        taken = [paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX]
        if not is_amid_repair(self.root):
            taken.append(REPAIR)  # Something is being built there, and nobody needs it.
        first = {*_FIRST, *(name + _BACKUP for name in _FIRST), paths.CHECKPOINT}
        # 5.x keeps what was in it before.
        first |= {paths.ABORT, paths.ABORT + _BACKUP}
        for file in list(self.listing.files()):
            is_config = file.path.startswith(_CONFIG)
            if file.path in first or file.path.partition("/")[0] in taken:
                continue
            if not (is_config and file.path.endswith(_TEMPORARY)):
                yield from self._settled(file)

    def _settled(self, file: SourceFile) -> Iterator[Found]:
        """A file that a broker replaces at times, if it is there."""
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
        return SourceFile(path, self.root / path)


def _check_log(store: MessageStore) -> None:
    """:raises CommitLogMissing: there are units, and no log: the backup would have no messages.
    :raises NotAFile: a file of the log is a link that leads nowhere."""
    store.commit_log.files.check_regular(links_only=True)
    if not store.commit_log.files.entries and store.dispatched_to >= 0:
        raise CommitLogMissing(path=str(store.root / paths.COMMIT_LOG))


def _repairs(root: Path) -> tuple[list[str], list[str]]:
    """What tells whether a repair, or a rebuild, has put other parts into a store meanwhile: the
    directories that keep what was replaced, and how far a repair has come that is not ended."""
    heads = (KEPT_BY_REPAIR, KEPT_BY_REBUILD)
    kept = [name for name in paths.scan_names(root) if name.startswith(heads)]
    if not is_amid_repair(root):
        return kept, []
    moved = (f"{where}/{name}" for where, names, _ in os.walk(root / REPAIR) for name in names)
    return kept, sorted(moved)


def _some(one: Found | None) -> Iterator[Found]:
    if one is not None:
        yield one
