"""The rows ``summary``, with which commands end."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows import rebuilt
from rmqctl.rows.field import BYTES, FILES, ITEMS, MESSAGES, PERCENT, QUEUES, TOPICS, UNITS, Kind

_MISMATCHES = "with `--body-as`, where there are any: messages whose body does not match its CRC"


class PullSummary(TypedDict):
    type: Literal["summary"]
    status: Annotated[str, "RocketMQ's `GetMessageStatus`; `FOUND` when any message was"]
    next_begin_offset: Annotated[int, MESSAGES, "where the next pull starts"]
    min_offset: Annotated[
        int,
        MESSAGES,
        "first offset of the queue, as in [queue](#queue): when all of its messages are "
        "deleted, a pull before its end is `OFFSET_TOO_SMALL` and goes to the end at once; "
        "a broker that was started since answers `MESSAGE_WAS_REMOVING` on the way there",
    ]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    messages: Annotated[int, MESSAGES, "messages printed"]
    suggest_pulling_from_slave: Annotated[
        bool,
        "the last message that was looked at is so old that a broker would take it as on disk",
    ]
    passed_over: NotRequired[
        Annotated[
            int,
            MESSAGES,
            "if there are any: messages left out because their unit or record cannot be read, or "
            "because one before them is gone (a broker then skips all messages of its log file)",
        ]
    ]
    filter_errors: NotRequired[
        Annotated[
            int,
            MESSAGES,
            "with `--filter`: messages on which the filter failed, so they did not match",
        ]
    ]
    body_crc_mismatches: NotRequired[Annotated[int, MESSAGES, _MISMATCHES]]


class PullFollowSummary(TypedDict):
    type: Literal["summary"]
    status: Annotated[str, "`FOUND` when any message was printed, else `NO_MATCHED_MESSAGE`"]
    next_begin_offset: Annotated[int, MESSAGES, "where the next pull starts"]
    min_offset: Annotated[int, MESSAGES, "first offset of the queue"]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    messages: Annotated[int, MESSAGES, "messages printed"]
    moves: Annotated[int, "how often the place to read at jumped"]
    body_crc_mismatches: NotRequired[Annotated[int, MESSAGES, _MISMATCHES]]


class MessageSummary(TypedDict):
    """With `--unique-key`, and of several places."""

    type: Literal["summary"]
    topics: NotRequired[
        Annotated[int, TOPICS, "with `--unique-key`: topics for which the index was searched"]
    ]
    messages: Annotated[int, MESSAGES, "messages printed"]
    absent: NotRequired[Annotated[int, "of several places: how many have no message"]]
    body_crc_mismatches: NotRequired[Annotated[int, MESSAGES, _MISMATCHES]]


class IndexQuerySummary(TypedDict):
    type: Literal["summary"]
    messages: Annotated[int, MESSAGES, "messages printed"]
    collisions: Annotated[int, ITEMS, "hits of another topic or key with the same hash"]
    missing: Annotated[int, ITEMS, "hits whose record is not in the log"]
    index_files: Annotated[int, FILES, "index files of the store"]
    body_crc_mismatches: NotRequired[Annotated[int, MESSAGES, _MISMATCHES]]


class IndexQueryRawSummary(TypedDict):
    type: Literal["summary"]
    items: Annotated[int, ITEMS, "items printed"]
    index_files: Annotated[int, FILES, "index files of the store"]


class IndexInfoSummary(TypedDict):
    type: Literal["summary"]
    index_files: Annotated[int, FILES, "files printed"]
    items: Annotated[int, ITEMS, "items in them"]


class CleanSummary(TypedDict):
    type: Literal["summary"]
    dry_run: Annotated[bool, "nothing was deleted"]
    time_up: Annotated[bool, "the hour is one of `deleteWhen`"]
    space_full: Annotated[bool, "a disk is fuller than `diskMaxUsedSpaceRatio`"]
    manual: Annotated[bool, "`--manual` was given"]
    clean_at_once: Annotated[bool, "a disk is fuller than 85 %: files go whatever their age"]
    refuses_messages: Annotated[bool, "a disk is fuller than 90 %: a broker refuses messages"]
    log_disk_percent: Annotated[int, PERCENT, "how full the log's disk is"]
    queue_disk_percent: Annotated[int, PERCENT, "how full the queues' disk is"]
    min_offset: Annotated[int, BYTES, "first physical offset of the log"]
    new_min_offset: Annotated[int, BYTES, "the same after the deletion"]
    files: Annotated[int, FILES, "files that go"]
    allocated_bytes: Annotated[int, BYTES, "disk space that becomes free"]
    messages: Annotated[int, MESSAGES, "messages of queues that go"]
    lost: Annotated[int, MESSAGES, "unread messages that go, summed over readers"]
    losing_groups: Annotated[
        int, "groups that lose some; the delivery of delayed messages counts as one"
    ]


class DuSummary(TypedDict):
    type: Literal["summary"]
    groups: Annotated[int, "groups found, also those that `--limit` left out"]
    messages: Annotated[int, MESSAGES, "messages counted"]
    bytes: Annotated[int, BYTES, "size of their records"]
    ungrouped_messages: Annotated[int, MESSAGES, "messages of further groups, after 200,000"]
    ungrouped_bytes: Annotated[int, BYTES, "size of their records"]
    blank_bytes: Annotated[int, BYTES, "ends of log files that no record fitted into"]
    damages: Annotated[int, "damaged stretches of the log"]
    damaged_bytes: Annotated[int, BYTES, "their length"]
    allocated_bytes: Annotated[int, BYTES, "disk space of the whole store"]


class DuDiskSummary(TypedDict):
    type: Literal["summary"]
    allocated_bytes: Annotated[int, BYTES, "disk space of the whole store"]


class ConfigCheckSummary(TypedDict):
    type: Literal["summary"]
    files: Annotated[int, FILES, "sound files of `config/`"]
    topics: Annotated[int, "topics of `topics.json`"]
    groups: Annotated[int, "groups that have a configuration or offsets"]
    offsets: Annotated[int, "offsets of groups in queues"]
    errors: Annotated[int, "findings of severity error"]
    warnings: Annotated[int, "findings of severity warning"]
    infos: Annotated[int, "findings of severity info"]


class ConfigStoresSummary(TypedDict):
    """Of `config stores`."""

    type: Literal["summary"]
    path: Annotated[str, "the user's file that names them"]
    stores: Annotated[int, "stores that it names; 0 also where there is no such file"]
    problems: Annotated[int, "those with a problem"]


class WalkCommitlogSummary(TypedDict):
    type: Literal["summary"]
    messages: Annotated[int, MESSAGES, "messages printed"]
    blanks: Annotated[int, "blanks printed"]
    damages: Annotated[int, "damaged stretches printed"]
    next_offset: Annotated[int, BYTES, "where the walk stopped"]
    residue: Annotated[int, BYTES, "bytes after the end of the log that are not zero"]
    body_crc_mismatches: NotRequired[Annotated[int, MESSAGES, _MISMATCHES]]


class WalkCommitlogFollowSummary(TypedDict):
    type: Literal["summary"]
    messages: Annotated[int, MESSAGES, "messages printed"]
    blanks: Annotated[int, "blanks printed"]
    damages: Annotated[int, "damaged stretches printed"]
    moves: Annotated[int, "how often the place to read at jumped"]
    next_offset: Annotated[int, BYTES, "where the next walk continues"]
    body_crc_mismatches: NotRequired[Annotated[int, MESSAGES, _MISMATCHES]]


class WalkQueueSummary(TypedDict):
    type: Literal["summary"]
    queues: Annotated[int, QUEUES, "queues walked"]
    units: Annotated[int, UNITS, "units printed"]
    damages: Annotated[int, "stretches printed that were never written"]


class WalkIndexSummary(TypedDict):
    type: Literal["summary"]
    index_files: Annotated[int, FILES, "index files walked"]
    items: Annotated[int, ITEMS, "items printed"]


class QueuesSummary(TypedDict):
    type: Literal["summary"]
    queues: Annotated[int, QUEUES, "queues printed"]
    messages: Annotated[int, MESSAGES, "messages within reach in them"]


class PutSummary(TypedDict):
    """Of `put --from`, when every line was stored."""

    type: Literal["summary"]
    messages: Annotated[int, MESSAGES, "messages stored"]


class DumpSummary(TypedDict):
    type: Literal["summary"]
    structure: Annotated[
        str, "`record`, `blank`, `unit`, `index-header`, `index-item` or `checkpoint`"
    ]
    path: Annotated[str, "its file"]
    position: Annotated[int, BYTES, "its place in the file"]
    physical_offset: NotRequired[
        Annotated[int, BYTES, "of a record or blank: its place in the log"]
    ]
    problems: Annotated[list[str], "what does not fit"]


class VerifySummary(TypedDict):
    type: Literal["summary"]
    records: Annotated[int, "records checked"]
    blanks: Annotated[int, "blanks checked"]
    queues: Annotated[int, QUEUES, "queues checked"]
    units: Annotated[int, UNITS, "queue units checked"]
    index_files: Annotated[int, FILES, "index files checked"]
    index_items: Annotated[int, ITEMS, "index items checked"]
    min_offset: Annotated[int, BYTES, "where the log starts"]
    max_offset: Annotated[int, BYTES, "where it ends, or where the check of it has stopped"]
    next_offset: NotRequired[
        Annotated[
            int,
            BYTES,
            "with `--max-duration`, when the time was over before the end of the log: what the "
            "next `--resume-from` is to be",
        ]
    ]
    errors: Annotated[int, "findings of severity `error`"]
    warnings: Annotated[int, "findings of severity `warning`"]
    infos: Annotated[int, "findings of severity `info`"]


class FindSummary(TypedDict):
    type: Literal["summary"]
    messages: Annotated[int, MESSAGES, "messages printed"]
    topics: Annotated[int, TOPICS, "topics for which the index was searched"]
    index_files: Annotated[int, FILES, "index files of the store"]
    collisions: Annotated[int, ITEMS, "hits of other keys with the same hash"]
    missing: Annotated[int, ITEMS, "hits whose record is not there"]
    scanned: Annotated[bool, "whether the log was read, too"]
    scanned_bytes: Annotated[int, BYTES, "how much of it"]
    damages: Annotated[int, "parts of it that cannot be read"]
    unread_bodies: Annotated[
        int,
        MESSAGES,
        "compressed bodies that could not be decompressed, or are too large",
    ]
    not_searched: Annotated[
        list[str],
        "what was not looked at: `log` (keys without an index item, other properties, bodies), "
        "`no-index`, `before-index` (messages before the first index file), "
        "`topics-without-queues` (`topics.json` is broken, which names them), "
        "`irregular-index-files`, `damaged-parts`, `compressed-bodies`, `other-topics`, "
        "`uploaded-files` (tiered storage of 5.x), `beyond-limit`; empty: the store has no other "
        "message with that text",
    ]
    body_crc_mismatches: NotRequired[Annotated[int, MESSAGES, _MISMATCHES]]


class TopicsSummary(TypedDict):
    type: Literal["summary"]
    topics: Annotated[int, TOPICS, "topics printed"]
    queues: Annotated[int, QUEUES, "their queues"]
    messages: Annotated[int, MESSAGES, "their messages"]
    bytes: Annotated[int | None, BYTES, "their bytes"]
    without_queues: Annotated[int, TOPICS, "topics that should have queues and have none"]
    without_config: Annotated[int, TOPICS, "topics that should be configured and are not"]


class GroupsSummary(TypedDict):
    type: Literal["summary"]
    groups: Annotated[int, "groups printed"]
    queues: Annotated[int, QUEUES, "offsets of queues that they have"]
    lag: Annotated[int, MESSAGES, "what they have still to read"]
    missed: Annotated[int, MESSAGES, "what was deleted before they have read it"]
    past_queue: Annotated[int, QUEUES, "offsets that are past the end of their queue"]


class GroupSetOffsetSummary(TypedDict):
    type: Literal["summary"]
    dry_run: Annotated[bool, "nothing was changed"]
    queues: Annotated[int, QUEUES, "queues that were asked for"]
    changed: Annotated[int, QUEUES, "queues whose offset has changed"]
    skipped: Annotated[int, MESSAGES, "of all queues"]
    read_again: Annotated[int, MESSAGES, "of all queues"]
    file: Annotated[str, "the file that holds the offsets"]
    journal: Annotated[
        str,
        "the file that holds the old ones, one JSON object a line: `timestamp`, `file`, `group`, "
        "`topic`, `queue_id`, `old_offset`, `new_offset`",
    ]


class ScheduleLsSummary(TypedDict):
    type: Literal["summary"]
    levels: Annotated[int, "levels printed"]
    pending: Annotated[int, MESSAGES, "messages that wait"]
    due: Annotated[int, MESSAGES, "of these, what a broker would deliver now"]


class ScheduleDeliverSummary(TypedDict):
    type: Literal["summary"]
    due: Annotated[int, MESSAGES, "as in `delivery`, of all levels"]
    delivered: Annotated[int, MESSAGES, "as there"]
    delivered_before: Annotated[int, MESSAGES, "as there"]
    passed_over: Annotated[int, MESSAGES, "as there"]
    stopped_levels: Annotated[
        int, "levels that a message has stopped, or that the configuration lacks"
    ]


class TransactionLsSummary(TypedDict):
    """Of the half messages since the progress of the broker's check, or with `--all` of all."""

    type: Literal["summary"]
    pending: Annotated[int, MESSAGES, "pending ones"]
    ended: Annotated[int, MESSAGES, "ended ones"]
    checked: Annotated[int, MESSAGES, "ones that the broker has put back as later ones"]


class TransactionEndSummary(TypedDict):
    """Of `transaction commit` and `transaction rollback`."""

    type: Literal["summary"]
    done: Annotated[int, "transactions ended"]
    refused: Annotated[int, "transactions refused"]
    not_tried: Annotated[int, "transactions after a put that was refused"]


KINDS = (
    Kind("summary (pull)", PullSummary),
    Kind("summary (pull --follow)", PullFollowSummary),
    Kind("summary (message)", MessageSummary),
    Kind("summary (index query)", IndexQuerySummary),
    Kind("summary (index query --raw)", IndexQueryRawSummary),
    Kind("summary (index info)", IndexInfoSummary),
    Kind("summary (clean)", CleanSummary),
    Kind("summary (du)", DuSummary),
    Kind("summary (du --disk)", DuDiskSummary),
    Kind("summary (config check)", ConfigCheckSummary),
    Kind("summary (config stores)", ConfigStoresSummary),
    Kind("summary (walk commitlog)", WalkCommitlogSummary),
    Kind("summary (walk commitlog --follow)", WalkCommitlogFollowSummary),
    Kind("summary (walk queue)", WalkQueueSummary),
    Kind("summary (walk index)", WalkIndexSummary),
    Kind("summary (queues)", QueuesSummary),
    Kind("summary (put)", PutSummary),
    Kind("summary (dump)", DumpSummary),
    Kind("summary (verify)", VerifySummary),
    Kind("summary (find)", FindSummary),
    Kind("summary (topics)", TopicsSummary),
    Kind("summary (groups)", GroupsSummary),
    Kind("summary (group set-offset)", GroupSetOffsetSummary),
    *rebuilt.KINDS,
    Kind("summary (schedule ls)", ScheduleLsSummary),
    Kind("summary (schedule deliver)", ScheduleDeliverSummary),
    Kind("summary (transaction ls)", TransactionLsSummary),
    Kind("summary (transaction)", TransactionEndSummary),
)
