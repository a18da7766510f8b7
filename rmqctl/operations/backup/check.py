"""backup verify and backup ls: checks backups against their manifests, and lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rmqctl.operations.backup.content import Digest
from rmqctl.operations.backup.errors import BackupUnsound, ChainBroken
from rmqctl.operations.backup.opened import Backup, chain_of, open_backup
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.operations.backup.create import Created
    from rmqctl.operations.backup.manifest import Manifest
    from rmqctl.rows.backups import (
        BackupCreateSummary,
        BackupListSummary,
        BackupProblemRow,
        BackupRow,
        BackupVerifySummary,
        PartRow,
    )

#: The order of parts; other parts follow.
_PARTS = ("commitlog", "consumequeue", "consumequeue_ext", "index", "config")


class Verification:
    """Reads backups through, each by itself, and finds out whether together they make a store."""

    def __init__(self, places: Sequence[str]) -> None:
        self._problems: list[BackupProblemRow] = []
        self._backups: list[Backup] = []
        for place in places:
            try:
                self._backups.append(open_backup(place))
            except BackupUnsound as error:
                self._add(str(error.path), None, str(error.reason))
        self._files = self._bytes = 0

    @property
    def bytes_to_do(self) -> int:
        """How many bytes are read."""
        return sum(backup.manifest.stored_bytes for backup in self._backups)

    @property
    def is_sound(self) -> bool:
        return not self._problems

    def _add(self, backup: str, path: str | None, what: str) -> BackupProblemRow:
        row: BackupProblemRow = {
            "type": "backup_problem",
            "backup": backup,
            "path": path,
            "what": what,
        }
        self._problems.append(row)
        return row

    def rows(self, progress: Progress = lambda done: None) -> Iterator[BackupProblemRow]:
        """A row for each problem. :raises BackupUnreachable, CannotRead: a backup cannot be
        read."""
        yield from list(self._problems)
        for backup in self._backups:
            try:
                yield from self._read(backup, progress)
            except BackupUnsound as error:
                yield self._add(backup.name, None, str(error.reason))

    def _read(self, backup: Backup, progress: Progress) -> Iterator[BackupProblemRow]:
        for entry, pieces in backup.parts():
            digest = Digest(entry.stored_from)
            for piece in pieces:
                digest.add(piece)
                self._bytes += len(piece[1])
                progress(self._bytes)
            digest.pass_to(entry.data_end)
            self._files += 1
            if digest.hexdigest() != entry.stored_sha256:
                yield self._add(backup.name, entry.path, "other bytes than were backed up")

    def summary(self) -> BackupVerifySummary:
        """The summary; complete when all rows have come."""
        return {
            "type": "summary",
            "backups": len(self._backups),
            "files": self._files,
            "stored_bytes": self._bytes,
            "problems": len(self._problems),
            "incomplete": _incomplete(self._backups),
        }


def _incomplete(backups: Sequence[Backup]) -> str | None:
    """Why backups do not make a store, in words; None: they do, or there are none."""
    try:
        if backups:
            chain_of(backups).needed()
    except ChainBroken as error:
        return str(error.reason)
    return None


# --- rows ------------------------------------------------------------------------------------


def listed(places: Sequence[str]) -> list[BackupRow | BackupListSummary]:
    """A row of each backup, the oldest first, and a summary; errors as of :func:`open_backup`."""
    backups = [open_backup(place) for place in places]
    backups.sort(key=lambda backup: backup.manifest.head.made_timestamp)
    rows: list[BackupRow | BackupListSummary] = [backup_row(backup) for backup in backups]
    rows.append({"type": "summary", "backups": len(rows), "incomplete": _incomplete(backups)})
    return rows


def backup_row(backup: Backup) -> BackupRow:
    """A backup by its manifest."""
    manifest = backup.manifest
    head = manifest.head
    return {
        "type": "backup",
        "backup": backup.name,
        "made_timestamp": head.made_timestamp,
        "files": len(manifest.files),
        "data_bytes": manifest.data_bytes,
        "stored_bytes": manifest.stored_bytes,
        "physical_offset": head.physical_offset,
        "dispatched_offset": head.dispatched_offset,
        "is_live": head.is_live,
        "id": manifest.id,
        "base": head.base,
    }


def part_rows(manifest: Manifest) -> Iterator[PartRow]:
    """A row for each directory of the store: how much of it the backup has."""
    parts: dict[str, list[int]] = {}
    for entry in manifest.files.values():
        sums = parts.setdefault(entry.part, [0, 0, 0])
        sums[0] += 1
        sums[1] += entry.data_end
        sums[2] += entry.stored_bytes
    for part in [*(one for one in _PARTS if one in parts), *sorted(parts.keys() - {*_PARTS})]:
        files, data_bytes, stored_bytes = parts[part]
        yield {
            "type": "part",
            "part": part,
            "files": files,
            "data_bytes": data_bytes,
            "stored_bytes": stored_bytes,
        }


def create_summary(created: Created, output: str, *, dry_run: bool) -> BackupCreateSummary:
    manifest = created.manifest
    head = manifest.head
    return {
        "type": "summary",
        "output": output,
        "dry_run": dry_run,
        "id": manifest.id,
        "base": head.base,
        "is_live": head.is_live,
        "min_physical_offset": head.min_physical_offset,
        "physical_offset": head.physical_offset,
        "dispatched_offset": head.dispatched_offset,
        "files": len(manifest.files),
        "data_bytes": manifest.data_bytes,
        "stored_bytes": manifest.stored_bytes,
        "left_out": len(created.left_out),
    }
