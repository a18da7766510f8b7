"""The sound stores from which every state is made: written by the real engine, once for each family
of settings, with random messages of every kind.

The engine stores all messages of a base within a second, but a checkpoint tells messages apart by
their seconds. So each message gets another store time, a second after the one before. Then the
engine builds queues and index anew from that log; and again from the first third of the log alone,
which gives the store as it was at an earlier moment.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.golden_data import copy_tree
from tests.interop.engine import Engine, Row
from tests.interop.recovery import surgery
from tests.interop.recovery.visits import Put, Visit, Visited, values_at, visit
from tests.interop.stores import TOPICS, Messages, config_of

RARE, HALF, OP = "Rare", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
LONG_TOPIC = "%RETRY%" + "group-with-a-long-name-" * 9
#: How many half messages, from the first on, are ended (committed or rolled back) in the base.
ENDED_HALVES = 4
#: Store time of a base's first message (ms); each further one is a second later.
FIRST_TIME, STEP = 1_700_000_000_000, 1000
#: The directories whose content a broker derives from the log.
DERIVED = ("consumequeue", "consumequeue_ext", "index")

SETTINGS: Row = {
    "mappedFileSizeCommitLog": 1 << 14,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 100,
    # Not smaller: the engine names index files by the millisecond, and two that come within one are
    # the same file to it.
    "maxIndexNum": 300,
    "maxMessageSize": 65536,
    "enableLmq": False,
    "enableMultiDispatch": False,
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": 20,
    "flushIntervalConsumeQueue": 20,
    # Long, so that no delayed message is due while an engine runs.
    "messageDelayLevel": " ".join(["3650d"] * 18),
    "cleanFileForciblyEnable": False,
    "diskMaxUsedSpaceRatio": 95,
    "deleteWhen": "99",
}
#: Family → settings of its own.
FAMILIES: dict[str, Row] = {
    "plain": {},
    "light": {"enableLmq": True, "enableMultiDispatch": True},
    "ext": {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 600},
    "two": {"storePathCommitLog": "{root}/log-a,{root}/log-b"},
    "long": {},
    # Has more log than fits into any buffer of a writer.
    "big": {"mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 2000},
}


@dataclass
class Base:
    """A sound store after a clean stop; ``early`` is the store when its log ended at ``cut``."""

    version: str
    family: str
    root: Path
    early: Path
    values: Row
    cut: int = 0
    said: Visited = field(default_factory=Visited)

    @property
    def config(self) -> MessageStoreConfig:
        return config_of(values_at(self.root, self.values))

    @cached_property
    def records(self) -> list[Row]:
        """The engine's rows of the messages, in log order."""
        return sorted(self.said.rows["message"], key=lambda row: int(row["physicalOffset"]))

    def time_at(self, physical_offset: int) -> int:
        """Store time of the last message before an offset."""
        before = [row for row in self.records if row["physicalOffset"] < physical_offset]
        return int(before[-1]["storeTimestamp"])


# --- messages --------------------------------------------------------------------------------


def base_messages(chance: random.Random, family: str, version: str, values: Row) -> list[Put]:
    """Random messages, and between them half messages, ends of transactions and those of a rare
    topic. The last message but one has keys; the last has none, so that it is in no index."""
    messages = Messages(chance, values, version)
    count = 480 if family == "big" else 400
    made: list[Put] = []
    for number in range(count):
        if number % 25 == 7:
            made.append(half_message(messages.plain(), number))
        elif number % 60 == 31:
            made.append(op_message(messages.plain(), number // 120))
        elif number % 40 == 3:
            made.append(_plain_to(messages, RARE, 0))
        elif family == "long" and number % 10 == 5:
            made.append(_plain_to(messages, LONG_TOPIC, 0))
        elif family != "big" and number % 50 == 44:
            made.append(messages.batch())
        else:
            made.append(messages.message())
    if family == "big":
        _fatten(made, chance)
    keyed, keyless = _plain_to(messages, TOPICS[0], 0), _plain_to(messages, TOPICS[1], 1)
    keyed.properties |= {"KEYS": "last-key", "UNIQ_KEY": "LAST"}
    keyed.body = keyless.body = b"body" * 50
    keyless.properties = {"TAGS": "tag"}
    return [*made, keyed, keyless]


def _plain_to(messages: Messages, topic: str, queue_id: int) -> MessageExtBrokerInner:
    message = messages.plain()
    message.topic, message.queue_id = topic, queue_id
    message.properties = {"TAGS": "tag", **message.properties}
    return message


def half_message(message: MessageExtBrokerInner, number: int) -> MessageExtBrokerInner:
    """As a broker stores what a producer prepares (``TransactionalMessageBridge``)."""
    message.properties |= {
        "REAL_TOPIC": TOPICS[number % 2],
        "REAL_QID": str(number % 3),
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "UNIQ_KEY": f"HALF{number}",
    }
    message.topic, message.queue_id = HALF, 0
    return message


def op_message(message: MessageExtBrokerInner, half: int) -> MessageExtBrokerInner:
    """The message that ends the half message with the queue offset ``half``."""
    message.topic, message.queue_id = OP, 0
    message.properties, message.body = {"TAGS": "d"}, str(half).encode()
    return message


def _fatten(made: list[Put], chance: random.Random) -> None:
    for put in made:
        for message in put if isinstance(put, list) else [put]:
            if message.topic != OP:
                message.body = chance.randbytes(1 << 10) * chance.randint(50, 60)


# --- making them -----------------------------------------------------------------------------


class Bases:
    """The bases of a version, made when they are first asked for."""

    def __init__(self, version: str, seed: str, directory: Path) -> None:
        self.version = version
        self._seed = seed
        self._directory = directory
        self._made: dict[str, Base] = {}

    def __getitem__(self, family: str) -> Base:
        return self._made[family]

    def __iter__(self) -> Iterator[Base]:
        return iter(self._made.values())

    def need(self, engine: Engine, families: Iterable[str]) -> None:
        """Makes the bases of these families that are not there yet."""
        wanted = sorted(set(families) - set(self._made))
        new = [self._empty(family) for family in wanted]
        puts = [Visit(base.root, base.values, messages=self._messages(base)) for base in new]
        self._visit(engine, puts)
        for base in new:
            give_times(base)
            copy_tree(base.root, base.early)
            surgery.drop_log_files(base.early, base.cut)
            surgery.zero_log(base.early, base.cut)
        self._visit(engine, [Visit(base.early, base.values) for base in new])
        said = self._visit(engine, [Visit(base.root, base.values) for base in new])
        for base, base.said in zip(new, said, strict=True):
            close(base)
            self._made[base.family] = base

    def _messages(self, base: Base) -> list[Put]:
        chance = random.Random(f"{self._seed} {base.family}")
        return base_messages(chance, base.family, self.version, base.values)

    def _visit(self, engine: Engine, visits: list[Visit]) -> list[Visited]:
        done = visit(engine, visits) if visits else []
        wrong = [one for one in done if not one.is_sound]
        assert not wrong, (wrong[0].why, wrong[0].error)
        return done

    def _empty(self, family: str) -> Base:
        root = self._directory / family
        root.mkdir(parents=True)
        early = self._directory / f"{family}-early"
        return Base(self.version, family, root, early, SETTINGS | FAMILIES[family])


def give_times(base: Base) -> None:
    """Gives every record its own store time, and the base its cut; removes what was derived from
    the log with the old times."""
    with MessageStore(base.root, base.config) as store:
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    for number, record in enumerate(records):
        host = 20 if record.sys_flag & constants.BORNHOST_V6_FLAG else 8
        time = struct.pack(">q", FIRST_TIME + number * STEP)
        surgery.write_log(base.root, record.physical_offset + 48 + host, time)
    base.cut = first_third(records)
    for name in DERIVED:
        shutil.rmtree(base.root / name, ignore_errors=True)
    (base.root / "checkpoint").unlink()


def first_third(records: list[Record]) -> int:
    """The physical offset after about a third of the log, and after a message that has a unit."""
    for record in records[len(records) // 3 :]:
        if record.sys_flag & constants.TRANSACTION_TYPE_MASK in (
            constants.TRANSACTION_NOT_TYPE,
            constants.TRANSACTION_COMMIT_TYPE,
        ):
            return record.physical_offset + record.total_size
    raise AssertionError("no message has a unit")


def close(base: Base) -> None:
    """Writes the checkpoint that a broker leaves when it has stored these messages itself."""
    time = base.time_at(1 << 62)
    assert len(surgery.index_files(base.root)) > 2
    surgery.write_checkpoint(base.root, time, time, full_index_time(base.root))


def full_index_time(root: Path) -> int:
    """The time that a checkpoint has for the index: that of the last item of the last full index
    file, or 0 when no file is full."""
    headers = [surgery.index_header(path) for path in surgery.index_files(root)]
    full = [
        header.end_timestamp for header in headers if header.index_count >= SETTINGS["maxIndexNum"]
    ]
    return max(full, default=0)
