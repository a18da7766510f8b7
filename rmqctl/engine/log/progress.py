"""How an opening tells how far it is."""

from collections.abc import Callable

#: Told of the bytes of log that were read or dispatched so far, and of all that are to be.
Progress = Callable[[int, int], None]
