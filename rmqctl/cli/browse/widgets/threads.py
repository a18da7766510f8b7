"""Runs blocking work in a thread, so that the screen stays responsive. The thread is told when its
result is no longer wanted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.cli.browse.model.lines import Stop

if TYPE_CHECKING:
    from textual.dom import DOMNode

T = TypeVar("T")


def in_background(
    node: DOMNode, group: str, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
) -> None:
    """Starts ``work`` for a node, and cancels the running work of that group."""
    # Pass the function, not a coroutine: one that is cancelled before it begins is never awaited.
    begun: Callable[[], Any] = partial(work, *arguments)
    node.run_worker(begun, group=group, exclusive=True)


async def in_thread(work: Callable[[Stop], T]) -> T:
    """Returns or raises what ``work`` does. When cancelled, it tells the thread, and does not
    wait."""
    abandoned = threading.Event()
    try:
        return await asyncio.to_thread(work, abandoned.is_set)
    finally:
        abandoned.set()
