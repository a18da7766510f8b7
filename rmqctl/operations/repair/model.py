"""A plan of a repair as data: its steps, and what it leaves."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rmqctl.operations.repair.fingerprint import Fingerprint
    from rmqctl.operations.verify import Finding

#: What a step may do, in the order in which steps are done. The checkpoint comes last: until then
#: it says no more than before.
QUARANTINE = "quarantine"
CUT_TAIL = "cut-tail"
REBUILD_QUEUES = "rebuild-queues"
REBUILD_QUEUE = "rebuild-queue"
REBUILD_INDEX = "rebuild-index"
REBUILD_TIMER = "rebuild-timer"
RESTORE_CONFIG = "restore-config"
SET_OFFSET = "set-offset"
SET_CHECKPOINT = "set-checkpoint"
#: Each action with the fields that say of what, and their types.
ACTIONS: dict[str, dict[str, type]] = {
    QUARANTINE: {"path": str},
    CUT_TAIL: {"path": str, "physical_offset": int, "position": int, "length": int},
    REBUILD_QUEUES: {},
    REBUILD_QUEUE: {"topic": str, "queue_id": int},
    REBUILD_INDEX: {},
    REBUILD_TIMER: {},
    RESTORE_CONFIG: {"path": str},
    SET_OFFSET: {
        "path": str,
        "group": str,
        "topic": str,
        "queue_id": int,
        "old_offset": int,
        "new_offset": int,
    },
    SET_CHECKPOINT: {
        "physic_msg_timestamp": int,
        "logics_msg_timestamp": int,
        "index_msg_timestamp": int,
    },
}


class Step(NamedTuple):
    """One change of the store.

    :param number: its name in the plan, from 1.
    :param what: the fields of its action (:data:`ACTIONS`).
    :param mends: codes of the findings that it is for.
    :param changes: what it does, ``sacrifices``: what is gone afterwards, each a sentence.
    :param needs: numbers of steps without which it would say what is not true.
    :param store_has: what stands at the paths that it touches.
    """

    number: int
    action: str
    what: dict[str, Any]
    mends: tuple[str, ...]
    changes: str
    sacrifices: str
    needs: tuple[int, ...]
    store_has: dict[str, Fingerprint | None]

    @property
    def path(self) -> str:
        """The file or directory that is another one afterwards, relative to the store."""
        if self.action == REBUILD_QUEUE:
            return f"consumequeue/{self.what['topic']}/{self.what['queue_id']}"
        whole = {
            REBUILD_QUEUES: "consumequeue",
            REBUILD_INDEX: "index",
            REBUILD_TIMER: "timerwheel",
            SET_CHECKPOINT: "checkpoint",
        }
        return whole.get(self.action) or str(self.what["path"])

    @classmethod
    def of(cls, content: dict[str, Any]) -> Step:
        """What a plan or a journal says of a step, as far as rows need it. :raises KeyError,
        TypeError: it says less."""
        action = content["action"]
        what = {name: content[name] for name in ACTIONS[action]}
        mends = tuple(content["mends"])
        changes, sacrifices = content["changes"], content["sacrifices"]
        return cls(content["step"], action, what, mends, changes, sacrifices, (), {})

    def content(self) -> dict[str, Any]:
        """As it stands in a plan, without its digest."""
        return {
            "step": self.number,
            "action": self.action,
            **self.what,
            "mends": list(self.mends),
            "changes": self.changes,
            "sacrifices": self.sacrifices,
            "needs": list(self.needs),
            "store_has": self.store_has,
        }


class Left(NamedTuple):
    """A finding that no step mends, and why."""

    found: Finding
    why: str


class Premises(NamedTuple):
    """What all steps of a plan go by: the log, whether the store was closed cleanly, and the sizes
    and switches that new files are made with."""

    log: Fingerprint
    clean_shutdown: bool
    settings: dict[str, Any]


class Plan(NamedTuple):
    """``made`` is a time in ISO 8601, ``store`` the directory as it was named then; ``left_out``
    counts what is in ``left`` no more, of very many."""

    store: str
    made: str
    premises: Premises
    steps: tuple[Step, ...]
    left: tuple[Left, ...] = ()
    left_out: int = 0

    def digest(self, step: Step) -> str:
        """What a step's line must say, so that nobody has changed it by hand."""
        known = [self.made, self.premises._asdict(), step.content()]
        text = json.dumps(known, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
