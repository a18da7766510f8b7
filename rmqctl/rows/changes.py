"""The rows of commands that write: what they did, and what is still to be done."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows.field import BYTES, FILES, ITEMS, MESSAGES, MILLISECONDS, QUEUES, UNITS, Kind


class RecoveryRow(TypedDict):
    """What opening a store for writing does first, after a crash or a loss, as a broker’s start
    would. Commands that write print it when they only say what they would do, and there is
    something to do.
    """

    type: Literal["recovery"]
    clean_shutdown: Annotated[bool, "there is no `abort`"]
    scan_from: Annotated[
        int | None, BYTES, "physical offset from which the log is read; null after a clean stop"
    ]
    scan_why: Annotated[
        str | None,
        "`checkpoint`: the newest file whose first record is older than the checkpoint; "
        "`first-file`: no file is",
    ]
    bytes_to_scan: Annotated[int, BYTES, "log to be read"]
    log_end: Annotated[int, BYTES, "physical offset at which the log ends"]
    dispatch_from: Annotated[int, BYTES, "physical offset from which records are dispatched again"]
    bytes_to_dispatch: Annotated[int, BYTES, "log to be dispatched again"]
    queues_cut: Annotated[int, QUEUES, "queues that lose units, or a file without any"]
    units_removed: Annotated[
        int, UNITS, "units that are removed; those whose records are in the log are written again"
    ]
    index_files_changed: Annotated[int, FILES, "index files that are repaired, cut or removed"]
    index_items_removed: Annotated[
        int, ITEMS, "items that are removed; those whose records are in the log are written again"
    ]


class AppendResultRow(TypedDict):
    """What became of a message."""

    type: Literal["append_result"]
    status: Annotated[
        str,
        "RocketMQ's `PutMessageStatus`; stored with `PUT_OK`, and with "
        "`FLUSH_DISK_TIMEOUT`: then it may not be on disk",
    ]
    msg_id: Annotated[str | None, "offset message id; of a batch all of them, commas between"]
    topic: Annotated[str, "topic as stored: a delay changes it"]
    queue_id: Annotated[int, "queue as stored"]
    wrote_offset: Annotated[int | None, BYTES, "where the record starts in the log"]
    wrote_bytes: Annotated[int | None, BYTES, "its size"]
    queue_offset: Annotated[int | None, MESSAGES, "its number in the queue"]
    store_timestamp: Annotated[int | None, MILLISECONDS, "when it was stored"]
    reason: NotRequired[Annotated[str, "why it was not stored"]]
    next_line: NotRequired[
        Annotated[int, "of the row that ends `put --from`: the line to go on from"]
    ]
    messages: NotRequired[
        Annotated[
            int,
            MESSAGES,
            "with `--batch`: how many the row stands for; offsets are the first one's, bytes "
            "are of all",
        ]
    ]


class DelayLevelRow(TypedDict):
    """A delay level that has a queue or a progress."""

    type: Literal["delay_level"]
    level: Annotated[int, "level; its queue in `SCHEDULE_TOPIC_XXXX` is level − 1"]
    delay_milliseconds: Annotated[
        int | None,
        MILLISECONDS,
        "its delay in `messageDelayLevel`; null when that has no such level",
    ]
    progress: Annotated[int | None, MESSAGES, "its offset in `config/delayOffset.json`"]
    min_offset: Annotated[int, MESSAGES, "offset of the oldest message within reach"]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    next_offset: Annotated[int | None, MESSAGES, "where a broker continues; null without a queue"]
    pending: Annotated[int, MESSAGES, "messages from there on"]
    due: Annotated[int, MESSAGES, "of these, what a broker would deliver now"]
    next_delivery_timestamp: Annotated[
        int | None, MILLISECONDS, "delivery time of the first of them"
    ]


class DeliveryRow(TypedDict):
    """A level with due messages."""

    type: Literal["delivery"]
    level: Annotated[int, "level"]
    progress_before: Annotated[
        int | None, MESSAGES, "its offset in `config/delayOffset.json` before"
    ]
    progress: Annotated[int | None, MESSAGES, "and after; with `--dry-run`: what it would be"]
    due: Annotated[int, MESSAGES, "messages that were due"]
    delivered: Annotated[int, MESSAGES, "messages put into their real queue"]
    delivered_before: Annotated[
        int,
        MESSAGES,
        "messages with a copy there already: delivered once more, or with `--skip-delivered` "
        "skipped",
    ]
    passed_over: Annotated[
        int, MESSAGES, "messages that `undelivered` rows name and that do not stop the level"
    ]
    pending: Annotated[int, MESSAGES, "messages that are left"]
    wrote_from: Annotated[
        int | None, BYTES, "where the first record of the level was put in the log"
    ]
    wrote_to: Annotated[int | None, BYTES, "where the last one ends"]


class UndeliveredRow(TypedDict):
    """A message, or neighbouring ones, that did not go to the real topic."""

    type: Literal["undelivered"]
    level: Annotated[int, "level"]
    queue_offset: Annotated[int, MESSAGES, "the first of them in the level's queue"]
    messages: Annotated[int, MESSAGES, "how many"]
    physical_offset: Annotated[int | None, BYTES, "where the record of the first is, or was"]
    reason: Annotated[str, "[why](../how-to/delayed-messages.md#messages-that-cannot-be-delivered)"]
    stops_the_level: Annotated[bool, "whether the messages after it wait"]
    detail: Annotated[str, "what was found"]
    next_step: Annotated[str, "what to do"]


class HalfMessageRow(TypedDict):
    """A half message of a transaction."""

    type: Literal["half_message"]
    physical_offset: Annotated[
        int, BYTES, "where the record starts in the log: its name for `transaction commit`"
    ]
    queue_id: Annotated[int, "queue of `RMQ_SYS_TRANS_HALF_TOPIC`"]
    queue_offset: Annotated[int, MESSAGES, "its number there"]
    state: Annotated[
        str,
        "`pending`, `ended` by an op message, or `checked`: put back by the broker as a later one",
    ]
    real_topic: Annotated[str | None, "where its commit goes"]
    real_queue_id: Annotated[str | None, "and into which queue, as the property has it"]
    producer_group: Annotated[str | None, "the group that the broker asks"]
    unique_key: Annotated[str | None, "`UNIQ_KEY`, the transaction id"]
    keys: Annotated[str | None, "`KEYS`"]
    check_times: Annotated[int, "how often the broker has asked; -1 when the property is no number"]
    born_timestamp: Annotated[int, MILLISECONDS, "when the producer made it"]
    store_timestamp: Annotated[int, MILLISECONDS, "when the broker stored it"]
    age_milliseconds: Annotated[int, MILLISECONDS, "time since it was made"]
    final_offset: Annotated[
        int | None,
        BYTES,
        "of a pending one whose commit was cut off: where the final message is in the log already",
    ]
    broker_does: Annotated[str | None, "of a pending one: `wait`, `ask` or `discard`"]


class TransactionRow(TypedDict):
    """What became of a transaction that was to be ended."""

    type: Literal["transaction"]
    action: Annotated[str, "`commit` or `rollback`"]
    status: Annotated[
        str, "`PUT_OK`, `DRY_RUN`, or [why not](../how-to/transactions.md#commit-roll-back)"
    ]
    physical_offset: Annotated[int, BYTES, "the half message"]
    queue_offset: Annotated[int | None, MESSAGES, "its number in its queue"]
    real_topic: Annotated[str | None, "topic of the final message"]
    real_queue_id: Annotated[str | None, "its queue, as the property has it"]
    producer_group: Annotated[str | None, "producer group of the half"]
    final_offset: Annotated[int | None, BYTES, "of a commit: where the final message is in the log"]
    op_offset: Annotated[int | None, BYTES, "where the op message is"]
    reason: NotRequired[Annotated[str, "why it was refused"]]


KINDS = (
    Kind("recovery", RecoveryRow),
    Kind("append_result", AppendResultRow, printed_by=("put",)),
    Kind("delay_level", DelayLevelRow, printed_by=("schedule ls",)),
    Kind("delivery", DeliveryRow, printed_by=("schedule deliver",)),
    Kind("undelivered", UndeliveredRow, printed_by=("schedule deliver",)),
    Kind("half_message", HalfMessageRow, printed_by=("transaction ls",)),
    Kind("transaction", TransactionRow, printed_by=("transaction commit", "transaction rollback")),
)
