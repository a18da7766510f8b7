"""backup create: a copy of a store, with a manifest; a broker may be running on the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rmqctl import __version__
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.files.newdirectory import new_directory
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.settings.logdirectories import lies_within
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotWriteThere, UsageError
from rmqctl.operations.backup import place as places
from rmqctl.operations.backup.archive import ArchiveWriter
from rmqctl.operations.backup.content import Content, Digest, Extent, Piece
from rmqctl.operations.backup.errors import StoreChanging
from rmqctl.operations.backup.listing import Found
from rmqctl.operations.backup.manifest import Entry, Head, Manifest, write_lines
from rmqctl.operations.backup.opened import manifest_of
from rmqctl.operations.backup.source import Source
from rmqctl.operations.backup.tree import DirectoryWriter

#: Suffixes that nobody gives a directory.
_OTHER_ARCHIVES = (".tar", ".tgz", ".gz", ".bz2", ".xz", ".zip", ".tzst", ".lz4")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. ``base`` is a backup, or its manifest, that the new one is made on."""

    root: Path
    config: MessageStoreConfig
    output: str
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A backup that was made. ``left_out`` are the paths that it does not hold, because they are
    no plain files. ``cut`` are files of the log that have lost their end, or may have, each with
    its length."""

    manifest: Manifest
    left_out: list[str]
    cut: list[str]

    @property
    def is_unlike_base(self) -> bool:
        """Whether its base has nothing in common with it."""
        files = self.manifest.files.values()
        return self.manifest.head.base is not None and not any(one.stored_from for one in files)

    @property
    def left_out_text(self) -> str:
        """Some of :attr:`left_out`, for a note."""
        return _some_of(self.left_out)

    @property
    def cut_text(self) -> str:
        """Some of :attr:`cut`, for a note."""
        return _some_of(self.cut)


def _some_of(names: list[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


class _Target(Protocol):
    """Where a backup is written."""

    def add(self, entry: Entry, extents: list[Extent], pieces: Iterator[Piece]) -> None: ...
    def finish(self, manifest: Manifest) -> None: ...


def shown(output: str) -> str:
    """A place for rows: a URL without user, password and query."""
    return places.shown(output)


#: Told of how many bytes are done, and of how many: the space that all files take on disk.
Progress = Callable[[int, int], None]


def create(
    wanted: Wanted, progress: Progress = lambda done, total: None, *, dry_run: bool = False
) -> Created:
    """Makes a backup, which appears when it is whole; with ``dry_run`` it only finds out what the
    backup would hold.

    A store that nobody has open is copied as it is. Where a broker holds the lock, or something
    changes meanwhile, the copy is consistent up to one place in the log
    (:mod:`~rmqctl.operations.backup.source`).

    :raises OutputExists, OutputInUse, CannotWrite: as of the place of the backup.
    :raises CannotRead: a file of the store cannot be read.
    :raises StoreChanging: a start, a repair or a deletion was going on.
    """
    base = None if wanted.base is None else manifest_of(wanted.base)
    _check_place(wanted)
    is_live = is_locked(wanted.root)
    if not is_live:
        try:
            return _copied(wanted, base, progress, is_live=False, dry_run=dry_run)
        except StoreChanging:
            is_live = True  # A process writes whose lock is not visible here.
    return _copied(wanted, base, progress, is_live=is_live, dry_run=dry_run)


def _check_place(wanted: Wanted) -> None:
    output = wanted.output
    if output.endswith(_OTHER_ARCHIVES):
        raise UsageError(reason=f"{output}: a backup in one file ends with {places.ARCHIVE}.")
    if places.is_url(output):
        if not output.partition("?")[0].endswith(places.ARCHIVE):
            reason = f"behind a URL a backup is one file: end its name with {places.ARCHIVE}"
            raise UsageError(reason=f"{places.shown(output)}: {reason}.")
        return
    if lies_within(places.local(output), wanted.root, wanted.config):
        raise CannotWriteThere(path=output, reason="it lies inside the store")
    if output.endswith(places.ARCHIVE) and not places.local(output).absolute().parent.is_dir():
        raise CannotWriteThere(path=output, reason="there is no directory for it")


def _copied(
    wanted: Wanted, base: Manifest | None, progress: Progress, *, is_live: bool, dry_run: bool
) -> Created:
    source = Source(wanted.root, wanted.config, _scratch(wanted.output))
    made = system_clock()
    files: dict[str, Entry] = {}
    copying = _Copying(base, lambda done: progress(done, source.allocated_bytes))

    def copy(target: _Target) -> Manifest:
        for one in source.live() if is_live else source.whole():
            try:
                files[one.path] = copying.entry(one, target)
            finally:
                one.content.close()
        head = Head(
            made,
            None if base is None else base.id,
            source.min_physical_offset,
            source.physical_offset,
            source.dispatched_offset,
            is_live,
            __version__,
        )
        return Manifest(head, dict(sorted(files.items())), sorted(source.listing.empty))

    with nullcontext(_Nowhere()) if dry_run else _target(wanted) as target:
        manifest = copy(target)
        target.finish(manifest)
    return Created(manifest, sorted(source.listing.left_out), list(source.cut))


def _scratch(output: str) -> Path | None:
    """The directory for a temporary copy of the newest index file: that of the backup, which has
    room. None: there is none on this machine."""
    directory = places.local(output).absolute().parent
    return directory if not places.is_url(output) and directory.is_dir() else None


@contextmanager
def _target(wanted: Wanted) -> Iterator[_Target]:
    if wanted.output.partition("?")[0].endswith(places.ARCHIVE):
        with places.created(wanted.output) as file:
            yield ArchiveWriter(file)
        return
    with new_directory(places.local(wanted.output)) as building:
        yield DirectoryWriter(building)


class _Nowhere:
    """The target of a dry run."""

    def add(self, entry: Entry, extents: list[Extent], pieces: Iterator[Piece]) -> None:
        for _ in pieces:
            pass

    def finish(self, manifest: Manifest) -> None:
        """Gives the manifest its id."""
        for _ in write_lines(manifest):
            pass


class _Copying:
    """Copies files one after the other, without the beginnings that the base has already."""

    def __init__(self, base: Manifest | None, progress: Callable[[int], None]) -> None:
        self._base = base
        self._progress = progress
        self._done = 0

    def entry(self, one: Found, target: _Target) -> Entry:
        """Copies a file; returns its entry in the manifest."""
        content, before = one.content, self._before(one.path)
        whole, start, done = Digest(), 0, self._done
        if before is not None and 0 < before.data_end <= content.end:
            for _ in self._read(content, content.extents(0, before.data_end), whole):
                pass
            whole.pass_to(before.data_end)
            if whole.hexdigest() == before.sha256:
                start = before.data_end
            else:
                whole = Digest()
        stored = Digest(start) if start else whole
        extents = content.extents(start, content.end)
        held = sum(high - low for low, high in extents)
        times = one.mode, one.modified_timestamp
        entry = Entry(one.path, content.size, content.end, "", start, held, "", *times)
        if extents or content.end == 0 or self._base is None:
            target.add(entry, extents, self._read(content, extents, whole, stored))
        for digest in (whole, stored):
            digest.pass_to(content.end)
        # A file may be read twice, or have space behind its data.
        self._done = done + one.allocated_bytes
        of_whole = whole.hexdigest()
        of_stored = of_whole if stored is whole else stored.hexdigest()
        return entry._replace(sha256=of_whole, stored_sha256=of_stored)

    def _before(self, path: str) -> Entry | None:
        return None if self._base is None else self._base.files.get(path)

    def _read(self, content: Content, extents: list[Extent], *digests: Digest) -> Iterator[Piece]:
        for piece in content.pieces(extents):
            for digest in {*digests}:
                digest.add(piece)
            self._done += len(piece[1])
            self._progress(self._done)
            yield piece
