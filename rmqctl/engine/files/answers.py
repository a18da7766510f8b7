"""Answers of file systems behind a network, which may never come."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds after which a file system counts as one that does not answer.
PATIENCE = 30
_under_way: set[threading.Thread] = set()


class NoAnswer(Exception):
    """A file system has not answered in time."""


def answered(ask: Callable[[], T], within: float | None) -> T:
    """What ``ask`` returns or raises. It runs in a thread of its own, as Python hears no Ctrl-C
    while a foreign library waits; that thread goes on when the caller is interrupted.

    :param within: seconds to wait at most; None: without a limit.
    :raises NoAnswer: they have passed.
    """
    from concurrent.futures import Future

    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)
        finally:
            _under_way.discard(thread)

    thread = threading.Thread(target=run, name="answer", daemon=True)
    _under_way.add(thread)
    thread.start()
    try:
        return answer.result(within)
    except TimeoutError:
        if answer.done():
            raise  # It is what the file system says.
        _end_without_it()
        raise NoAnswer(f"no answer within {within} seconds") from None


def is_one_missing() -> bool:
    """Whether a call goes on that nobody waits for any more. The library that it is in may keep the
    process from ending until its own attempts have ended, which may take a quarter of an hour."""
    return bool(_under_way)


def _end_without_it() -> None:
    """Has a process that another one of rmqctl has started end without the missing answer. What is
    registered last is called first, so before the library's own wait."""
    from multiprocessing import parent_process

    if parent_process() is not None:
        atexit.register(os._exit, 0)
