"""Spark's ``pyspark.daemon`` for executors that are to die at known points of their tasks.

A task passes two points: ``begin``, when all that it is to do has come, and ``end``, when all is
done, written and sent, and Spark has not heard of it yet. They are counted over all executors of a
cluster, in the file ``points`` of :data:`PLACE`. At a point that is among the lines of ``hold``
there a task names its executor in a file, and waits to die with it.

The Python of executors has it as a module of its own name, without the rest of the tests.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark import daemon

#: The environment of executors has it, and not that of the driver's own Python processes.
PLACE = "RMQCTL_TEST_POINTS"
_SECONDS = 900
_EXECUTOR = os.getppid()


def _pass(point: str) -> None:
    place = Path(os.environ[PLACE])
    with (place / "points").open("a+") as points:
        fcntl.flock(points, fcntl.LOCK_EX)
        points.seek(0)
        name = f"{point} {points.read().split().count(point)}"
        points.write(f"{point}\n")
        points.flush()
    if name not in (place / "hold").read_text().splitlines():
        return
    beside = place / f"{name} of {_EXECUTOR}"
    beside.write_text(str(_EXECUTOR))
    beside.rename(place / name)
    time.sleep(_SECONDS)


def _with_points(worker: Any) -> None:
    """Has the tasks of Spark's module for workers pass the points."""
    main, report_times = worker.main, worker.report_times

    def begins(infile: Any, outfile: Any) -> None:
        infile.peek(1)  # Workers wait here for their next task.
        _pass("begin")
        main(infile, outfile)

    def ends(outfile: Any, *times: Any) -> None:
        outfile.flush()
        _pass("end")
        report_times(outfile, *times)

    worker.main, worker.report_times = begins, ends


def _worker(usual: Callable[..., int]) -> Callable[..., int]:
    patched: list[str] = []

    def run(*arguments: Any) -> int:
        # Only here, in a process of its own, may it be imported.
        if not patched and PLACE in os.environ and sys.argv[1] == "pyspark.worker":
            _with_points(import_module(sys.argv[1]))
            patched.append(sys.argv[1])
        return usual(*arguments)

    return run


if __name__ == "__main__":
    vars(daemon)["worker"] = _worker(daemon.worker)
    daemon.manager()
