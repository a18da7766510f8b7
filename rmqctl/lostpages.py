"""What a command says when a page of a mapped file cannot be had, before it ends.

An access to memory returns no error: the system sends a signal instead (SIGBUS). Python cannot
handle that one, so the compiled kernel does. Until it is loaded, and on the pure engine, the signal
ends the process. A program that uses the library keeps its own handling of signals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rmqctl.errors import CannotRead
from rmqctl.limits import DISK_STEP

if TYPE_CHECKING:
    from types import ModuleType

#: Stands for the file's name, which is only known when it happens.
_NAME = "\0"


class PageLost(CannotRead):
    """A page that was mapped. Its disk does not read it or has no room, or the file was cut."""

    template = "a page of {path} cannot be had: its disk fails or is full, or the file was cut."
    step = DISK_STEP
    #: Whether this process is a command, which may end itself.
    ends_process: ClassVar[bool] = False


def tell_of_lost_pages() -> None:
    """Called when a command begins: from the loading of the kernel on it says so, and ends."""
    PageLost.ends_process = True


def begin(kernel: ModuleType) -> None:
    """Called when the compiled kernel is loaded."""
    if PageLost.ends_process:
        before, after = f"error: {PageLost(path=_NAME).for_command_line}".split(_NAME)
        kernel.tell_of_lost_pages(before, after, PageLost.exit_code)
