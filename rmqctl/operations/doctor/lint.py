"""lint: checks the directory of a store by the names, lengths and rights of its files alone. Only
two kinds of file are opened: the first index files, whose lengths prove nothing, and files in the
log's directory that are not named as log files are, but may be some.

Each directory is listed once, and each file is looked at once: the time does not grow with the
bytes of the store.
"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from formats.constants import CHECKPOINT_FILE_SIZE
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.files.lock import holder_of_lock
from rmqctl.engine.files.shown import shown
from rmqctl.engine.files.unfinished import REPAIR, is_amid_repair
from rmqctl.engine.index.geometry import known_geometry
from rmqctl.engine.index.indexservice import is_index_name
from rmqctl.engine.log.misnamed import file_name
from rmqctl.engine.settings import filesizes
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import not_understood, queues_not_understood
from rmqctl.engine.state.persist import temporaries
from rmqctl.errors import CannotRead, ConfigurationContradiction
from rmqctl.operations.doctor.rights import Rights
from rmqctl.operations.verify import Finding
from rmqctl.operations.verify.directories import (
    check_index_files,
    check_is_directory,
    check_log_files,
    check_queue_files,
    check_queue_size,
    check_state_files,
    check_topic_directory,
)
from rmqctl.operations.verify.findings import (
    MISPLACED,
    NAMED_OTHERWISE,
    Adviser,
    Tally,
    finding,
)
from rmqctl.operations.verify.laterstart import check_later_start

#: How many files a broker has open beside those of its store: jars, connections, logs.
_OTHER_FILES = 1000
_OTHER_MAPS = 2000
_DLEDGER = "dledger-"
_MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")


class Limits(NamedTuple):
    """How many files a process may have open, and how many maps; None: no limit is known."""

    files: int | None
    maps: int | None

    @staticmethod
    def of_system() -> Limits:
        """The limits of this system. The hard limit of open files counts: Java raises its own soft
        limit to it."""
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            maps = int(_MAX_MAP_COUNT.read_text())
        except (OSError, ValueError):
            maps = None
        return Limits(None if files == resource.RLIM_INFINITY else files, maps)


@dataclass(slots=True)
class Summary(Tally):
    """What was looked at, and how many findings of each severity there were."""

    log_files: int = 0
    queues: int = 0
    queue_files: int = 0
    index_files: int = 0
    size: int = 0

    @property
    def files(self) -> int:
        """How many files a broker keeps open."""
        return self.log_files + self.queue_files + self.index_files

    def row(self) -> dict[str, object]:
        """The summary's fields."""
        return {
            "log_files": self.log_files,
            "queues": self.queues,
            "queue_files": self.queue_files,
            "index_files": self.index_files,
            "size": self.size,
            **self.counts(),
        }


class _File(NamedTuple):
    """An entry of a directory; ``status`` is its own, for a link that of the link."""

    name: str
    path: str
    status: os.stat_result


def lint(
    root: Path, config: MessageStoreConfig, summary: Summary, limits: Limits | None = None
) -> Iterator[Finding]:
    """Yields findings about a store's directories, and fills ``summary``. Nothing is changed.

    :param limits: what to compare the number of files with; None: this system's.
    :raises StoreNotFound, NotAStore: there is no store at ``root``.
    :raises CannotRead: the system refuses to list ``root`` itself.
    """
    paths.check_store(root)
    paths.scan_names(root)
    advised = Adviser(root, config)
    for found in _Lint(root, config, summary, limits or Limits.of_system()).run():
        summary.severities[found.severity] += 1
        yield advised(found)


def refusal(root: Path, config: MessageStoreConfig) -> str | None:
    """Why a broker may not write the store, by what :class:`Rights` can tell; None where it may.

    :raises CannotRead: as of :func:`lint`.
    """
    paths.scan_names(root)
    looking = _Lint(root, config, Summary(), Limits(None, None))
    for _ in looking.run():
        pass
    return looking.rights.refusal()


class _Lint:
    def __init__(
        self, root: Path, config: MessageStoreConfig, summary: Summary, limits: Limits
    ) -> None:
        self.root, self.config, self.summary, self.limits = root, config, summary, limits
        self.rights = Rights(root)
        self.rights.note(str(root), root.stat())
        #: Directories and files that the system refuses to read, each with the error.
        self._refused: dict[str, str] = {}

    def run(self) -> Iterator[Finding]:
        yield from self._part(self._state)
        names = (paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX)
        for name in names:
            if (self.root / name).is_symlink():
                yield finding("symbolic-link", path=name)
            yield from check_is_directory(self.root, name)
        # A broker opens the last two for writing as well, before any other.
        for name in (*names, paths.LOCK, paths.CHECKPOINT):
            with suppress(FileNotFoundError):
                self.rights.note(str(self.root / name), os.lstat(self.root / name))
        state = (self.root / name for name in (*names, brokerjson.CONFIG))
        self.rights.note_mounts([self.root, *self._log_directories(), *state])
        later = partial(check_later_start, self.root)
        for part in (self._log, self._queues, self._ext, self._index, self._config, later):
            yield from self._part(part)
        for path, reason in self._refused.items():
            yield finding("unreadable-file", path=shown(self.root, Path(path)), found=reason)
        yield from self.rights.findings()
        yield from self._limits()

    def _part(self, part: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
        """The findings of one part of the store. Where the system refuses to let it be read, the
        refusal is noted, and the other parts are looked at."""
        try:
            yield from part()
        except CannotRead as error:
            self._refused.setdefault(str(error.path), str(error.reason))
        except PermissionError as error:
            # Of a file in a directory that nobody may enter.
            path = Path(str(error.filename)).parent if error.filename else self.root
            self._refused.setdefault(str(path), error.strerror or "no right to read")

    def _log_directories(self) -> tuple[Path, ...]:
        try:
            return log_directories(self.root, self.config).all
        except CannotRead:
            return ()  # That is told of the log.

    # --- the store -----------------------------------------------------------------------

    def _state(self) -> Iterator[Finding]:
        holder = holder_of_lock(self.root)
        if holder is not None:
            yield finding("lock-held", path=paths.LOCK, found=holder)
        elif (self.root / paths.ABORT).exists():
            yield finding("unclean-shutdown", path=paths.ABORT)
        if is_amid_repair(self.root):
            yield finding("repair-unfinished", path=REPAIR)
        yield from check_state_files(self.root)
        yield from self._checkpoint()
        for name in paths.scan_names(self.root):
            if name.startswith(_DLEDGER):
                yield finding("dledger-log", path=name)
        for name, what in not_understood(self.root):
            yield finding("not-understood", path=name, found=what)

    def _checkpoint(self) -> Iterator[Finding]:
        path = self.root / paths.CHECKPOINT
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            yield finding("checkpoint-missing", path=paths.CHECKPOINT)
            return
        if not path.is_file():
            yield finding("unreadable-file", path=paths.CHECKPOINT, found=paths.NOT_REGULAR)
        elif size != CHECKPOINT_FILE_SIZE:
            is_short = size < CHECKPOINT_FILE_SIZE
            code = "checkpoint-unreadable" if is_short else "file-length-mismatch"
            expected = {"expected": CHECKPOINT_FILE_SIZE, "found": size, "position": 0}
            yield finding(code, path=paths.CHECKPOINT, **expected)

    def _size(
        self, told: Callable[[Path, MessageStoreConfig], int]
    ) -> tuple[int, ConfigurationContradiction | None]:
        """The length of a kind of files by the configuration; where the files contradict that, the
        length that they have."""
        try:
            return told(self.root, self.config), None
        except ConfigurationContradiction as error:
            return told(self.root, replace(self.config, explicit=frozenset())), error

    def _contradicted(self, error: ConfigurationContradiction | None) -> Iterator[Finding]:
        if error is not None:
            path = shown(self.root, Path(str(error.path)))
            told = f"{error.expected} bytes ({error.why})"
            yield finding("sizes-contradicted", path=path, expected=told, found=str(error.found))

    # --- files ---------------------------------------------------------------------------

    def _log(self) -> Iterator[Finding]:
        size, contradiction = self._size(filesizes.commit_log_file_size)
        yield from self._contradicted(contradiction)
        if (unproven := filesizes.unproven_log_file(self.root, self.config)) is not None:
            path, length = unproven
            yield finding(
                "file-length-unproven", path=shown(self.root, path), found=f"{length} bytes"
            )
        directories = log_directories(self.root, self.config).all
        files = [file for directory in directories for file in self._listed(str(directory))]
        self.summary.log_files = len(files)
        misnamed: set[int] = set()
        if not all(_is_plain(file, size) for file in files):
            for directory in directories:
                for found in check_log_files(self.root, directory, size, directories):
                    misnamed |= {int(found.expected or 0)} if found.advice == MISPLACED else set()
                    yield found
        if any(str(directory) in self._refused for directory in directories):
            return
        for start, end in _gaps(files, size):
            lost = {"expected": file_name(start), "found": f"no file for {end - start} bytes"}
            missing = finding("commitlog-file-missing", physical_offset=start, **lost)
            is_there = any(place in range(start, end) for place in misnamed)
            yield missing._replace(advice=NAMED_OTHERWISE) if is_there else missing
        if not files and any(self._listed(str(self.root / paths.CONSUME_QUEUE))):
            yield finding("commitlog-missing", path=paths.COMMIT_LOG)

    def _queues(self) -> Iterator[Finding]:
        size, contradiction = self._size(filesizes.consume_queue_file_size)
        yield from self._contradicted(contradiction)
        yield from check_queue_size(size)
        base = self.root / paths.CONSUME_QUEUE
        if queues_not_understood(self.root):
            # Of queues in RocksDB, which may lie there, only owners and rights are known.
            self._listed(str(base))
            return
        for topic in self._listed(str(base)):
            if not stat.S_ISDIR(topic.status.st_mode):
                yield from check_topic_directory(self.root, base, topic.name, size)
                continue
            for queue in self._listed(topic.path):
                is_directory = stat.S_ISDIR(queue.status.st_mode)
                if not is_directory or not paths.is_queue_id(queue.name):
                    yield from check_queue_files(self.root, Path(queue.path), size)
                else:
                    yield from self._queue(topic.name, queue, size)

    def _queue(self, topic: str, queue: _File, size: int) -> Iterator[Finding]:
        files = self._listed(queue.path)
        self.summary.queues += 1
        self.summary.queue_files += len(files)
        if not all(_is_plain(file, size) for file in files):
            yield from check_queue_files(self.root, Path(queue.path), size)
        for start, _ in _gaps(files, size):
            path = shown(self.root, Path(queue.path) / f"{start:020d}")
            where = {"path": path, "topic": topic, "queue_id": int(queue.name)}
            yield finding("queue-file-missing", **where, found="no file")

    def _ext(self) -> Iterator[Finding]:
        """Looks at owners and rights of the extension, at nothing else: each of its queues has a
        file size of its own."""
        for topic in self._listed(str(self.root / paths.CONSUME_QUEUE_EXT)):
            for queue in self._listed(topic.path):
                self.summary.queue_files += len(self._listed(queue.path))
        yield from ()

    def _index(self) -> Iterator[Finding]:
        directory = self.root / paths.INDEX
        files = self._listed(str(directory))
        self.summary.index_files = len(files)
        size = known_geometry(directory, self.config).file_size
        if not all(_is_whole(one, size) and is_index_name(one.name) for one in files):
            yield from check_index_files(self.root, directory, size)

    def _config(self) -> Iterator[Finding]:
        """Looks at the files of config/: owners, the right to read (a broker that may not read one
        starts without it), and what a killed writer has left. ``config check`` checks their
        content."""
        directory = self.root / brokerjson.CONFIG
        yield from check_is_directory(self.root, brokerjson.CONFIG)
        for name in paths.scan_names(directory):
            path = directory / name
            with suppress(FileNotFoundError):
                self.rights.note_owner(str(path), os.lstat(path))
            if path.is_file() and not os.access(path, os.R_OK):
                self._refused[str(path)] = "no right to read"
            if name.endswith(temporaries(".json")):
                yield finding("config-temporary-left", path=shown(self.root, path))

    def _listed(self, directory: str) -> list[_File]:
        """The entries of a directory, by name; notes their owners and rights. A directory that the
        system refuses to list is noted, and counts as empty."""
        found = []
        try:
            names = paths.scan_names(directory)
        except CannotRead as error:
            self._refused[directory] = str(error.reason)
            return []
        for name in names:
            path = f"{directory}/{name}"
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue  # A broker's retention has removed it meanwhile.
            except PermissionError:
                raise  # The directory is told, and not each of its files.
            except OSError as error:
                self._refused[path] = str(error.strerror)
                continue
            found.append(_File(name, path, status))
            self.rights.note(path, status)
            if stat.S_ISREG(status.st_mode):
                self.summary.size += status.st_size
        return found

    # --- limits --------------------------------------------------------------------------

    def _limits(self) -> Iterator[Finding]:
        for code, limit, others in (
            ("file-limit-too-low", self.limits.files, _OTHER_FILES),
            ("map-limit-too-low", self.limits.maps, _OTHER_MAPS),
        ):
            needed = self.summary.files + others
            if limit is not None and limit < needed:
                yield finding(code, expected=f"{needed} or more", found=limit)


def _is_plain(file: _File, size: int) -> bool:
    """Whether a file is an ordinary one of its queue, about which there is no finding."""
    is_whole = _is_whole(file, size) and is_offset_name(file.name)
    return is_whole and int(file.name) % size == 0


def _is_whole(file: _File, size: int) -> bool:
    """Whether it is a regular file of a length, which its owner and this process may read."""
    mode = file.status.st_mode
    is_readable = mode & stat.S_IRUSR and (mode & stat.S_IROTH or os.access(file.path, os.R_OK))
    return stat.S_ISREG(mode) and bool(is_readable) and file.status.st_size == size


def _gaps(files: list[_File], size: int) -> Iterator[tuple[int, int]]:
    """The ranges of offsets between files that no file covers."""
    offsets = [int(file.name) for file in files if is_offset_name(file.name)]
    # A name that is no multiple of the file size tells nothing of what is missing.
    starts = sorted(offset for offset in offsets if offset % size == 0)
    for one, other in pairwise(starts):
        if one + size < other:
            yield one + size, other
