"""Putting a golden store's messages again gives the engine's bytes: log, queues and index.

What a producer sent is worked out from the stored records (:func:`as_sent`), put with the same
hosts and times, and everything that was written is compared.

========== ======== ============================================================================
store      puts     what the comparison rests on
========== ======== ============================================================================
basic      600      seven files; 93 records have an empty property, put with it in the map
ipv6       200      the host flags come from the hosts
transaction 240     half, op, commit, prepared and rollback records as they are
delay      150      topic and queue from REAL_TOPIC and REAL_QID, which the put adds again
batch      30       as batches (boundaries from the keys); one of them does not fit and rolls
lmq        200      INNER_MULTI_QUEUE_OFFSET taken out, which the put adds again
cqext      300      queues and extension without the bit maps of the engine's filters
crash      600      up to the end: the kill left the next log file made and empty
broker     829      put with stored bytes: 20 records of batches, which repeat WAIT, and 99
                    delivered ones, which keep DELAY; all others by map
defaults   60       files of 1 GiB, 6 MB and 420 MB, compared without their holes
========== ======== ============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from pathlib import Path

import pytest

from formats import constants
from formats.text import decode_utf8, encode_properties, split_properties
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.operations.verify import Summary, verify
from tests.conftest import Golden
from tests.golden_data import STORES, broker_conf, expected, index_contents, tree_content
from tests.test_golden.test_reading import assert_extension_is_the_engines

#: Records whose properties no map gives back: ``metrics`` of ``broker`` was put in batches, and a
#: batch's own properties are appended to each message's.
STORED_AS_BYTES = {"broker": 20}
#: Messages of the schedule that were delivered: stored with DELAY, put without.
DELIVERED = {"broker": 99}


def properties_map(record: Record) -> dict[str, str]:
    """All properties with empty values too, which RocketMQ's decoder would drop."""
    entries = split_properties(record.properties_bytes)
    return {decode_utf8(name): decode_utf8(value or b"") for name, value in entries}


def as_sent(store: MessageStore, record: Record) -> MessageExtBrokerInner:
    """The message as it came to ``putMessage``: what the append itself adds is taken out."""
    properties = properties_map(record)
    topic, queue_id = record.topic, record.queue_id
    properties_bytes = None
    if encode_properties(properties) != record.properties_bytes:
        properties_bytes = record.properties_bytes
    if topic == constants.RMQ_SYS_SCHEDULE_TOPIC:
        assert constants.PROPERTY_DELAY_TIME_LEVEL in properties
        topic = properties.pop(constants.PROPERTY_REAL_TOPIC)
        queue_id = int(properties.pop(constants.PROPERTY_REAL_QUEUE_ID))
    elif properties.pop(constants.PROPERTY_DELAY_TIME_LEVEL, None) is not None:
        # Delivered: the engine encodes the properties before it takes DELAY out of the map
        # (ScheduleMessageService#messageTimeup), so the stored bytes keep it.
        properties_bytes = record.properties_bytes
    properties.pop(constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET, None)
    return MessageExtBrokerInner(
        topic,
        store.body(record),
        queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag & ~constants.HOST_V6_MASK,
        properties=properties,
        properties_bytes=properties_bytes,
        born_timestamp=record.born_timestamp,
        born_host=(record.born_address, record.born_port),
        store_host=(record.store_address, record.store_port),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def stored(golden: Golden, name: str) -> tuple[list[Record], list[MessageExtBrokerInner]]:
    """The records of a golden store, and the messages that they were."""
    with MessageStore(golden(name), broker_conf(name)) as store:
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
        return records, [as_sent(store, record) for record in records]


def batches(messages: Iterable[MessageExtBrokerInner]) -> Iterator[list[MessageExtBrokerInner]]:
    """The messages of the ``batch`` store as they were put: the key is ``bk<batch>_<number>``."""
    for _, group in groupby(messages, lambda m: m.properties["KEYS"].partition("_")[0]):
        yield list(group)


def written(name: str, root: Path, golden_root: Path) -> None:
    """Asserts that log, queues and index of ``root`` are the golden store's."""
    log, engine_log = tree_content(root / "commitlog"), tree_content(golden_root / "commitlog")
    if name == "crash":
        made_ahead = set(engine_log) - set(log)
        assert all(engine_log[file][1] == {} for file in made_ahead)
        engine_log = {file: engine_log[file] for file in log}
    assert log == engine_log
    queues = golden_root / "consumequeue"
    if name == "cqext":
        assert_extension_is_the_engines(root, golden_root)
    else:
        assert tree_content(root / "consumequeue") == tree_content(queues)
        assert not (root / "consumequeue_ext").exists()
    assert index_contents(root / "index") == index_contents(golden_root / "index")


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("how", ["one by one", "as a stream"])
def test_putting_the_messages_again_gives_the_engines_bytes(
    golden: Golden, tmp_path: Path, name: str, how: str
) -> None:
    records, messages = stored(golden, name)
    times = iter([record.store_timestamp for record in records])
    root = tmp_path / "store"
    with MessageStore(
        root, broker_conf(name), writable=True, create=True, clock=lambda: next(times)
    ) as store:
        if name == "batch":
            puts = list(batches(messages))
            assert len(puts) == 30
            # A batch has one store time.
            starts = [0, *accumulate(map(len, puts))][:-1]
            times = iter([records[start].store_timestamp for start in starts])
            results = [r for put in puts for r in store.put_messages(put, batch=True, flush=False)]
        elif how == "one by one":
            results = [store.put_message(message, flush=False) for message in messages]
        else:
            results = [r for bulk in store.put_stream(messages, flush=False) for r in bulk]
    for record, result in zip(records, results, strict=True):
        assert result.is_ok
        append = result.append
        assert append is not None
        assert (append.wrote_offset, append.wrote_bytes, append.msg_id, append.queue_offset) == (
            record.physical_offset,
            record.total_size,
            record.msg_id,
            record.queue_offset,
        )
        assert (result.topic, result.queue_id) == (record.topic, record.queue_id)
    by_bytes = sum(message.properties_bytes is not None for message in messages)
    assert by_bytes == STORED_AS_BYTES.get(name, 0) + DELIVERED.get(name, 0)
    written(name, root, golden(name))
    summary = list(verify(root, broker_conf(name)))[-1]
    assert isinstance(summary, Summary)
    assert summary.is_clean


def test_a_batch_of_the_engine_rolled_as_a_whole(golden: Golden) -> None:
    """The golden batch store shows what :func:`batches` must find: its first message alone would
    have fitted into the file that the blank closes."""
    _, messages = stored(golden, "batch")
    (blank,) = expected("batch")["blank"]
    rows = expected("batch")["message"]
    after = next(i for i, r in enumerate(rows) if r["physicalOffset"] > blank["physicalOffset"])
    assert rows[after]["size"] + 8 <= blank["size"]
    starts = [0]
    for batch in batches(messages):
        starts.append(starts[-1] + len(batch))
    assert after in starts


@pytest.mark.parametrize("name", STORES)
def test_the_map_alone_gives_the_stored_order_of_properties(golden: Golden, name: str) -> None:
    """Every record of the engine has the order of Java's HashMap, whatever order its names had.

    Records that repeat a name are the only ones that a map cannot hold.
    """
    with MessageStore(golden(name), broker_conf(name)) as store:
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    by_bytes = 0
    for record in records:
        entries = split_properties(record.properties_bytes)
        properties = properties_map(record)
        if len(entries) != len(properties):
            by_bytes += 1
            continue
        assert encode_properties(properties) == record.properties_bytes
        ordered = dict(sorted(properties.items()))
        # Names of one bucket keep the order in which they were set: only these may differ.
        again = split_properties(encode_properties(ordered))
        assert sorted(again) == sorted(entries)
        if all(value for _, value in entries):
            assert record.properties == properties
            assert encode_properties(record.properties) == record.properties_bytes
    assert by_bytes == STORED_AS_BYTES.get(name, 0)


def test_one_wrong_byte_would_be_seen(golden: Golden, tmp_path: Path) -> None:
    """The comparison does fail when one message differs in one bit of its flag."""
    records, messages = stored(golden, "delay")
    messages[100].flag ^= 1
    times = iter([record.store_timestamp for record in records])
    with MessageStore(
        tmp_path / "s", broker_conf("delay"), writable=True, create=True, clock=lambda: next(times)
    ) as store:
        for message in messages:
            store.put_message(message, flush=False)
    with pytest.raises(AssertionError):
        written("delay", tmp_path / "s", golden("delay"))
