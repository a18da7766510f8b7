"""Looks at stores in several processes of this machine. Python's work on one store does not wait
for another's, and what kills a process (no memory, a mapped file that is cut) concerns one store
only.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice

from rmqctl.errors import RmqctlError
from rmqctl.operations.fleet.looking import Task, failed
from rmqctl.rows.fleets import FleetStoreRow

Look = Callable[[Task], FleetStoreRow]


class ProcessEnded(RmqctlError):
    """The process that read the store was ended, so nothing is known of the store."""

    template = (
        "the process that read it was ended from outside, as the system does when memory is short, "
        "or a file was cut while it was read. Look at it alone, or at one store at a time."
    )


def each(tasks: Sequence[Task], jobs: int, look: Look) -> Iterator[tuple[int, FleetStoreRow]]:
    """The number of each task and its row, in the order in which they are done.

    :param jobs: processes at a time; with one, all work is done in this process.
    :param look: a function at the top of a module, so that other processes can import it.
    """
    if jobs == 1 or len(tasks) < 2:
        for number, task in enumerate(tasks):
            yield number, look(task)
        return
    left = dict(enumerate(tasks))
    while left:
        begun: set[int] = set()
        for number, row in _in_pool(left, jobs, look, begun):
            del left[number]
            yield number, row
        # A process has ended, on one of the stores that were begun: each is looked at alone now.
        for number in sorted(begun & left.keys()):
            began, task = time.monotonic(), left.pop(number)
            ((_, found),) = list(_in_pool({number: task}, 1, look, set())) or [
                (number, failed(task.store, task.verb, began, ProcessEnded()))
            ]
            yield number, found


def _in_pool(
    tasks: dict[int, Task], jobs: int, look: Look, begun: set[int]
) -> Iterator[tuple[int, FleetStoreRow]]:
    """Rows until all are done, or until a process has ended before its time: then some of the tasks
    in ``begun`` (at most one more than there are processes) have no row."""
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)),
        multiprocessing.get_context("spawn"),
        initializer=_begin,
    )
    waiting = iter(list(tasks.items()))
    futures: dict[Future[FleetStoreRow], int] = {}
    is_whole = True
    try:
        while is_whole:
            with _interrupts_later():
                for number, task in islice(waiting, jobs + 1 - len(futures)):
                    begun.add(number)
                    futures[pool.submit(look, task)] = number
            if not futures:
                return
            for done in wait(futures, return_when=FIRST_COMPLETED).done:
                number = futures.pop(done)
                try:
                    row = done.result()
                except BrokenProcessPool:
                    is_whole = False  # The caller looks at this store again.
                    continue
                yield number, row
    except BrokenProcessPool:
        return  # The pool broke before all tasks were submitted.
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Inside, SIGINT is blocked. Processes that are started meanwhile inherit this, and never get a
    Ctrl-C: only the process that the user has started does, and it ends the others."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Has this process end when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()
