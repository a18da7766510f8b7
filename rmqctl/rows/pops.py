"""The rows of ``pop ls``: messages that consumers have popped and not acknowledged."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import MESSAGES, MILLISECONDS, QUEUES, Kind


class PopCheckPointRow(TypedDict):
    """Messages of one queue that one pop has taken."""

    type: Literal["pop_check_point"]
    group: Annotated[str, "consumer group that has them"]
    topic: Annotated[str, "their topic: a retry topic where they were given back before"]
    queue_id: Annotated[int, "their queue"]
    state: Annotated[
        str,
        "`invisible`: nobody else of the group gets them yet; `due`: a broker gives back what was "
        "not acknowledged; `acked`: all of it was (with `--all`)",
    ]
    messages: Annotated[int, MESSAGES, "messages taken"]
    acked: Annotated[int, MESSAGES, "of these, acknowledged ones"]
    waiting: Annotated[int, MESSAGES, "of these, the others"]
    lost: Annotated[
        int,
        MESSAGES,
        "of the waiting ones, those that are before the queue's first message or after its last, "
        "or whose topic is not in `topics.json`: a broker gives them back to no consumer",
    ]
    queue_offsets: Annotated[list[int], "queue offsets of the waiting ones"]
    pop_timestamp: Annotated[int, MILLISECONDS, "when they were taken"]
    visible_timestamp: Annotated[int, MILLISECONDS, "until when they are invisible"]
    remaining_milliseconds: Annotated[
        int, MILLISECONDS, "from `--now` to then; negative when it is over"
    ]
    retry_topic: Annotated[str, "where a broker puts what it gives back, into queue 0"]
    re_put_times: Annotated[
        int, "how often a broker failed to give messages back, and put the check point again"
    ]
    revive_topic: Annotated[str, "topic of the check point"]
    revive_queue_id: Annotated[int, "its queue there"]
    revive_offset: Annotated[
        int | None, MESSAGES, "its number there; null: it waits in the timer wheel"
    ]
    physical_offset: Annotated[int, "where its record starts in the log"]


class PopOrderRow(TypedDict):
    """A queue that a group pops in order, by `config/consumerOrderInfo.json`."""

    type: Literal["pop_order"]
    group: Annotated[str, "consumer group"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue"]
    state: Annotated[
        str,
        "`blocked`: nobody of the group gets a message of it; `due`: the waiting ones are given "
        "again; `acked`: none waits",
    ]
    messages: Annotated[int, MESSAGES, "messages of the last pop"]
    acked: Annotated[int, MESSAGES, "of these, acknowledged ones"]
    waiting: Annotated[int, MESSAGES, "of these, the others"]
    queue_offsets: Annotated[list[int], "queue offsets of the waiting ones"]
    pop_timestamp: Annotated[int, MILLISECONDS, "when they were taken"]
    visible_timestamp: Annotated[
        int | None, MILLISECONDS, "until when the queue is blocked; null: it is not"
    ]
    remaining_milliseconds: Annotated[
        int | None, MILLISECONDS, "from `--now` to then; negative when it is over"
    ]


class PopQueueRow(TypedDict):
    """A queue of the revive topic, from which a broker processes check points."""

    type: Literal["pop_queue"]
    revive_topic: Annotated[str, "topic"]
    revive_queue_id: Annotated[int, "queue"]
    progress: Annotated[
        int | None,
        MESSAGES,
        "offset of the last check point that was processed, by `config/consumerOffset.json`; "
        "null: none was",
    ]
    min_offset: Annotated[int, MESSAGES, "first offset of the queue"]
    max_offset: Annotated[int, MESSAGES, "offset that the next one gets"]
    behind: Annotated[int, MESSAGES, "check points and acknowledgements that follow"]


class PopLsSummary(TypedDict):
    type: Literal["summary"]
    check_points: Annotated[int, "check points that a broker has still to process"]
    messages: Annotated[int, MESSAGES, "messages that are taken and not acknowledged"]
    due: Annotated[int, MESSAGES, "of these, what a broker gives back at once"]
    lost: Annotated[int, MESSAGES, "of these, what it cannot give back"]
    acked: Annotated[int, "check points whose messages are all acknowledged"]
    ordered_queues: Annotated[int, QUEUES, "queues that are popped in order"]
    blocked_queues: Annotated[int, QUEUES, "of these, blocked ones"]
    next_visible_timestamp: Annotated[
        int | None, MILLISECONDS, "when the next messages become visible; null: none do"
    ]
    unreadable: Annotated[
        int, MESSAGES, "messages of the revive topic that are no check point and no acknowledgement"
    ]


KINDS = (
    Kind("pop_check_point", PopCheckPointRow, printed_by=("pop ls",)),
    Kind("pop_order", PopOrderRow, printed_by=("pop ls",)),
    Kind("pop_queue", PopQueueRow, printed_by=("pop ls",)),
    Kind("summary (pop ls)", PopLsSummary),
)
