"""A thread that goes on with a scan while its earlier results are used."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from typing import TypeVar

Item = TypeVar("Item")

#: How many items a thread may be ahead.
_DEPTH = 8
#: Seconds after which the thread notices that its consumer has gone.
_PATIENCE = 0.1


class _End:
    """The last item in the queue, with the thread's error if there was one."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterator[Item]) -> Generator[Item]:
    """Yields the items, which another thread takes some time ahead. An error of the iterator is
    raised here, behind the items before it. Closing the generator ends the thread."""
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

    # A daemon, so that a command that ends in the middle does not wait for it.
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
