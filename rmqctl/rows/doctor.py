"""The rows of ``simulate-start``, ``checkpoint``, ``lint`` and ``corrupt``."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows.field import BYTES, FILES, MESSAGES, MILLISECONDS, QUEUES, SECONDS, Kind


class StepRow(TypedDict):
    """One step of a start."""

    type: Literal["step"]
    what: Annotated[
        str,
        "`normal-recovery`, `abnormal-recovery`, `load-log`, `load-queues`, `delete-index`, "
        "`scan-log`, `end-log`, `cut-queues`, `delete-queues`, `dispatch`, `retention`, "
        "`misplaced-file`, `misplaced-units`, `fail`",
    ]
    where: Annotated[str, "file, directory or physical offset; empty where there is none"]
    why: Annotated[str, "why there, in words"]


class DeletedRow(TypedDict):
    """A file that a start deletes."""

    type: Literal["deleted"]
    path: Annotated[str, "the file, relative to the store"]
    size: Annotated[int, BYTES, "its length"]
    why: Annotated[
        str,
        "`behind-log-end`, `behind-queue-end`, `index-in-doubt`, `log-missing`, `empty`; by the "
        "retention, a minute later: `expired`, `forced`, `before-log`",
    ]


class TruncatedRow(TypedDict):
    """A file that a start cuts: its bytes stay until others are written over them, and are not
    looked at any more."""

    type: Literal["truncated"]
    path: Annotated[str, "the file, relative to the store"]
    from_position: Annotated[int, BYTES, "place in the file where its data ends now"]
    to_position: Annotated[int, BYTES, "where it ends after the start"]


class StartedQueueRow(TypedDict):
    """A queue as it is after the start."""

    type: Literal["queue"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    min_offset: Annotated[int, MESSAGES, "first message of the queue"]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    lost: Annotated[int, MESSAGES, "messages that the queue has now, and not after the start"]


class CheckpointTimeRow(TypedDict):
    """One of the checkpoint's three times."""

    type: Literal["checkpoint_time"]
    name: Annotated[
        str,
        "`physic_msg_timestamp` (log), `logics_msg_timestamp` (queues) or `index_msg_timestamp`",
    ]
    stored_timestamp: Annotated[
        int | None,
        MILLISECONDS,
        "store time up to which it says that everything is on disk; null where there is no "
        "checkpoint",
    ]
    new_timestamp: Annotated[
        int | None,
        MILLISECONDS,
        "`compute`: the latest time that the data proves; `set`: what is stored; else null",
    ]
    ended_by: Annotated[
        str | None, "`compute`: code of the finding that ends the proof; null: nothing does"
    ]
    ended_at: Annotated[int | None, BYTES, "its place in the log"]


class SimulateStartSummary(TypedDict):
    type: Literal["summary"]
    version: Annotated[str, "the RocketMQ whose start was played"]
    starts: Annotated[bool, "the broker starts"]
    reason: Annotated[str | None, "why it does not; null where it does"]
    clean_shutdown: Annotated[bool, "there is no `abort`"]
    first_scanned_file: Annotated[
        str | None, "the log file from which the recovery reads; null where it comes to none"
    ]
    min_physical_offset: Annotated[int | None, BYTES, "first offset of the log after the start"]
    max_physical_offset: Annotated[int | None, BYTES, "where the log ends after the start"]
    messages_lost: Annotated[
        int, MESSAGES, "messages that can be read in the log now, and not after the start"
    ]
    bytes_lost: Annotated[int, BYTES, "size of their records"]
    queue_messages_lost: Annotated[int, MESSAGES, "what queues lose, summed up"]
    index_files_deleted: Annotated[
        int,
        FILES,
        "index files that go since the last stop was no clean one: only what the recovery reads is "
        "indexed again",
    ]
    retention_files: Annotated[
        int, FILES, "files that the retention deletes at the time of `--now`, if the broker runs"
    ]
    reput_from: Annotated[
        int | None,
        BYTES,
        "physical offset from which records are dispatched again after the recovery; null where "
        "nothing is (5.3.3 does all of it within the recovery)",
    ]
    bytes_to_scan: Annotated[int, BYTES, "log that the start reads"]
    estimated_seconds: Annotated[float, SECONDS, "how long that takes at 250 MB a second"]
    command: Annotated[
        str | None,
        "the command line that is next, quoted for a shell; null where the broker may start",
    ]


class CheckpointSummary(TypedDict):
    """Of `checkpoint show`, `checkpoint compute` and `checkpoint set`: what a start after a crash
    would read, by the new times where there are any."""

    type: Literal["summary"]
    newest_store_timestamp: Annotated[
        int | None, MILLISECONDS, "when the newest record was stored; null without records"
    ]
    says_too_much: Annotated[
        bool,
        "a stored time is later than the newest record, or than what is proven: after a crash "
        "messages would be missing in their queues",
    ]
    scan_from: Annotated[int, BYTES, "physical offset from which the log would be read"]
    first_scanned_file: Annotated[str | None, "the file that begins there; null without a log"]
    scan_why: Annotated[
        str,
        "`checkpoint`: the newest file whose first record is older than the checkpoint; "
        "`first-file`: no file is; `dledger`: a DLedger group keeps the log, and reads its last "
        "files whatever the checkpoint says",
    ]
    bytes_to_scan: Annotated[int, BYTES, "log that would be read"]
    estimated_seconds: Annotated[float, SECONDS, "how long that takes at 250 MB a second"]
    dry_run: NotRequired[Annotated[bool, "nothing was changed; of `checkpoint set`"]]
    master_flushed_offset: NotRequired[
        Annotated[int, BYTES, "of 5.x, where it is set: up to here the master had flushed"]
    ]
    confirm_phy_offset: NotRequired[
        Annotated[int, BYTES, "of 5.x, where it is set: up to here the copies had confirmed"]
    ]
    logics_physical_offset: NotRequired[
        Annotated[int, BYTES, "of 5.5, where it is set: its start after a crash reads from there"]
    ]


class LintSummary(TypedDict):
    type: Literal["summary"]
    log_files: Annotated[int, FILES, "files of the log"]
    queues: Annotated[int, QUEUES, "queues with a directory"]
    queue_files: Annotated[int, FILES, "files of queues and their extension"]
    index_files: Annotated[int, FILES, "index files"]
    size: Annotated[int, BYTES, "the length of all of them"]
    errors: Annotated[int, "findings of severity error"]
    warnings: Annotated[int, "findings of severity warning"]
    infos: Annotated[int, "findings of severity info"]


class CorruptedRow(TypedDict):
    """Something that was done to the copy of a store."""

    type: Literal["corrupted"]
    kind: Annotated[str, "the kind of damage, as of `--kind`"]
    path: Annotated[str, "the file or directory, relative to the store"]
    position: Annotated[int | None, BYTES, "place in the file; null where there is no one place"]
    length: Annotated[int, BYTES, "how much of it"]
    physical_offset: Annotated[int | None, BYTES, "place in the log"]
    what: Annotated[str, "what was done, in words"]


class CorruptSummary(TypedDict):
    type: Literal["summary"]
    output: Annotated[str, "the damaged copy"]
    seed: Annotated[int, "what chose the places"]
    copied_bytes: Annotated[int, BYTES, "data that was copied, without holes"]


KINDS = (
    Kind("step", StepRow, printed_by=("simulate-start",)),
    Kind("deleted", DeletedRow, printed_by=("simulate-start",)),
    Kind("truncated", TruncatedRow, printed_by=("simulate-start",)),
    Kind("queue (simulate-start)", StartedQueueRow, printed_by=("simulate-start",)),
    Kind(
        "checkpoint_time",
        CheckpointTimeRow,
        printed_by=("checkpoint show", "checkpoint compute", "checkpoint set"),
    ),
    Kind("corrupted", CorruptedRow, printed_by=("corrupt",)),
    Kind("summary (simulate-start)", SimulateStartSummary),
    Kind("summary (checkpoint)", CheckpointSummary),
    Kind("summary (lint)", LintSummary),
    Kind("summary (corrupt)", CorruptSummary),
)
