"""How large the files of a store are: taken from the files, else from the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rmqctl.engine import paths
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.multipath import log_directories
from rmqctl.errors import FileLengthContradiction


def commit_log_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the log's files: the first file's, else the configured one.

    :raises FileLengthContradiction: a ``broker.conf`` says otherwise than the files.
    """
    return _file_size(
        log_directories(root, config).all,
        config.mapped_file_size_commit_log,
        config.is_explicit("mapped_file_size_commit_log"),
        "mappedFileSizeCommitLog",
    )


def consume_queue_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the queues' files, by the same rule."""
    return _file_size(
        (where.path for where in paths.queue_directories(root / paths.CONSUME_QUEUE)),
        config.mapped_file_size_consume_queue,
        config.is_explicit("mapped_file_size_consume_queue"),
        "mappedFileSizeConsumeQueue",
    )


def consume_queue_ext_file_size(root: Path, config: MessageStoreConfig) -> int:
    """Size of the queues' extension files, by the same rule."""
    return _file_size(
        (where.path for where in paths.queue_directories(root / paths.CONSUME_QUEUE_EXT)),
        config.mapped_file_size_consume_queue_ext,
        config.is_explicit("mapped_file_size_consume_queue_ext"),
        "mappedFileSizeConsumeQueueExt",
    )


def _file_size(directories: Iterable[Path], configured: int, explicit: bool, name: str) -> int:
    for directory in directories:
        for entry in paths.scan_names(directory):
            path = directory / entry
            if len(entry) != 20 or not entry.isdigit() or not path.is_file():
                continue
            found = path.stat().st_size
            if explicit and found != configured:
                raise FileLengthContradiction(
                    path=str(path), found=found, expected=configured, why=f"{name} of broker.conf"
                )
            return found if found else configured
    return configured
