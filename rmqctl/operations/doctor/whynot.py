"""Reasons for which a start fails that are no damage: a renamed file, another store's broker.conf.

Nothing of such a store is to be mended, and most commands refuse it as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.log.misnamed import misnamed_files
from rmqctl.engine.settings.filesizes import commit_log_file_size, consume_queue_file_size
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.errors import ConfigurationContradiction

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


def fails_on_renamed(root: Path, config: MessageStoreConfig, reason: str) -> bool:
    """Whether a start fails on a file of the log that somebody has renamed.

    :param reason: why it fails, as the rehearsal says it.
    :raises ConfigurationContradiction: as of :func:`contradicts_files`.
    """
    if not reason.endswith(": the name is no offset"):
        return False
    size = commit_log_file_size(root, config)
    found = misnamed_files(log_directories(root, config).all, size).values()
    return any(f"{path.name}: " in reason for path in found)


def contradicts_files(root: Path, config: MessageStoreConfig) -> bool:
    """Whether the configuration says other sizes than all files of log, or of queues, have."""
    try:
        commit_log_file_size(root, config)
        consume_queue_file_size(root, config)
    except ConfigurationContradiction:
        return True
    return False
