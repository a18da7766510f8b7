"""SIGINT and SIGTERM for a loop that ends between two of its steps, not amid one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, SIGINT and SIGTERM call ``stop``. Python handles signals in the main thread only: in
    another thread the handlers stay as they are."""
    handlers = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(number, stop)
    except ValueError:
        pass  # Not the main thread.
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
