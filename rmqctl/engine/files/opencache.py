"""``OpenCache``: the bounded caches of mapped files and of queues.

A reference is the pin. An object that a cache has lent stays open as long as anything refers to it:
a variable, a view or a suspended generator. So a cache never closes an object, it only drops its
own reference; an object without other references is closed by that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, overload
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OpenCache(Generic[K, V]):
    """Open objects by key. It keeps the ``keep`` objects that were asked for last.

    A key never has two objects: one that is still in use is lent again, even when it is no longer
    kept. Safe for many threads. A thread that opens an object keeps the others waiting; opening may
    use other caches, or this one.

    :param evicted: called with key and object of each object that is dropped for others.
    """

    def __init__(
        self, keep: int, evicted: Callable[[K, V], None] = lambda key, value: None
    ) -> None:
        self._keep = keep
        self._evicted = evicted
        self._lock = threading.RLock()
        #: In the order in which they were asked for last.
        self._kept: dict[K, V] = {}
        self._newest: K | None = None
        # A check of a store holds all of its queues, most of them with an empty cache of files: an
        # empty dictionary of this kind takes 0.7 KB.
        self._lent: WeakValueDictionary[K, V] | None = None

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, open_one: Callable[[], V]) -> V: ...

    @overload
    def get(self, key: K, open_one: Callable[[], V | None]) -> V | None: ...

    def get(self, key: K, open_one: Callable[[], V | None] = lambda: None) -> V | None:
        """The open object of a key, else what ``open_one`` returns, which is kept; None if that is
        None."""
        if key == self._newest:
            # The common case, without the lock: nothing changes, and reading a dict is atomic.
            found = self._kept.get(key)
            if found is not None:
                return found
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found
                self._newest = key
                return found
            found = None if self._lent is None else self._lent.get(key)
            if found is None:
                found = open_one()
            if found is not None:
                self._remember(key, found)
            return found

    def put(self, key: K, value: V) -> None:
        """Keeps an object that the caller has opened. One that was open under the key lives on with
        its users."""
        with self._lock:
            self._remember(key, value)

    def _remember(self, key: K, value: V) -> None:
        if self._lent is None:
            self._lent = WeakValueDictionary()
        self._lent[key] = value
        self._kept.pop(key, None)
        self._kept[key] = value
        self._newest = key
        while len(self._kept) > self._keep:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key = next(iter(self._kept))
        self._evicted(key, self._kept.pop(key))

    def forget(self, key: K) -> None:
        """Drops the object of a key; it is not lent again."""
        with self._lock:
            self._kept.pop(key, None)
            if self._lent is not None:
                self._lent.pop(key, None)

    def clear(self) -> None:
        """Drops all objects. A key that is asked for again is opened anew."""
        with self._lock:
            while self._kept:
                self._drop_oldest()
            self._lent = None
