"""What the reason of a start that fails means: whether a repair is the right step, or another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.log.misnamed import misnamed_files
from rmqctl.engine.settings.filesizes import commit_log_file_size, consume_queue_file_size
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.errors import ConfigurationContradiction
from rmqctl.operations.verify.directories import last_name

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

#: The reason of a start that fails on the length of a file of the log, with the file's name, its
#: length, and the length that it should have.
_LENGTH_OF_LOG = re.compile(
    r"(?!consumequeue)[^:]*\b([0-9]{20}): ([1-9][0-9]*) bytes, not a file of ([0-9]+)"
)


def fails_on_length(root: Path, config: MessageStoreConfig, reason: str) -> bool:
    """Whether a start fails on a file of the log whose length no repair mends. One can move empty
    files away, and add zeros to the last file.

    :param reason: why it fails, as the rehearsal says it.
    """
    found = _LENGTH_OF_LOG.match(reason)
    if found is None:
        return False
    is_last = found[1] == last_name(log_directories(root, config).all)
    return not is_last or int(found[2]) > int(found[3])


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
