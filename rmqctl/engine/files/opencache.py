"""What is open, and for how long: the bounded caches of maps and of queues.

A reference is the pin. What a cache lends stays open for as long as anybody refers to it, be it a
variable, a view or a suspended generator, and is closed with the last of them. So a cache never
closes anything: it lets go, and that closes what nobody holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, overload
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OpenCache(Generic[K, V]):
    """Open things by key; of those that nobody holds at most ``keep``, the last ones asked for.

    One key never has two of them: what somebody holds is lent again, also when it is no longer
    kept. Safe for many threads; one that opens keeps the others waiting, and opening may ask other
    caches, or this one.

    :param evicted: told of each one that is let go for others.
    """

    def __init__(
        self, keep: int, evicted: Callable[[K, V], None] = lambda key, value: None
    ) -> None:
        self._keep = keep
        self._evicted = evicted
        self._lock = threading.RLock()
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._newest: K | None = None
        self._lent: WeakValueDictionary[K, V] = WeakValueDictionary()

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, open_one: Callable[[], V]) -> V: ...

    @overload
    def get(self, key: K, open_one: Callable[[], V | None]) -> V | None: ...

    def get(self, key: K, open_one: Callable[[], V | None] = lambda: None) -> V | None:
        """What is open under a key, else what ``open_one`` opens; None when it opens none."""
        if key == self._newest:
            # Asked for again and again: nothing changes, and a dict is safe for many threads.
            found = self._kept.get(key)
            if found is not None:
                return found
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                self._newest = key
                return found
            found = self._lent.get(key)
            if found is None:
                found = open_one()
            if found is not None:
                self._remember(key, found)
            return found

    def put(self, key: K, value: V) -> None:
        """Keeps what the caller has opened; what was open under the key lives on with its users."""
        with self._lock:
            self._remember(key, value)

    def _remember(self, key: K, value: V) -> None:
        self._lent[key] = value
        self._kept[key] = value
        self._kept.move_to_end(key)
        self._newest = key
        while len(self._kept) > self._keep:
            self._evicted(*self._kept.popitem(last=False))

    def forget(self, key: K) -> None:
        """Lends what is open under a key no more."""
        with self._lock:
            self._kept.pop(key, None)
            self._lent.pop(key, None)

    def clear(self) -> None:
        """Lends nothing of what is open any more: who asks again gets it opened anew."""
        with self._lock:
            while self._kept:
                self._evicted(*self._kept.popitem(last=False))
            self._lent.clear()
