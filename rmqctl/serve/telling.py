"""Messages of a server to its operator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress


def if_somebody_listens(tell: Callable[[str], None]) -> Callable[[str], None]:
    """The function without its errors: a server outlives the reader of its messages."""

    def told(text: str) -> None:
        with suppress(OSError, ValueError):
            tell(text)

    return told
