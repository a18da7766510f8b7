"""The sums over the rows of a fleet."""

from __future__ import annotations

from typing import Any

from rmqctl.operations.fleet.looking import VERBS
from rmqctl.rows import Row
from rmqctl.rows.field import fields_of
from rmqctl.rows.fleets import FleetSummary

_ALL = ("records", "bytes")


class Sums:
    """Adds rows as they come."""

    def __init__(self, verb: str) -> None:
        names = {one.name for one in fields_of(FleetSummary) if one.is_optional}
        #: In the order of the declaration.
        self._names = [
            one.name
            for one in fields_of(FleetSummary)
            if one.name in _ALL or (one.name in names and one.name in VERBS[verb])
        ]
        self._totals: dict[str, int] = dict.fromkeys(self._names, 0)
        self._stores = self._kept = self._failed = self._unclean = 0
        self._worst_failure = 0

    def add(self, row: Row) -> None:
        self._stores += 1
        self._kept += row["kept"]
        if row["error"] is not None:
            self._failed += 1
            self._worst_failure = max(self._worst_failure, row["exit_code"])
            return
        self._unclean += row["exit_code"] == 1
        for name in self._names:
            self._totals[name] += row[name] or 0

    def summary(self) -> dict[str, Any]:
        """The fields of the summary."""
        return {
            "stores": self._stores,
            "kept": self._kept,
            "failed": self._failed,
            "unclean": self._unclean,
            **self._totals,
        }

    @property
    def exit_code(self) -> int:
        """The highest exit code among stores that could not be read; without such stores 1 if some
        store is not clean, else 0."""
        return self._worst_failure or int(self._unclean > 0)
