"""A thread that goes on with a scan while what it has found is looked at."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from typing import TypeVar

Item = TypeVar("Item")

#: How many items a thread may be ahead.
_DEPTH = 8
#: Seconds after which a thread that has nobody any more notices it.
_PATIENCE = 0.1


class _End:
    """Nothing follows, but an error of the thread, if there is one."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterator[Item]) -> Generator[Item]:
    """The items, which another thread asks for, some of them ahead; what it raises is raised here,
    in its place. Closing the generator ends the thread."""
    queue: Queue[Item | _End] = Queue(_DEPTH)
    is_over = threading.Event()

    def put(item: Item | _End) -> None:
        while not is_over.is_set():
            try:
                queue.put(item, timeout=_PATIENCE)
                return
            except Full:
                continue

    def run() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                put(item)
                if is_over.is_set():
                    return
        except BaseException as raised:
            error = raised
        put(_End(error))

    # A daemon: a command that ends in the middle waits for nobody.
    thread = threading.Thread(target=run, name="scan", daemon=True)
    thread.start()
    try:
        while True:
            item = queue.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        is_over.set()
        while True:
            try:
                queue.get_nowait()
            except Empty:
                break
        thread.join()
