"""The rows of a rebuild: what it did, and what it had to leave out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.operations.look.rows import damage_row

if TYPE_CHECKING:
    from rmqctl.engine.queue.outofplace import OutOfPlace
    from rmqctl.operations.mend.rebuild import RebuildSummary
    from rmqctl.operations.mend.rebuildplan import RebuildPlan
    from rmqctl.rows.structures import DamageRow


def damage_rows(summary: RebuildSummary) -> Iterator[DamageRow]:
    """The stretches of the log that had to be left out, as rows."""
    for damage in summary.damage:
        yield damage_row(damage)
    for topic in summary.refused_topics:
        yield {
            "type": "damage",
            "physical_offset": None,
            "length": None,
            "reason": "topic-not-allowed",
            "expected": "a topic that can be a directory",
            "found": topic,
        }


def out_of_place_fields(found: OutOfPlace | None) -> dict[str, object]:
    """The summary's fields of records that are not where they name it; None: not counted."""
    if found is None:
        return {}
    return {"misplaced": found.misplaced, "without_unit": found.without_unit}


def summary_row(
    plan: RebuildPlan, summary: RebuildSummary, output: Path | None, purged: list[Path]
) -> dict[str, object]:
    """The summary's fields."""
    return {
        "structures": plan.structures,
        "output": str(output if output is not None else plan.root),
        "records": summary.records,
        "queues": summary.queues,
        "units": summary.units,
        "index_items": summary.index_items,
        "damages": len(summary.damage) + len(summary.refused_topics),
        **out_of_place_fields(summary.out_of_place),
        "kept": [path.name for path in summary.kept],
        "purged": [path.name for path in purged],
    }
