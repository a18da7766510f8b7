"""Opens backups by their places, and puts those of one store in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqctl.operations.backup import place as places
from rmqctl.operations.backup.archive import Archive
from rmqctl.operations.backup.content import Piece
from rmqctl.operations.backup.errors import ChainBroken
from rmqctl.operations.backup.manifest import Entry, Manifest, read_manifest
from rmqctl.operations.backup.tree import Directory


class Backup(Protocol):
    """A backup that is read."""

    name: str
    manifest: Manifest

    def parts(self) -> Iterator[tuple[Entry, Iterator[Piece]]]: ...


def open_backup(place: str) -> Backup:
    """Opens the backup at a place.

    :raises BackupNotFound, BackupUnsound, BackupUnreachable: there is none, or it cannot be read.
    """
    if not places.is_url(place) and places.local(place).is_dir():
        return Directory(places.local(place))
    return Archive(place)


def manifest_of(place: str) -> Manifest:
    """The manifest of a backup. The place may also be that of a manifest alone (``.ndjson``)."""
    if place.partition("?")[0].endswith(".ndjson"):
        with places.opened(place) as file:
            return read_manifest(file, places.shown(place))
    return open_backup(place).manifest


@dataclass(frozen=True, slots=True)
class Chain:
    """Backups, of which each is made on the one before; the first one is full."""

    backups: list[Backup]

    @property
    def manifest(self) -> Manifest:
        """The newest manifest, which has all files of the store."""
        return self.backups[-1].manifest

    def needed(self) -> list[set[str]]:
        """For each backup the paths of the files of which something is taken from it.

        :raises ChainBroken: a file needs bytes that the backup before does not have.
        """
        taken: list[set[str]] = [set() for _ in self.backups]
        for path, entry in self.manifest.files.items():
            at, number = entry, len(self.backups) - 1
            while True:
                taken[number].add(path)
                if at.stored_from == 0:
                    break
                number -= 1
                before = self.backups[number].manifest.files.get(path) if number >= 0 else None
                if before is None or before.data_end != at.stored_from:
                    name = self.backups[number + 1].name
                    reason = f"{name} goes on from another content of {path!r} than is in the chain"
                    raise ChainBroken(reason=reason)
                at = before
        return taken


def chain_of(backups: Sequence[Backup]) -> Chain:
    """Puts backups in order; they may be given in any order.

    :raises ChainBroken: one is missing, or they are several chains.
    """
    by_id = {backup.manifest.id: backup for backup in backups}
    parents = {backup.manifest.head.base for backup in by_id.values()}
    newest = [backup for id, backup in by_id.items() if id not in parents]
    if len(newest) != 1:
        names = ", ".join(backup.name for backup in newest[:3])
        raise ChainBroken(reason=f"these are the ends of several chains: {names}")
    ordered = [newest[0]]
    while (base := ordered[-1].manifest.head.base) is not None:
        if base not in by_id:
            reason = f"{ordered[-1].name} goes on from the backup {base[:12]}, which is not named"
            raise ChainBroken(reason=reason)
        ordered.append(by_id[base])
    return Chain(ordered[::-1])
