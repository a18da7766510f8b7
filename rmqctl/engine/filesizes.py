"""How large the files of a store are: taken from the files, else from the configuration."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from formats import constants, layouts
from rmqctl.engine import paths
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.mappedfile import is_offset_name
from rmqctl.engine.multipath import log_directories
from rmqctl.errors import FileLengthContradiction, QueueFilesTooSmall

#: Two units.
LEAST_QUEUE_FILE_SIZE = 2 * layouts.QUEUE_UNIT.size
#: So many files are asked: what most of them say counts, since one of them may have been cut.
_ASKED = 3


def commit_log_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the log's files: that of the first ones, else the configured one.

    :raises FileLengthContradiction: a ``broker.conf`` says otherwise than the files.
    """
    return _file_size(
        log_directories(root, config).all,
        config.mapped_file_size_commit_log,
        config.is_explicit("mapped_file_size_commit_log"),
        "mappedFileSizeCommitLog",
    )


def consume_queue_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the queues' files, by the same rule; always whole units
    (``MessageStoreConfig#getMappedFileSizeConsumeQueue``)."""
    return _file_size(
        (where.path for where in paths.queue_directories(root / paths.CONSUME_QUEUE)),
        config.mapped_file_size_consume_queue,
        config.is_explicit("mapped_file_size_consume_queue"),
        "mappedFileSizeConsumeQueue",
        unit=layouts.QUEUE_UNIT.size,
    )


def is_too_small(queue_file_size: int) -> bool:
    """Whether a broker never comes to the end of its start with queue files of a size: those of one
    unit (``ConsumeQueue#truncateDirtyLogicFiles`` ends at the second, or at the next file)."""
    return queue_file_size < LEAST_QUEUE_FILE_SIZE


def check_queue_file_size(size: int) -> None:
    """For queue files that are to be made. :raises QueueFilesTooSmall: they would be."""
    if is_too_small(size):
        default = constants.DEFAULT_MAPPED_FILE_SIZE_CONSUME_QUEUE
        raise QueueFilesTooSmall(size=size, least=LEAST_QUEUE_FILE_SIZE, default=default)


def check_new_queue_files(root: Path, config: MessageStoreConfig) -> None:
    """:func:`check_queue_file_size` of the first queue files of a store, when it has none yet."""
    if is_too_small(config.mapped_file_size_consume_queue):
        directories = (where.path for where in paths.queue_directories(root / paths.CONSUME_QUEUE))
        if next(_files(directories), None) is None:
            check_queue_file_size(config.mapped_file_size_consume_queue)


def consume_queue_ext_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the queues' extension files, by the same rule."""
    return _file_size(
        (where.path for where in paths.queue_directories(root / paths.CONSUME_QUEUE_EXT)),
        config.mapped_file_size_consume_queue_ext,
        config.is_explicit("mapped_file_size_consume_queue_ext"),
        "mappedFileSizeConsumeQueueExt",
    )


def _file_size(
    directories: Iterable[Path], configured: int, explicit: bool, name: str, unit: int = 1
) -> int:
    telling = (file for file in _files(directories) if file[1] % unit == 0)
    files = list(islice(telling, _ASKED))
    if not files:
        return configured
    sizes = [size for _, size in files]
    if explicit and configured not in sizes:
        path, found = files[0]
        raise FileLengthContradiction(
            path=str(path), found=found, expected=configured, why=f"{name} of broker.conf"
        )
    return configured if explicit else max(sizes, key=sizes.count)


def _files(directories: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Files named by an offset, with their sizes; an empty one, which a kill leaves, tells none."""
    for directory in directories:
        for entry in paths.scan_names(directory):
            if not is_offset_name(entry):
                continue
            path = directory / entry
            try:
                status = path.stat()
            except OSError:
                continue  # Whoever opens it says so.
            if stat.S_ISREG(status.st_mode) and status.st_size:
                yield path, status.st_size
