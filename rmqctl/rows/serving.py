"""What ``serve`` prints: that it is ready, and what was left behind."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import MESSAGES, TOPICS, Kind


class ListeningRow(TypedDict):
    """The store is served from now on."""

    type: Literal["listening"]
    address: Annotated[str, "where clients connect, as broker and as name server"]
    ha_address: Annotated[str | None, "where slaves connect; null: there are to be none"]
    store: Annotated[str, "the store"]
    broker_name: Annotated[str, "name of the broker in routes"]
    cluster_name: Annotated[str, "name of its cluster"]
    read_only: Annotated[bool, "whether every message that is sent is refused"]
    topics: Annotated[int, TOPICS, "topics that are served"]


class CommittedOffsetRow(TypedDict):
    """At the end: an offset that a group has committed, which the store does not have."""

    type: Literal["committed_offset"]
    group: Annotated[str, "group"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue"]
    stored_offset: Annotated[
        int | None, MESSAGES, "its offset in `config/consumerOffset.json`; null: there is none"
    ]
    committed_offset: Annotated[int, MESSAGES, "the one that it has committed here"]


class ServeSummary(TypedDict):
    type: Literal["summary"]
    connections: Annotated[int, "connections that were served"]
    requests: Annotated[int, "requests that were received"]
    committed_offsets: Annotated[int, "rows of that type"]


KINDS = (
    Kind("listening", ListeningRow, printed_by=("serve",)),
    Kind("committed_offset", CommittedOffsetRow, printed_by=("serve",)),
    Kind("summary (serve)", ServeSummary),
)
