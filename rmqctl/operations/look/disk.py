"""The files of a store on disk: their number, their length, and the space that they take."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths
from rmqctl.engine.settings.logdirectories import (
    at_root,
    dledger_logs,
    is_spread,
    log_directories,
)
from rmqctl.engine.state import brokerjson
from rmqctl.errors import CannotRead

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.rows.reports import DiskRow

_STRUCTURES = (
    paths.COMMIT_LOG,
    paths.CONSUME_QUEUE,
    paths.CONSUME_QUEUE_EXT,
    paths.INDEX,
    brokerjson.CONFIG,
)


def disk_usage(root: Path, config: MessageStoreConfig) -> list[DiskRow]:
    """Rows ``disk``: the files of each directory of a store, their length, and the space that they
    take on disk (holes take none). The log is counted wherever its directories are. Everything else
    in the store is one row. Links are not followed.

    :raises CannotRead: a part of the store cannot be read.
    :raises AmbiguousLog, BrokerConfError: as of
        :func:`~rmqctl.engine.settings.logdirectories.log_directories`, of a configuration that
        lists directories.
    """
    rows: dict[str, DiskRow] = {}
    logs, elsewhere = _logs(root, at_root(config, root))
    start = len(os.path.join(root, ""))

    def structure_of(relative: str) -> str:
        top = relative.partition("/")[0]
        return paths.COMMIT_LOG if relative in logs else top if top in _STRUCTURES else "other"

    def refused(error: OSError) -> None:
        # lost+found is no part of the store.
        relative = str(error.filename)[start:]
        is_above_log = any(log.startswith(f"{relative}/") for log in logs)
        if not relative or is_above_log or structure_of(relative) != "other":
            _unreadable(error)

    # There may be as many directories as queues, so no Path is made of each.
    for directory, _, files in os.walk(root, onerror=refused):
        name = structure_of(directory[start:])
        _add(rows, name, directory, files, refused if name == "other" else _unreadable)
    for place in elsewhere:
        # Only the files of the log: the directory may be all of a disk.
        _add(rows, paths.COMMIT_LOG, place, paths.scan_names(place), _unreadable)
    return [rows[name] for name in (*_STRUCTURES, "other") if name in rows]


def _unreadable(error: OSError) -> None:
    # A file that a broker has just deleted takes no space.
    if not isinstance(error, FileNotFoundError):
        raise CannotRead(path=error.filename, reason=error.strerror) from error


def _logs(root: Path, config: MessageStoreConfig) -> tuple[set[str], list[str]]:
    """The directories of a log: names of those in the store, beside ``commitlog``, and paths of
    those elsewhere."""
    within, elsewhere, place = set(dledger_logs(root)), list[str](), paths.resolved(root)
    for one in log_directories(root, config).all if is_spread(config) else ():
        directory = paths.resolved(one)
        if directory.is_relative_to(place):
            within.add(str(directory.relative_to(place)))
        else:
            elsewhere.append(str(directory))
    return within, elsewhere


def _add(
    rows: dict[str, DiskRow],
    name: str,
    directory: str,
    files: Iterable[str],
    refused: Callable[[OSError], None],
) -> None:
    """Adds the files among some names of a directory to the row of a structure."""
    row = rows.setdefault(
        name, {"type": "disk", "structure": name, "files": 0, "size": 0, "allocated_bytes": 0}
    )
    for file in files:
        try:
            status = os.lstat(os.path.join(directory, file))
        except OSError as error:
            refused(error)
            continue
        if stat.S_ISDIR(status.st_mode):
            continue
        row["files"] += 1
        row["size"] += status.st_size
        row["allocated_bytes"] += status.st_blocks * 512
