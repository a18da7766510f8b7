"""The rows of ``timer``, for the timer of 5.x."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, MESSAGES, MILLISECONDS, Kind


class TimerMessageRow(TypedDict):
    """A message with a time of delivery that a broker of 5.x has not delivered."""

    type: Literal["timer_message"]
    state: Annotated[
        str,
        "`pending`; `due` (the next start delivers it at once); `overdue` (the broker was away for "
        "so long that its start passes over it); `rolled` (its time is further away than the wheel "
        "goes: it is put in once more at slot_timestamp); `recalled`; `gone` (the log has it no "
        "more)",
    ]
    deliver_timestamp: Annotated[
        int | None, MILLISECONDS, "when it is delivered: TIMER_OUT_MS; null when it is gone"
    ]
    slot_timestamp: Annotated[
        int | None, MILLISECONDS, "time of its slot of the wheel; null: it is not in the wheel yet"
    ]
    topic: Annotated[str | None, "topic to which it goes"]
    queue_id: Annotated[str | None, "queue to which it goes, as the property has it"]
    unique_key: Annotated[str | None, "its UNIQ_KEY"]
    keys: Annotated[str | None, "its KEYS"]
    rolls: Annotated[int, "how often it was put into the wheel again"]
    physical_offset: Annotated[int, BYTES, "where its record starts in the log"]
    total_size: Annotated[int, BYTES, "size of the record"]
    queue_offset: Annotated[int | None, MESSAGES, "its number in `rmq_sys_wheel_timer`"]
    timer_log_position: Annotated[
        int | None, BYTES, "where `timerlog/` has it; null: it is not in the wheel yet"
    ]
    copy_offset: Annotated[
        int | None,
        BYTES,
        "of a due or overdue message: where the log has a copy of it in its topic (it was "
        "delivered, but this is not recorded); null: there is none, or no UNIQ_KEY to find it by",
    ]


class TimerLsSummary(TypedDict):
    """Of all messages, printed or not."""

    type: Literal["summary"]
    pending: Annotated[int, MESSAGES, "messages in this state"]
    due: Annotated[int, MESSAGES, "and in this"]
    overdue: Annotated[int, MESSAGES, "and in this"]
    rolled: Annotated[int, MESSAGES, "and in this"]
    recalled: Annotated[int, MESSAGES, "and in this"]
    gone: Annotated[int, MESSAGES, "and in this"]
    not_in_wheel: Annotated[int, MESSAGES, "of these, what is not in the wheel yet"]
    delivered_before: Annotated[int, MESSAGES, "of these, what has a copy"]
    read_timestamp: Annotated[
        int | None,
        MILLISECONDS,
        "up to where the timer has delivered, by `config/timercheck`; null without that",
    ]
    queue_offset: Annotated[
        int, MESSAGES, "where the next start continues in `rmq_sys_wheel_timer`"
    ]


class TimerRebuildSummary(TypedDict):
    """What became of the messages of `rmq_sys_wheel_timer` that the log has."""

    type: Literal["summary"]
    messages: Annotated[int, MESSAGES, "messages that wait, and are in the new wheel"]
    recalls: Annotated[int, MESSAGES, "messages that recall one, and are in it, too"]
    due: Annotated[
        int,
        MESSAGES,
        "of the messages, what the next start delivers at once: recalled ones are not",
    ]
    doubtful: Annotated[
        int,
        MESSAGES,
        "of these, what may have been delivered before: there is no UNIQ_KEY to find a copy by, or "
        "no check point that tells",
    ]
    done: Annotated[int, MESSAGES, "messages that the timer was through with"]
    delivered_before: Annotated[int, MESSAGES, "messages with a copy in their topic; left out"]
    superseded: Annotated[int, MESSAGES, "records with a later one, rolled; left out"]
    gone: Annotated[int, MESSAGES, "units of the queue whose record is missing: lost"]
    unreadable: Annotated[int, MESSAGES, "records without a time of delivery: left out"]
    read_timestamp: Annotated[int, MILLISECONDS, "the first slot that the next start delivers"]
    queue_offset: Annotated[
        int, MESSAGES, "where the next start continues in `rmq_sys_wheel_timer`"
    ]
    kept: Annotated[list[str], "directory in which the former files are kept"]


class TimerUndeliveredRow(TypedDict):
    """A message that is due and did not go to its topic."""

    type: Literal["timer_undelivered"]
    physical_offset: Annotated[int, BYTES, "where its record starts in the log"]
    queue_offset: Annotated[int | None, MESSAGES, "its number in `rmq_sys_wheel_timer`"]
    reason: Annotated[str, "`real-topic-missing`, `body-crc-mismatch` and others, as of a level"]
    detail: Annotated[str, "more of it"]


class TimerDeliverSummary(TypedDict):
    type: Literal["summary"]
    due: Annotated[int, MESSAGES, "messages that are due, or overdue"]
    delivered: Annotated[int, MESSAGES, "put into their topic; with `--dry-run`: what would be"]
    delivered_before: Annotated[int, MESSAGES, "messages with a copy in their topic; skipped"]
    undelivered: Annotated[int, MESSAGES, "that cannot be delivered: they stay in the timer"]
    kept: Annotated[list[str], "directory in which the former timer is kept"]


KINDS = (
    Kind("timer_message", TimerMessageRow, printed_by=("timer ls",)),
    Kind("summary (timer ls)", TimerLsSummary),
    Kind("summary (timer rebuild)", TimerRebuildSummary),
    Kind("timer_undelivered", TimerUndeliveredRow, printed_by=("timer deliver",)),
    Kind("summary (timer deliver)", TimerDeliverSummary),
)
