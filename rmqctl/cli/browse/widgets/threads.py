"""Blocking work for a screen that goes on: in a thread, which is told when nobody waits for it."""

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
    """Begins ``work`` of a node, in place of what is under way in that group."""
    # Not its coroutine: one that is cancelled before it begins would never be awaited.
    begun: Callable[[], Any] = partial(work, *arguments)
    node.run_worker(begun, group=group, exclusive=True)


async def in_thread(work: Callable[[Stop], T]) -> T:
    """What ``work`` returns or raises. Cancelled, it lets the thread know, and does not wait."""
    abandoned = threading.Event()
    try:
        return await asyncio.to_thread(work, abandoned.is_set)
    finally:
        abandoned.set()
