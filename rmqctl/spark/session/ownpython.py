"""What the Python processes of somebody's own session are given: the Python that this process has,
and the code that was sent along."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

#: What PySpark takes when it is not told (``SparkContext``).
_UNTOLD = "python3"
#: Where the process that says how far a stream's source is looks for what was sent along: below
#: the place that all others look in. Spark (``PythonStreamingSourceRunner``) puts nothing there.
_OF_STREAMS = "streaming_job"


def _context() -> Any:
    """The running session's; None where there is none, as with Spark Connect."""
    module = sys.modules.get("pyspark.core.context")
    return None if module is None else module.SparkContext._active_spark_context


def use_own_python() -> None:
    """On ``local[*]`` makes the workers of the running session this process's Python, whose
    packages it has. PySpark takes the ``python3`` of PATH, which is another one where the
    environment is not activated. A choice (``PYSPARK_PYTHON``) stays, and so does a cluster's.
    """
    context = _context()
    if context is None or context.pythonExec != _UNTOLD or "PYSPARK_PYTHON" in os.environ:
        return
    from rmqctl.spark.session.session import is_local

    if is_local(context.master) and sys.executable:
        context.pythonExec = sys.executable


def send_code_to_streams() -> None:
    """Has streams of the running session find the archives of code that were added to it
    (``addPyFile``, ``--py-files``), as its other processes do, where its Python has no rmqctl."""
    context = _context()
    if context is None or not context._python_includes:
        return
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory())
    (root / _OF_STREAMS).mkdir(exist_ok=True)
    for name in context._python_includes:
        with suppress(FileExistsError):
            (root / _OF_STREAMS / name).symlink_to(root / name)


def pass_over_imported() -> None:
    """In a worker, once: when garbage is looked for, what is there by now is passed over, which is
    what was imported. Spark's workers look for it after each task (``pyspark.daemon``), and that
    took 5 ms of the processor of the 14 that a task takes beside its rows.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    # ``gc.get_freeze_count``, which would tell whether it is done, counts them one by one.
    gc.collect()
    gc.freeze()
