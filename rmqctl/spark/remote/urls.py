"""URLs of stores, how they are shown, and their file systems.

File systems are those of pyarrow, for the schemes that it knows, else those of fsspec. They find
keys and endpoints as usual: in the environment of each node, or in the URL's query.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import PosixPath
from typing import Any, TypeVar

from rmqctl.engine.files.answers import PATIENCE, answered
from rmqctl.engine.files.urls import raised_as, without_secrets
from rmqctl.errors import RmqctlError
from rmqctl.spark.session.staging import is_remote

T = TypeVar("T")

_PYARROW = frozenset(("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "local"))
_SAME = {"s3a": "s3", "s3n": "s3"}


class RemoteUnreadable(RmqctlError):
    """The object storage, or the network, refused. This says nothing about the bytes."""

    template = (
        "cannot read {path}: {reason}. Check the address, the network, and the credentials in "
        "the environment of every node."
    )


class UrlPath(PosixPath):
    """A URL in place of a path of the engine: only for messages."""

    url = ""

    def __str__(self) -> str:
        return self.url or super().__str__()


def url_path(url: str, name: str) -> UrlPath:
    path = UrlPath(name)
    path.url = f"{shown(url)}/{name}"
    return path


def shown(store: str) -> str:
    """The name of a store for rows and messages: a URL loses user, password and query."""
    if not is_remote(store):
        return store
    return re.sub(r"(?<![:/])/+$", "", without_secrets(store))


@lru_cache(maxsize=64)
def connect(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    :raises RemoteUnreadable: there is no file system for its scheme, or it cannot be reached.
    """
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    scheme, rest = url.split("://", 1)
    scheme = _SAME.get(scheme, scheme)
    with told(url):
        if scheme in _PYARROW:
            # It may ask for the region of a bucket.
            filesystem, path = asked(
                url, lambda: FileSystem.from_uri(f"{scheme}://{rest}"), PATIENCE
            )
            return filesystem, path.rstrip("/")
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise RemoteUnreadable(
                path=shown(url),
                reason=f"pyarrow has no filesystem for {scheme}://, and fsspec is not installed: "
                "`pip install fsspec`, and its package for this scheme",
            ) from error
        filesystem, path = url_to_fs(url)
        return PyFileSystem(FSSpecHandler(filesystem)), path.rstrip("/")


def told(url: str) -> AbstractContextManager[None]:
    """Turns what a file system raises into an error of rmqctl.

    :raises RemoteUnreadable: the file system has raised anything.
    """
    return raised_as(RemoteUnreadable, url, shown(url))


def asked(url: str, ask: Callable[[], T], within: float | None = None) -> T:
    """What a file system answers to a call, for which a Ctrl-C does not wait.

    :param within: seconds to wait at most; None: as long as the file system's own library does.
    :raises RemoteUnreadable: the file system has raised anything, or has not answered in time.
    """
    with told(url):
        return answered(ask, within)
