"""How the opening of a store reports its progress."""

from collections.abc import Callable

#: Called with two numbers of bytes of log: those read or dispatched so far, and all of them.
Progress = Callable[[int, int], None]
