"""The process's limit of open files (``ulimit -n``)."""

from __future__ import annotations

import resource


def open_files() -> int | None:
    """How many files the process may have open (the soft limit); None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def allow_open_files(wanted: int) -> int | None:
    """Raises the soft limit to ``wanted``, or as far as the hard limit allows, as Java does for a
    broker; it is never lowered. Returns :func:`open_files` then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return None if soft == resource.RLIM_INFINITY else soft
