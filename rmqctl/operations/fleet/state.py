"""What is done of a fleet, kept in a directory: one Parquet file a verb and store, so that there is
one row a store whatever ended the run before, and however often it is begun again.

A store is unchanged while its files are the same by name, size and time of change, with the same
configuration, asked the same by the same version of rmqctl.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl import __version__
from rmqctl.errors import CannotWrite, OutputInUse
from rmqctl.operations.fleet.looking import fields
from rmqctl.operations.fleet.stores import FleetStore
from rmqctl.rows.fleets import FleetStoreRow

if TYPE_CHECKING:
    from rmqctl.rows import Row

_MARK = "mark"


def mark_of(files: Iterable[tuple[str, int, int]], *others: str) -> str:
    """A text that is another one when any of the files (name, size, time of change) or of
    ``others`` is."""
    digest = sha256()
    for part in (__version__, *others):
        digest.update(f"{len(part)} {part}\n".encode("utf-8", "surrogateescape"))
    for name, size, changed in sorted(files):
        digest.update(f"{size} {changed} {name}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class State:
    """A directory with the rows of one verb. Only one process may have it at a time."""

    def __init__(self, directory: Path, verb: str) -> None:
        """:raises ArrowMissing: pyarrow is not installed. :raises OutputInUse: another process has
        it. :raises CannotWrite: no such directory can be made."""
        from rmqctl.arrow.present import check_arrow

        check_arrow()
        from rmqctl.arrow import rowfiles

        self._verb = verb
        self._directory = directory / verb
        self._columns = rowfiles.schema(FleetStoreRow, fields(verb), [_MARK])
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise CannotWrite(path=str(self._directory), reason=error.strerror) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise OutputInUse(path=str(self._directory)) from None
        except OSError:
            pass  # Network file systems may not lock directories.
        for left in self._directory.glob(".*.parquet.*"):
            left.unlink(missing_ok=True)  # Of a run that was killed.

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def kept(self, store: FleetStore, mark: str) -> FleetStoreRow | None:
        """The row of a store that is done, and unchanged since; None: it is to be looked at. A file
        that is no such row, as a full disk or another version leaves it, is as none."""
        from rmqctl.arrow import rowfiles

        try:
            rows = rowfiles.read(self._path(store), self._columns)
        except (OSError, ValueError):
            return None
        if len(rows) != 1 or rows[0].pop(_MARK) != mark:
            return None
        found: Any = rows[0] | {"store": store.name, "path": store.shown, "kept": True}
        return found  # type: ignore[no-any-return]

    def keep(self, store: FleetStore, mark: str, row: Row) -> None:
        """Notes a row. One with an error is not: the next run tries again.

        :raises CannotWrite: the disk failed.
        """
        from rmqctl.arrow import rowfiles

        path = self._path(store)
        if row["error"] is not None:
            path.unlink(missing_ok=True)
            return
        try:
            rowfiles.write(path, [{**row, _MARK: mark}], self._columns)
        except OSError as error:
            raise CannotWrite(path=str(path), reason=error.strerror) from error

    def _path(self, store: FleetStore) -> Path:
        name = sha256(store.path.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        return self._directory / f"{name}.parquet"
