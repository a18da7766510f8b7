"""The rows of ``diff``."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, MESSAGES, Kind


class DifferenceRow(TypedDict):
    """Something that two stores do not have in common."""

    type: Literal["difference"]
    structure: Annotated[
        str, "`commitlog`, `queue`, `consumer_offset`, `delay_offset`, `topic` or `group`"
    ]
    kind: Annotated[
        str,
        "`differs`, `only-in-a`, `only-in-b`; of logs also `parted` (from here on nothing was "
        "compared) and `file-sizes-differ`, of queues `ranges-differ` and `units-differ`",
    ]
    physical_offset: Annotated[int | None, BYTES, "of logs: where the first record concerned is"]
    length: Annotated[int | None, BYTES, "of logs: how far it goes"]
    topic: Annotated[str | None, "topic"]
    queue_id: Annotated[int | None, "queue of the topic"]
    queue_offset: Annotated[int | None, MESSAGES, "the first message concerned"]
    messages: Annotated[int | None, MESSAGES, "of logs and queues: how many; null: unknown"]
    group: Annotated[str | None, "consumer group"]
    a: Annotated[str | None, "what the first store has; null: nothing"]
    b: Annotated[str | None, "what the second one has"]


class DiffSummary(TypedDict):
    type: Literal["summary"]
    same: Annotated[bool, "no difference was found"]
    compared_bytes: Annotated[int, BYTES, "log that both have"]
    first_divergence: Annotated[int | None, BYTES, "the first record that differs, in both logs"]
    commitlog: Annotated[int, "differences of the logs"]
    queues: Annotated[int, "of the queues"]
    consumer_offsets: Annotated[int, "of what consumers have read"]
    delay_offsets: Annotated[int, "of what was delivered of delayed messages"]
    topics: Annotated[int, "of the topics of `config/`"]
    groups: Annotated[int, "of the groups of `config/`"]


KINDS = (
    Kind("difference", DifferenceRow, printed_by=("diff",)),
    Kind("summary (diff)", DiffSummary),
)
