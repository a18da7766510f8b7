"""The rows of ``topics``, ``groups`` and ``group set-offset``."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, MESSAGES, MILLISECONDS, QUEUES, Kind


class TopicRow(TypedDict):
    """A topic that has queues, or an entry in `config/topics.json`."""

    type: Literal["topic"]
    topic: Annotated[str, "topic"]
    kind: Annotated[
        str,
        "`normal`, `retry` (`%RETRY%…`), `dead-letter` (`%DLQ%…`), `light` (`%LMQ%…`), `system` "
        "(a broker's own)",
    ]
    queues: Annotated[int, QUEUES, "queues that have a directory"]
    messages: Annotated[int, MESSAGES, "messages of these queues within reach"]
    bytes: Annotated[
        int | None,
        BYTES,
        "their records; null with `--no-bytes`; a message in several queues counts in each",
    ]
    oldest_store_timestamp: Annotated[
        int | None,
        MILLISECONDS,
        "when the oldest of the queues' first messages was stored; null without one that can be "
        "read",
    ]
    newest_store_timestamp: Annotated[
        int | None, MILLISECONDS, "when the newest of their last ones was"
    ]
    configured: Annotated[bool | None, "whether `topics.json` has it; null: there is no such file"]
    read_queue_nums: Annotated[
        int | None,
        QUEUES,
        "queues that consumers read, by `topics.json`; null, as the next ones, where nothing says "
        "so",
    ]
    write_queue_nums: Annotated[int | None, QUEUES, "queues that producers write"]
    perm: Annotated[int | None, "bits: 4 readable, 2 writable, 1 a template of new topics"]
    topic_filter_type: Annotated[str | None, "`SINGLE_TAG` or `MULTI_TAG`"]
    topic_sys_flag: Annotated[int | None, "bits: 1 of a unit, 2 subscribed in a unit"]
    order: Annotated[bool | None, "whether it is an ordered topic"]
    without_queues: Annotated[
        bool, "it is configured, should have queues once something is sent to it, and has none"
    ]
    without_config: Annotated[
        bool, "it has queues, and `topics.json` does not have it: no consumer finds it"
    ]


class GroupRow(TypedDict):
    """How far a consumer group has read a topic, over all its queues."""

    type: Literal["group"]
    group: Annotated[str, "consumer group"]
    topic: Annotated[
        str | None, "topic; null: the group is configured, and has no offset of any topic"
    ]
    configured: Annotated[
        bool | None,
        "whether `subscriptionGroup.json` has the group; null: there is no such file",
    ]
    queues: Annotated[int, QUEUES, "queues that it has an offset of"]
    queues_without_offset: Annotated[
        int,
        QUEUES,
        "queues of the topic with messages that it has none of; they are not in `lag`",
    ]
    lag: Annotated[int, MESSAGES, "what it has still to read"]
    behind_milliseconds: Annotated[int | None, MILLISECONDS, "the longest of its queues'"]
    missed: Annotated[int, MESSAGES, "what was deleted before it has read it"]
    next_store_timestamp: Annotated[
        int | None, MILLISECONDS, "when the oldest message was stored that it has still to read"
    ]
    state: Annotated[
        str,
        "the worst of its queues', in the order of `group_queue`; `no-offset` where `topic` is "
        "null",
    ]


class GroupQueueRow(TypedDict):
    """How far a consumer group has read a queue, by `config/consumerOffset.json`."""

    type: Literal["group_queue"]
    group: Annotated[str, "consumer group"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    consumer_offset: Annotated[int, MESSAGES, "queue offset of the message that it reads next"]
    min_offset: Annotated[int, MESSAGES, "first offset of the queue"]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    lag: Annotated[int, MESSAGES, "what it has still to read"]
    behind_milliseconds: Annotated[
        int | None,
        MILLISECONDS,
        "from when its next message was stored to when the queue's newest was; null: one of them "
        "cannot be read",
    ]
    missed: Annotated[int, MESSAGES, "what was deleted before it has read it"]
    next_store_timestamp: Annotated[
        int | None,
        MILLISECONDS,
        "when its next message was stored; null: there is none, or it cannot be read",
    ]
    state: Annotated[
        str,
        "`past-queue` (its offset is past the queue's end), `before-queue` (its offset is before "
        "the queue's first message), `no-queue`, `ok`",
    ]


class OffsetChangeRow(TypedDict):
    """What becomes of a group's offset of a queue."""

    type: Literal["offset_change"]
    group: Annotated[str, "consumer group"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    old_offset: Annotated[int | None, MESSAGES, "its offset before; null: it had none"]
    new_offset: Annotated[int, MESSAGES, "its offset then: the message that it reads next"]
    min_offset: Annotated[int, MESSAGES, "first offset of the queue"]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    skipped: Annotated[int, MESSAGES, "what it had still to read and will not get"]
    read_again: Annotated[int, MESSAGES, "what it has read and will get once more"]


KINDS = (
    Kind("topic", TopicRow, printed_by=("topics",)),
    Kind("group", GroupRow, printed_by=("groups",)),
    Kind("group_queue", GroupQueueRow, printed_by=("groups",)),
    Kind("offset_change", OffsetChangeRow, printed_by=("group set-offset",)),
)
