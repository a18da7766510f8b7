"""A small store that has everything in it, and the reading commands run over it, for the tests
that damage a store byte by byte."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakSet

import pytest

from formats import constants, layouts
from formats.geometry import Geometry
from rmqctl.engine.index.newslots import NewSlots
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Blank, Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.operations.change.clean import Rule, plan_clean
from rmqctl.operations.look.du import FIELDS, Usage, usage
from rmqctl.operations.look.index import query
from rmqctl.operations.look.pull import pull
from rmqctl.operations.look.queues import queues
from rmqctl.operations.look.walk import Selection, walk_commit_log, walk_index
from rmqctl.operations.look.walkqueues import walk_queues
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from rmqctl.operations.verify import Finding, Summary, verify
from rmqctl.operations.verify.configcheck import Summary as Checked
from rmqctl.operations.verify.configcheck import check

LOG_SIZE, QUEUE_SIZE = 2048, 100
GEOMETRY = Geometry(16, 24)
CONFIG = replace(
    MessageStoreConfig(),
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=QUEUE_SIZE,
    max_hash_slot_num=GEOMETRY.hash_slot_num,
    max_index_num=GEOMETRY.index_num,
    enable_lmq=True,
    enable_multi_dispatch=True,
    explicit=frozenset(("max_hash_slot_num", "max_index_num", "enable_multi_dispatch")),
)
V4, V6 = (bytes((10, 1, 2, 3)), 1234), (bytes(15) + b"\1", 10911)
PREPARED, COMMIT, ROLLBACK = (
    constants.TRANSACTION_PREPARED_TYPE,
    constants.TRANSACTION_COMMIT_TYPE,
    constants.TRANSACTION_ROLLBACK_TYPE,
)
_KINDS = (PREPARED, ROLLBACK)


def messages() -> Iterator[MessageExtBrokerInner]:
    """Every kind of message, over some log, queue and index files."""
    for number in range(30):
        message = MessageExtBrokerInner(
            ("TopicA", "主题", "%RETRY%g")[number % 3],
            b"body %d" % number * (number % 4),
            number % 2,
            properties={"TAGS": f"tag{number % 5}", "UNIQ_KEY": f"{number:08X}", "trace": "x"},
            born_timestamp=1_700_000_000_000 + number,
            born_host=V6 if number % 5 == 1 else V4,
            store_host=V6 if number % 7 == 2 else V4,
        )
        if number % 3 == 0:
            message.properties["KEYS"] = f"k{number} shared"
        if number in (5, 6, 7):
            message.sys_flag = (PREPARED, COMMIT, ROLLBACK)[number - 5]
        if number in (9, 10):
            message.properties["DELAY"] = str(number - 7)
        if number in (12, 13, 17):
            message.properties["INNER_MULTI_DISPATCH"] = "%LMQ%one,extra"
        if number in (15, 16):  # without any, a broker of 4.9.3 would stop dispatching
            message.properties = {"trace": "x"}
        if number == 7:
            message.properties = {}
        yield message


def make_small_store(root: Path) -> Path:
    """Writes the store; a clean stop, so nothing is to be found in it."""
    times = iter(range(1_700_000_100_000, 1_700_000_200_000, 1234))
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(times)) as store:
        for message in messages():
            assert store.put_message(message, flush=False).is_ok
    return root


class Place(NamedTuple):
    """One byte of a file, and which of its bits something else in the store covers."""

    path: str
    position: int
    bits: int


class Places(dict[str, list[Place]]):
    """Places by kind, with a short name in hypothesis's reports."""

    def __repr__(self) -> str:
        return "covered places"


def covered_places(root: Path) -> Places:
    """Every byte that a CRC or a cross-reference covers, by what it belongs to.

    Covered, so that one flipped bit must be found:

    - *body* by its CRC; the *body CRC* itself (of an empty body: it is 0);
    - *chain*: total size, magic code, physical offset, the lengths of body, topic and properties,
      of the sys flag the two IPv6 bits, and both fields of a blank: they say where everything else
      of the record and the next record lie;
    - *identity*: queue id and queue offset, by the unit (so not of prepared and rollback records,
      which have none), and the topic, by the unit and the index;
    - *transaction*: the bits of the sys flag whose change gives or takes a unit or index item
      (not commit against none, which differ in neither);
    - *properties*: the entries TAGS (by the unit's tags code, except where that is a delivery
      time), KEYS and UNIQ_KEY (by the index, except of rollback records, which are not indexed)
      and INNER_MULTI_… (by the units of the extra queues), with the separators that bound them;
    - *unit*: written units; *item*, *slot*, *header* of index files: counted items, all slots.

    Not covered: flag, times and hosts, reconsume times, prepared transaction offset, the sys
    flag's other bits, other properties, what was never written, and the checkpoint.
    """
    places = Places()

    def cover(what: str, path: Path, start: int, length: int, bits: int = 0xFF) -> None:
        relative = str(path.relative_to(root))
        new = [Place(relative, at, bits) for at in range(start, start + length)]
        places.setdefault(what, []).extend(new)

    log = CommitLog(root / "commitlog", LOG_SIZE)
    for entry in log.walk():
        if isinstance(entry, Record):
            file, position = log.locate(entry.physical_offset)
            _cover_record(entry, file.path, position, cover)
        elif isinstance(entry, Blank):
            file, position = log.locate(entry.physical_offset)
            cover("chain", file.path, position, 8)
    log.close()
    for path in sorted((root / "consumequeue").rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            for at in range(0, len(data), 20):
                if any(data[at : at + 20]):
                    cover("unit", path, at, 20)
    for path in sorted((root / "index").iterdir()):
        count = int.from_bytes(path.read_bytes()[36:40], "big")
        cover("header", path, 0, 40)
        cover("slot", path, 40, 4 * GEOMETRY.hash_slot_num)
        cover("item", path, GEOMETRY.item_position(1), 20 * (count - 1))
    return places


def _cover_record(record: Record, path: Path, position: int, cover: Callable[..., None]) -> None:
    layout = layouts.RECORD_PREFIX[record.sys_flag & constants.HOST_V6_MASK]
    at = {field.name: position + field.offset for field in layout.fields}
    kind = record.transaction_type
    for name, size in (("total_size", 4), ("magic_code", 4), ("physical_offset", 8)):
        cover("chain", path, at[name], size)
    cover("chain", path, at["body_length"], 4)
    cover("chain", path, at["sys_flag"] + 3, 1, constants.HOST_V6_MASK)
    cover("body CRC", path, at["body_crc"], 4)
    cover("body", path, record.body_position, record.body_length)
    if kind not in _KINDS:
        cover("identity", path, at["queue_id"], 4)
        cover("identity", path, at["queue_offset"], 8)
    topic_at = record.body_position + record.body_length
    topic_end = topic_at + 1 + len(record.topic_bytes)
    cover("chain", path, topic_at, 1)
    keys = "UNIQ_KEY" in record.properties or "KEYS" in record.properties
    if kind != ROLLBACK and (keys or kind != PREPARED):
        cover("identity", path, topic_at + 1, len(record.topic_bytes))
    cover("chain", path, topic_end, 2)
    bits = 0
    if kind in (0, COMMIT):
        bits = 4  # to prepared or rollback: the unit would be nobody's
    elif keys:
        bits = 4 | 8
    if bits:
        cover("transaction", path, at["sys_flag"] + 3, 1, bits)
    names = set() if kind == ROLLBACK else {b"KEYS", b"UNIQ_KEY"}
    if kind not in _KINDS:
        names |= {b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"}
        if record.topic != constants.RMQ_SYS_SCHEDULE_TOPIC:
            names.add(b"TAGS")
    start = topic_end + 2
    end = start + len(record.properties_bytes)
    for entry in record.properties_bytes.split(b"\2"):
        if entry.partition(b"\1")[0] in names:
            low, high = max(start - 1, topic_end + 2), min(start + len(entry) + 1, end)
            cover("properties", path, low, high - low)
        start += len(entry) + 1


def fill_light_queue(root: Path) -> None:
    """Makes a store of nine messages in two queues that all go to one light queue, too."""
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(9):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%one"}
            message = MessageExtBrokerInner("T", b"x", number % 2, properties=properties)
            assert store.put_message(message, flush=False).is_ok


def findings_of(root: Path) -> tuple[list[Finding], Summary]:
    *findings, summary = verify(root, CONFIG)
    assert isinstance(summary, Summary)
    return [finding for finding in findings if isinstance(finding, Finding)], summary


def read_everything(root: Path, output: Path) -> dict[str, RmqctlError | None]:
    """Runs every command that reads, whatever stands in the store; anything but rmqctl's own
    errors goes through. What each one raised, by its name."""

    def in_store(work: Callable[[MessageStore], object]) -> Callable[[], object]:
        def run() -> None:
            with MessageStore(root, CONFIG) as store:
                work(store)

        return run

    def pull_all(store: MessageStore) -> None:
        for where in store.queues.directories():
            for offset in (0, 3):
                list(pull(store, where.topic, where.queue_id, offset, max_messages=100))

    def walk_all(store: MessageStore) -> None:
        list(walk_commit_log(store, Selection(), "hex"))

    def query_all(store: MessageStore) -> None:
        for number in (0, 3, 9, 21):
            for topic in ("TopicA", "主题"):
                list(query(store, topic, f"{number:08X}"))
                list(query(store, topic, "shared", since=1_700_000_110_000))

    def rebuild() -> None:
        shutil.rmtree(output, ignore_errors=True)
        rebuild_to(plan_rebuild(root, CONFIG, "all"), output)

    commands: dict[str, Callable[[], object]] = {
        "verify": lambda: list(verify(root, CONFIG)),
        "walk": in_store(walk_all),
        "walk queue": in_store(lambda store: list(walk_queues(store, Selection()))),
        "walk index": in_store(lambda store: list(walk_index(store, Selection()))),
        "queues": in_store(lambda store: list(queues(store))),
        "pull": in_store(pull_all),
        "query": in_store(query_all),
        "rebuild": rebuild,
        "du": in_store(lambda store: list(usage(store, Usage(tuple(FIELDS))))),
        "clean": lambda: plan_clean(root, CONFIG, Rule(percent=91)),
        "config check": in_store(lambda store: list(check(store, Checked()))),
    }
    raised: dict[str, RmqctlError | None] = {}
    for name, command in commands.items():
        started = time.process_time()
        raised[name] = None
        try:
            command()
        except RmqctlError as error:
            raised[name] = error
        assert time.process_time() - started < 60, f"{name} took too long"
    return raised


def at_most_one_table(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on ``module`` makes the slots of an index file only when nobody has those of another
    one; gets the count of each that is made."""
    new_slots, alive, made = module.new_slots, WeakSet[Any](), []

    def one(count: int) -> NewSlots:
        slots: NewSlots = new_slots(count)
        if count:
            assert not alive, "the slots of another file are still in memory"
            alive.add(slots)
            made.append(count)
        return slots

    monkeypatch.setattr(module, "new_slots", one)
    return made
