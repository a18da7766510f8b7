"""What writes to a store that is served: one at a time, a thread or the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, cast

from rmqctl.serve.events import Append, Persist, Upkeep, Upkept
from rmqctl.serve.processors.put import append_all, keep

if TYPE_CHECKING:
    from rmqctl.engine.flush.thread import ServiceThread
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.engine.store import Store

_QUEUES = (
    "queues and checkpoint are not on disk: {reason}. What is sent is stored in the log; the start "
    "after a stop makes queues of it"
)
_LOG = (
    "the log is not on disk: {reason}. What was sent last may be lost with the power, and nothing "
    "more is taken; what is there can be read"
)
#: Sends that one flush serves, at most.
_MOST_AT_ONCE = 1024
#: A write is quick when it takes less than that, and so many of them, one after the other, have the
#: event loop write. The first that is not has others wait once, for as long as it takes.
_QUICK_SECONDS = 0.001
_QUICK_ONES = 16
Work = Append | Persist | Upkeep


class Writer:
    """The one that writes: it takes all that is there, and one flush serves it. A store that is
    only read has none.

    That is a thread, for a disk may take its time, and others wait for the event loop. Where the
    disk has shown that it takes none, what the connections that are ready have sent is written by
    the event loop itself: to hand a send over to a thread, and its answer back, would take longer
    than all else that is done for it.
    """

    def __init__(
        self,
        store: Store,
        written: Callable[[Work, object], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """:param written: is told what became of each work, where the event loop runs.
        :param clock: seconds, by which a write is quick or not."""
        self._store = store
        self._written = written
        self._clock = clock
        self._queue: SimpleQueue[list[Work] | None] = SimpleQueue()
        #: What was put since the loop has looked last.
        self._new: list[Work] = []
        self._under_way = self._quick_ones = 0
        #: What the thread has, in its order; and what has ended it before anybody asked it to.
        self._of_thread: deque[Work] = deque()
        self._failure: RuntimeError | None = None
        #: What brings queues, and with ASYNC_FLUSH the log, to disk meanwhile; and what is said
        #: when that fails.
        self._flushing: list[tuple[ServiceThread, str]] = []
        self._said: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="rmqctl-writer")

    def start(self) -> None:
        """Also has queues go to disk meanwhile, and the checkpoint move on, and with ASYNC_FLUSH
        the log: in threads of the store's, which end when that is closed."""
        if self._store.writable:
            flusher = cast("WritableStore", self._store).writer.flusher
            self._flushing.append((flusher.flush_consume_queue, _QUEUES))
            if flusher.answers_first:
                self._flushing.append((flusher.flush_real_time, _LOG))
            for service, _ in self._flushing:
                service.start()
            self._thread.start()

    def trouble(self) -> str:
        """What keeps something from the disk, said once; empty: nothing does, or it was said."""
        for service, text in self._flushing:
            failure = service.take_failure()
            if failure is not None:
                reason = (
                    getattr(failure, "strerror", None) or str(failure) or type(failure).__name__
                )
                said = text.format(reason=reason)
                if said not in self._said:
                    self._said.add(said)
                    return said
        return ""

    def put(self, work: Work) -> None:
        self._under_way += 1
        if not self._new:
            # Behind all connections that are ready now: one flush serves them.
            self._loop.call_soon(self._take)
        self._new.append(work)

    async def drain(self) -> None:
        """Returns when everything is written, also what came of it; or when that is told that the
        thread that should have written it has ended."""
        while self._under_way:
            await asyncio.sleep(0.005)

    def end(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _take(self) -> None:
        """Writes what is new, or has it written behind what the thread has."""
        works, self._new = self._new, []
        if self._failure is not None:
            self._done(works, [self._failure] * len(works), _QUICK_SECONDS)
            return
        is_quick = self._quick_ones >= _QUICK_ONES and not self._of_thread
        if is_quick and all(isinstance(work, Append) for work in works):
            self._done(works, *self._timed(works))
        else:
            self._of_thread += works
            self._queue.put(works)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            # Nobody would hear of it, and who waits for an answer would wait for ever.
            with suppress(RuntimeError):  # The loop has ended as well.
                self._loop.call_soon_threadsafe(self._ended, error)

    def _ended(self, error: BaseException) -> None:
        """The thread is gone: everything that it had, and that comes, is answered with that."""
        reason = f"{type(error).__name__}: {error}"
        self._failure = RuntimeError(f"the thread that writes has ended: {reason}")
        works = list(self._of_thread)
        self._of_thread.clear()
        self._done(works, [self._failure] * len(works), _QUICK_SECONDS)

    def _work(self) -> None:
        while (works := self._queue.get()) is not None:
            while len(works) < _MOST_AT_ONCE and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                works += more
            answers, seconds = self._timed(works)
            self._loop.call_soon_threadsafe(self._done_by_thread, works, answers, seconds)

    def _timed(self, works: list[Work]) -> tuple[list[object], float]:
        """What became of works, and the seconds that took."""
        begin = self._clock()
        try:
            answers = self._write(works)
        except Exception as error:  # A bug, which is told where the answers are given.
            answers = [error] * len(works)
        return answers, self._clock() - begin

    def _write(self, works: list[Work]) -> list[object]:
        """Files first: what is stored then may need them."""
        answers: dict[int, object] = {}
        store = cast("WritableStore", self._store)
        for number, work in enumerate(works):
            if isinstance(work, Persist):
                answers[number] = None
                try:
                    keep(store, work.name, work.text)
                except Exception as error:  # As of what is stored, below.
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

    def _done_by_thread(self, works: list[Work], answers: list[object], seconds: float) -> None:
        for _ in works:
            self._of_thread.popleft()
        self._done(works, answers, seconds)

    def _done(self, works: list[Work], answers: list[object], seconds: float) -> None:
        self._quick_ones = self._quick_ones + 1 if seconds < _QUICK_SECONDS else 0
        # Who waits for all of it looks when this is over, whatever is raised here.
        self._under_way -= len(works)
        for work, answer in zip(works, answers, strict=True):
            self._written(work, answer)


def keep_up(store: WritableStore, work: Upkeep) -> Upkept | Exception:
    """What came of a work, or what it raised. On a disk that has failed none is begun: it would
    store the same again each time."""
    try:
        store.writer.flusher.check_log()
        return work.work(store)
    except Exception as error:  # Told, or a bug: where the answer is given.
        return error
