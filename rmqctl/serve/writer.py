"""Writes to a store that is served: in one thread or in the event loop, one write at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, cast

from rmqctl.errors import CannotWrite
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
#: Most sends that one flush serves.
_MOST_AT_ONCE = 1024
#: A write is quick if it takes less time. After so many quick ones in a row the event loop writes
#: itself. The first slow one delays the loop once, for as long as it takes.
_QUICK_SECONDS = 0.001
_QUICK_ONES = 16
Work = Append | Persist | Upkeep


class Writer:
    """Writes everything that is there at once, with one flush. A store that is only read needs no
    writer.

    A thread writes, as a disk may be slow and must not block the event loop. Where the disk has
    proven quick, the event loop itself writes what the ready connections have sent: handing a send
    over to a thread, and its answer back, takes longer than all other work for it.
    """

    def __init__(
        self,
        store: Store,
        written: Callable[[Work, object], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """:param written: is called in the event loop with each work and its result.
        :param clock: seconds, to measure writes."""
        self._store = store
        self._written = written
        self._clock = clock
        self._queue: SimpleQueue[list[Work] | None] = SimpleQueue()
        #: Work that was put since the event loop has looked last.
        self._new: list[Work] = []
        self._under_way = self._quick_ones = 0
        #: Work of the thread, in its order; and the error that has ended the thread, if one has.
        self._of_thread: deque[Work] = deque()
        self._failure: RuntimeError | None = None
        #: The services that flush queues, and with ASYNC_FLUSH the log; and the message about each
        #: that fails.
        self._flushing: list[tuple[ServiceThread, str]] = []
        self._said: set[str] = set()
        #: Names of the files of ``config/`` that this process has written.
        self._own_files: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="rmqctl-writer")

    def start(self) -> None:
        """Starts the thread, and those of the store that flush queues and checkpoint, and with
        ASYNC_FLUSH the log. The store's threads end when it is closed."""
        if self._store.writable:
            flusher = cast("WritableStore", self._store).writer.flusher
            self._flushing.append((flusher.flush_consume_queue, _QUEUES))
            if flusher.answers_first:
                self._flushing.append((flusher.flush_real_time, _LOG))
            for service, _ in self._flushing:
                service.start()
            self._thread.start()

    def trouble(self) -> str:
        """Why a flush has failed, in words; empty: none has, or this was returned before."""
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
        """Returns when all work, also work that follows from it, is written; or when ``written``
        was told that the thread has ended."""
        while self._under_way:
            await asyncio.sleep(0.005)

    def end(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _take(self) -> None:
        """Writes the new work, or hands it to the thread, behind the work that it has."""
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
            # Else nothing would tell of it, and peers would wait for their answers for ever.
            with suppress(RuntimeError):  # The loop has ended as well.
                self._loop.call_soon_threadsafe(self._ended, error)

    def _ended(self, error: BaseException) -> None:
        """The thread has ended by an error: all work that it had, and all later work, fails with
        that."""
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
        """The results of works, and the seconds that they took."""
        begin = self._clock()
        try:
            answers = self._write(works)
        except Exception as error:  # A bug, which is told where the answers are given.
            answers = [error] * len(works)
        return answers, self._clock() - begin

    def _write(self, works: list[Work]) -> list[object]:
        """Writes files first, then messages, which may need them."""
        answers: dict[int, object] = {}
        store = cast("WritableStore", self._store)
        for number, work in enumerate(works):
            if isinstance(work, Persist):
                answers[number] = None
                try:
                    keep(store, work.name, work.text, is_own=work.name in self._own_files)
                    self._own_files.add(work.name)
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
        # Before the results are told, so that `drain` ends even if one of the calls raises.
        self._under_way -= len(works)
        for work, answer in zip(works, answers, strict=True):
            self._written(work, answer)


def keep_up(store: WritableStore, work: Upkeep) -> Upkept | Exception:
    """The result of a work, or its exception. Where the disk has failed no work is begun: it would
    store the same messages again each time."""
    try:
        store.writer.flusher.check_log()
        with suppress(CannotWrite, OSError):
            # What is in the log without a unit waits for room, even if nobody sends any more.
            store.writer.flusher.complete()
        return work.work(store)
    except Exception as error:  # Told, or a bug: where the answer is given.
        return error
