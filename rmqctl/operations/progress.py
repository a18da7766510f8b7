"""How a long operation tells how far it is."""

from collections.abc import Callable

#: Told of how much was done so far, from 0 up to all that is to be done: bytes of log, where the
#: operation does not say otherwise.
Progress = Callable[[int], None]
