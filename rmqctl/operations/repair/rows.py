"""The rows of ``repair``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rmqctl.operations.repair.model import Step

if TYPE_CHECKING:
    from rmqctl.operations.repair.model import Left, Plan
    from rmqctl.rows.repaired import LeftRow, RepairStepRow, RepairSummary

#: The state of a step that was not done.
PLANNED = "planned"


def planned(plan: Plan) -> Iterator[RepairStepRow]:
    """Rows of the steps of a plan that was not applied."""
    return step_rows([step.content() for step in plan.steps], PLANNED)


def step_rows(steps: Iterable[dict[str, Any]], state: str) -> Iterator[RepairStepRow]:
    """Rows of steps, given by their fields in a plan or a journal."""
    for step in map(Step.of, steps):
        yield {
            "type": "repair_step",
            "step": step.number,
            "action": step.action,
            "path": step.path,
            "topic": step.what.get("topic"),
            "queue_id": step.what.get("queue_id"),
            "mends": list(step.mends),
            "changes": step.changes,
            "sacrifices": step.sacrifices,
            "state": state,
        }


def left_row(left: Left, command: str | None) -> LeftRow:
    """The row of a finding that no step mends; ``command`` is the command line that is next."""
    found = left.found
    return {
        "type": "left",
        "severity": found.severity,
        "code": found.code,
        "path": found.path,
        "physical_offset": found.physical_offset,
        "topic": found.topic,
        "queue_id": found.queue_id,
        "why": left.why,
        "command": command,
    }


def summary(
    plan: str | None, state: str, steps: int, left: int | None, backup: str | None
) -> RepairSummary:
    return {
        "type": "summary",
        "plan": plan,
        "state": state,
        "steps": steps,
        "left": left,
        "backup": backup,
    }
