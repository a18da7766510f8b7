"""restore: makes a store from a backup, and the backups that it is made on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.newdirectory import free_place, new_directory
from rmqctl.operations.backup.content import Content, Digest, Piece
from rmqctl.operations.backup.errors import BackupUnsound
from rmqctl.operations.backup.manifest import Entry
from rmqctl.operations.backup.opened import Chain, chain_of, open_backup
from rmqctl.operations.backup.tree import TreeWriter
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.rows.backups import RestoreSummary

    _Counted = Callable[[Iterator[Piece]], Iterator[Piece]]


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore takes from where. ``needed`` has the paths for each backup of the chain."""

    chain: Chain
    needed: list[set[str]]
    output: Path

    @property
    def bytes_to_do(self) -> int:
        """How many bytes are read: of the backups, and of the new store, to check it."""
        stored = sum(
            backup.manifest.files[path].stored_bytes
            for backup, paths in zip(self.chain.backups, self.needed, strict=True)
            for path in paths
        )
        return stored + self.chain.manifest.data_bytes


def plan_restore(places: Sequence[str], output: Path) -> RestorePlan:
    """Reads the manifests, and puts the backups in order.

    :raises ChainBroken: they do not make one store.
    :raises BackupNotFound, BackupUnsound: one is no backup, or is damaged.
    :raises OutputExists: ``output`` holds something.
    """
    chain = chain_of([open_backup(place) for place in places])
    free_place(output)
    return RestorePlan(chain, chain.needed(), output)


def restore(plan: RestorePlan, progress: Progress = lambda done: None) -> None:
    """Makes the store. It appears when every file has been read again, and has the hash of the
    manifest.

    :raises BackupUnsound: a file has another hash.
    :raises OutputExists, OutputInUse, CannotWrite: as of
        :func:`~rmqctl.engine.files.newdirectory.new_directory`; nothing is left.
    """
    manifest = plan.chain.manifest
    done = 0

    def counted(pieces: Iterator[Piece]) -> Iterator[Piece]:
        nonlocal done
        for piece in pieces:
            yield piece
            done += len(piece[1])
            progress(done)

    with new_directory(plan.output) as building:
        tree = TreeWriter(building)
        for backup, paths in zip(plan.chain.backups, plan.needed, strict=True):
            for entry, pieces in backup.parts():
                if entry.path in paths:
                    tree.store(entry, counted(pieces))
        tree.finish(manifest.files.values(), manifest.directories)
        for entry in manifest.files.values():
            _check(plan, building, entry, counted)


def _check(plan: RestorePlan, building: Path, entry: Entry, counted: _Counted) -> None:
    """Reads a file of the new store again. :raises BackupUnsound: it is not what was backed up."""
    content = Content(MappedFile.open(building / entry.path), entry.data_end)
    digest = Digest()
    try:
        for piece in counted(content.pieces(content.extents(0, content.end))):
            digest.add(piece)
    finally:
        content.close()
    digest.pass_to(entry.data_end)
    if content.size != entry.size or digest.hexdigest() != entry.sha256:
        name = plan.chain.backups[-1].name
        raise BackupUnsound(path=name, reason=f"{entry.path!r} is not what was backed up")


def summary_row(plan: RestorePlan, *, dry_run: bool) -> RestoreSummary:
    manifest = plan.chain.manifest
    return {
        "type": "summary",
        "output": str(plan.output),
        "dry_run": dry_run,
        "id": manifest.id,
        "backups": len(plan.chain.backups),
        "files": len(manifest.files),
        "data_bytes": manifest.data_bytes,
        "physical_offset": manifest.head.physical_offset,
    }
