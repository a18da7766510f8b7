"""A broker's retention beside a command, at a chosen moment: each time that a store's directory is
listed, or one of its files opened, is a moment.

Python tells them to an audit hook, so nothing of the code under test is replaced. A hook cannot be
taken out again: there is one, which does nothing outside a :class:`Retention`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services import retention
from rmqctl.engine.settings.storeconfig import MessageStoreConfig

_EVENTS = {"open", "os.listdir", "os.scandir"}
_told: list[Callable[[str], None]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _told and event in _EVENTS and isinstance(arguments[0], str | bytes | os.PathLike):
        _told[-1](os.fsdecode(arguments[0]))


sys.addaudithook(_hook)


@contextmanager
def told(look: Callable[[str], None]) -> Iterator[None]:
    """Inside, ``look`` is called with each path that is about to be listed or opened."""
    _told.append(look)
    try:
        yield
    finally:
        _told.remove(look)


class Retention:
    """From the ``moment``-th moment on, from 1, the log's oldest ``files`` files go, and then the
    queue and index files that have nothing else, in a broker's order: all at that moment, or one at
    each. Use as a context manager."""

    def __init__(
        self, root: Path, config: MessageStoreConfig, files: int, moment: int, *, at_once: bool
    ) -> None:
        self._root, self.moment, self._at_once = str(root), moment, at_once
        with MessageStore(root, config) as store:
            self._left = [one.path for one in retention.oldest(store, files)]
        self._is_busy = False
        #: Moments so far.
        self.seen = 0

    @property
    def has_come(self) -> bool:
        """Whether the moment has come."""
        return self.seen >= self.moment

    def __enter__(self) -> Retention:
        _told.append(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        _told.remove(self._look)

    def _look(self, path: str) -> None:
        if self._is_busy or not path.startswith(self._root):
            return
        self._is_busy = True
        try:
            self.seen += 1
            if self.has_come:
                self.go_on(None if self._at_once else 1)
        finally:
            self._is_busy = False

    def go_on(self, count: int | None) -> None:
        """Removes the next files; None: all that are left."""
        for path in self._left[:count]:
            path.unlink()
        del self._left[:count]


def each_moment(
    store: Path,
    config: MessageStoreConfig,
    files: int,
    aside: Path,
    moments: Iterator[int],
    *,
    at_once: bool,
) -> Iterator[tuple[Path, Retention]]:
    """A copy of a store, and a retention of it, for each of some moments, in order, up to the first
    that never comes. The files of the copies are links: nothing may be written to them."""
    for moment in moments:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(store, aside, copy_function=os.link)
        beside = Retention(aside, config, files, moment, at_once=at_once)
        yield aside, beside
        if not beside.has_come:
            return
