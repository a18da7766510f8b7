"""Which Python the workers of somebody's own session are, where nobody has said it."""

from __future__ import annotations

import os
import sys

#: What PySpark takes when it is not told (``SparkContext``).
_UNTOLD = "python3"


def use_own_python() -> None:
    """On ``local[*]`` makes the workers of the running session this process's Python, whose
    packages it has. PySpark takes the ``python3`` of PATH, which is another one where the
    environment is not activated. A choice (``PYSPARK_PYTHON``) stays, and so does a cluster's.
    """
    module = sys.modules.get("pyspark.core.context")
    context = None if module is None else module.SparkContext._active_spark_context
    if context is None or context.pythonExec != _UNTOLD or "PYSPARK_PYTHON" in os.environ:
        return
    from rmqctl.spark.session.session import is_local

    if is_local(context.master) and sys.executable:
        context.pythonExec = sys.executable
