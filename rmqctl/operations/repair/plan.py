"""repair --plan: makes the steps that mend what verify, lint and config check find.

Nothing is changed. The plan also names the findings that no step mends, with the reasons. Where the
log itself is damaged, queues and index stay as they are: ``salvage`` makes a new store, and it
proves records by the units of the damaged one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats import constants
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.files.unfinished import check_not_amid_repair
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services.anyqueue import opened_queue
from rmqctl.engine.services.multiqueues import as_written
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.errors import RmqctlError
from rmqctl.operations.doctor.checkpoint import NAMES, concerned, place_of, proofs_of
from rmqctl.operations.doctor.lint import Summary as LintSummary
from rmqctl.operations.doctor.lint import lint
from rmqctl.operations.mend.rebuild import plan_rebuild
from rmqctl.operations.mend.timer import TIMER_PARTS
from rmqctl.operations.progress import Progress
from rmqctl.operations.repair import model
from rmqctl.operations.repair.fingerprint import fingerprint, log_fingerprint
from rmqctl.operations.repair.mending import Key, Mending
from rmqctl.operations.repair.model import Left, Plan, Premises, Step
from rmqctl.operations.repair.words import sentences
from rmqctl.operations.verify import INFO, Finding, verify
from rmqctl.operations.verify.configcheck import Summary as ConfigSummary
from rmqctl.operations.verify.configcheck import check
from rmqctl.operations.verify.findings import LINT_CODES, MULTI_DOUBTED, RECORDS_WAIT

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

#: Most findings that a plan lists as left; it counts the others.
_MOST_LEFT = 1000
#: Settings that new files are made by. A plan holds for their values only.
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
    "mapped_file_size_timer_log",
    "timer_precision_ms",
    "timer_roll_window_slot",
)
#: Findings that say that messages of a queue claim the same place: made anew, the queue would lose
#: some of them.
_BLOCKS_QUEUE = frozenset(("queue-begun-again", "queue-offset-repeated"))
_CLAIMED = (
    "Messages of the log claim one place in this queue: made anew, older ones would take the "
    "places of later ones."
)
#: The same of a queue of which a record has changed (:data:`MULTI_DOUBTED`).
_DOUBTED = (
    "A record of this queue has changed in the log: made anew, the queue would lack messages, or "
    "have them at other offsets."
)
#: Findings about records that the log has: a queue that is made anew has messages then.
_OF_RECORDS = frozenset(("queue-missing", "record-without-unit", "unit-misplaced"))
#: So many of a queue's last units are looked at for one whose message the log still has.
_MOST_ASKED = 4096
#: Findings that the next start mends by itself, and the steps that include it.
_PENDING: dict[str, Key] = {
    "dispatch-behind": (model.REBUILD_QUEUES,),
    "index-behind": (model.REBUILD_INDEX,),
    "index-uncounted-items": (model.REBUILD_INDEX,),
}


def settings_of(config: MessageStoreConfig) -> dict[str, Any]:
    """The settings that new files are made by."""
    return {name: getattr(config, name) for name in _SETTINGS}


def make_plan(
    root: Path, config: MessageStoreConfig, progress: Progress | None = None, *, jobs: int = 1
) -> Plan:
    """Checks the whole store, and plans what can be mended and how; changes nothing.

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
    """The findings of all checks, each once."""
    for found in verify(store.root, config, progress, jobs=jobs):
        if isinstance(found, Finding):
            yield found
    for found in lint(store.root, config, LintSummary()):
        is_of_both = found.code in ("unreadable-file", "symbolic-link")
        if found.code in LINT_CODES or (found.path == paths.CHECKPOINT and not is_of_both):
            yield found
    yield from check(store, ConfigSummary())


class _Gathered:
    """Collects findings as they come, and makes the steps for them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._root = store.root
        #: Findings of each step: their codes, and of queues, index and checkpoint the first place.
        self._codes: dict[Key, dict[str, None]] = {}
        self._first: dict[tuple[str, Key | None], Finding] = {}
        self._mending = Mending(store)
        #: Queues that must not be made anew, and why.
        self._blocked: dict[tuple[str, int], str] = {}
        self._is_behind = False
        self._examples: dict[Key, Finding] = {}
        self.left: list[Left] = []
        self.left_out = 0

    # --- taking findings -----------------------------------------------------------------

    def add(self, found: Finding) -> None:
        if found.queue is not None and found.code in _BLOCKS_QUEUE:
            self._blocked[found.queue] = _CLAIMED
        if found.queue is not None and found.advice == MULTI_DOUBTED:
            self._blocked.setdefault(found.queue, _DOUBTED)
        self._is_behind |= found.code == "dispatch-behind"
        # A rebuild includes what the next start would do by itself.
        is_info = found.severity == INFO
        key = _PENDING.get(found.code) if is_info else self._mending.key(found)
        name = concerned(found)
        if name is not None and place_of(found) < place_of(self._first.get((name, key))):
            self._first[name, key] = found
        if is_info:
            return
        if key is not None:
            self._codes.setdefault(key, {})[found.code] = None
            self._examples.setdefault(key, found)
        else:
            self._leave(found, self._mending.why or found.advice)

    def _leave(self, found: Finding, why: str) -> None:
        if len(self.left) < _MOST_LEFT:
            self.left.append(Left(found, why))
        else:
            self.left_out += 1

    # --- from findings to steps ----------------------------------------------------------

    def settle(self) -> None:
        """Takes away steps that would do harm, or that have to wait for another repair."""
        codes = self._codes
        if (model.REBUILD_QUEUES,) in codes:
            for key in [key for key in codes if key[0] == model.REBUILD_QUEUE]:
                codes[model.REBUILD_QUEUES,] |= codes.pop(key)
        tail = self._mending.tail()
        if tail is not None and any(key[0] == model.EXTEND_FILE for key in codes):
            # With zeros behind it, the beginning of a message could pass for a whole one.
            codes.setdefault(tail, {})["file-length-mismatch"] = None
        for key in list(codes):
            why = self._objection(key)
            if why is not None:
                self._give_up(key, why)
        self._merge_quarantines()
        why = self._objection_to_timer()
        if why is not None:
            self._give_up((model.REBUILD_TIMER,), why)
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

    def _merge_quarantines(self) -> None:
        """Drops steps that move a foreign file out of a directory which another step replaces: the
        file goes with the old directory."""
        replaced = {whole: key for key in self._codes for whole in _replaced_by(key)}
        for one in [key for key in self._codes if key[0] == model.QUARANTINE]:
            names = f"{one[1]}/"
            above = (names[: at + 1] for at, letter in enumerate(names) if letter == "/")
            key = next((replaced[whole] for whole in above if whole in replaced), None)
            if key is not None:
                self._codes[key] |= self._codes.pop(one)

    def _give_up(self, key: Key, why: str) -> None:
        codes = self._codes.pop(key)
        found = self._examples.get(key)
        for code in codes:
            if found is not None:
                self._leave(found if found.code == code else found._replace(code=code), why)

    def _objection(self, key: Key) -> str | None:
        """Why a step must not be done, in words; None: it may be."""
        action = key[0]
        touches_log = (model.EXTEND_FILE, model.CUT_TAIL, model.SET_CHECKPOINT)
        rebuilds = (model.REBUILD_QUEUE, model.REBUILD_QUEUES, model.REBUILD_INDEX)
        problem = self._mending.log_problem
        if problem and action in (*touches_log, *rebuilds):
            return problem
        if action == model.REBUILD_QUEUE and (why := self._blocked.get(key[1:])):
            return why
        if action == model.REBUILD_QUEUE and not self._has_message(key):
            return (
                "No unit of this queue leads to a message of it that the log still has: made anew "
                "it would begin at offset 0 again."
            )
        if action == model.REBUILD_QUEUES and self._blocked:
            return "Some queues must not be made anew from the log: rebuild the others singly."
        if action in rebuilds:
            return self._rebuild_problem(key)
        return None

    def _objection_to_timer(self) -> str | None:
        """Why the step that makes the timer anew must not be done; None: it may be, or there is
        none."""
        codes = self._codes
        if (model.REBUILD_TIMER,) not in codes:
            return None
        if self._mending.log_problem:
            return self._mending.log_problem
        queue = (model.REBUILD_QUEUE, constants.TIMER_TOPIC, 0)
        if (model.REBUILD_INDEX,) in codes or (model.REBUILD_QUEUES,) in codes or queue in codes:
            return (
                "The timer is made from the queue of rmq_sys_wheel_timer, and the index says which "
                "of its messages were delivered: make a new plan when these are mended."
            )
        if self._is_behind:
            return RECORDS_WAIT
        return None

    def _has_message(self, key: Key) -> bool:
        """Whether the log has a message of a queue, from which a rebuild learns its queue offsets.
        Findings about its records say so, else one of its last units leads to its message."""
        if _OF_RECORDS & self._codes[key].keys():
            return True
        queue = self._store.consume_queue(*key[1:])
        if queue is None:
            return True
        dispatcher = Dispatcher(as_written(self._root, self._store.config))
        for offset in range(queue.max_offset - 1, queue.max_offset - 1 - _MOST_ASKED, -1):
            unit = queue.unit(offset) if offset >= queue.min_offset else None
            if unit is None:
                break
            record = self._store.commit_log.find_record(unit.physical_offset)
            if record is None or record.total_size != unit.size:
                continue
            places = [(record.topic, record.queue_id), *(u[:2] for u in dispatcher.units(record))]
            if key[1:] in places:
                return True
        return False

    def _rebuild_problem(self, key: Key) -> str | None:
        if key[0] == model.REBUILD_INDEX:
            return self._index_problem
        problem, unexplained = self._queues_problem
        if problem is None and unexplained & ({key[1:]} if len(key) == 3 else unexplained):
            return (
                "Light queues are there that enableLmq of this configuration does not explain: "
                "give the broker.conf with which they were written."
            )
        return problem

    @cached_property
    def _index_problem(self) -> str | None:
        """Why no index can be made; None: it can."""
        try:
            plan_rebuild(self._root, self._store.config, "index")
        except RmqctlError as error:
            return error.for_command_line
        return None

    @cached_property
    def _queues_problem(self) -> tuple[str | None, set[tuple[str, int]]]:
        """Why no queue can be made (None: queues can), and the queues that the configuration does
        not explain, which cannot."""
        try:
            plan = plan_rebuild(self._root, self._store.config, "queues")
        except RmqctlError as error:
            return error.for_command_line, set()
        return None, {(one.topic, one.queue_id) for one in plan.unexplained}

    def _objection_to_offset(self, key: Key) -> str | None:
        queue = key[3], key[4]
        if (model.REBUILD_QUEUE, *queue) in self._codes or (model.REBUILD_QUEUES,) in self._codes:
            return "The queue is made anew, and may have this offset then: make a new plan after."
        if self._mending.log_problem:
            return f"The queue may have lost its end with the log's. {self._mending.log_problem}"
        if self._is_behind:
            return RECORDS_WAIT
        with opened_queue(self._store, *queue) as found:
            return "There is no such queue." if found is None else None

    def steps(self) -> Iterator[Step]:
        """The steps in the order in which they are done, numbered."""
        order = list(model.ACTIONS)
        keys = sorted(self._codes, key=lambda key: (order.index(key[0]), key[1:]))
        numbers = {key: number for number, key in enumerate(keys, 1)}
        for key in keys:
            yield self._step(key, numbers)

    def _step(self, key: Key, numbers: dict[Key, int]) -> Step:
        action: str = key[0]
        needs: tuple[int, ...] = ()
        what = dict(zip(model.ACTIONS[action], key[1:], strict=False))
        if action == model.SET_CHECKPOINT:
            what = self._checkpoint()
            rebuilds = (model.REBUILD_QUEUES, model.REBUILD_QUEUE, model.REBUILD_INDEX)
            needs = tuple(number for one, number in numbers.items() if one[0] in rebuilds)
        if action == model.EXTEND_FILE:
            needs = tuple(number for one, number in numbers.items() if one[0] == model.CUT_TAIL)
        step = Step(numbers[key], action, what, tuple(self._codes[key]), "", "", needs, {})
        changes, sacrifices = sentences(self._store, step)
        has = {path: fingerprint(self._root / path) for path in touched(step)}
        return step._replace(changes=changes, sacrifices=sacrifices, store_has=has)

    def _checkpoint(self) -> dict[str, int]:
        """The latest times that the data proves once all other steps are done."""
        first: dict[str, Finding] = {}
        for (name, key), found in self._first.items():
            if not self._is_mended(key) and place_of(found) < place_of(first.get(name)):
                first[name] = found
        proofs = proofs_of(self._store, first)
        return {name: proofs[name].timestamp for name in NAMES}

    def _is_mended(self, key: Key | None) -> bool:
        of_all = key is not None and key[0] == model.REBUILD_QUEUE
        return key in self._codes or (of_all and (model.REBUILD_QUEUES,) in self._codes)


def _replaced_by(key: Key) -> tuple[str, ...]:
    """The directories that a step replaces as a whole, each with a slash at its end."""
    rooms = (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT)
    if key[0] == model.REBUILD_QUEUES:
        return tuple(f"{room}/" for room in rooms)
    if key[0] == model.REBUILD_QUEUE:
        return tuple(f"{room}/{key[1]}/{key[2]}/" for room in rooms)
    return (f"{paths.INDEX}/",) if key[0] == model.REBUILD_INDEX else ()


def touched(step: Step) -> list[str]:
    """The paths of a store that a step changes, or that it reads beside the log."""
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
    if step.action == model.REBUILD_TIMER:
        queue = f"{paths.CONSUME_QUEUE}/{constants.TIMER_TOPIC}/0"
        return [*TIMER_PARTS, queue]
    return [step.path]
