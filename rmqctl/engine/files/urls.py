"""URLs of stores and backups: how they are told, and what the file systems behind them raise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rmqctl.errors import RmqctlError

#: Most characters of a foreign error that are told.
_LONGEST = 300


def without_secrets(url: str) -> str:
    """A URL for rows and messages: without user, password and query."""
    return re.sub(r"^([^:]+://)[^/]*@", r"\1", url.partition("?")[0])


@contextmanager
def raised_as(error_class: type[RmqctlError], url: str, name: str) -> Iterator[None]:
    """Inside, whatever a file system behind a URL raises becomes an ``error_class``, with the first
    line that it says as ``reason``: the exceptions of file systems have no common class.

    :param error_class: has the fields ``path`` and ``reason``.
    :param name: how the URL is told, also where the file system says all of it.
    """
    try:
        yield
    except RmqctlError:
        raise
    except Exception as error:
        lines = str(error).replace(url, name).strip().splitlines()
        reason = (lines or [type(error).__name__])[0][:_LONGEST].rstrip(".")
        raise error_class(path=name, reason=reason) from error
