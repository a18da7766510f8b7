"""The rows of ``repair``: the steps of its plan, and the findings that no step repairs."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, Kind


class RepairStepRow(TypedDict):
    """A step of a repair."""

    type: Literal["repair_step"]
    step: Annotated[int, "its number in the plan"]
    action: Annotated[
        str,
        "`quarantine`, `extend-file`, `cut-tail`, `rebuild-queues`, `rebuild-queue`, "
        "`rebuild-index`, `rebuild-timer`, `restore-config`, `set-offset` or `set-checkpoint`",
    ]
    path: Annotated[str, "the file or directory that it changes, relative to the store"]
    topic: Annotated[str | None, "topic, of a step for one queue"]
    queue_id: Annotated[int | None, "queue of the topic, likewise"]
    mends: Annotated[list[str], "codes of the [findings](findings.md) that it is for"]
    changes: Annotated[str, "what it does"]
    sacrifices: Annotated[str, "what is gone afterwards"]
    state: Annotated[str, "`planned`, `applied` or `undone`"]


class LeftRow(TypedDict):
    """A finding that no step of the plan repairs."""

    type: Literal["left"]
    severity: Annotated[str, "`error` or `warning`"]
    code: Annotated[str, "what is wrong: [all codes](findings.md)"]
    path: Annotated[str | None, "file or directory, relative to the store"]
    physical_offset: Annotated[int | None, BYTES, "place in the log"]
    topic: Annotated[str | None, "topic"]
    queue_id: Annotated[int | None, "queue of the topic"]
    why: Annotated[str, "why not, or what else to do"]
    command: Annotated[
        str | None, "the command line for it, quoted for a shell; null where there is none"
    ]


class RepairSummary(TypedDict):
    type: Literal["summary"]
    plan: Annotated[str | None, "the file with the plan; null with `--resume` and `--undo`"]
    state: Annotated[str, "`planned`, `applied` or `undone`"]
    steps: Annotated[int, "steps of the plan, or steps that were undone"]
    left: Annotated[int | None, "findings that no step repairs; null if the store was not checked"]
    backup: Annotated[
        str | None,
        "the directory in the store with what was replaced; null where nothing was",
    ]


KINDS = (
    Kind("repair_step", RepairStepRow, printed_by=("repair",)),
    Kind("left", LeftRow, printed_by=("repair",)),
    Kind("summary (repair)", RepairSummary),
)
