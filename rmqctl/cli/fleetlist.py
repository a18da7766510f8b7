"""``--stores`` of ``fleet``: a file with a store a line, a pattern, or standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.errors import RmqctlError
from rmqctl.operations.fleet.stores import (
    MOST_BYTES,
    FleetStore,
    Listed,
    NoStores,
    StoresFileError,
    listed,
    named,
)

_EXAMPLE = "/data/*/store"


def stores_of(given: tuple[str, ...], conf_pattern: str | None) -> list[FleetStore]:
    """The stores that the values of ``--stores`` name.

    :raises NoStores: they name none. :raises StoresFileError: a file is no list.
    :raises StoreNotFound, RemoteUnreadable: a URL that is given means nothing.
    """
    from rmqctl.spark.remote.stores import matching
    from rmqctl.spark.remote.urls import shown

    lines: list[Listed] = []
    for one in map(paths.local_path, given):
        if one == "-" or os.path.isfile(one):
            lines += _lines_of(one)
            continue
        path = one if "://" in one else os.path.abspath(one)
        _check_arrow([path])
        found = matching(path)
        if not found:
            raise NoStores(path=one, reason="it matches no directory", example=_EXAMPLE)
        lines += [Listed(None, place) for place in found]
    _check_arrow([line.path for line in lines])
    stores = named(lines, _expanded, shown, conf_pattern)
    if not stores:
        raise NoStores(path=", ".join(given), reason="it names no store", example=_EXAMPLE)
    return stores


def _expanded(path: str) -> list[str]:
    """The stores that a line means; none where that cannot be found out: its row will say why."""
    from rmqctl.spark.remote.stores import matching

    try:
        return matching(path)
    except RmqctlError:
        return []


def _lines_of(name: str) -> list[Listed]:
    try:
        if name == "-" and sys.stdin is None:
            raise StoresFileError(path="standard input", line=1, reason="it is closed")
        if name == "-":
            data, directory = sys.stdin.buffer.read(MOST_BYTES + 1), Path.cwd()
        else:
            with open(name, "rb") as file:
                data, directory = file.read(MOST_BYTES + 1), Path(name).absolute().parent
        if len(data) > MOST_BYTES:
            reason = f"the file has more than {MOST_BYTES} bytes"
            raise StoresFileError(path=name, line=data.count(b"\n") + 1, reason=reason)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StoresFileError(path=name, line=line, reason="it is no UTF-8") from error
    return listed(text, name, directory)


def _check_arrow(places: list[str]) -> None:
    """:raises ArrowMissing: a URL is named, and pyarrow, which reads it, is not installed."""
    if any("://" in place for place in places):
        from rmqctl.arrow.present import check_arrow

        check_arrow()
