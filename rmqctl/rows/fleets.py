"""The rows of ``fleet``: one for each store, even if it cannot be read, and the sums."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows.field import BYTES, FILES, ITEMS, MESSAGES, MILLISECONDS, QUEUES, SECONDS, Kind

_BOTH = "`stats`, `du`: "


class FleetStoreRow(TypedDict):
    """One store of `fleet`, in the order of the list. Counts are null if the store could not be
    read, and with `du --disk` if they need the log.
    """

    type: Literal["fleet_store"]
    store: Annotated[str, "its [name](../how-to/fleet.md#the-list-of-stores)"]
    path: Annotated[str, "its directory, or its URL without user, password and query"]
    records: Annotated[int | None, "records of the log that can be read"]
    bytes: Annotated[int | None, BYTES, "the log from `min_offset` to `max_offset`"]
    errors: NotRequired[Annotated[int | None, "`verify`: findings of severity `error`"]]
    warnings: NotRequired[Annotated[int | None, "`verify`: findings of severity `warning`"]]
    infos: NotRequired[Annotated[int | None, "`verify`: findings of severity `info`"]]
    worst: NotRequired[
        Annotated[
            str | None,
            "`verify`: the most frequent code of the severest [findings](findings.md); null: no "
            "finding",
        ]
    ]
    record_bytes: NotRequired[Annotated[int | None, BYTES, f"{_BOTH}size of the records"]]
    damages: NotRequired[Annotated[int | None, f"{_BOTH}places of the log that cannot be read"]]
    topics: NotRequired[Annotated[int | None, "`stats`: topics that have queues"]]
    queues: NotRequired[Annotated[int | None, QUEUES, "`verify`, `stats`: queues"]]
    index_items: NotRequired[Annotated[int | None, ITEMS, "`verify`: index items checked"]]
    retries: NotRequired[Annotated[int | None, MESSAGES, "`stats`: messages of `%RETRY%…`"]]
    dead_letters: NotRequired[Annotated[int | None, MESSAGES, "`stats`: messages of `%DLQ%…`"]]
    damaged_bytes: NotRequired[Annotated[int | None, BYTES, "`du`: length of the damaged places"]]
    blank_bytes: NotRequired[
        Annotated[int | None, BYTES, "`du`: ends of log files that no record fitted into"]
    ]
    files: NotRequired[Annotated[int | None, FILES, "`du`: files of the whole store"]]
    size: NotRequired[Annotated[int | None, BYTES, "`du`: their length"]]
    allocated_bytes: NotRequired[
        Annotated[int | None, BYTES, "`du`: their space on disk, without holes; null of a URL"]
    ]
    min_offset: Annotated[int | None, BYTES, "where the log starts"]
    max_offset: Annotated[int | None, BYTES, "where it ends"]
    first_store_timestamp: Annotated[
        int | None, MILLISECONDS, "store time of the log's first record; null where there is none"
    ]
    last_store_timestamp: Annotated[int | None, MILLISECONDS, "the latest store time"]
    seconds: Annotated[float, SECONDS, "how long it took"]
    kept: Annotated[bool, "the row is that of `--state`: the store has not changed since"]
    exit_code: Annotated[int, "the exit status of the command for this store alone"]
    error: Annotated[str | None, "why it could not be read, and what to do; null: it was"]


class FleetSummary(TypedDict):
    """The sums of the stores that could be read."""

    type: Literal["summary"]
    stores: Annotated[int, "stores of the list"]
    kept: Annotated[int, "stores whose row is that of `--state`"]
    failed: Annotated[int, "stores that could not be read"]
    unclean: Annotated[int, "stores that could be read, and whose `exit_code` is 1"]
    records: Annotated[int, "records"]
    bytes: Annotated[int, BYTES, "their logs"]
    errors: NotRequired[Annotated[int, "`verify`: findings of severity `error`"]]
    warnings: NotRequired[Annotated[int, "`verify`: findings of severity `warning`"]]
    infos: NotRequired[Annotated[int, "`verify`: findings of severity `info`"]]
    record_bytes: NotRequired[Annotated[int, BYTES, f"{_BOTH}size of the records"]]
    damages: NotRequired[Annotated[int, f"{_BOTH}places that cannot be read"]]
    retries: NotRequired[Annotated[int, MESSAGES, "`stats`: messages of `%RETRY%…`"]]
    dead_letters: NotRequired[Annotated[int, MESSAGES, "`stats`: messages of `%DLQ%…`"]]
    files: NotRequired[Annotated[int, FILES, "`du`: files of the stores"]]
    size: NotRequired[Annotated[int, BYTES, "`du`: their length"]]
    allocated_bytes: NotRequired[Annotated[int, BYTES, "`du`: their space on disk"]]


_PRINTERS = ("fleet du", "fleet stats", "fleet verify")
KINDS = (
    Kind("fleet_store", FleetStoreRow, _PRINTERS),
    Kind("summary (fleet)", FleetSummary, _PRINTERS),
)
