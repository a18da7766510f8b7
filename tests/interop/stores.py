"""Random stores: their settings, the messages to put into them, and what rmqctl reads from them.

One generator of messages serves both rmqctl and the engine, so that both get the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Blank, Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.verify import Finding, Summary, verify
from tests.interop.engine import EngineStore, Row
from tests.test_golden.test_reading import as_expected, engines_answer, host

TOPICS = ("TopicA", "TopicB", "主题-测试", "%RETRY%group")
MULTI_QUEUES = ["%LMQ%one", "%LMQ%two", "extra"]
V4 = [(bytes((10, 1, 2, last)), 10911) for last in (3, 4, 5)]
V6 = [(bytes(15) + bytes((last,)), 10911) for last in (1, 2)]
PREPARED, COMMIT, ROLLBACK = (
    constants.TRANSACTION_PREPARED_TYPE,
    constants.TRANSACTION_COMMIT_TYPE,
    constants.TRANSACTION_ROLLBACK_TYPE,
)


def settings(chance: random.Random, light_queues: bool | None = None) -> Row:
    """Settings with files so small that a new one begins every few dozen messages, and random
    switches."""
    if light_queues is None:
        light_queues = chance.random() < 0.6
    return {
        "mappedFileSizeCommitLog": 4096 * chance.choice((2, 4, 8)),
        "mappedFileSizeConsumeQueue": 20 * chance.choice((5, 16, 50)),
        "maxHashSlotNum": chance.choice((7, 50, 100)),
        # Not smaller: the engine names index files by the millisecond, and two that come within one
        # are the same file to it.
        "maxIndexNum": chance.choice((300, 400, 600)),
        "maxMessageSize": 65536,
        "enableLmq": light_queues,
        "enableMultiDispatch": light_queues,
        "flushDiskType": chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
    }


def config_of(values: Row) -> MessageStoreConfig:
    """The same for rmqctl, by way of a ``broker.conf``."""
    return parse_broker_conf(conf_text(values))


def conf_text(values: Row) -> str:
    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return "".join(f"{name}={text(value)}\n" for name, value in values.items())


class Messages:
    """Messages of every kind, numbered from 0; ``take`` gives the next ones.

    With light queues two kinds are left out, because the engine's own dispatch fails on them again
    and again, and never gets on: for 4.9.3 a message without any property
    (``DefaultMessageStore#checkMultiDispatchQueue``), for 5.3.3 a further queue that is not a light
    one (``ConsumeQueue#multiDispatchLmqQueue``).
    """

    def __init__(self, chance: random.Random, values: Row, version: str) -> None:
        self._chance = chance
        self._number = 0
        light_queues = values["enableMultiDispatch"]
        self._bare = 0.0 if light_queues else 0.1
        self._only_light = light_queues and version != "4.9.3"

    def take(self, count: int) -> list[MessageExtBrokerInner]:
        return [self.message() for _ in range(count)]

    def plain(self) -> MessageExtBrokerInner:
        """A message that may be in a batch: without transaction, delay or light queues."""
        chance, number = self._chance, self._number
        self._number += 1
        properties = {"UNIQ_KEY": f"{chance.getrandbits(128):032X}"}
        if chance.random() < 0.7:
            properties["TAGS"] = chance.choice(("Aa", "BB", "tag", "标签", "AaBB"))
        if chance.random() < 0.6:
            properties["KEYS"] = " ".join([f"k{number}", "shared", "键"][: chance.randint(1, 3)])
        if chance.random() < 0.2:
            properties["trace"] = "x" * chance.randint(1, 300)
        if chance.random() < self._bare:
            properties.clear()
        return MessageExtBrokerInner(
            chance.choice(TOPICS),
            chance.randbytes(chance.choice((0, 5, 40, 200, 900))),
            chance.randrange(3),
            flag=chance.choice((0, 7, -1)),
            properties=properties,
            born_timestamp=1_700_000_000_000 + number,
            born_host=chance.choice(V6 if chance.random() < 0.2 else V4),
            store_host=chance.choice(V6 if chance.random() < 0.2 else V4),
            reconsume_times=chance.choice((0, 0, 3)),
        )

    def message(self) -> MessageExtBrokerInner:
        message, kind = self.plain(), self._chance.random()
        if kind < 0.15:
            message.sys_flag = self._chance.choice((PREPARED, COMMIT, ROLLBACK))
            message.prepared_transaction_offset = self._chance.choice((0, 1234))
        elif kind < 0.25:
            message.properties["DELAY"] = str(self._chance.randint(15, 25))
        elif kind < 0.35:
            known = ["%LMQ%one", "%LMQ%two", "%LMQ%three"] if self._only_light else MULTI_QUEUES
            message.properties["INNER_MULTI_DISPATCH"] = ",".join(self._chance.sample(known, 2))
        return message

    def batch(self) -> list[MessageExtBrokerInner]:
        """Messages for a batch: all of one queue, host and time."""
        first = self.plain()
        batch = [first]
        for _ in range(self._chance.randint(1, 5)):
            message = self.plain()
            for name in ("topic", "queue_id", "born_timestamp", "born_host", "store_host"):
                setattr(message, name, getattr(first, name))
            message.reconsume_times = first.reconsume_times
            message.prepared_transaction_offset = 1234  # The engine stores 0.
            batch.append(message)
        return batch


def put_by_rmqctl(
    root: Path, config: MessageStoreConfig, messages: Messages, count: int
) -> list[Record]:
    """Puts messages one by one, as a stream and in batches; gives all records of the store then."""
    with MessageStore(root, config, writable=True, create=True) as store:
        third = count // 3
        results = [store.put_message(message, flush=False) for message in messages.take(third)]
        for bulk in store.put_stream(messages.take(third), flush=False):
            results += bulk
        for _ in range(max(third // 4, 1)):
            results += store.put_messages(messages.batch(), batch=True, flush=False)
        assert all(result.is_ok for result in results), [r.reason for r in results if not r.is_ok]
        return [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]


def rows_of(
    root: Path, config: MessageStoreConfig, asked: dict[str, list[Row]]
) -> dict[str, list[Row]]:
    """What rmqctl says of a store, as rows like the engine's; the pulls and queries are those of
    ``asked``."""
    rows: dict[str, list[Row]] = {kind: [] for kind in ("message", "blank", "queue", "unit")}
    with MessageStore(root, config) as store:
        ends = {"minPhyOffset": store.min_offset, "maxPhyOffset": store.max_offset}
        rows["store"] = [{"kind": "store", **ends}]
        for entry in store.commit_log.walk():
            if isinstance(entry, Record):
                rows["message"].append(as_expected(store, entry))
            elif isinstance(entry, Blank):
                at, size = entry.physical_offset, entry.total_size
                rows["blank"].append({"kind": "blank", "physicalOffset": at, "size": size})
        for where in store.queues.directories():
            rows["queue"].append(queue_row(store, where.topic, where.queue_id))
            rows["unit"] += unit_rows(store, where.topic, where.queue_id)
        rows["get"] = [pull_row(store, row) for row in asked.get("get", [])]
        rows["query"] = [
            {**row, "physicalOffsets": engines_answer(store, row["topic"], row["key"])}
            for row in asked.get("query", [])
        ]
    return rows


def queue_row(store: MessageStore, topic: str, queue_id: int) -> Row:
    queue = store.consume_queue(topic, queue_id)
    assert queue is not None
    return {
        "kind": "queue",
        "topic": topic,
        "queueId": queue_id,
        "minOffset": queue.min_offset,
        "maxOffset": queue.max_offset,
        "maxPhysicOffset": queue.max_physical_offset,
    }


def unit_rows(store: MessageStore, topic: str, queue_id: int) -> Iterator[Row]:
    queue = store.consume_queue(topic, queue_id)
    assert queue is not None
    for offset in range(queue.min_offset, queue.max_offset):
        unit = queue.unit(offset)
        assert unit is not None
        yield {
            "kind": "unit",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "physicalOffset": unit.physical_offset,
            "size": unit.size,
            "tagsCode": unit.tags_code,
        }


def pull_row(store: MessageStore, row: Row) -> Row:
    answer = store.get_message(row["topic"], row["queueId"], row["offset"], row["maxMsgNums"])
    return {
        **row,
        "status": answer.status.value,
        "nextBeginOffset": answer.next_begin_offset,
        "minOffset": answer.min_offset,
        "maxOffset": answer.max_offset,
        "physicalOffsets": [record.physical_offset for record in answer.records],
    }


def normal(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows made comparable: hosts in rmqctl's spelling, in a fixed order, and without queues
    that exist in the engine's memory only."""
    found = {
        kind: list(rows.get(kind, [])) for kind in ("store", "message", "blank", "get", "query")
    }
    found["message"] = [
        {**row, **{name: _host(row[name]) for name in ("bornHost", "storeHost")}}
        for row in found["message"]
    ]
    found["queue"] = [row for row in rows.get("queue", []) if row["maxPhysicOffset"] >= 0]
    found["unit"] = list(rows.get("unit", []))
    for kind in ("queue", "unit"):
        found[kind].sort(key=lambda r: (r["topic"], r["queueId"], r.get("queueOffset", 0)))
    return found


def as_4_9_3_answers(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows of 5.3.3 with the one answer that 4.9.3, and rmqctl, give differently. A consumer
    asks far past a queue's end: 5.3.3 sends it to that end, but 4.9.3 to the queue's first message
    when this has queue offset 0."""
    answers = [
        {**row, "nextBeginOffset": 0}
        if row["status"] == "OFFSET_OVERFLOW_BADLY" and row["minOffset"] == 0
        else row
        for row in rows.get("get", [])
    ]
    return {**rows, "get": answers}


def _host(text: str) -> str:
    return host(text) if "|" in text else text


def assert_same(found: dict[str, list[Row]], wanted: dict[str, list[Row]]) -> None:
    """Compares the rows of both sides, kind by kind; the first difference is shown."""
    found, wanted = normal(found), normal(wanted)
    for kind, rows in wanted.items():
        for number, (one, other) in enumerate(zip(found[kind], rows, strict=False)):
            assert one == other, f"{kind} {number}: {one} != {other}"
        assert len(found[kind]) == len(rows), kind


def assert_agree(store: EngineStore, values: Row) -> dict[str, list[Row]]:
    """Asserts that rmqctl says the same as the engine of a store that the engine has open; gives
    what the engine says."""
    said = store.dump()
    if store.engine.version != "4.9.3":
        said = as_4_9_3_answers(said)
    assert_same(rows_of(store.root, config_of(values), said), said)
    return said


#: Findings of what a kill leaves, and the next start of a broker or a writing command mends.
KILLED = (
    "unclean-shutdown",
    "dispatch-behind",
    "index-behind",
    "index-uncounted-items",
    "checkpoint-zero",  # the first is written a second after the start
)

#: The finding of a file that was made and had not its full length yet when the kill came.
CUT_SHORT = ("file-length-mismatch", "index-length-mismatch")


def assert_clean(root: Path, config: MessageStoreConfig, allowed: tuple[str, ...] = ()) -> Summary:
    """Asserts that verify has no findings but those with ``allowed`` codes."""
    *findings, summary = verify(root, config)
    assert isinstance(summary, Summary)
    others = [f for f in findings if isinstance(f, Finding) and f.code not in allowed]
    assert not others, str(others[:5])
    assert allowed or summary.is_clean
    return summary
