"""Runs looks at the store: in a few threads, or in the event loop where they are quick."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rmqctl.serve.events import Job

#: Looks at the store at once. They hold Python's lock except while the disk is waited for.
_READERS = 4
#: A brief look is quick if it takes less time. After so many quick ones in a row the event loop
#: takes the next ones itself. The first slow one delays the loop once.
QUICK_SECONDS = 0.001
QUICK_ONES = 16
#: So many quick looks are counted at most: twice as many as are needed.
_MOST_QUICK_ONES = 2 * QUICK_ONES
#: After so many looks the event loop serves the sockets before the next ones: as many as one
#: connection may have under way.
AT_ONCE = 16


def disk_reads() -> int:
    """How often this thread has waited for disks so far: major page faults and blocks read."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_majflt + usage.ru_inblock


class Readers:
    """Runs looks at the store beside the event loop.

    A brief look, such as a pull, at data in memory takes less time than handing it to a thread. So
    the event loop takes brief looks itself, in the same turn, as long as they are quick. A look
    that has to wait for a disk is slow, and the next ones go to threads.

    Where other processes use the processors, a look may be slow without waiting for a disk. Threads
    would make this worse, as they also wait for Python's lock. The event loop therefore tolerates
    one slow look among sixteen quick ones if no disk was read. It tolerates no more, as not every
    file system tells whether it has waited.
    """

    def __init__(
        self,
        done: Callable[[list[tuple[Job, object]]], None],
        clock: Callable[[], float] = time.perf_counter,
        reads: Callable[[], int] = disk_reads,
    ) -> None:
        """:param done: is called in the event loop with looks and their results or exceptions.
        :param clock: seconds, to measure looks.
        :param reads: how often the calling thread has waited for a disk so far."""
        self._done = done
        self._clock = clock
        self._reads = reads
        self._known_reads = reads()
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_READERS, "rmqctl-reader")
        self._under_way = self._quick_ones = 0
        #: Looks that the event loop takes itself, and whether it is taking them, or will.
        self._brief: deque[Job] = deque()
        self._is_looking = False

    def take(self, *jobs: Job) -> None:
        """Takes some looks. Quick ones are done before this returns, unless they are many."""
        self._under_way += len(jobs)
        for job in jobs:
            if job.is_brief and self._quick_ones >= QUICK_ONES:
                self._brief.append(job)
            else:
                self._hand_over(job)
        # Else the looks of a peer that has sent many would run one within the other.
        if self._brief and not self._is_looking:
            self._is_looking = True
            self._look()

    def _hand_over(self, job: Job) -> None:
        future = self._loop.run_in_executor(self._pool, self._timed_beside, job)
        future.add_done_callback(partial(self._looked, job))

    def _look(self) -> None:
        """Takes the brief looks that wait: at most :data:`AT_ONCE`, and none after one that has
        waited for the disk."""
        looked: list[tuple[Job, object]] = []
        for _ in range(min(len(self._brief), AT_ONCE)):
            job = self._brief.popleft()
            if self._quick_ones < QUICK_ONES:
                self._hand_over(job)
                continue
            result, is_quick = self._timed(job)
            self._judge(is_quick or self._is_spared())
            looked.append((job, result))
        try:
            self._tell(looked)
        finally:
            self._is_looking = bool(self._brief)
            if self._is_looking:
                self._loop.call_soon(self._look)

    async def drain(self, seconds: float) -> None:
        """Returns when nothing is under way, or so many seconds are over."""
        end = self._loop.time() + seconds
        while self._under_way and self._loop.time() < end:
            await asyncio.sleep(0.005)

    def end(self) -> None:
        """Ends the threads. Looks that have not begun are dropped."""
        self._pool.shutdown(cancel_futures=True)

    def _timed(self, job: Job) -> tuple[object, bool]:
        """The result of a look, or its exception, and whether it was quick."""
        begin = self._clock()
        result: object
        try:
            result = job.work()
        except Exception as error:  # Raised again where the answer is made.
            result = error
        return result, self._clock() - begin < QUICK_SECONDS

    def _timed_beside(self, job: Job) -> tuple[object, bool | None]:
        """:meth:`_timed` for a thread of the pool. None: it was slow without waiting for a disk."""
        before = self._reads()
        result, is_quick = self._timed(job)
        return result, is_quick or (None if self._reads() == before else False)

    def _looked(self, job: Job, future: asyncio.Future[tuple[object, bool | None]]) -> None:
        if future.cancelled():
            self._under_way -= 1
            return
        result, is_quick = future.result()
        if job.is_brief and is_quick is not None:
            self._judge(is_quick)
        self._tell([(job, result)])

    def _judge(self, is_quick: bool) -> None:
        self._quick_ones = min(self._quick_ones + 1, _MOST_QUICK_ONES) if is_quick else 0

    def _is_spared(self) -> bool:
        """Whether a slow look of the event loop counts as a quick one."""
        known, self._known_reads = self._known_reads, self._reads()
        if self._known_reads != known or self._quick_ones < _MOST_QUICK_ONES:
            return False
        self._quick_ones = QUICK_ONES
        return True

    def _tell(self, looked: list[tuple[Job, object]]) -> None:
        self._under_way -= len(looked)
        self._done(looked)
