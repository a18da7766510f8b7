"""The one thread that writes to a store that is served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, cast

from rmqctl.engine.state.persist import persist
from rmqctl.errors import RmqctlError
from rmqctl.serve.events import Append, Persist, Upkeep, Upkept
from rmqctl.serve.processors.put import append_all

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.engine.store import Store

#: Sends that one flush serves, at most.
_MOST_AT_ONCE = 1024
Work = Append | Persist | Upkeep


class Writer:
    """The one thread that writes: it takes all that is there, and one flush serves it. A store that
    is only read has none."""

    def __init__(self, store: Store, written: Callable[[Work, object], None]) -> None:
        """:param written: is told what became of each work, where the event loop runs."""
        self._store = store
        self._written = written
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._under_way = 0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="rmqctl-writer")

    def start(self) -> None:
        if self._store.writable:
            self._thread.start()

    def put(self, work: Work) -> None:
        self._under_way += 1
        self._queue.put(work)

    async def drain(self) -> None:
        """Returns when everything is written, also what came of it."""
        while self._under_way:
            await asyncio.sleep(0.005)

    def end(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            works = [work]
            while len(works) < _MOST_AT_ONCE and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                works.append(more)
            answers = self._write(works)
            self._loop.call_soon_threadsafe(self._done, works, answers)

    def _write(self, works: list[Work]) -> list[object]:
        """Files first: what is stored then may need them."""
        answers: dict[int, object] = {}
        store = cast("WritableStore", self._store)
        for number, work in enumerate(works):
            if isinstance(work, Persist):
                answers[number] = None
                try:
                    persist(store.root, work.name, work.text)
                except (RmqctlError, OSError) as error:
                    answers[number] = error
            elif isinstance(work, Upkeep):
                answers[number] = keep_up(store, work)
        puts = {n: work.put for n, work in enumerate(works) if isinstance(work, Append)}
        try:
            stored = append_all(store, list(puts.values()))
        except Exception as error:  # A bug, which is told where the answers are given.
            stored = [error] * len(puts)
        answers |= zip(puts, stored, strict=True)
        return [answers[number] for number in range(len(works))]

    def _done(self, works: list[Work], answers: list[object]) -> None:
        for work, answer in zip(works, answers, strict=True):
            self._written(work, answer)
            self._under_way -= 1


def keep_up(store: WritableStore, work: Upkeep) -> Upkept | Exception:
    """What came of a work, or what it raised."""
    try:
        return work.work(store)
    except Exception as error:  # Told, or a bug: where the answer is given.
        return error
