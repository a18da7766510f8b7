"""repair --plan: from what verify, lint and config check find to the steps that mend it.

Nothing is changed. A finding that no step mends is in what the plan leaves, with the reason. Where
the log itself is damaged queues and index stay as they are: ``salvage`` makes a new store, and the
units of the damaged one prove records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.engine.files import paths
from rmqctl.engine.files.unfinished import check_not_amid_repair
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.errors import RmqctlError
from rmqctl.operations.doctor.checkpoint import NAMES, concerned, place_of, proven
from rmqctl.operations.doctor.lint import Summary as LintSummary
from rmqctl.operations.doctor.lint import lint
from rmqctl.operations.mend.rebuild import plan_rebuild
from rmqctl.operations.progress import Progress
from rmqctl.operations.repair import model
from rmqctl.operations.repair.fingerprint import fingerprint, log_fingerprint
from rmqctl.operations.repair.model import Left, Plan, Premises, Step
from rmqctl.operations.repair.words import sentences
from rmqctl.operations.verify import INFO, Finding, verify
from rmqctl.operations.verify.configcheck import Summary as ConfigSummary
from rmqctl.operations.verify.configcheck import check
from rmqctl.operations.verify.findings import LINT_CODES, SALVAGED

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

#: Findings that a plan lists as left; more are counted.
_MOST_LEFT = 1000
#: What new files are made by; another value at the time of applying makes others.
_SETTINGS = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapped_file_size_consume_queue_ext",
    "enable_consume_queue_ext",
    "max_hash_slot_num",
    "max_index_num",
    "message_index_enable",
    "message_delay_level",
    "enable_lmq",
    "enable_multi_dispatch",
)
_QUEUE_CODES = frozenset(
    (
        *("queue-missing", "record-without-unit", "unit-mismatch", "unit-misplaced", "unit-hole"),
        *("unit-points-past-log-end", "unit-points-to-no-record", "unit-of-other-queue"),
        *("unit-delivery-time-mismatch", "extension-sizes-astray", "queue-file-missing"),
    )
)
_INDEX_CODES = frozenset(
    (
        *("index-missing", "index-behind", "index-starts-late", "key-not-indexed"),
        *("index-item-without-key", "index-item-mismatch", "index-prev-mismatch"),
        *("index-slot-mismatch", "index-header-mismatch", "index-length-mismatch"),
    )
)
_CHECKPOINT_CODES = frozenset(
    ("checkpoint-missing", "checkpoint-unreadable", "checkpoint-in-future", "checkpoint-zero")
)
#: Findings with which the messages of a queue take each other's places in one that is made anew.
_BLOCKS_QUEUE = frozenset(("queue-begun-again", "queue-offset-repeated"))
_OFFSETS = {"consumer-offset-past-queue": 1, "consumer-offset-before-queue": 0}
_SALVAGE_FIRST = (
    "The log is damaged: `rmqctl salvage` writes a new store, with queues and index of all that "
    "can be read."
)
#: Findings with which queues, index and checkpoint stay as they are, and why.
_LOG_PROBLEMS = dict.fromkeys(SALVAGED, _SALVAGE_FIRST) | {
    "commitlog-missing": "There is no log to make anything from.",
    "file-length-unproven": "Nothing confirms how long the log's files are: give the broker.conf.",
    "sizes-contradicted": "The broker.conf is none of this store's: give the one that is.",
}
_GROUP = re.compile(r"group (.+) at (-?[0-9]+)")
_BOUNDS = re.compile(r"([0-9]+) to ([0-9]+)")

#: An action with the values of its fields: what steps are gathered by.
_Key = tuple[Any, ...]


def settings_of(config: MessageStoreConfig) -> dict[str, Any]:
    """What of a configuration new files are made by."""
    return {name: getattr(config, name) for name in _SETTINGS}


def make_plan(
    root: Path, config: MessageStoreConfig, progress: Progress | None = None, *, jobs: int = 1
) -> Plan:
    """Looks at the whole store, and says what can be mended and how; changes nothing.

    :raises StoreNotFound, NotAStore, FileLengthContradiction: as of ``verify``.
    :raises RepairUnfinished: a repair was cut off, and comes first.
    :raises UnsupportedStore: nobody writes such a store.
    """
    paths.check_store(root)
    check_not_amid_repair(root)
    check_understood(root, config)
    with MessageStore(root, config) as store:
        gathered = _Gathered(store)
        for found in _findings(store, config, progress, jobs):
            gathered.add(found)
        gathered.settle()
        end = store.max_offset
        premises = Premises(
            log_fingerprint(store.commit_log, end), not store.had_abort, settings_of(config)
        )
        made = datetime.now(UTC).isoformat(timespec="seconds")
        steps = tuple(gathered.steps())
        plan = Plan(str(root), made, premises, steps, tuple(gathered.left), gathered.left_out)
        return plan


def _findings(
    store: MessageStore, config: MessageStoreConfig, progress: Progress | None, jobs: int
) -> Iterator[Finding]:
    """What all checks find, each thing once."""
    for found in verify(store.root, config, progress, jobs=jobs):
        if isinstance(found, Finding):
            yield found
    for found in lint(store.root, config, LintSummary()):
        if found.code in LINT_CODES:
            yield found
    yield from check(store, ConfigSummary())


class _Gathered:
    """Findings as they come, and then the steps for them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._root = store.root
        #: Findings of each step: their codes, and of queues, index and checkpoint the first place.
        self._codes: dict[_Key, dict[str, None]] = {}
        self._first: dict[tuple[str, _Key | None], Finding] = {}
        #: Why queues, index and checkpoint must stay as they are; empty: they need not.
        self._log_problem = ""
        self._blocked: set[tuple[str, int]] = set()
        self._is_behind: dict[str, Finding] = {}
        self._examples: dict[_Key, Finding] = {}
        self.left: list[Left] = []
        self.left_out = 0

    # --- taking findings -----------------------------------------------------------------

    def add(self, found: Finding) -> None:
        self._log_problem = self._log_problem or _LOG_PROBLEMS.get(found.code, "")
        if found.code in _BLOCKS_QUEUE and found.queue is not None:
            self._blocked.add(found.queue)
        if found.code in ("dispatch-behind", "index-behind"):
            self._is_behind[found.code] = found
        key = self._key(found) if found.severity != INFO else None
        name = concerned(found)
        if name is not None and place_of(found) < place_of(self._first.get((name, key))):
            self._first[name, key] = found
        if key is not None:
            self._codes.setdefault(key, {})[found.code] = None
            self._examples.setdefault(key, found)
        elif found.severity != INFO:
            self._leave(found, found.advice)

    def _leave(self, found: Finding, why: str) -> None:
        if len(self.left) < _MOST_LEFT:
            self.left.append(Left(found, why))
        else:
            self.left_out += 1

    def _key(self, found: Finding) -> _Key | None:
        """The step that mends a finding; None: none does."""
        code, path = found.code, found.path or ""
        if code in _QUEUE_CODES:
            return self._queue_key(found)
        if code == "consumequeue-missing":
            return (model.REBUILD_QUEUES,)
        if code in _INDEX_CODES:
            return (model.REBUILD_INDEX,)
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

    def _queue_key(self, found: Finding) -> _Key | None:
        if found.queue is None or paths.topic_directory_problem(found.queue[0]):
            return None
        is_said = self._store.config.is_explicit("message_delay_level")
        if found.code == "unit-delivery-time-mismatch" and not is_said:
            return None  # Another messageDelayLevel may be what the units are right by.
        return (model.REBUILD_QUEUE, *found.queue)

    def _tail_key(self, found: Finding) -> _Key | None:
        """The rest of the file behind the end, when nothing else is behind it."""
        end, log = self._store.obstacle, self._store.commit_log
        number = log.files.index_of(end.offset)
        if end.obstacle is not None or number < 0 or found.physical_offset != end.offset:
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

    def _foreign_key(self, found: Finding) -> _Key | None:
        path = found.path or ""
        # A name that only does not fit the sizes may be a file of the log by other sizes.
        if not path or path.startswith("/") or (found.found or "").startswith("not a multiple"):
            return None
        if path == paths.CONSUME_QUEUE:
            return (model.REBUILD_QUEUES,)
        if path == paths.INDEX:
            return (model.REBUILD_INDEX,)
        return None if path == paths.COMMIT_LOG else (model.QUARANTINE, path)

    def _length_key(self, found: Finding) -> _Key | None:
        path = found.path or ""
        if found.queue is not None:
            return self._queue_key(found)
        if path == paths.CHECKPOINT:
            return (model.SET_CHECKPOINT,)
        files = self._store.commit_log.files
        names = sorted(paths.scan_names(self._root / paths.COMMIT_LOG))
        is_last = path == f"{paths.COMMIT_LOG}/{names[-1]}" if names else False
        if is_last and found.found == "0" and files.entries:
            return model.QUARANTINE, path
        if path.startswith(paths.COMMIT_LOG):
            self._log_problem = self._log_problem or _SALVAGE_FIRST
        return None

    def _config_key(self, path: str) -> _Key | None:
        """Of a file whose copy is what a broker can read."""
        name = path.rpartition("/")[2]
        if name.endswith(brokerjson.BACKUP):
            return None
        try:
            copy = brokerjson.read(self._root / brokerjson.CONFIG / (name + brokerjson.BACKUP), [])
        except RmqctlError:
            return None  # Told as a finding of its own.
        return (model.RESTORE_CONFIG, path) if isinstance(copy, dict) else None

    def _offset_key(self, found: Finding) -> _Key | None:
        group = _GROUP.fullmatch(found.found or "")
        bounds = _BOUNDS.fullmatch(found.expected or "")
        if group is None or bounds is None or found.queue is None:
            return None
        new = int(bounds[1 + _OFFSETS[found.code]])
        return (model.SET_OFFSET, found.path, group[1], *found.queue, int(group[2]), new)

    # --- from findings to steps ----------------------------------------------------------

    def settle(self) -> None:
        """Takes steps away that would do harm, or for which the time has not come."""
        codes = self._codes
        if (model.REBUILD_QUEUES,) in codes:
            for key in [key for key in codes if key[0] == model.REBUILD_QUEUE]:
                codes[model.REBUILD_QUEUES,] |= codes.pop(key)
        for key in list(codes):
            why = self._objection(key)
            if why is not None:
                self._give_up(key, why)
        for key in [key for key in codes if key[0] == model.SET_OFFSET]:
            why = self._objection_to_offset(key)
            if why is not None:
                self._give_up(key, why)
        rebuilds_index = (model.REBUILD_INDEX,) in codes
        if rebuilds_index and self._store.had_abort:
            # Else a broker's start throws the new index away (`IndexService#load`).
            codes.setdefault((model.SET_CHECKPOINT,), {"unclean-shutdown": None})
        if (model.SET_CHECKPOINT,) in codes and self._store.obstacle.store_timestamp <= 0:
            self._give_up((model.SET_CHECKPOINT,), "The log has no record that could be its time.")

    def _give_up(self, key: _Key, why: str) -> None:
        codes = self._codes.pop(key)
        found = self._examples.get(key)
        for code in codes:
            if found is not None:
                self._leave(found if found.code == code else found._replace(code=code), why)
        for name in NAMES:
            first = self._first.pop((name, key), None)
            if first is not None and place_of(first) < place_of(self._first.get((name, None))):
                self._first[name, None] = first

    def _objection(self, key: _Key) -> str | None:
        """Why a step must not be done; None: it may."""
        action = key[0]
        touches_log = (model.CUT_TAIL, model.SET_CHECKPOINT)
        rebuilds = (model.REBUILD_QUEUE, model.REBUILD_QUEUES, model.REBUILD_INDEX)
        if self._log_problem and action in (*touches_log, *rebuilds):
            return self._log_problem
        if action == model.REBUILD_QUEUE and key[1:] in self._blocked:
            return (
                "Messages of the log claim one place in this queue: made anew, older ones would "
                "take the places of later ones."
            )
        if action == model.REBUILD_QUEUES and self._blocked:
            return "In some queues messages of the log claim one place: rebuild the others singly."
        if action in rebuilds:
            return self._rebuild_problem(key)
        return None

    def _rebuild_problem(self, key: _Key) -> str | None:
        what = "index" if key[0] == model.REBUILD_INDEX else "queues"
        topic, queue_id = key[1:] if len(key) == 3 else (None, None)
        try:
            plan = plan_rebuild(self._root, self._store.config, what, topic, queue_id)
        except RmqctlError as error:
            return str(error)
        if plan.unexplained:
            return (
                "Light queues are there that enableLmq of this configuration does not explain: "
                "give the broker.conf with which they were written."
            )
        return None

    def _objection_to_offset(self, key: _Key) -> str | None:
        queue = key[3], key[4]
        if (model.REBUILD_QUEUE, *queue) in self._codes or (model.REBUILD_QUEUES,) in self._codes:
            return "The queue is made anew, and may have this offset then: make a new plan after."
        if self._log_problem:
            return f"The queue may have lost its end with the log's. {self._log_problem}"
        if "dispatch-behind" in self._is_behind:
            return "Records wait for their units: `rmqctl flush` first, then make a new plan."
        if self._store.consume_queue(*queue) is None:
            return "There is no such queue."
        return None

    def steps(self) -> Iterator[Step]:
        """The steps in the order in which they are done, numbered."""
        order = list(model.ACTIONS)
        numbers: dict[_Key, int] = {}
        for key in sorted(self._codes, key=lambda key: (order.index(key[0]), key[1:])):
            numbers[key] = len(numbers) + 1
            yield self._step(key, numbers)

    def _step(self, key: _Key, numbers: dict[_Key, int]) -> Step:
        action: str = key[0]
        needs: tuple[int, ...] = ()
        what = dict(zip(model.ACTIONS[action], key[1:], strict=False))
        if action == model.SET_CHECKPOINT:
            what = self._checkpoint()
            rebuilds = (model.REBUILD_QUEUES, model.REBUILD_QUEUE, model.REBUILD_INDEX)
            needs = tuple(number for one, number in numbers.items() if one[0] in rebuilds)
        step = Step(numbers[key], action, what, tuple(self._codes[key]), "", "", needs, {})
        changes, sacrifices = sentences(self._store, step)
        has = {path: fingerprint(self._root / path) for path in touched(step)}
        return step._replace(changes=changes, sacrifices=sacrifices, store_has=has)

    def _checkpoint(self) -> dict[str, int]:
        """The latest times that are true when all other steps are done."""
        mended = {
            "dispatch-behind": (model.REBUILD_QUEUES,),
            "index-behind": (model.REBUILD_INDEX,),
        }
        times = {}
        for name in NAMES:
            first = self._first.get((name, None))
            if first is not None and mended.get(first.code) in self._codes:
                first = None
            times[name] = proven(self._store, first).timestamp
        return times


def touched(step: Step) -> list[str]:
    """Paths of a store that a step changes, or reads beside the log."""
    if step.action == model.CUT_TAIL:
        return []  # The log has a fingerprint of its own.
    if step.action == model.RESTORE_CONFIG:
        return [step.path, step.path + brokerjson.BACKUP]
    if step.action == model.SET_OFFSET:
        queue = f"{paths.CONSUME_QUEUE}/{step.what['topic']}/{step.what['queue_id']}"
        return [step.path, step.path + brokerjson.BACKUP, queue]
    if step.action == model.REBUILD_QUEUE:
        queue = f"{step.what['topic']}/{step.what['queue_id']}"
        return [f"{name}/{queue}" for name in (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT)]
    if step.action == model.REBUILD_QUEUES:
        return [paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT]
    return [step.path]
