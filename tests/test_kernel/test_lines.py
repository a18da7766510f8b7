"""Lines that the kernel makes are what the pure engine prints: byte for byte, whatever the log."""

from __future__ import annotations

import functools
import io
import random
import resource
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl import kernel
from rmqctl.cli.output import RowWriter
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT, ConsumeQueue
from rmqctl.engine.read.getmessage import GetMessageResult, get_message
from rmqctl.engine.read.lines import Lines, line_maker
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import PREFIXES, Record
from rmqctl.engine.scan.choice import Choice
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.look import pull
from rmqctl.operations.look.export import StoreToExport, export
from rmqctl.operations.look.lines import wanted_lines
from rmqctl.operations.look.walk import Selection, commit_log_lines
from rmqctl.operations.look.walkqueues import queue_lines
from rmqctl.rows.columns import Source
from rmqctl.rows.exported import exported_columns
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    STORES,
    apply_damage,
    broker_conf,
    copy_tree,
    damage_case,
)
from tests.seeds import times
from tests.test_engine import test_scanner as logs

pytestmark = pytest.mark.usefixtures("compiled")

#: Format, spelling of bodies, bytes to decompress.
SHOWN: list[tuple[str, str, int | None]] = [
    ("ndjson", "utf8", 1 << 20),
    ("csv", "utf8", None),
    ("json", "none", None),
    ("ndjson", "hex", None),
    ("csv", "base64", 1 << 20),
]
EVERYTHING = Selection()
#: Cases in which queues are damaged, and not so that no store opens.
QUEUE_CASES = [name for name in DAMAGE_CASES if "queue" in name or "unit" in name]


def printed(format: str, rows: Iterable[Any], main_type: str) -> tuple[bytes, Any]:
    """What a command prints of rows, and their summary."""
    out, said = io.BytesIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8"))
        patch.setattr(sys, "stderr", said)
        with RowWriter(format, main_type=main_type, bulk=True) as writer:
            summary = writer.rows(rows)
        sys.stdout.flush()
        return out.getvalue() + said.getvalue().encode(), summary


@contextmanager
def engine(choice: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        yield


def both(
    format: str, rows: Callable[[], Iterable[Any]], main_type: str = "message"
) -> tuple[Any, Any]:
    """What either engine prints."""
    said = []
    for choice in ("compiled", "pure"):
        with engine(choice):
            said.append(printed(format, rows(), main_type))
    return said[0], said[1]


def walked(store: Any, what: Selection, format: str, body: str, limit: int | None) -> Iterator[Any]:
    form = "csv" if format == "csv" else "ndjson"
    return commit_log_lines(store, what, body, form, decompress_limit=limit)


def assert_equal(store: Any, what: Selection = EVERYTHING, ways: int = len(SHOWN)) -> None:
    for format, body, limit in SHOWN[:ways]:
        rows = functools.partial(walked, store, what, format, body, limit)
        compiled, pure = both(format, rows)
        assert compiled == pure


QUEUES = [
    (EVERYTHING, 0, None),
    (Selection(limit=3), 0, None),
    (Selection(start=300, end=2000), 1, 9),
    (Selection(queue_id=0, limit=5), 2, 20),
]


def assert_queues_equal(store: Any) -> None:
    for what, offset, end in QUEUES:
        for format in ("ndjson", "csv", "json"):
            form = "csv" if format == "csv" else "ndjson"
            rows = functools.partial(queue_lines, store, what, offset, end, form=form)
            compiled, pure = both(format, rows, "unit")
            assert compiled == pure


#: Tag, messages, bytes of the broker's memory.
PULLS = [("*", 1000, None), ("*", 17, 0), ("TagA || tag1", 1000, 1 << 40), ("none", 100, None)]


def assert_pulls_equal(store: MessageStore) -> None:
    """Of every queue, from its first offset and from one in it, by answers of three messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pull, "ONE_PULL", 3)
        for where in list(store.queues.directories()):
            for number, (tag, most, memory) in enumerate(PULLS):
                rows = functools.partial(
                    pull.pull_lines,
                    *(store, where.topic, where.queue_id, None if number % 2 else 5),
                    form="csv" if number == 1 else "ndjson",
                    max_messages=most,
                    tag=tag,
                    body="utf8",
                    physical_memory=memory,
                )
                compiled, pure = both("csv" if number == 1 else "ndjson", rows)
                assert compiled == pure


#: What a walk and a pull need of a dispatcher.
NO_BATCHES = SimpleNamespace(batch_topics=frozenset())


def store_of(log: CommitLog) -> Any:
    return SimpleNamespace(
        commit_log=log,
        min_offset=log.min_offset,
        max_offset=log.files.end_offset,
        body=log.body,
    )


@pytest.mark.parametrize("name", STORES)
def test_golden_stores(name: str, golden: Golden) -> None:
    with MessageStore(golden(name), broker_conf(name)) as store:
        assert_equal(store)
        assert_queues_equal(store)
        assert_pulls_equal(store)


@pytest.mark.parametrize("name", DAMAGE_CASES)
def test_damaged_stores(name: str, golden: Golden, tmp_path: Path) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    size = broker_conf(case["base"]).mapped_file_size_commit_log
    assert_equal(store_of(CommitLog(root / "commitlog", size)), ways=2)


@pytest.mark.parametrize("name", QUEUE_CASES)
def test_damaged_queues(name: str, golden: Golden, tmp_path: Path) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    with MessageStore(root, broker_conf(case["base"])) as store:
        assert_queues_equal(store)
        assert_pulls_equal(store)


unit = st.one_of(
    st.binary(min_size=20, max_size=20),
    st.just(bytes(20)),
    st.integers(0, 3000).map(lambda place: struct.pack(">qiq", place, 100, -7)),
)


@settings(logs.quick, max_examples=times(60))
@given(
    st.lists(unit, max_size=60), st.lists(st.integers(0, 99), max_size=30), st.sampled_from(QUEUES)
)
def test_any_units(units: list[bytes], holes: list[int], asked: Any) -> None:
    """Of a queue of files of ten units, holes in them and after them."""
    for hole in holes:
        units[hole : hole + 1] = [bytes(20)] * (hole < len(units))
    with TemporaryDirectory() as place:
        for at in range(0, len(units), 10):
            path = Path(place) / f"{at * 20:020d}"
            path.write_bytes(b"".join(units[at : at + 10]).ljust(200, b"\0"))
        where = SimpleNamespace(path=Path(place), topic="topic", queue_id=0)
        table = SimpleNamespace(
            directories=lambda: [where],
            as_stored=lambda one: ConsumeQueue(one.path, one.topic, one.queue_id, 200),
        )
        store: Any = SimpleNamespace(
            queues=table, dispatcher=NO_BATCHES, compacted_topics=frozenset()
        )
        what, offset, end = asked
        rows = functools.partial(queue_lines, store, what, offset, end, form="ndjson")
        compiled, pure = both("ndjson", rows, "unit")
        assert compiled == pure


def fields_behind(size: int) -> st.SearchStrategy[list[tuple[int, bytes]]]:
    """Any bytes at places of a record's prefix that say nothing of its own place and length."""
    places = [*range(8, 28), *range(40, size - 4)]
    return st.lists(st.tuples(st.sampled_from(places), st.binary(min_size=1, max_size=1)))


@settings(logs.quick, max_examples=times(150))
@given(
    logs.logs,
    st.lists(logs.harm, max_size=4),
    fields_behind(88),
    st.sampled_from([EVERYTHING, Selection(limit=3), Selection(end=700)])
    | st.builds(
        Selection,
        topic=st.sampled_from([None, "TopicTest", "тема", "\ufffdbad"]),
        queue_id=st.sampled_from([None, 1, -1, 1 << 40]),
        since=st.sampled_from([None, 0, 1 << 40]),
        until=st.sampled_from([None, 1 << 41]),
        limit=st.sampled_from([None, 1, 2]),
    ),
)
def test_any_log(
    records: list[Any], harms: list[Any], fields: list[tuple[int, bytes]], what: Selection
) -> None:
    size = 4096
    files = logs.build_log(records, size)
    for at, byte in fields:
        files[0][at : at + 1] = byte
    with TemporaryDirectory() as directory:
        log = logs.write(Path(directory), logs.damage(files, harms), size)
        assert_equal(store_of(log), what)


def test_every_character(tmp_path: Path) -> None:
    """In a body, in properties and in topics: escaped alike, in JSON and in CSV."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    text = "".join(map(chr, codes))
    spec = logs.random_spec(random.Random(5)) | {"sys_flag": 0, "v2": False, "properties": b""}
    records = [spec | {"body": text.encode()}]
    for number in range(0, len(text), 4000):
        part = text[number : number + 4000].replace("\x01", "").replace("\x02", "")
        properties = f"{part[:2000]}\x01{part[2000:] or 'a'}".encode()
        records.append(spec | {"body": b"", "topic": part[:30].encode(), "properties": properties})
    size = 16 << 20
    assert_equal(
        store_of(logs.write(tmp_path, logs.damage(logs.build_log(records, size), []), size))
    )


@pytest.mark.parametrize("flags", [0, 16, 32, 48])
def test_addresses(flags: int, tmp_path: Path) -> None:
    """Hosts of both kinds, and ports that are none."""
    lots = random.Random(flags)
    base = logs.random_spec(lots) | {"sys_flag": flags, "v2": False}
    addresses = [bytes(16), bytes(15) + b"\1", bytes(10) + b"\xff\xff\1\2\3\4", b"\xff" * 16]
    for _ in range(200):
        words = (lots.choice([b"\0\0", b"\0\0", lots.randbytes(2)]) for _ in range(8))
        addresses.append(b"".join(words))
    data = bytearray()
    for address in addresses:
        record = bytearray(logs.encode(len(data), base))
        end = PREFIXES[flags].size - 16
        record[48:64] = address
        record[end - 8 - 20 : end - 8] = address + lots.randbytes(4)
        # What stands behind the store's host lies elsewhere without an IPv6 one.
        data += record
    log = logs.write(tmp_path, {0: bytes(data).ljust(1 << 18, b"\0")}, 1 << 18)
    assert_equal(store_of(log))


def test_most_messages_are_lines(golden: Golden) -> None:
    """The kernel is what makes them: nothing else is fast."""
    with MessageStore(golden("basic"), broker_conf("basic")) as store, engine("compiled"):
        entries: list[Any] = list(commit_log_lines(store, EVERYTHING, "utf8", "ndjson"))
        lines = [entry for entry in entries if isinstance(entry, Lines)]
        rows = [entry for entry in entries if not isinstance(entry, Lines)]
        assert sum(one.messages for one in lines) == rows[-1]["messages"] > 0
        assert {row["type"] for row in rows} <= {"blank", "summary"}


def test_most_pulled_messages_are_lines(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "ONE_PULL", 3)
    with MessageStore(golden("basic"), broker_conf("basic")) as store, engine("compiled"):
        where = max(store.queues.directories(), key=lambda one: store.queues.next_offset(*one[:2]))
        rows: list[Any] = list(
            pull.pull_lines(store, where.topic, where.queue_id, form="csv", max_messages=1000)
        )
        lines = sum(row.messages for row in rows if isinstance(row, Lines))
        # An answer from two files of the log is not made of lines, and its log files are small.
        assert 2 * lines > rows[-1]["messages"] > 10


def test_the_last_answer_is_lines_too(tmp_path: Path) -> None:
    """Of few messages, of the end of a queue, and where a message in it is not plain: rows."""
    with MessageStore(tmp_path, writable=True, create=True) as store:
        for number in range(70):
            properties = {"TAGS": "last" if number == 69 else "a"}
            store.put_message(MessageExtBrokerInner("t", b"%d" % number, 0, properties=properties))
    log = tmp_path / "commitlog" / "00000000000000000000"
    with log.open("r+b") as file:
        file.seek(file.read(1 << 16).index(b"last"))
        file.write(b"\xff")  # No UTF-8.
    with MessageStore(tmp_path) as store, engine("compiled"):
        for offset, most, kinds in [
            (0, 5, [5]),
            (0, 32, [32]),
            (0, 40, [32, 8]),
            (3, 66, [64, 2]),
            (60, 5, [5]),
            (64, 32, [1] * 6),
            (0, 70, [64] + [1] * 6),
        ]:
            asked = pull.pull_lines(store, "t", 0, offset, form="ndjson", max_messages=most)
            made: list[Any] = list(asked)
            counts = [one.messages if isinstance(one, Lines) else 1 for one in made[:-1]]
            assert counts == kinds
            assert made[-1]["messages"] == sum(kinds)
            assert made[-1]["next_begin_offset"] == offset + sum(kinds)


@pytest.mark.parametrize("tag", ["*", "odd"])
def test_lines_of_many_messages(tag: str, tmp_path: Path) -> None:
    """More than one call makes, which have most of their numbers in common: also where one is not
    plain, where bodies are not what was stored, and where names of properties repeat."""
    messages = [
        MessageExtBrokerInner("t", b"body %d" % n, 0, properties={"TAGS": ["even", "odd"][n % 2]})
        for n in range(4000)
    ]
    with MessageStore(tmp_path, writable=True, create=True) as store:
        assert sum(len(bulk) for bulk in store.put_stream(messages)) == len(messages)
    log = tmp_path / "commitlog" / "00000000000000000000"
    with log.open("r+b") as file:
        head = file.read(1 << 20)
        for wrong, number in [(b"TAG\xff\1odd", 691), (b'TAGS\1o"d', 901), (b"T\1a\2T\1bc", 1101)]:
            file.seek(head.index(b"TAGS\1odd", head.index(b"body %d" % number)))
            file.write(wrong)
        for number in (701, 2501):
            file.seek(head.index(b"body %d" % number))
            file.write(b"B")
    with MessageStore(tmp_path) as store:
        asked: dict[str, Any] = {"tag": tag, "max_messages": 3900, "body": "utf8"}
        rows = functools.partial(pull.pull_lines, store, "t", 0, 0, form="ndjson", **asked)
        compiled, pure = both("ndjson", rows)
        assert compiled == pure and b"body-crc-mismatch" in pure[0]
        with engine("compiled"):
            made: list[Any] = list(rows())
        assert sum(one.messages for one in made if isinstance(one, Lines)) > 1800
        assert_equal(store)


@settings(logs.quick, max_examples=times(100))
@given(
    logs.logs,
    st.lists(st.tuples(st.integers(0, 60), unit), max_size=3),
    st.lists(logs.harm, max_size=2),
    st.sampled_from(PULLS),
    st.integers(0, 12),
    st.sampled_from([(1 << 20, 1 << 20), (500, 2), (4096, 32)]),
)
def test_any_pull(
    records: list[Any],
    wrong: list[tuple[int, bytes]],
    harms: list[Any],
    asked: tuple[str, int, int | None],
    offset: int,
    limits: tuple[int, int],
) -> None:
    """A queue of every record of a log in files of ten units, some of them wrong."""
    size = 4096
    with TemporaryDirectory() as place:
        directory = Path(place) / "commitlog"
        directory.mkdir()
        files = logs.build_log(records, size)
        sound = logs.write(directory, logs.damage(files, []), size)
        units = [
            UNIT.pack(entry.physical_offset, entry.total_size, entry.tags_code)
            for entry in sound.walk()
            if isinstance(entry, Record)
        ]
        for at, one in wrong:
            units[at : at + 1] = [one] * (at < len(units))
        log = logs.write(directory, logs.damage(files, harms), size)
        queue = Path(place) / "queue"
        queue.mkdir()
        for at in range(0, len(units), 10):
            (queue / f"{at * 20:020d}").write_bytes(b"".join(units[at : at + 10]).ljust(200, b"\0"))
        config = replace(
            MessageStoreConfig(),
            max_transfer_bytes_on_message_in_disk=limits[0],
            max_transfer_count_on_message_in_disk=limits[1],
        )
        assert_pull_equal(PulledStore(config, log, ConsumeQueue(queue, "t", 0, 200)), asked, offset)


class PulledStore:
    """What a pull needs of a store."""

    def __init__(self, config: MessageStoreConfig, log: CommitLog, queue: ConsumeQueue) -> None:
        self.config, self.commit_log, self._queue = config, log, queue
        self.max_offset = log.files.end_offset
        self.body = log.body
        self.dispatcher, self.compacted_topics = NO_BATCHES, frozenset[str]()

    def compacted_queue(self, topic: str, queue_id: int) -> None:
        return None

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        return self._queue

    def get_message(self, *asked: Any, **named: Any) -> GetMessageResult:
        return get_message(self, *asked, **named)


def assert_pull_equal(store: Any, asked: tuple[str, int, int | None], offset: int) -> None:
    tag, most, memory = asked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pull, "ONE_PULL", 3)
        rows = functools.partial(
            pull.pull_lines,
            *(store, "t", 0, offset),
            form="ndjson",
            max_messages=most,
            tag=tag,
            body="utf8",
            physical_memory=memory,
        )
        compiled, pure = both("ndjson", rows)
        assert compiled == pure


EXPORTED = [("ndjson", None), ("csv", None), ("csv", "topic,status,born_time,body_base64")]


def assert_exports_equal(log: CommitLog, directory: Path) -> None:
    """Files of text, line for line; their rows have times, and stores with any name."""
    store: Any = SimpleNamespace(
        commit_log=log, min_offset=log.min_offset, max_offset=log.files.end_offset
    )
    source = Source('/data/"a", b/store', " a,b ")
    for kind, columns in EXPORTED:
        said = []
        for choice in ("compiled", "pure"):
            to = directory / f"{choice}-{EXPORTED.index((kind, columns))}"
            with engine(choice):
                one = StoreToExport(store, source)
                done = export([one], exported_columns(columns), to, kind, Choice())
            paths = [path for path in to.rglob("*") if path.is_file()]
            files = {path.relative_to(to): path.read_bytes() for path in paths}
            said.append((done, files))
        assert said[0] == said[1]


@pytest.mark.parametrize("name", STORES)
def test_exports_of_golden_stores(name: str, golden: Golden, tmp_path: Path) -> None:
    with MessageStore(golden(name), broker_conf(name)) as store:
        assert_exports_equal(store.commit_log, tmp_path)


@settings(logs.quick, max_examples=times(30))
@given(logs.logs, st.lists(logs.harm, max_size=2), fields_behind(88))
def test_any_export(records: list[Any], harms: list[Any], fields: list[tuple[int, bytes]]) -> None:
    size = 4096
    files = logs.build_log(records, size)
    for at, byte in fields:
        files[0][at : at + 1] = byte
    with TemporaryDirectory() as place:
        directory = Path(place) / "commitlog"
        directory.mkdir()
        log = logs.write(directory, logs.damage(files, harms), size)
        assert_exports_equal(log, Path(place))


def test_the_kernel_knows_all_columns(compiled: ModuleType) -> None:
    cells = wanted_lines("ndjson", "utf8", 1).cells
    assert {name for name, always in cells if always is None} <= {*compiled.LINE_COLUMNS}


def test_lines_of_which_none_is_wanted_keep_no_memory(golden: Golden) -> None:
    """Who collects what a walk gives has as many of them as there are stretches of the log."""

    def mapped_pages() -> int:
        return int(Path("/proc/self/statm").read_text("ascii").split()[0])

    with MessageStore(golden("basic"), broker_conf("basic")) as store, engine("compiled"):
        maker = line_maker(wanted_lines("ndjson", "utf8", what=Selection(topic="none")))
        assert maker is not None
        file = store.commit_log.files.file(0)
        size = file.size
        before, kept = mapped_pages(), []
        for _ in range(500):
            kept.append(maker.log(file.buffer, 0, size, size, 0, 100, 1 << 20))
            assert kept[-1][0][1] == 0 and kept[-1][1] > 0
        assert (mapped_pages() - before) * resource.getpagesize() < 100 << 20
