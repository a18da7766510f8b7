"""A plan of a repair as data: its steps, and the findings that it leaves."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rmqctl.operations.repair.fingerprint import Fingerprint
    from rmqctl.operations.verify import Finding

#: The actions of steps, in the order in which steps are done. The checkpoint is set last, when all
#: that it vouches for is in place.
QUARANTINE = "quarantine"
EXTEND_FILE = "extend-file"
CUT_TAIL = "cut-tail"
REBUILD_QUEUES = "rebuild-queues"
REBUILD_QUEUE = "rebuild-queue"
REBUILD_INDEX = "rebuild-index"
REBUILD_TIMER = "rebuild-timer"
RESTORE_CONFIG = "restore-config"
SET_OFFSET = "set-offset"
SET_CHECKPOINT = "set-checkpoint"
#: The fields of each action, which say what it is about, and their types.
ACTIONS: dict[str, dict[str, type]] = {
    QUARANTINE: {"path": str},
    EXTEND_FILE: {"path": str, "position": int, "length": int},
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

    :param number: counts from 1 in the plan.
    :param what: the fields of its action (:data:`ACTIONS`).
    :param mends: codes of the findings that it mends.
    :param changes: a sentence that says what it does.
    :param sacrifices: a sentence that says what is gone afterwards.
    :param needs: numbers of the steps that it depends on.
    :param store_has: the fingerprints of what is at the paths that it touches.
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
        """The file or directory that it replaces, relative to the store."""
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
        """The step from its fields in a plan or a journal, with what rows need of it.

        :raises KeyError, TypeError: a field lacks.
        """
        action = content["action"]
        what = {name: content[name] for name in ACTIONS[action]}
        mends = tuple(content["mends"])
        changes, sacrifices = content["changes"], content["sacrifices"]
        return cls(content["step"], action, what, mends, changes, sacrifices, (), {})

    def content(self) -> dict[str, Any]:
        """The fields of the step in a plan, without its digest."""
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
    """A finding that no step mends, and why none does."""

    found: Finding
    why: str


class Premises(NamedTuple):
    """What all steps of a plan take for granted: the log, whether the store was closed cleanly, and
    the settings that new files are made by."""

    log: Fingerprint
    clean_shutdown: bool
    settings: dict[str, Any]


class Plan(NamedTuple):
    """A plan. ``made`` is a time in ISO 8601, ``store`` the directory as it was given. ``left`` has
    the findings that no step mends; ``left_out`` counts those beyond its bound."""

    store: str
    made: str
    premises: Premises
    steps: tuple[Step, ...]
    left: tuple[Left, ...] = ()
    left_out: int = 0

    def digest(self, step: Step) -> str:
        """The digest of a step, which tells whether it was changed by hand."""
        known = [self.made, self.premises._asdict(), step.content()]
        text = json.dumps(known, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
