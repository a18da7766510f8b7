"""Who looks at the store that is served: a few threads, or the event loop where that is quick."""

from __future__ import annotations

import asyncio
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
#: After so many the event loop sees to the sockets, whoever else waits for a look: as many as one
#: connection may have under way.
AT_ONCE = 16


class Readers:
    """Looks at the store beside the event loop. Of what is in memory a brief one, which a pull is,
    takes less time than to hand it over to a thread: the loop takes those itself as long as they
    are quick, at once, without another turn. A disk that has to be asked shows at once, and then
    threads do."""

    def __init__(
        self,
        done: Callable[[Job, object], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """:param done: is told what a look gave, or has raised, where the event loop runs.
        :param clock: seconds, by which a look is quick or not."""
        self._done = done
        self._clock = clock
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
                continue
            future = self._loop.run_in_executor(self._pool, self._timed, job)
            future.add_done_callback(partial(self._looked, job))
        # Who has sent many would have them done one within the other, else.
        if self._brief and not self._is_looking:
            self._is_looking = True
            self._look()

    def _look(self) -> None:
        """Takes the brief looks that wait, but not all of many at once."""
        try:
            for _ in range(min(len(self._brief), AT_ONCE)):
                job = self._brief.popleft()
                self._tell(job, *self._timed(job))
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

    def _timed(self, job: Job) -> tuple[object, float]:
        """What a look gave, or has raised, and the seconds that took."""
        begin = self._clock()
        result: object
        try:
            result = job.work()
        except Exception as error:  # Told, or a bug: where the answer is given.
            result = error
        return result, self._clock() - begin

    def _looked(self, job: Job, future: asyncio.Future[tuple[object, float]]) -> None:
        if future.cancelled():
            self._under_way -= 1
        else:
            self._tell(job, *future.result())

    def _tell(self, job: Job, result: object, seconds: float) -> None:
        self._under_way -= 1
        if job.is_brief:
            self._quick_ones = self._quick_ones + 1 if seconds < QUICK_SECONDS else 0
        self._done(job, result)
