"""The rows of a fleet, kept in a directory between runs: one Parquet file for each verb and store.
However a run was ended, and however often it is repeated, each store has one row.

A row is kept while the store's files have the same names, sizes and times of change, and while
configuration, question and version of rmqctl are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl import __version__
from rmqctl.engine.files.newdirectory import lock_directory
from rmqctl.engine.files.writing import writing_error
from rmqctl.errors import CannotRead, CannotWrite
from rmqctl.operations.fleet.looking import fields
from rmqctl.operations.fleet.stores import FleetStore
from rmqctl.rows.fleets import FleetStoreRow

if TYPE_CHECKING:
    from rmqctl.rows import Row

_MARK = "mark"


def mark_of(files: Iterable[tuple[str, int, int]], *others: str) -> str:
    """A hash of files (name, size, time of change) and ``others``."""
    digest = sha256()
    for part in (__version__, *others):
        digest.update(f"{len(part)} {part}\n".encode("utf-8", "surrogateescape"))
    for name, size, changed in sorted(files):
        digest.update(f"{size} {changed} {name}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class State:
    """A directory with the rows of one verb. One process at a time may open it."""

    def __init__(self, directory: Path, verb: str) -> None:
        """:raises ArrowMissing: pyarrow is not installed. :raises OutputInUse: another process has
        opened it. :raises CannotWrite: the directory cannot be made."""
        from rmqctl.arrow.present import check_arrow

        check_arrow()
        from rmqctl.arrow import rowfiles

        self._verb = verb
        self._directory = directory / verb
        self._columns = rowfiles.schema(FleetStoreRow, fields(verb), [_MARK])
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            lock_directory(self._lock, self._directory)
            try:
                for left in self._directory.glob(".*.parquet.*"):
                    left.unlink(missing_ok=True)  # Of a run that was killed.
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise CannotWrite(path=str(self._directory), reason=error.strerror) from error

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def kept(self, store: FleetStore, mark: str) -> FleetStoreRow | None:
        """The kept row of a store that has not changed since; None: the store is to be looked at. A
        file that holds no such row (left by a full disk, or another version) counts as none."""
        from rmqctl.arrow import rowfiles

        try:
            rows = rowfiles.read(self._path(store), self._columns)
        except (OSError, ValueError, CannotRead):
            return None
        if len(rows) != 1 or rows[0].pop(_MARK) != mark:
            return None
        here = {"type": "fleet_store", "store": store.name, "path": store.shown, "kept": True}
        found: Any = rows[0] | here
        return found  # type: ignore[no-any-return]

    def keep(self, store: FleetStore, mark: str, row: Row) -> None:
        """Keeps a row. A row with an error is not kept: the next run tries again.

        :raises CannotWrite: the disk failed.
        """
        from rmqctl.arrow import rowfiles

        path = self._path(store)
        try:
            if row["error"] is None:
                rowfiles.write(path, [{**row, _MARK: mark}], self._columns)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise writing_error(path, error) from error

    def _path(self, store: FleetStore) -> Path:
        name = sha256(store.path.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        return self._directory / f"{name}.parquet"
