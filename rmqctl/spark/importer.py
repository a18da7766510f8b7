"""import: a new store from files of messages, such as export writes.

Messages are put anew, one bulk after the other in this process: offsets, store times and ids are
the new store's. Memory holds one partition of the input and one bulk.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.constants import PROPERTY_KEYS, PROPERTY_TAGS
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.message import LOCALHOST, MessageExtBrokerInner, parse_host
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.errors import RmqctlError, UsageError
from rmqctl.spark.staging import in_new_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What is read of the input; the rest of an export is the old store's.
COLUMNS = {
    "topic": "string",
    "queue_id": "int",
    "flag": "int",
    "born_timestamp": "bigint",
    "born_host": "string",
    "reconsume_times": "int",
    "tags": "string",
    "keys": "string",
    "properties": "map<string,string>",
    "body": "binary",
    "body_base64": "string",
}
_ORDER = ("store", "physical_offset")


class NotStored(RmqctlError):
    template = "message {number} of {source} was refused: {reason}. No store was made."


def read(spark: SparkSession, source: str, kind: str) -> DataFrame:
    """The messages of some files, in the order of their export when they tell it.

    :raises UsageError: they have no topic.
    """
    from pyspark.sql import functions as F

    # A topic 123 is a word.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    reader = spark.read
    if kind == "ndjson":
        extra = "store string, physical_offset bigint"
        kinds = {"body": "string"}
        schema = ", ".join(f"{name} {kinds.get(name, of)}" for name, of in COLUMNS.items())
        rows = reader.schema(f"{schema}, {extra}").json(source)
    elif kind == "csv":
        options = {"header": "true", "escape": '"', "multiLine": "true"}
        rows = reader.options(**options).csv(source)
    else:
        rows = reader.parquet(source)
    if "topic" not in rows.columns:
        raise UsageError(reason=f"{source} has no column topic.")
    wanted = []
    for name, of in COLUMNS.items():
        if name not in rows.columns:
            continue
        column = F.col(name)
        if name == "properties" and kind == "csv":
            column = F.from_json(column, of)
        wanted.append(column.cast(of).alias(name))
    # The files of a topic and day hold runs of messages; without the old places their order is
    # that of the files.
    order = [F.col(name) for name in _ORDER if name in rows.columns]
    if "physical_offset" in rows.columns:
        rows = rows.withColumn("physical_offset", F.col("physical_offset").cast("bigint"))
        rows = rows.orderBy(*order)
    return rows.select(*wanted)


def load(rows: DataFrame, source: str, to: str, config: MessageStoreConfig) -> int:
    """Makes the store; how many messages it has. It appears whole, or not at all.

    :raises OutputExists: there is something. :raises NotStored: a message is none.
    """
    count = 0
    with (
        in_new_directory(to) as place,
        MessageStore(Path(place), config, writable=True, create=True) as store,
    ):
        # Flushed once: until the end it is nobody's store.
        for stored, refused in store.append_stream(_messages(rows, source), flush=False):
            count += len(stored)
            if refused is not None:
                reason = refused.reason or refused.status.value
                raise NotStored(number=count + 1, source=source, reason=reason)
        store.flush()
    return count


def _messages(rows: DataFrame, source: str) -> Iterator[MessageExtBrokerInner]:
    names = rows.columns
    for number, row in enumerate(rows.toLocalIterator(), 1):
        try:
            yield _message(dict(zip(names, row, strict=True)))
        except (ValueError, RmqctlError) as error:
            raise NotStored(number=number, source=source, reason=error) from error


def _message(row: dict[str, Any]) -> MessageExtBrokerInner:
    from base64 import b64decode

    if not row["topic"]:
        raise ValueError("it has no topic")
    properties = dict(row.get("properties") or {})
    for name, key in (("keys", PROPERTY_KEYS), ("tags", PROPERTY_TAGS)):
        if row.get(name):
            properties[key] = row[name]
    body = row.get("body")
    if body is None:
        body = b64decode(row.get("body_base64") or "", validate=True)
    born, host = row.get("born_timestamp"), row.get("born_host")
    return MessageExtBrokerInner(
        row["topic"],
        bytes(body),
        row.get("queue_id") or 0,
        row.get("flag") or 0,
        0,
        properties,
        born_timestamp=system_clock() if born is None else born,
        born_host=parse_host(host) if host else LOCALHOST,
        reconsume_times=row.get("reconsume_times") or 0,
    )
