"""Signals that a loop wants to hear of itself, so that it ends between two steps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop`` inside. Only the main thread has signals: in another one
    they stay as they are."""
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
