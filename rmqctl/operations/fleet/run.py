"""A run over a fleet: which stores are still to be looked at, and all rows in the list's order."""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError, UsageError
from rmqctl.operations.fleet.looking import (
    OpenRemote,
    Task,
    config_of,
    failed,
    refuse_if_not_mapped,
)
from rmqctl.operations.fleet.state import State, mark_of
from rmqctl.operations.fleet.stores import FleetStore
from rmqctl.rows.fleets import FleetStoreRow

_LOG = "commitlog/"
#: So many stores are listed at the same time: listing mostly waits for disks and networks.
_AT_ONCE = 16
#: How often the caller hears that they are still being listed.
_WAIT_SECONDS = 0.5


class Asked(NamedTuple):
    """What is asked of every store. The first fields are those of
    :class:`~rmqctl.operations.fleet.looking.Task`. ``elsewhere``: other machines look at the
    stores, and may reach a URL that this one does not."""

    verb: str
    reads_log: bool = True
    threads: int = 1
    elsewhere: bool = False


class Planned(NamedTuple):
    """A task. ``number`` is the store's in the list, ``log_bytes`` are the bytes of its log. The
    ``mark`` is another one when the store has changed. It is None without a state, and where the
    store could not be listed, which its row will say."""

    number: int
    task: Task
    log_bytes: int
    mark: str | None


class Run:
    """A run. ``rows`` are those known so far, by number; ``left`` are the tasks that are still to
    be done, the largest log first; ``unkept`` has an error for each row that could not be kept."""

    def __init__(
        self,
        stores: Sequence[FleetStore],
        asked: Asked,
        open_remote: OpenRemote,
        state: State | None = None,
        *,
        again: bool = False,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """:param waiting: called again and again while the stores are listed."""
        self._state = state
        self.stores = stores
        self.rows: dict[int, FleetStoreRow] = {}
        self.left: list[Planned] = []
        self.unkept: list[RmqctlError] = []

        def planned(number: int, store: FleetStore) -> Planned | FleetStoreRow:
            return _planned(number, store, asked, open_remote, state is not None)

        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            listed = [pool.submit(planned, *one) for one in enumerate(stores)]
            while wait(listed, _WAIT_SECONDS).not_done:
                waiting()
            found = [one.result() for one in listed]
        finally:
            # After a Ctrl-C nobody waits for a URL that does not answer.
            pool.shutdown(wait=False, cancel_futures=True)
        for number, one in enumerate(found):
            if not isinstance(one, Planned):
                self.rows[number] = one
                continue
            kept = None
            if state is not None and one.mark is not None and not again:
                kept = state.kept(one.task.store, one.mark)
            if kept is not None:
                self.rows[number] = kept
            else:
                self.left.append(one)
        self.left.sort(key=lambda one: (-one.log_bytes, one.number))

    def in_order(self, found: Iterable[tuple[int, FleetStoreRow]]) -> Iterator[FleetStoreRow]:
        """All rows in the order of the list. A row is yielded as soon as all before it are known.

        :param found: indexes into :attr:`left`, and their rows, in any order. The state keeps them
            as they come.
        """
        held = self.rows
        following = 0
        while following in held:
            yield held.pop(following)
            following += 1
        for at, row in found:
            one = self.left[at]
            self._keep(one, row)
            held[one.number] = row
            while following in held:
                yield held.pop(following)
                following += 1

    def _keep(self, one: Planned, row: FleetStoreRow) -> None:
        if self._state is None or one.mark is None:
            return
        try:
            self._state.keep(one.task.store, one.mark, row)
        except RmqctlError as error:
            self.unkept.append(error)


def _planned(
    number: int, store: FleetStore, asked: Asked, open_remote: OpenRemote, is_marked: bool
) -> Planned | FleetStoreRow:
    began = time.monotonic()
    try:
        config = config_of(store)
    except RmqctlError as error:
        return failed(store, asked.verb, began, error)
    task = Task(store, asked.verb, config, asked.reads_log, asked.threads)
    try:
        refuse_if_not_mapped(store, asked.verb)  # Before a network is asked in vain.
        files = list(_files(store, config, open_remote, everything=is_marked))
    except (RmqctlError, OSError) as error:
        has_asked = store.is_remote and not isinstance(error, UsageError)
        if has_asked and not asked.elsewhere:
            return failed(store, asked.verb, began, error)  # It may have taken half a minute.
        # The look at the store will meet the same error, and its row will tell it.
        return Planned(number, task, 0, None)
    log_bytes = sum(one.stored_bytes for one in files if one.name.startswith(_LOG))
    if not is_marked:
        return Planned(number, task, log_bytes, None)
    mark = mark_of((one[:3] for one in files), asked.verb, str(asked.reads_log), _text(config))
    return Planned(number, task, log_bytes, mark)


def _text(config: MessageStoreConfig) -> str:
    """The settings as a text that is the same in every process: sets are sorted."""
    values = ((one.name, getattr(config, one.name)) for one in dataclasses.fields(config))
    return repr([(name, sorted(v) if isinstance(v, frozenset) else v) for name, v in values])


class _File(NamedTuple):
    """A file: its name, its size, when it was changed (ns), and the bytes that it has on disk."""

    name: str
    size: int
    changed: int
    stored_bytes: int


def _files(
    store: FleetStore, config: MessageStoreConfig, open_remote: OpenRemote, *, everything: bool
) -> Iterator[_File]:
    """The files of a store's log, with ``everything`` those of the whole store."""
    if store.is_remote:
        remote = open_remote(store.path, config)
        if everything:
            yield from (_File(*one, one[1]) for one in remote.listing())
        else:
            names = remote.names(paths.COMMIT_LOG)
            yield from (_File(_LOG + name, size, 0, size) for name, size in names if size)
        return
    root = Path(store.path)
    for directory in log_directories(root, config).all:
        yield from _tree(directory, f"{_LOG}{directory}/")
    if everything:
        # With the log once more, whose bytes count once.
        yield from (one._replace(stored_bytes=0) for one in _tree(root, ""))


def _tree(directory: Path, prefix: str) -> Iterator[_File]:
    """The files below a directory, links followed; each directory is listed once, so that links in
    a circle end. A directory that may not be listed, as ``lost+found``, is an entry without size:
    where the look at the store needs it, its row will say so."""
    left, seen = [(str(directory), prefix)], set[tuple[int, int]]()
    while left:
        place, before = left.pop()
        try:
            entries = list(os.scandir(place))
        except (FileNotFoundError, NotADirectoryError):
            continue  # The store has no log, or a broker has just deleted the directory.
        except PermissionError:
            yield _File(before, 0, 0, 0)
            continue
        for entry in entries:
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                stored = status.st_blocks * 512
                yield _File(before + entry.name, status.st_size, status.st_mtime_ns, stored)
            elif (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                left.append((entry.path, f"{before}{entry.name}/"))
