"""The rows that only commands on Spark print, and those of ``verify`` and ``rebuild`` for several
stores."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows.field import (
    BYTES,
    FILES,
    HOURS,
    ITEMS,
    MESSAGES,
    MILLISECONDS,
    QUEUES,
    TOPICS,
    UNITS,
    Kind,
)


class VerifiedStoreRow(TypedDict):
    """One of several stores. A store that could not be checked has `store` and `error` alone."""

    type: Literal["store"]
    store: Annotated[str, "the store's directory"]
    records: NotRequired[Annotated[int, "records checked"]]
    blanks: NotRequired[Annotated[int, "blanks checked"]]
    queues: NotRequired[Annotated[int, QUEUES, "queues checked"]]
    units: NotRequired[Annotated[int, UNITS, "queue units checked"]]
    index_files: NotRequired[Annotated[int, FILES, "index files checked"]]
    index_items: NotRequired[Annotated[int, ITEMS, "index items checked"]]
    min_offset: NotRequired[Annotated[int, BYTES, "where the log starts"]]
    max_offset: NotRequired[Annotated[int, BYTES, "where it ends"]]
    errors: NotRequired[Annotated[int, "findings of severity `error`"]]
    warnings: NotRequired[Annotated[int, "findings of severity `warning`"]]
    infos: NotRequired[Annotated[int, "findings of severity `info`"]]
    error: Annotated[str | None, "why it could not be checked"]


class FindingOfStoreRow(TypedDict):
    """A [finding](rows.md#finding) in one of several stores. The fields on that page follow."""

    type: Literal["finding"]
    store: Annotated[
        str, "the store's directory; in the Parquet files of `--output` also of a single store"
    ]


class VerifyStoresSummary(TypedDict):
    """Of several stores: the sums of those that could be checked."""

    type: Literal["summary"]
    stores: Annotated[int, "stores asked for"]
    records: Annotated[int, "records checked"]
    blanks: Annotated[int, "blanks checked"]
    queues: Annotated[int, QUEUES, "queues checked"]
    units: Annotated[int, UNITS, "queue units checked"]
    index_files: Annotated[int, FILES, "index files checked"]
    index_items: Annotated[int, ITEMS, "index items checked"]
    errors: Annotated[int, "findings of severity `error`"]
    warnings: Annotated[int, "findings of severity `warning`"]
    infos: Annotated[int, "findings of severity `info`"]


class RebuiltStoreRow(TypedDict):
    """One of several stores. A store that could not be rebuilt has `store` and `error` alone."""

    type: Literal["store"]
    store: Annotated[str, "the store's directory"]
    structures: NotRequired[Annotated[list[str], "`consumequeue`, `index`"]]
    output: NotRequired[Annotated[str, "the directory that holds them"]]
    records: NotRequired[Annotated[int, "records read"]]
    queues: NotRequired[Annotated[int, QUEUES, "queues written"]]
    units: NotRequired[Annotated[int, UNITS, "units written"]]
    index_items: NotRequired[Annotated[int, ITEMS, "index items written"]]
    damages: NotRequired[Annotated[int, "parts of the log that were left out"]]
    kept: NotRequired[Annotated[list[str], "directories with the former files"]]
    purged: NotRequired[Annotated[list[str], "directories removed"]]
    error: Annotated[str | None, "why it could not be rebuilt"]


class DamageOfStoreRow(TypedDict):
    """[Damage](rows.md#damage) in one of several stores. The fields on that page follow."""

    type: Literal["damage"]
    store: Annotated[str, "the store's directory"]


class RebuildStoresSummary(TypedDict):
    """Of several stores."""

    type: Literal["summary"]
    output: Annotated[str, "the directory that was given, or `in place`"]
    rebuilt: Annotated[int, "stores rebuilt"]
    records: Annotated[int, "records read"]
    queues: Annotated[int, QUEUES, "queues written"]
    units: Annotated[int, UNITS, "units written"]
    index_items: Annotated[int, ITEMS, "index items written"]
    damages: Annotated[int, "parts of the log that were left out"]


class StoreStatsRow(TypedDict):
    """A store, in the order of their names: how far back its log reaches, and for how long its
    broker keeps log files.
    """

    type: Literal["store"]
    store: Annotated[str, "the store's directory or URL"]
    broker: Annotated[str, "its [name](../how-to/spark.md#names-of-brokers)"]
    messages: Annotated[int, MESSAGES, "messages that can be read"]
    bytes: Annotated[int, BYTES, "size of their records"]
    first_store_timestamp: Annotated[
        int | None, MILLISECONDS, "the earliest store time of its messages; null without any"
    ]
    last_store_timestamp: Annotated[int | None, MILLISECONDS, "the latest one"]
    file_reserved_hours: Annotated[
        int,
        HOURS,
        "`fileReservedTime`: a broker deletes log files that have not changed for longer",
    ]


class BrokerStatsRow(TypedDict):
    """A broker, if there are several stores. A row of `stats` is a group of messages. Groups with
    the most messages come first, unless their section says otherwise. Of brokers and topics, those
    with the most bytes are printed as well.
    """

    type: Literal["broker"]
    broker: Annotated[str, "its [name](../how-to/spark.md#names-of-brokers)"]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class TopicStatsRow(TypedDict):
    type: Literal["topic"]
    topic: Annotated[str, "topic"]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class QueueStatsRow(TypedDict):
    type: Literal["queue"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class TagStatsRow(TypedDict):
    type: Literal["tag"]
    topic: Annotated[str, "topic"]
    tag: Annotated[str | None, "tags; null: messages without"]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class HourStatsRow(TypedDict):
    """In the order of time."""

    type: Literal["hour"]
    hour: Annotated[int, MILLISECONDS, "begin of the hour, in UTC, in which they were stored"]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class ProducerStatsRow(TypedDict):
    type: Literal["producer"]
    producer: Annotated[str, "its address"]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class SizeStatsRow(TypedDict):
    """In the order of sizes."""

    type: Literal["size"]
    body_length_up_to: Annotated[
        int, BYTES, "the power of two that the stored body does not exceed"
    ]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class DelayStatsRow(TypedDict):
    """In the order of delays."""

    type: Literal["delay"]
    delay_ms_up_to: Annotated[
        int | None,
        MILLISECONDS,
        "the limit that store time minus born time does not exceed; null: more than an hour",
    ]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class ConsumerGroupStatsRow(TypedDict):
    """A consumer group that has retries or dead letters."""

    type: Literal["consumer_group"]
    group: Annotated[str, "consumer group: what follows `%RETRY%` or `%DLQ%` in the topic"]
    retries: Annotated[int, MESSAGES, "messages of `%RETRY%…`"]
    dead_letters: Annotated[int, MESSAGES, "messages of `%DLQ%…`"]
    messages: Annotated[int, MESSAGES, "both"]
    bytes: Annotated[int, BYTES, "size of their records"]


class UnreadableStatsRow(TypedDict):
    """A place that cannot be read, in the order of stores and offsets; `verify` says more of it."""

    type: Literal["unreadable"]
    store: Annotated[str, "the store's directory or URL"]
    physical_offset: Annotated[int | None, BYTES, "where it starts; null: the store as a whole"]
    length: Annotated[int | None, BYTES, "how far it is to the next record; at most 2³¹ − 1"]
    reason: Annotated[str, "a [finding code](findings.md), or why the store cannot be read"]


class DueStatsRow(TypedDict):
    """Delayed messages that wait to be delivered, in the order of time. Not of stores that are
    read from object storage.
    """

    type: Literal["due"]
    hour: Annotated[
        int | None,
        MILLISECONDS,
        "begin of the hour, in UTC, in which they are due; null: at no time that can be",
    ]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class HalfStatsRow(TypedDict):
    """Half messages of transactions that are pending, by producer group. Not of stores that are
    read from object storage.
    """

    type: Literal["half"]
    producer_group: Annotated[str | None, "the group that is asked; null: none is named"]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]
    oldest_born_timestamp: Annotated[int, MILLISECONDS, "when the oldest of them was born"]


class DuplicateKeyStatsRow(TypedDict):
    """A key that several messages of a topic have."""

    type: Literal["duplicate_key"]
    topic: Annotated[str, "topic"]
    kind: Annotated[str, "the property that holds it: `KEYS` or `UNIQ_KEY`"]
    key: Annotated[str, "the key"]
    messages: Annotated[int, MESSAGES, "messages that have it"]


class StatsSummary(TypedDict):
    type: Literal["summary"]
    stores: Annotated[int, "stores read"]
    messages: Annotated[int, MESSAGES, "messages"]
    bytes: Annotated[int, BYTES, "size of their records"]
    topics: Annotated[int, TOPICS, "topics"]
    queues: Annotated[int, QUEUES, "queues that messages are of"]
    retries: Annotated[int, MESSAGES, "messages of topics `%RETRY%…`"]
    dead_letters: Annotated[int, MESSAGES, "messages of topics `%DLQ%…`"]
    reconsumed: Annotated[int, MESSAGES, "messages that a consumer has sent back"]
    retry_rate: Annotated[float, "`retries` divided by `messages`"]
    dead_letter_rate: Annotated[float, "`dead_letters` divided by `messages`"]
    damages: Annotated[int, "places that cannot be read"]
    duplicate_keys: Annotated[int, "keys that several messages of a topic have"]
    messages_with_duplicate_key: Annotated[
        int, MESSAGES, "messages that have such a key, each counted once for each such key"
    ]
    waiting: Annotated[
        int | None,
        MESSAGES,
        "delayed messages that wait; null: the queues and `config/` of a store were not read, or "
        "cannot be read",
    ]
    pending_halves: Annotated[int | None, MESSAGES, "half messages that are pending; null likewise"]


class SqlRow(TypedDict):
    """A row of the result: `type` is `row`, and the other fields are the query's columns. Bytes are
    Base64, timestamps ISO 8601 in UTC. Intervals, variants and other types that JSON has no
    form for are as Spark writes them. Two columns of one name, or one called `type`, are
    refused: `AS` gives another name.
    """


class SqlSummary(TypedDict):
    type: Literal["summary"]
    rows: NotRequired[Annotated[int, "rows printed"]]
    output: NotRequired[Annotated[str, "with `--output`: the directory that holds them"]]


class ImportSummary(TypedDict):
    type: Literal["summary"]
    store: Annotated[str, "the store's directory"]
    messages: Annotated[int, MESSAGES, "messages stored"]


class ExportSummary(TypedDict):
    """`--format` is that of the files here: the summary is printed as text, `output=… format=…
    messages=… damages=…`: the directory, the format, the messages written, and the damaged
    places that were left out; then, where there are any, `body_crc_mismatches=…`: messages whose
    body is not what was stored. In NDJSON and CSV `body` is base64, and a column `body_encoding`
    says so.
    """


KINDS = (
    Kind("store (verify)", VerifiedStoreRow),
    Kind("finding (verify)", FindingOfStoreRow),
    Kind("summary (verify)", VerifyStoresSummary),
    Kind("store (rebuild)", RebuiltStoreRow),
    Kind("damage (rebuild)", DamageOfStoreRow),
    Kind("summary (rebuild)", RebuildStoresSummary),
    Kind("store (stats)", StoreStatsRow),
    Kind("broker (stats)", BrokerStatsRow),
    Kind("topic (stats)", TopicStatsRow),
    Kind("queue (stats)", QueueStatsRow),
    Kind("tag (stats)", TagStatsRow),
    Kind("hour (stats)", HourStatsRow),
    Kind("producer (stats)", ProducerStatsRow),
    Kind("size (stats)", SizeStatsRow),
    Kind("delay (stats)", DelayStatsRow),
    Kind("consumer_group (stats)", ConsumerGroupStatsRow),
    Kind("unreadable (stats)", UnreadableStatsRow),
    Kind("duplicate_key (stats)", DuplicateKeyStatsRow),
    Kind("due (stats)", DueStatsRow),
    Kind("half (stats)", HalfStatsRow),
    Kind("summary (stats)", StatsSummary),
    Kind("row (sql)", SqlRow),
    Kind("summary (sql)", SqlSummary),
    Kind("summary (import)", ImportSummary),
    Kind("summary (export)", ExportSummary),
)
