"""The rows ``summary`` of ``rebuild``."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows.field import ITEMS, QUEUES, TOPICS, UNITS, Kind


class RebuildSummary(TypedDict):
    type: Literal["summary"]
    structures: Annotated[list[str], "`consumequeue`, `index`"]
    output: Annotated[
        str | None,
        "the directory that holds them; null with `--missing`, which adds to what is there",
    ]
    records: Annotated[int, "records read"]
    queues: Annotated[int, QUEUES, "queues written; with `--missing` those that got units"]
    units: Annotated[int, UNITS, "units written"]
    index_items: Annotated[int, ITEMS, "index items written"]
    damages: Annotated[int, "parts of the log that were left out"]
    misplaced: NotRequired[
        Annotated[
            int,
            UNITS,
            "units at other queue offsets than their records name: the log leaves offsets out; not "
            "with `rebuild index`, `--master`, or `--missing --dry-run`",
        ]
    ]
    without_unit: NotRequired[
        Annotated[
            int,
            "records without a unit: an earlier record has their queue offset; not there likewise",
        ]
    ]
    kept: NotRequired[
        Annotated[list[str], "directories with the former files; not with `--missing`"]
    ]
    purged: NotRequired[Annotated[list[str], "directories removed; not with `--missing`"]]


class ToFileQueuesSummary(TypedDict):
    """Of `rebuild queues --to-file-queues`."""

    type: Literal["summary"]
    dry_run: Annotated[
        bool, "nothing was changed, and what the log would tell is null: it is not read"
    ]
    databases: Annotated[list[str], "databases of the store that files replace"]
    records: Annotated[int | None, "records read"]
    queues: Annotated[int | None, QUEUES, "queues written"]
    units: Annotated[int | None, UNITS, "units written that the log has records of"]
    ended_queues: Annotated[
        int | None,
        QUEUES,
        "of the queues, those that have their last unit alone: the log has expired",
    ]
    topics: Annotated[int | None, TOPICS, "topics in `topics.json`; null: no database was read"]
    groups: Annotated[int | None, "groups in `subscriptionGroup.json`; null likewise"]
    offsets: Annotated[
        int | None, "topics of groups that have offsets in `consumerOffset.json`; null likewise"
    ]
    damages: Annotated[int | None, "parts of the log that were left out"]
    kept: Annotated[list[str], "directories with what was replaced"]


KINDS = (
    Kind("summary (rebuild)", RebuildSummary),
    Kind("summary (rebuild --to-file-queues)", ToFileQueuesSummary),
)
