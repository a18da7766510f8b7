"""Who looks at the store that is served: a few threads, or the event loop where that is quick."""

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
#: A brief look is quick when it takes less than that, and so many of them, one after the other,
#: have the event loop take the next ones. The first that is not has others wait once.
QUICK_SECONDS = 0.001
QUICK_ONES = 16
#: So many are remembered: as many again as are needed.
_MOST_QUICK_ONES = 2 * QUICK_ONES
#: After so many the event loop sees to the sockets, whoever else waits for a look: as many as one
#: connection may have under way.
AT_ONCE = 16


def disk_reads() -> int:
    """What this thread has had disks read so far: pages that were not in memory, and blocks."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_majflt + usage.ru_inblock


class Readers:
    """Looks at the store beside the event loop. Of what is in memory a brief one, which a pull is,
    takes less time than to hand it over to a thread: the loop takes those itself as long as they
    are quick, at once, without another turn. A disk that has to be asked shows at once, and then
    threads do.

    Where other processes want the processors a look takes long for which no disk was asked. To go
    on with threads for that would have it take longer still: they wait for Python's lock as well.
    Of those the event loop bears one among sixteen that are quick, for not every file system tells
    whether it has waited for something.
    """

    def __init__(
        self,
        done: Callable[[list[tuple[Job, object]]], None],
        clock: Callable[[], float] = time.perf_counter,
        reads: Callable[[], int] = disk_reads,
    ) -> None:
        """:param done: is told what some looks gave, or have raised, where the event loop runs.
        :param clock: seconds, by which a look is quick or not.
        :param reads: what the thread that asks has had a disk read so far."""
        self._done = done
        self._clock = clock
        self._reads = reads
        self._known_reads = reads()
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_READERS, "rmqctl-reader")
        self._under_way = self._quick_ones = 0
        #: What the event loop itself looks at, and whether it is at it, or will be.
        self._brief: deque[Job] = deque()
        self._is_looking = False

    def take(self, *jobs: Job) -> None:
        """Some looks, of which quick ones are done before this returns, unless they are many."""
        self._under_way += len(jobs)
        for job in jobs:
            if job.is_brief and self._quick_ones >= QUICK_ONES:
                self._brief.append(job)
            else:
                self._hand_over(job)
        # Who has sent many would have them done one within the other, else.
        if self._brief and not self._is_looking:
            self._is_looking = True
            self._look()

    def _hand_over(self, job: Job) -> None:
        future = self._loop.run_in_executor(self._pool, self._timed_beside, job)
        future.add_done_callback(partial(self._looked, job))

    def _look(self) -> None:
        """Takes the brief looks that wait, but not all of many at once, and none behind one that
        has asked the disk."""
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
        """Lets go of the threads; what has not begun is not begun any more."""
        self._pool.shutdown(cancel_futures=True)

    def _timed(self, job: Job) -> tuple[object, bool]:
        """What a look gave, or has raised, and whether it was quick."""
        begin = self._clock()
        result: object
        try:
            result = job.work()
        except Exception as error:  # Told, or a bug: where the answer is given.
            result = error
        return result, self._clock() - begin < QUICK_SECONDS

    def _timed_beside(self, job: Job) -> tuple[object, bool | None]:
        """:meth:`_timed` for a thread of the pool; None: not quick, though no disk was asked."""
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
        """Whether a look of the event loop that was not quick counts for one that was."""
        known, self._known_reads = self._known_reads, self._reads()
        if self._known_reads != known or self._quick_ones < _MOST_QUICK_ONES:
            return False
        self._quick_ones = QUICK_ONES
        return True

    def _tell(self, looked: list[tuple[Job, object]]) -> None:
        self._under_way -= len(looked)
        self._done(looked)
