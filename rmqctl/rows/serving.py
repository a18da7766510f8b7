"""The rows of ``serve``: that it is ready, its access log, and offsets that it does not store."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, MESSAGES, MILLISECONDS, TOPICS, Kind


class ListeningRow(TypedDict):
    """The store is served from now on."""

    type: Literal["listening"]
    address: Annotated[str, "where clients connect, as broker and as name server"]
    ha_address: Annotated[str | None, "where slaves connect; null: there are to be none"]
    store: Annotated[str, "the store"]
    broker_name: Annotated[str, "name of the broker in routes"]
    cluster_name: Annotated[str, "name of its cluster"]
    metrics_address: Annotated[str | None, "where Prometheus asks; null: nowhere"]
    read_only: Annotated[bool, "whether every message that is sent is refused"]
    flush: Annotated[
        str | None,
        "`sync` or `async`: what is sent is on disk before it is answered, or soon after; null: "
        "nothing is taken",
    ]
    topics: Annotated[int, TOPICS, "topics that are served"]


class AccessRow(TypedDict):
    """A line of the access log (`serve --access-log`): a request that was answered."""

    type: Literal["access"]
    timestamp: Annotated[int, MILLISECONDS, "when it was answered"]
    peer: Annotated[str, "the client's address"]
    account: Annotated[str | None, "the account that it says it is"]
    request: Annotated[str, "what was asked: Java's name, or `other`"]
    request_code: Annotated[int, "its number"]
    topic: Annotated[str | None, "the topic that it names"]
    group: Annotated[str | None, "the group that it names"]
    answer_code: Annotated[
        int | None, "`ResponseCode` of the answer; null: the connection was closed instead"
    ]
    milliseconds: Annotated[int, "from the request to its answer; of a pull with its wait"]
    received_bytes: Annotated[int, BYTES, "bytes of the request's body"]
    sent_bytes: Annotated[int, BYTES, "bytes of the answer's body"]


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
    Kind("access", AccessRow, printed_by=("serve",)),
    Kind("committed_offset", CommittedOffsetRow, printed_by=("serve",)),
    Kind("summary (serve)", ServeSummary),
)
