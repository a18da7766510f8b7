"""The files of a store on disk: their number, their length, and the space that they take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths
from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.engine.state import brokerjson
from rmqctl.errors import CannotRead

if TYPE_CHECKING:
    from rmqctl.rows.reports import DiskRow

_STRUCTURES = (
    paths.COMMIT_LOG,
    paths.CONSUME_QUEUE,
    paths.CONSUME_QUEUE_EXT,
    paths.INDEX,
    brokerjson.CONFIG,
)


def disk_usage(root: Path) -> list[DiskRow]:
    """Rows ``disk``: the files of each directory of a store, their length, and the space that they
    take on disk (holes take none). Everything else in the store is one row. Links are not followed.

    :raises CannotRead: a part of the store cannot be read.
    """
    rows: dict[str, DiskRow] = {}
    logs = dledger_logs(root)
    start = len(os.path.join(root, ""))

    def refused(error: OSError) -> None:
        # A file that a broker has just deleted takes no space. lost+found is no part of the store.
        top = str(error.filename)[start:].split("/")[0]
        if not isinstance(error, FileNotFoundError) and (not top or top in _STRUCTURES):
            raise CannotRead(path=error.filename, reason=error.strerror) from error

    # There may be as many directories as queues, so no Path is made of each.
    for directory, _, files in os.walk(root, onerror=refused):
        relative = directory[start:]
        top = relative.split("/")[0]
        name = top if top in _STRUCTURES else "other"
        if relative in logs:
            name = paths.COMMIT_LOG
        row = rows.setdefault(
            name, {"type": "disk", "structure": name, "files": 0, "size": 0, "allocated_bytes": 0}
        )
        for file in files:
            try:
                status = os.lstat(os.path.join(directory, file))
            except OSError as error:
                refused(error)
                continue
            row["files"] += 1
            row["size"] += status.st_size
            row["allocated_bytes"] += status.st_blocks * 512
    return [rows[name] for name in (*_STRUCTURES, "other") if name in rows]
