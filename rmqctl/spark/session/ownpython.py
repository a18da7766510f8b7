"""Configures the Python processes of a session that the user has made: which Python they run, and
where they find code that was sent along."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

#: The Python that PySpark takes by default (``SparkContext``).
_UNTOLD = "python3"
#: Where the process that reports the offsets of a stream's source looks for code that was sent
#: along: in a subdirectory of the place that all other processes use. Spark
#: (``PythonStreamingSourceRunner``) puts nothing there.
_OF_STREAMS = "streaming_job"


def _context() -> Any:
    """The context of the running session; None if there is none, as with Spark Connect."""
    module = sys.modules.get("pyspark.core.context")
    return None if module is None else module.SparkContext._active_spark_context


def use_own_python() -> None:
    """With ``local[*]``, makes the workers of the running session use this process's Python, with
    its packages. PySpark would take ``python3`` from PATH, which is a different one if the virtual
    environment is not activated. ``PYSPARK_PYTHON``, if set, and the Python of a cluster stay.
    """
    context = _context()
    if context is None or context.pythonExec != _UNTOLD or "PYSPARK_PYTHON" in os.environ:
        return
    from rmqctl.spark.session.session import is_local

    if is_local(context.master) and sys.executable:
        context.pythonExec = sys.executable


def send_code_to_streams() -> None:
    """Lets streams of the running session find the archives of code that were added to it
    (``addPyFile``, ``--py-files``), as its other processes do. They are needed if its Python has no
    rmqctl."""
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
    """Freezes, once in a worker, the objects that exist by now, which come from imports, so that
    garbage collection skips them. Spark's workers collect garbage after each task
    (``pyspark.daemon``), which took 5 of the 14 ms of processor time that a task needs besides its
    rows.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    # ``gc.get_freeze_count`` would tell whether it is done, but counts the objects one by one.
    gc.collect()
    gc.freeze()
