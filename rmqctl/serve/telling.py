"""What a server says to whoever runs it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress


def if_somebody_listens(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tells as long as that is possible: a server outlives who reads what it says."""

    def told(text: str) -> None:
        with suppress(OSError, ValueError):
            tell(text)

    return told
