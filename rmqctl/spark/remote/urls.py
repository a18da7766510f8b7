"""URLs of stores: what they are called, and the file systems behind them.

Filesystems are pyarrow's, for the schemes that it knows, else fsspec's. Keys and endpoints are
found as those do it: in the environment of every node, or in the URL's query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import PosixPath
from typing import Any

from rmqctl.errors import RmqctlError
from rmqctl.spark.session.staging import is_remote

_PYARROW = frozenset(("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "local"))
_SAME = {"s3a": "s3", "s3n": "s3"}


class RemoteUnreadable(RmqctlError):
    """The other side, or the network, refused: never a statement about the bytes."""

    template = (
        "cannot read {path}: {reason}. Check the address, the network, and the credentials in "
        "the environment of every node."
    )


class UrlPath(PosixPath):
    """A URL where the engine has paths: for messages only."""

    url = ""

    def __str__(self) -> str:
        return self.url or super().__str__()


def url_path(url: str, name: str) -> UrlPath:
    path = UrlPath(name)
    path.url = f"{shown(url)}/{name}"
    return path


def shown(store: str) -> str:
    """A store's name for rows and messages: a URL without user, password and query."""
    if not is_remote(store):
        return store
    address = re.sub(r"^([^:]+://)[^/]*@", r"\1", store.partition("?")[0])
    return re.sub(r"(?<![:/])/+$", "", address)


@lru_cache(maxsize=64)
def connect(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and the path in it.

    :raises RemoteUnreadable: there is none for its scheme, or it cannot be reached.
    """
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    scheme, rest = url.split("://", 1)
    scheme = _SAME.get(scheme, scheme)
    with told(url):
        if scheme in _PYARROW:
            filesystem, path = FileSystem.from_uri(f"{scheme}://{rest}")
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


@contextmanager
def told(url: str) -> Iterator[None]:
    """Makes rmqctl's error of whatever a filesystem raises: their classes have nothing in common.

    :raises RemoteUnreadable: instead.
    """
    try:
        yield
    except RmqctlError:
        raise
    except Exception as error:
        lines = str(error).replace(url, shown(url)).strip().splitlines()
        reason = (lines or [type(error).__name__])[0][:300].rstrip(".")
        raise RemoteUnreadable(path=shown(url), reason=reason) from error
