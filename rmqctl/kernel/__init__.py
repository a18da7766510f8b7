"""The hot loops, compiled: the room below the engine that has them, and alone knows whether.

Who has a loop in Python offers it to :func:`choose`, and runs what comes back. There is no compiled
module in this version, so that is what was offered. ``RMQCTL_PURE=1`` in the environment says that
it shall be so in any case: for a comparison, or in doubt. It counts in each process by itself; give
it to Spark's executors as well.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

Backend = TypeVar("Backend")

#: The module that holds the compiled backend, by the name ``backend``.
COMPILED = "rmqctl.kernel.compiled"


def choose(pure: Backend) -> Backend:
    """The compiled backend where there is one and nobody refuses it, else ``pure``."""
    if os.environ.get("RMQCTL_PURE", "") not in ("", "0"):
        return pure
    return available(pure)[-1]


def available(pure: Backend) -> list[Backend]:
    """All that can run here, the fastest one last: tests hold them equal."""
    compiled = _compiled()
    return [pure] if compiled is None else [pure, compiled]


@cache
def _compiled() -> Any:
    """The compiled backend; None without it. One that is there and does not load is an error."""
    try:
        return import_module(COMPILED).backend
    except ModuleNotFoundError as error:
        if error.name != COMPILED:
            raise
        return None
