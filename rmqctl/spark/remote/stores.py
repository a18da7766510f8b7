"""Expands the names of stores: directories, patterns of directories, and URLs of both.

Does not import Spark, because commands use it before they start Spark.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.spark.session.staging import is_remote


def matching(pattern: str) -> list[str]:
    """The directories, or URLs, that a pattern matches, sorted. If a directory has exactly this
    name, it is not taken as a pattern.

    :raises StoreNotFound, RemoteUnreadable: a URL matches nothing, or cannot be listed.
    """
    if is_remote(pattern):
        from rmqctl.spark.remote.remote import expand_url

        return expand_url(pattern)
    pattern = paths.local_path(pattern)
    if os.path.exists(pattern):
        return [pattern]
    return sorted(found for found in glob.glob(pattern) if os.path.isdir(found))


def check_store(store: str) -> None:
    """:raises StoreNotFound, NotAStore, RemoteUnreadable: there is no store of this name."""
    if is_remote(store):
        from rmqctl.spark.remote import remote

        remote.check_store(store)
    else:
        paths.check_store(Path(paths.local_path(store)))


def expand(path: str) -> list[str]:
    """The stores of a data source's path, which is one name, or several separated by commas.

    :raises ValueError: a pattern matches nothing. :raises RmqctlError: a URL cannot be listed.
    """
    names = [path] if os.path.isdir(path) else path.split(",")
    return expand_each([name.strip() for name in names])


def expand_each(names: list[str]) -> list[str]:
    """Does the same for separate names, in which a comma is a part of the name."""
    stores: list[str] = []
    for name in names:
        found = matching(name)
        if not found or not (is_remote(name) or os.path.isdir(found[0])):
            raise ValueError(f"{name}: no such directory on this machine")
        stores += found
    return stores
