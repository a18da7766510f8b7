"""Looking again at a store whose broker deletes files meanwhile.

A look lists directories, and then reads files. For a file that retention deletes in between there
is an error of its own (:class:`~rmqctl.engine.files.paths.FileGone`). A look from the beginning
finds what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rmqctl.engine.files.paths import FileGone

T = TypeVar("T")

#: How often a look begins anew. Each time a file must have gone in the moment between a listing and
#: the reading, so a second time is rare.
MOST_AGAIN = 10


def looked_again(look: Callable[[], T], gone: Callable[[FileGone], None] = lambda error: None) -> T:
    """What a look finds, which changes nothing; begun anew where a file has gone.

    :param gone: told of each such file; it may raise the error, which then ends the look.
    :raises FileGone: files have gone more than :data:`MOST_AGAIN` times.
    """
    for _ in range(MOST_AGAIN):
        try:
            return look()
        except FileGone as error:
            gone(error)
    return look()
