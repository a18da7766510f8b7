"""Messages as columns of Apache Arrow, batch by batch. The module is loaded on first use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rmqctl.arrow.present import check_arrow
from rmqctl.library.damage import DamageTeller
from rmqctl.library.messages import log_end
from rmqctl.rows.columns import Source, source_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.engine.record.record import Record
    from rmqctl.engine.scan.choice import Choice
    from rmqctl.library.messages import Messages
    from rmqctl.library.store import Store


def reader(messages: Messages, columns: Iterable[str] | None) -> pa.RecordBatchReader:
    """:meth:`Messages.to_arrow`."""
    check_arrow()
    import pyarrow as pa

    from rmqctl.arrow.reader import message_schema

    schema = message_schema([columns] if isinstance(columns, str) else columns)
    store = messages.store
    store.check_open()

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in messages._batches(schema):
            yield batch
            store.check_open()

    return pa.RecordBatchReader.from_batches(schema, batches())


def of_log(store: Store, schema: pa.Schema, choice: Choice) -> Iterator[pa.RecordBatch]:
    """Messages in the order of the log."""
    from rmqctl.arrow.reader import log_batches

    log, damage = store.engine.commit_log, DamageTeller()
    source, end = _source(store), log_end(store)
    return log_batches(log, schema, source, choice, damage.of_log, damage.of_bodies, end=end)


def of_records(
    store: Store, schema: pa.Schema, records: Iterator[Record]
) -> Iterator[pa.RecordBatch]:
    """Messages of queues."""
    from rmqctl.arrow.reader import record_batches

    log = store.engine.commit_log
    return record_batches(log, records, schema, _source(store), DamageTeller().of_bodies)


def _source(store: Store) -> Source:
    return source_of(str(store.path.absolute()), store.engine.config.broker_name)
