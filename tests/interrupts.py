"""An interrupt at a chosen step: Python raises KeyboardInterrupt between any two instructions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any


@contextmanager
def interrupted_at(step: int, modules: set[ModuleType], functions: set[str]) -> Iterator[list[str]]:
    """Raises KeyboardInterrupt before the ``step``-th instruction of some functions (by their
    names) of modules, counted from 1. Yields a list that gets the function's name then."""
    files, seen, reached = {module.__file__ for module in modules}, 0, list[str]()

    def each(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "opcode" and not reached:
            seen += 1
            if seen == step:
                reached.append(frame.f_code.co_name)
                raise KeyboardInterrupt
        return each

    def called(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files or frame.f_code.co_name not in functions:
            return None
        frame.f_trace_opcodes = True
        return each

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield reached
    finally:
        sys.settrace(before)
