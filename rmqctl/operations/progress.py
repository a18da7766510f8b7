"""How a long operation tells how far it is."""

from collections.abc import Callable

#: Told of the bytes of log that were read so far, from 0 up to all that are to be read.
Progress = Callable[[int], None]
