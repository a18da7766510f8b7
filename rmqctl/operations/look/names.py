"""The names that a store has, for the completion of what a user types: fast, and best effort.

Directories are listed, and the offset tables of config/ are searched without being parsed, so that
a broken store has names, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rmqctl.engine.files.paths import CONSUME_QUEUE, INDEX, is_queue_id, read_start
from rmqctl.engine.state.brokerjson import CONFIG, CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET

#: The most entries of a directory, and bytes of a file, that are read: a tenth of a second's worth.
MOST_ENTRIES = 50_000
MOST_BYTES = 4 << 20
#: A key of an offset table: ``"topic@group"``.
_OFFSETS_OF = re.compile(rb'"([^"@\\\n]{1,300})@([^"@\\\n]{1,300})"\s*:')


def topics(root: Path) -> Iterator[str]:
    """Topics with queues, unsorted. :raises OSError: the directory cannot be listed."""
    return _names(root / CONSUME_QUEUE)


def queue_ids(root: Path, topic: str) -> Iterator[str]:
    """Queue numbers of a topic, unsorted. :raises OSError: the directory cannot be listed."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return iter(())
    return filter(is_queue_id, _names(root / CONSUME_QUEUE / topic))


def index_files(root: Path) -> Iterator[str]:
    """Names of index files, unsorted. :raises OSError: the directory cannot be listed."""
    return _names(root / INDEX)


def groups(root: Path) -> set[str]:
    """Consumer groups that have offsets. :raises CannotRead: a file cannot be read."""
    found: set[str] = set()
    for name in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET):
        path = root / CONFIG / name
        if not os.path.lexists(path):
            continue
        data = read_start(path, MOST_BYTES)  # Of a pipe, a Tab would wait.
        found.update(group.decode("utf-8", "replace") for _, group in _OFFSETS_OF.findall(data))
    return found


def _names(directory: Path) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            yield entry.name
