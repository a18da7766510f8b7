"""The sizes of a store's files: taken from the files, else from the configuration.

A file may have been cut, or be too long. So the lengths of files vote, and their names, which are
multiples of the size.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from formats import constants, layouts
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import ConfigurationContradiction, FileLengthUnproven, QueueFilesTooSmall

#: Bytes of the smallest queue file with which a broker can start: two units.
LEAST_QUEUE_FILE_SIZE = 2 * layouts.QUEUE_UNIT.size
#: How many queue files vote.
_ASKED = 3


class _File(NamedTuple):
    """A file whose name is an offset."""

    path: Path
    offset: int
    size: int


def commit_log_file_size(root: Path, config: MessageStoreConfig, *, writes: bool = False) -> int:
    """Size of the log's files: by the files, else as configured.

    :param writes: files of that size will be made.
    :raises ConfigurationContradiction: a ``broker.conf`` contradicts the files.
    :raises FileLengthUnproven: with ``writes``, if there is an :func:`unproven_log_file`.
    """
    files = _log_files(root, config)
    size = _file_size(
        files,
        config.mapped_file_size_commit_log,
        config.is_explicit("mapped_file_size_commit_log"),
        "mappedFileSizeCommitLog",
    )
    doubtful = _unproven(files, config) if writes else None
    if doubtful is not None:
        raise FileLengthUnproven(path=str(doubtful.path), found=doubtful.size)
    return size


def unproven_log_file(root: Path, config: MessageStoreConfig) -> tuple[Path, int] | None:
    """The only file of a log and its length, if it may have been cut: the length is neither
    configured nor a power of two, as it mostly is, and nothing else tells the size."""
    found = _unproven(_log_files(root, config), config)
    return None if found is None else (found.path, found.size)


def _log_files(root: Path, config: MessageStoreConfig) -> list[_File]:
    return sorted(_files(log_directories(root, config).all), key=lambda file: file.offset)


def _unproven(files: list[_File], config: MessageStoreConfig) -> _File | None:
    if len(files) != 1 or config.is_explicit("mapped_file_size_commit_log"):
        return None
    (file,) = files
    is_usual = file.size == config.mapped_file_size_commit_log or file.size.bit_count() == 1
    return None if file.offset or is_usual else file


def consume_queue_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the queues' files, by the same rule; always whole units
    (``MessageStoreConfig#getMappedFileSizeConsumeQueue``)."""
    return _file_size(
        _queue_files(root / paths.CONSUME_QUEUE, layouts.QUEUE_UNIT.size),
        config.mapped_file_size_consume_queue,
        config.is_explicit("mapped_file_size_consume_queue"),
        "mappedFileSizeConsumeQueue",
    )


def is_too_small(queue_file_size: int) -> bool:
    """Whether a broker's start never ends with queue files of this size, that of one unit: the loop
    of ``ConsumeQueue#truncateDirtyLogicFiles`` needs a second unit in a file to end."""
    return queue_file_size < LEAST_QUEUE_FILE_SIZE


def check_queue_file_size(size: int) -> None:
    """Checks the size of queue files to be made. :raises QueueFilesTooSmall: it is too small."""
    if is_too_small(size):
        default = constants.DEFAULT_MAPPED_FILE_SIZE_CONSUME_QUEUE
        raise QueueFilesTooSmall(size=size, least=LEAST_QUEUE_FILE_SIZE, default=default)


def check_new_queue_files(root: Path, config: MessageStoreConfig) -> None:
    """:func:`check_queue_file_size` for a store that has no queue files yet."""
    if is_too_small(config.mapped_file_size_consume_queue):
        directories = (where.path for where in paths.queue_directories(root / paths.CONSUME_QUEUE))
        if next(_files(directories), None) is None:
            check_queue_file_size(config.mapped_file_size_consume_queue)


def consume_queue_ext_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the queues' extension files, by the same rule."""
    return _file_size(
        _queue_files(root / paths.CONSUME_QUEUE_EXT),
        config.mapped_file_size_consume_queue_ext,
        config.is_explicit("mapped_file_size_consume_queue_ext"),
        "mappedFileSizeConsumeQueueExt",
    )


def dledger_index_file_size(directory: Path) -> int:
    """Size of the files of a DLedger member's index, by the same rule."""
    unit = layouts.DLEDGER_INDEX_UNIT.size
    default = constants.DEFAULT_MAPPED_FILE_SIZE_DLEDGER_INDEX
    files = sorted(_files([directory]), key=lambda file: file.offset)
    return _file_size([file for file in files if file.size % unit == 0], default, False, "")


def timer_log_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the timer log's files (5.x), by the same rule."""
    return _file_size(
        sorted(_files([root / paths.TIMER_LOG]), key=lambda file: file.offset),
        config.mapped_file_size_timer_log,
        config.is_explicit("mapped_file_size_timer_log"),
        "mappedFileSizeTimerLog",
    )


def batch_queue_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the files of batch queues, by the same rule."""
    return _file_size(
        _queue_files(root / paths.BATCH_CONSUME_QUEUE, layouts.BATCH_QUEUE_UNIT.size),
        config.mapper_file_size_batch_consume_queue,
        config.is_explicit("mapper_file_size_batch_consume_queue"),
        "mapperFileSizeBatchConsumeQueue",
    )


def compaction_file_sizes(root: Path) -> tuple[int, int]:
    """Sizes of log files and of queue files of compacted topics, as most of the first files have
    them."""
    unit = layouts.BATCH_QUEUE_UNIT.size
    of_log = _queue_files(root / paths.COMPACTION_LOG)
    queues = [one.size for one in _queue_files(root / paths.COMPACTION_QUEUE, unit)]
    size = constants.DEFAULT_COMPACTION_CQ_FILE_SIZE // unit * unit
    if queues:
        size = max(queues, key=lambda size: (queues.count(size), size))
    return _voted(of_log, constants.DEFAULT_COMPACTION_LOG_FILE_SIZE), size


def _queue_files(base: Path, unit: int = 1) -> list[_File]:
    """The first few queue files of whole units."""
    files = _files(where.path for where in paths.queue_directories(base))
    return list(islice((file for file in files if file.size % unit == 0), _ASKED))


def _file_size(files: list[_File], configured: int, explicit: bool, name: str) -> int:
    if not files:
        return configured
    sizes = [file.size for file in files]
    if not explicit:
        return _voted(files, configured)
    repeated = max(sizes, key=sizes.count)
    if configured in sizes or (sizes.count(repeated) == 1 and _is_named(files, configured)):
        return configured
    raise ConfigurationContradiction(
        path=str(files[0].path),
        found=files[0].size,
        expected=configured,
        why=f"{name} of broker.conf",
    )


def _voted(files: list[_File], configured: int) -> int:
    """The length with which most files reach exactly to the next one, else the most common length.
    If no length fits the names, the distance between names."""
    sizes = [file.size for file in files]
    gaps = [other.offset - one.offset for one, other in pairwise(files)]
    named = [size for size in dict.fromkeys(sizes) if _is_named(files, size)]
    if named:
        # If two are equal, the longer one: the other may have been cut.
        return max(named, key=lambda size: (gaps.count(size), sizes.count(size), size))
    distances = [gap for gap in gaps if gap > 0 and _is_named(files, gap)]
    if _is_named(files, configured) or not distances:
        return configured
    return max(distances, key=distances.count)


def _is_named(files: list[_File], size: int) -> bool:
    """Whether most names are multiples of this size."""
    later = [file.offset for file in files if file.offset]
    return 2 * sum(offset % size == 0 for offset in later) >= len(later)


def _files(directories: Iterable[Path]) -> Iterator[_File]:
    """Files whose names are offsets, with their sizes. Empty ones, left by a kill, do not count."""
    for directory in directories:
        for entry in paths.scan_names(directory):
            if not is_offset_name(entry):
                continue
            path = directory / entry
            try:
                status = path.stat()
            except OSError:
                continue  # It is reported when it is opened.
            if stat.S_ISREG(status.st_mode) and status.st_size:
                yield _File(path, int(entry), status.st_size)
