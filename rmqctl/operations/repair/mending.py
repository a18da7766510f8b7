"""Chooses the step of a repair that mends a finding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.engine.files import paths
from rmqctl.engine.state import brokerjson
from rmqctl.errors import RmqctlError
from rmqctl.operations.repair import model
from rmqctl.operations.repair.planfile import MOVED_ROOMS
from rmqctl.operations.verify.directories import LEADS_NOWHERE
from rmqctl.operations.verify.findings import (
    CUT_SHORT,
    MISPLACED,
    MULTI_DOUBTED,
    RECORD_DOUBTED,
    SALVAGED,
    WAS_WHOLE,
)

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.operations.verify import Finding

#: An action with the values of its fields. Findings with the same key make one step.
Key = tuple[Any, ...]

_QUEUE_CODES = frozenset(
    (
        *("queue-missing", "record-without-unit", "unit-mismatch", "unit-misplaced", "unit-hole"),
        *("unit-points-past-log-end", "unit-points-to-no-record", "unit-of-other-queue"),
        *("unit-delivery-time-mismatch", "extension-sizes-astray", "queue-file-missing"),
        "queue-file-without-unit",
    )
)
_INDEX_CODES = frozenset(
    (
        *("index-missing", "index-behind", "index-starts-late", "key-not-indexed"),
        *("index-item-without-key", "index-item-mismatch", "index-prev-mismatch"),
        *("index-slot-mismatch", "index-header-mismatch", "index-length-mismatch"),
    )
)
#: ``timer-message-expired`` is not among them: its messages are gone.
_TIMER_CODES = frozenset(
    (
        *("timer-wheel-length", "timer-wheel-missing", "timer-log-length"),
        *("timer-log-file-missing", "timer-log-cut-short", "timer-log-lost"),
        *("timer-checkpoint-missing", "timer-queue-lost", "timer-slot-misplaced"),
        *("timer-chain-broken", "timer-unit-unreachable", "timer-unit-past-log-end"),
        *("timer-unit-mismatch", "timer-unit-damaged", "timer-clock-implausible"),
        "timer-checkpoint-behind",
    )
)
_CHECKPOINT_CODES = frozenset(
    ("checkpoint-missing", "checkpoint-unreadable", "checkpoint-in-future", "checkpoint-zero")
)
_OFFSETS = {"consumer-offset-past-queue": 1, "consumer-offset-before-queue": 0}
_SALVAGE_FIRST = (
    "The log is damaged: `rmqctl salvage` writes a new store, with queues and index of all that "
    "can be read."
)
_BATCH_QUEUE = (
    "It is a batch queue (5.x), which no plan takes back: `rmqctl rebuild queues --in-place` makes "
    "it anew from the log, and keeps the old one."
)
#: Findings with which queues, index and checkpoint stay as they are, and why.
_MOUNT_FIRST = (
    "A file of the log is a link that leads nowhere, and what is in it would be missed: mount that "
    "disk first, or remove the link where it is nobody's."
)
_NAME_FIRST = (
    "A whole file of the log lies there under another name, and what is in it would be missed: "
    "give it its own first, which its finding says."
)
_ONLY_LOG_FILE = (
    "There is no other file of the log, and without one a broker deletes all queues: bring it back "
    "from a replica or a backup."
)
_LOG_PROBLEMS = dict.fromkeys(SALVAGED, _SALVAGE_FIRST) | {
    "commitlog-missing": "There is no log to make anything from.",
    "file-length-unproven": "Nothing confirms how long the log's files are: give the broker.conf.",
    "sizes-contradicted": "The broker.conf is none of this store's: give the one that is.",
}
_GROUP = re.compile(r"group (.+) at (-?[0-9]+)")
_BOUNDS = re.compile(r"([0-9]+) to ([0-9]+)")


class Mending:
    """Is asked about each finding. ``log_problem`` says why queues, index and checkpoint must stay
    as they are; it is empty while no finding forbids to change them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._root = store.root
        self.log_problem = ""
        #: Why no step mends the last finding; empty: the finding's own advice says enough.
        self.why = ""

    def key(self, found: Finding) -> Key | None:
        """The key of the step that mends a finding; None: no step does."""
        code, path, self.why = found.code, found.path or "", ""
        if self.log_problem in ("", _SALVAGE_FIRST):
            self.log_problem = _LOG_PROBLEMS.get(code) or self.log_problem
        if found.advice == RECORD_DOUBTED:
            self.log_problem = self.log_problem or _SALVAGE_FIRST
            return None
        if found.advice == MULTI_DOUBTED:
            return None
        if code in _QUEUE_CODES:
            return self._queue_key(found)
        if code == "consumequeue-missing":
            return (model.REBUILD_QUEUES,)
        if code in _INDEX_CODES:
            return (model.REBUILD_INDEX,)
        if code in _TIMER_CODES:
            return (model.REBUILD_TIMER,)
        if code in _CHECKPOINT_CODES:
            return (model.SET_CHECKPOINT,)
        if code in ("torn-tail", "stale-record"):
            return self._tail_key(found)
        if code in ("foreign-file", "not-a-directory"):
            return self._foreign_key(found)
        if code == "file-length-mismatch":
            return self._length_key(found)
        if code in ("config-unreadable", "config-missing"):
            return self._config_key(path)
        if code in _OFFSETS:
            return self._offset_key(found)
        return None

    def _queue_key(self, found: Finding) -> Key | None:
        if found.queue is None or paths.topic_directory_problem(found.queue[0]):
            return None
        if found.queue[0] in self._store.dispatcher.batch_topics:
            self.why = _BATCH_QUEUE
            return None
        is_said = self._store.config.is_explicit("message_delay_level")
        if found.code == "unit-delivery-time-mismatch" and not is_said:
            return None  # The units may be right, by another messageDelayLevel.
        return (model.REBUILD_QUEUE, *found.queue)

    def _tail_key(self, found: Finding) -> Key | None:
        """Cuts the rest of the file behind the log's end, if nothing follows in later files."""
        if found.advice == WAS_WHOLE:
            # Queues and index hold the traces by which salvage puts the record right.
            self.log_problem = self.log_problem or _SALVAGE_FIRST
            return None
        end, log = self._store.obstacle, self._store.commit_log
        if found.physical_offset != end.offset:
            return None
        if end.obstacle is None and log.find_record(end.offset) is not None:
            # It may be an append that was cut off, or a body that has changed since: nothing tells.
            self.why = (
                "A record with a whole header stands there, and its body is not what was stored: "
                "`rmqctl walk commitlog` shows what is left of it. A start cuts it off."
            )
            return None
        return self.tail()

    def tail(self) -> Key | None:
        """Cuts what stands behind the log's end in its file; None: nothing does, or it is no end
        behind which nothing follows."""
        end, log = self._store.obstacle, self._store.commit_log
        number = log.files.index_of(end.offset)
        if end.obstacle is not None or number < 0 or log.find_record(end.offset) is not None:
            return None
        mapped = log.files.file(number)
        for later in range(number + 1, len(log.files.entries)):
            other = log.files.file(later)
            if other.first_nonzero(0, other.size) < other.size:
                return None
        position = end.offset - mapped.file_from_offset
        stop = mapped.end_of_data(position)
        if not mapped.path.is_relative_to(self._root) or stop <= position:
            return None
        path = str(mapped.path.relative_to(self._root))
        return model.CUT_TAIL, path, end.offset, position, stop - position

    def _foreign_key(self, found: Finding) -> Key | None:
        path = found.path or ""
        if found.advice == MISPLACED:
            self.log_problem = self.log_problem or _NAME_FIRST
            return None
        if found.found == LEADS_NOWHERE:
            if not path.startswith(paths.CONSUME_QUEUE):
                self.log_problem = self.log_problem or _MOUNT_FIRST
            return None
        # A name that only does not fit the sizes may be that of a file of the log, by other sizes.
        if not path or path.startswith("/") or (found.found or "").startswith("not a multiple"):
            return None
        if Path(path).parts[0] not in MOVED_ROOMS:
            if Path(path).parts[0] == paths.BATCH_CONSUME_QUEUE:
                self.why = _BATCH_QUEUE
            return None
        if path == paths.CONSUME_QUEUE:
            return (model.REBUILD_QUEUES,)
        if path == paths.INDEX:
            return (model.REBUILD_INDEX,)
        return None if path == paths.COMMIT_LOG else (model.QUARANTINE, path)

    def _length_key(self, found: Finding) -> Key | None:
        path = found.path or ""
        if found.queue is not None:
            return self._queue_key(found)
        if path == paths.CHECKPOINT:
            return (model.SET_CHECKPOINT,)
        files = self._store.commit_log.files
        names = sorted(paths.scan_names(self._root / paths.COMMIT_LOG))
        is_last = path == f"{paths.COMMIT_LOG}/{names[-1]}" if names else False
        if is_last and found.found == "0" and files.entries:
            queues = self._store.queues.directories()
            if any(one.size for one in files.entries) or next(iter(queues), None) is None:
                return model.QUARANTINE, path
            self.why = self.log_problem = _ONLY_LOG_FILE
            return None
        if found.advice == CUT_SHORT and path.startswith(f"{paths.COMMIT_LOG}/"):
            return self._growth_key(found)
        if path.startswith(paths.COMMIT_LOG):
            self.log_problem = self.log_problem or _SALVAGE_FIRST
        return None

    def _growth_key(self, found: Finding) -> Key | None:
        """Adds to the last file of the log what it lacks of its length."""
        if (self._root / (found.path or "")).is_symlink():
            return None
        if self._store.obstacle.obstacle is not None:
            self.log_problem = self.log_problem or _SALVAGE_FIRST
            return None
        position, size = int(found.found or 0), int(found.expected or 0)
        return model.EXTEND_FILE, found.path, position, size - position

    def _config_key(self, path: str) -> Key | None:
        """Restores a file of config/ from its copy, if a broker can read the copy."""
        name = path.rpartition("/")[2]
        if name.endswith(brokerjson.BACKUP):
            return None
        try:
            copy = brokerjson.read(self._root / brokerjson.CONFIG / (name + brokerjson.BACKUP), [])
        except RmqctlError:
            return None  # Told as a finding of its own.
        return (model.RESTORE_CONFIG, path) if isinstance(copy, dict) else None

    def _offset_key(self, found: Finding) -> Key | None:
        group = _GROUP.fullmatch(found.found or "")
        bounds = _BOUNDS.fullmatch(found.expected or "")
        if group is None or bounds is None or found.queue is None:
            return None
        new = int(bounds[1 + _OFFSETS[found.code]])
        return (model.SET_OFFSET, found.path, group[1], *found.queue, int(group[2]), new)
