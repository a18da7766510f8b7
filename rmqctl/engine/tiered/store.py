"""The tiered storage of a 5.x broker: the metadata in its store, and the files of all queues.

A queue's log is a :class:`~rmqctl.engine.log.commitlog.CommitLog` whose files have any length and
end with a record. Consumers get the records to which the queue's units point. After a crash a
broker uploads messages again, so a log may have more records than units.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import TIERED_INDEX_TOPIC
from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import scan_names
from rmqctl.engine.log.commitlog import CommitLog, Step
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.tiered.errors import NoTieredStorage, TieredFilesNotFound
from rmqctl.engine.tiered.files import (
    Found,
    Owner,
    Segment,
    cluster_directories,
    find_files,
    joined,
)
from rmqctl.engine.tiered.index import CompactedIndexFile, TieredIndexFile
from rmqctl.engine.tiered.metadata import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    INDEX,
    LOCAL_INDEX,
    TieredMetadata,
    read_metadata,
)
from rmqctl.errors import ConfigFileUnreadable, NotAStore, StoreNotFound

UNIT = Struct(layouts.QUEUE_UNIT.format)
_BYTES_AT_ONCE = 4096 * UNIT.size


class TieredUnit(NamedTuple):
    """A unit of an uploaded queue. ``physical_offset`` is an offset in the queue's own log."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


class SegmentFiles(MappedFileQueue):
    """The segments of one kind as one range, each as far as a broker reads it."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        super().__init__(Path(), 0)

    def _list_files(self) -> Iterator[FileEntry]:
        last = len(self._segments) - 1
        for number, one in enumerate(self._segments):
            if one.file is not None:
                yield FileEntry(one.base_offset, one.file, one.readable(number == last))


class TieredLog(CommitLog):
    """The log of one queue. Its files end with a record, without a blank."""

    def __init__(self, files: SegmentFiles) -> None:
        super().__init__(files.directory, 0, files=files)

    def step(self, number: int, position: int) -> Step:
        entries = self.files.entries
        while number < len(entries) and position == entries[number].size:
            number, position = self._next_file(number)
        return super().step(number, position)


class TieredQueue:
    """The uploaded part of one queue. Log and units are open until :meth:`close`."""

    def __init__(self, owner: Owner, segments: list[Segment]) -> None:
        """:param segments: those of all kinds, each kind in order."""
        self.owner = owner
        self.segments = segments
        self.log = TieredLog(SegmentFiles(self.of_kind(COMMIT_LOG)))
        self._units = SegmentFiles(self.of_kind(CONSUME_QUEUE))

    def of_kind(self, kind: str) -> list[Segment]:
        return [one for one in self.segments if one.kind == kind]

    @property
    def ends(self) -> tuple[int, int] | None:
        """Queue offsets of the first unit and behind the last one; None without a file of units."""
        entries = self._units.entries
        if not entries:
            return None
        return entries[0].file_from_offset // UNIT.size, self._units.end_offset // UNIT.size

    @property
    def log_end(self) -> int:
        """End of the log (physical offset), including a lost part that the metadata knows."""
        ends = (
            one.base_offset + max(one.file_size, 0 if one.metadata is None else one.metadata.size)
            for one in self.of_kind(COMMIT_LOG)
        )
        return max(ends, default=0)

    @property
    def unit_count(self) -> int:
        """How many whole units exist."""
        return sum(
            max(one.size - -one.file_from_offset % UNIT.size, 0) // UNIT.size
            for one in self._units.entries
        )

    def units(self) -> Iterator[TieredUnit]:
        """All whole units, in order. Of the units in a hole of a file only the first is given.

        :raises CannotRead: the system refuses.
        """
        for number, entry in enumerate(self._units.entries):
            mapped = self._units.file(number)
            done = -entry.file_from_offset % UNIT.size
            end = mapped.size - (mapped.size - done) % UNIT.size
            for low, high in chain(mapped.extents(done, end), [(end, end)]):
                at = max(low - (low - done) % UNIT.size, done)
                if at > done:
                    yield from _units_of(mapped, done, done + UNIT.size)
                done = max(min(high + (at - high) % UNIT.size, end), at)
                yield from _units_of(mapped, at, done)

    def close(self) -> None:
        self.log.close()
        self._units.close()


def _units_of(mapped: MappedFile, start: int, end: int) -> Iterator[TieredUnit]:
    """The units at positions ``[start, end)`` of a file."""
    for at in range(start, end, _BYTES_AT_ONCE):
        data = mapped.read(at, min(_BYTES_AT_ONCE, end - at))
        whole = memoryview(data)[: len(data) // UNIT.size * UNIT.size]
        first = (mapped.file_from_offset + at) // UNIT.size
        for place, values in enumerate(UNIT.iter_unpack(whole)):
            yield TieredUnit(first + place, *values)


class TieredStore:
    """The store of a broker with tiered storage, or the uploaded files alone.

    ``directory`` has the uploaded files; None if nothing tells where they are. ``metadata`` is None
    if it is missing or unreadable; ``problem`` says why.
    """

    def __init__(self, root: Path, config: MessageStoreConfig, files: Path | None = None) -> None:
        """:param files: the directory of uploaded files. None: ``tieredStoreFilePath`` of the
            ``broker.conf``, else ``root`` or a directory in it.
        :raises StoreNotFound: there is no directory ``root``. :raises NotAStore: it is a file.
        :raises NoTieredStorage: there is no sign of tiered storage.
        :raises TieredFilesNotFound: ``files`` is no such directory, or several directories could
            be meant.
        """
        if root.exists() and not root.is_dir():
            raise NotAStore(path=str(root), reason="it is a file")
        if not root.is_dir():
            raise StoreNotFound(path=str(root))
        self.root = root
        self._config = config
        self.problem: ConfigFileUnreadable | None = None
        self.metadata: TieredMetadata | None = None
        try:
            self.metadata = read_metadata(root)
        except ConfigFileUnreadable as error:
            self.problem = error
        self.directory = _directory(root, config, files)
        found = Found({}, []) if self.directory is None else find_files(self.directory)
        knows_some = self.metadata is not None and bool(self.metadata.segments)
        if knows_some and self.directory is not None and not cluster_directories(self.directory):
            reason = "none of a cluster's directories is in it"
            raise TieredFilesNotFound(path=str(self.directory), reason=reason)
        self.foreign = found.foreign
        self._segments = joined(found, self.metadata)
        self._by_queue: dict[tuple[str, int], list[Owner]] = {}
        for owner in self._segments:
            if owner.topic != TIERED_INDEX_TOPIC:
                self._by_queue.setdefault((owner.topic, owner.queue_id), []).append(owner)
        nothing = not self._segments and self.metadata is None and self.problem is None
        if nothing and not self.local_index_files():
            raise NoTieredStorage(path=str(root))

    def require_files(self) -> None:
        """:raises TieredFilesNotFound: nothing says where the uploaded files are."""
        if self.directory is None:
            raise TieredFilesNotFound(path=str(self.root), reason="nothing says where they are")

    def queues(
        self, topic: str | None = None, queue_id: int | None = None
    ) -> Iterator[TieredQueue]:
        """The queues, sorted. Each is open only until the next one is taken."""
        for owner, segments in self._segments.items():
            if owner.topic == TIERED_INDEX_TOPIC:
                continue
            if topic in (None, owner.topic) and queue_id in (None, owner.queue_id):
                queue = TieredQueue(owner, segments)
                yield queue
                queue.close()

    def open_queues(self, topic: str, queue_id: int) -> list[TieredQueue]:
        """The queues of a topic and queue id; the caller closes them. There are several if clusters
        or brokers share the directory."""
        owners = self._by_queue.get((topic, queue_id), [])
        return [TieredQueue(owner, self._segments[owner]) for owner in owners]

    def index_segments(self) -> list[tuple[Owner, Segment]]:
        """Uploaded files of the index, in the order of their bases."""
        return [
            (owner, segment)
            for owner, segments in self._segments.items()
            for segment in segments
            if segment.kind == INDEX
        ]

    def index_files(
        self, *, newest_first: bool = False
    ) -> Iterator[tuple[TieredIndexFile, Segment | None]]:
        """Every file of the index: first uploaded ones, with their segments, then the others; with
        ``newest_first`` in reverse order. Each is closed with its last reference.

        :raises CannotRead: the system refuses.
        """
        uploaded = [one for _, one in self.index_segments() if one.file is not None]
        places: list[Segment | Path] = [*uploaded, *self.local_index_files()]
        slots: list[int] = []
        for place in reversed(places) if newest_first else places:
            if isinstance(place, Segment):
                yield _compacted(place), place
            else:
                slots = slots or self._slots(uploaded)
                yield TieredIndexFile(MappedFile.open(place), slots), None

    def _slots(self, uploaded: list[Segment]) -> list[int]:
        """Possible numbers of slots of a file that is not uploaded: by the ``broker.conf``, or as
        in the newest uploaded one."""
        told = self._config.tiered_store_index_file_max_hash_slot_num
        counts = (_compacted(one).slots for one in reversed(uploaded))
        return [told, *filter(None, [next(filter(None, counts), 0)])]

    def local_index_files(self) -> list[Path]:
        """Index files that are not uploaded yet, oldest first (``IndexStoreService``)."""
        directory = self.root / LOCAL_INDEX
        names = [name for name in scan_names(directory) if name.isascii() and name.isdigit()]
        return [directory / name for name in sorted(names, key=lambda name: (len(name), name))]

    def strays(self) -> list[tuple[Owner, Segment]]:
        """Segments of a kind that their topic cannot have: nobody reads them."""
        return [
            (owner, segment)
            for owner, segments in self._segments.items()
            for segment in segments
            if (segment.kind == INDEX) != (owner.topic == TIERED_INDEX_TOPIC)
        ]


def _directory(root: Path, config: MessageStoreConfig, files: Path | None) -> Path | None:
    if files is None and config.tiered_store_file_path:
        files = Path(config.tiered_store_file_path)
    if files is not None:
        if not files.is_dir():
            raise TieredFilesNotFound(path=str(files), reason="there is no such directory")
        return files
    children = [root / name for name in scan_names(root)]
    places = [one for one in [root, *children] if one.is_dir() and cluster_directories(one)]
    if len(places) > 1:
        reason = f"{places[0].name} and {places[1].name} could be their directory"
        raise TieredFilesNotFound(path=str(root), reason=reason)
    return places[0] if places else None


def _compacted(segment: Segment) -> CompactedIndexFile:
    assert segment.file is not None
    mapped = MappedFile.open(segment.file, segment.base_offset)
    mapped.size = min(mapped.size, segment.readable(is_last=False))
    return CompactedIndexFile(mapped)
