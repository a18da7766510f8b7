"""All types of rows, in the order of their reference page, and the columns of each type."""

from collections.abc import Sequence

from rmqctl.rows import (
    backups,
    changes,
    compared,
    doctor,
    fleets,
    keyed,
    onspark,
    pops,
    repaired,
    replicating,
    reports,
    salvaged,
    serving,
    structures,
    summaries,
    tiered,
    timers,
    topics,
)
from rmqctl.rows.field import fields_of

KINDS = (
    *structures.KINDS,
    *topics.KINDS,
    *timers.KINDS,
    *tiered.KINDS,
    *changes.KINDS,
    *pops.KINDS,
    *reports.KINDS,
    *doctor.KINDS,
    *repaired.KINDS,
    *salvaged.KINDS,
    *backups.KINDS,
    *compared.KINDS,
    *keyed.KINDS,
    *fleets.KINDS,
    *replicating.KINDS,
    *serving.KINDS,
    *summaries.KINDS,
)


def columns_of(heading: str, also: Sequence[str] = ()) -> list[str]:
    """The columns for rows of the kind with this heading; none if it is not declared. They are the
    fields that every such row has, and those optional fields that are in ``also``. The latter come
    in the order of ``also``, at the place of the one that is declared first."""
    for kind in (*KINDS, *onspark.KINDS):
        if kind.heading == heading:
            fields = fields_of(kind.row)
            optional = {one.name for one in fields if one.is_optional}
            chosen = [name for name in also if name in optional]
            columns: list[str] = []
            for name in (one.name for one in fields):
                columns += [name] if name not in optional else chosen if name in chosen else []
                chosen = [] if name in chosen else chosen
            return columns
    return []
