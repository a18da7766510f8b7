"""The scanner says exactly what the walk and the dispatcher say, on sound and on damaged logs.

So does each of its backends: whoever adds one has it tested here by its name.
"""

from __future__ import annotations

import random
import struct
import zlib
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from formats import constants
from formats.text import decode_properties, string_hash_code
from rmqctl.engine.dispatch.batches import key_batch, unit_batch
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.record.record import PREFIXES, Record, crc_matches
from rmqctl.engine.scan import properties as propertyscan
from rmqctl.engine.scan.backend import PURE, ScanBackend, backends
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import gather, hash_codes
from rmqctl.engine.scan.properties import locate, properties_problem
from rmqctl.engine.scan.scanner import Scanner, TopicTable
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.seeds import times

FILE_SIZE = 4096
Spec = dict[str, Any]
#: What is done, where, and how.
Harm = tuple[str, int, Any]


every_backend = pytest.mark.parametrize("backend", backends().values(), ids=backends())
#: Sizes at which a log of some kilobytes takes every path that a large one does.
SMALL_STEPS = ScanTuning(
    batch_records=7,
    window_bytes=(700, 3000),
    lane_records=1,
    lane_bytes=(100, 600),
    chunk_bytes=512,
    crc_rows=3,
)


# --- making logs -----------------------------------------------------------------------------

TOPICS = [
    b"TopicTest",
    b"T",
    b"%RETRY%group",
    "тема".encode(),
    b"a/b",
    b"..",
    b"x" * 127,
    b"\xffbad",
]
NAMES = ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "INNER_MULTI_DISPATCH", "TAGSX", "KEY",
         "", "INNER_MU", "INNER_MULTI_QUEUE_OFFSET", "INNER_MULTI_DISPATCX",
         "UNIQ_KEX", "имя"]  # fmt: skip

values = st.one_of(
    st.sampled_from(["", "a", " ", "  k1  k2 ", "k1 k2", "3", "18", "99", "ключ 键 😀", "0" * 32]),
    st.text("abc \x01é", max_size=70),
)
entries = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=5)
regular = entries.map(lambda pairs: b"\x02".join(f"{n}\x01{v}".encode() for n, v in pairs))
light = st.sampled_from(
    [("%LMQ%a,b", "0,7"), ("%LMQ%a", "3,4"), ("a,,b", "1,2,3"), ("b,../c", "5,6"), ("a", "x")]
).map(
    lambda pair: "INNER_MULTI_DISPATCH\x01{}\x02INNER_MULTI_QUEUE_OFFSET\x01{}".format(
        *pair
    ).encode()
)
odd = st.lists(
    st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b"\0", b" ", b"v", b"\xff",
                     b"\xed\xa0\x80", "é".encode(), b"UNIQ_KEY\x01u", b"DELAY\x013"]), max_size=14,
).map(b"".join)  # fmt: skip
properties = st.one_of(
    regular, regular, regular.map(lambda data: data + b"\x02"), light, odd, st.binary(max_size=30)
)
delayed = st.sampled_from(["0", "1", "3", "18", "99", "-1", "x", "٣", ""]).map(
    lambda level: f"TAGS\x01t\x02DELAY\x01{level}".encode()
)


def encode(physical_offset: int, spec: Spec) -> bytes:
    """A record as the writer lays it out."""
    topic, body, data = spec["topic"], spec["body"], spec["properties"]
    flags = spec["sys_flag"]
    prefix = PREFIXES[flags & 48]
    v2 = spec["v2"]
    tail = (
        body
        + struct.pack(">H" if v2 else ">B", len(topic))
        + topic
        + struct.pack(">H", len(data))
        + data
    )
    crc = (zlib.crc32(body) & 0x7FFFFFFF) ^ spec["crc_error"]
    magic = constants.MESSAGE_MAGIC_CODE_V2 if v2 else constants.MESSAGE_MAGIC_CODE
    born = bytes(16 if flags & constants.BORNHOST_V6_FLAG else 4)
    store = bytes(16 if flags & constants.STOREHOSTADDRESS_V6_FLAG else 4)
    size = prefix.size + len(tail)
    head = prefix.pack(
        size, magic, crc, spec["queue_id"], 0, spec["queue_offset"], physical_offset, flags,
        1, born, 2, spec["store_timestamp"], store, 10911, 0, 0, len(body),
    )  # fmt: skip
    record: bytes = head + tail
    return record


specs = st.fixed_dictionaries(
    {
        "topic": st.one_of(st.just(b"TopicTest"), st.sampled_from(TOPICS)),
        "body": st.one_of(st.just(b""), st.binary(max_size=20), st.integers(50, 260).map(bytes)),
        "properties": properties,
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12, 16, 32, 48, 48 + 12, 1]),
        "v2": st.sampled_from([False, False, False, True]),
        "queue_id": st.integers(-1, 9),
        "queue_offset": st.integers(-1, 1 << 40),
        "store_timestamp": st.integers(0, 1 << 42),
        "crc_error": st.sampled_from([0, 0, 0, 1]),
    }
)
scheduled = st.builds(
    lambda spec, data: spec | {"topic": b"SCHEDULE_TOPIC_XXXX", "properties": data}, specs, delayed
)


def build_log(records: list[Spec], file_size: int) -> list[bytearray]:
    """The files of a log: rolled as the writer does it, the last one zeroed to its end."""
    files = [bytearray()]
    for spec in records:
        size = len(encode(0, spec))
        if size + 8 > file_size:
            continue
        room = file_size - len(files[-1])
        if size + 8 > room:
            files[-1] += struct.pack(">iI", room, constants.BLANK_MAGIC_CODE) + bytes(room - 8)
            files.append(bytearray())
        files[-1] += encode((len(files) - 1) * file_size + len(files[-1]), spec)
    files[-1] += bytes(file_size - len(files[-1]))
    return files


harm = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 1 << 20), st.integers(0, 7)),
    st.tuples(st.just("zero"), st.integers(0, 1 << 20), st.integers(1, 600)),
    st.tuples(st.just("random"), st.integers(0, 1 << 20), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("copy"), st.integers(0, 1 << 20), st.integers(0, 1 << 20)),
    st.tuples(st.just("cut"), st.integers(0, 1 << 20), st.just(0)),
    st.tuples(st.just("remove"), st.integers(0, 1 << 20), st.just(0)),
)


def damage(files: list[bytearray], harms: list[Harm]) -> dict[int, bytes]:
    """The files that are left by number, after everything that was done to them."""
    left = dict(enumerate(files))
    for kind, where, how in harms:
        number = sorted(left)[where % len(left)]
        data = left[number]
        at = where // 7 % max(len(data), 1)
        if kind == "flip" and data:
            data[at] ^= 1 << how
        elif kind == "zero":
            data[at : at + how] = bytes(len(data[at : at + how]))
        elif kind == "random":
            data[at : at + len(how)] = how[: len(data) - at]
        elif kind == "copy" and data:
            # A record at a place that is not its own.
            piece = data[how % len(data) :][:200]
            data[at : at + len(piece)] = piece[: len(data) - at]
        elif kind == "cut":
            del data[at:]
        elif kind == "remove" and len(left) > 1:
            del left[number]
    return {number: bytes(data) for number, data in left.items()}


def write(directory: Path, files: dict[int, bytes], file_size: int) -> CommitLog:
    for number, data in files.items():
        (directory / f"{number * file_size:020d}").write_bytes(data)
    return CommitLog(directory, file_size)


# --- comparing -------------------------------------------------------------------------------

FIELDS = ["physical_offset", "total_size", "body_crc", "queue_id", "queue_offset", "sys_flag",
          "store_timestamp", "body_position", "body_length"]  # fmt: skip


def assert_same(
    log: CommitLog,
    dispatcher: Dispatcher,
    backend: ScanBackend,
    start: int | None = None,
    end: int | None = None,
    tuning: ScanTuning = SMALL_STEPS,
) -> None:
    """Entry by entry: what the scan yields is what the walk yields."""
    walked = iter(list(log.walk(start, end)))
    scan = Scanner(log, check=True, tuning=tuning, backend=backend)
    for entry in scan.scan(start, end):
        if not isinstance(entry, Batch):
            assert entry == next(walked)
            continue
        records = [record for record in islice(walked, len(entry)) if isinstance(record, Record)]
        assert len(records) == len(entry) > 0
        assert_batch(entry, records, dispatcher)
    assert next(walked, None) is None


def assert_batch(batch: Batch, records: list[Record], dispatcher: Dispatcher) -> None:
    for name in FIELDS:
        assert getattr(batch, name).tolist() == [getattr(record, name) for record in records]
    assert batch.end_offset == records[-1].physical_offset + records[-1].total_size
    assert [batch.topics.names[t] for t in batch.topic_id] == [r.topic for r in records]
    assert [batch.record(row) for row in range(len(batch))] == records
    for row, record in enumerate(records):
        at, size = int(batch.properties_position[row]), int(batch.properties_length[row])
        assert batch.mapped.read(at, size) == record.properties_bytes
    matches = [crc_matches(batch.mapped.buffer, record) for record in records]
    assert batch.crc_matches.tolist() == matches
    problems = [properties_problem(record.properties_bytes) for record in records]
    assert batch.malformed.tolist() == [row for row, why in enumerate(problems) if why]
    assert batch.tags_code.tolist() == [record.tags_code for record in records]
    units = [
        (batch.topics.names[topic], *rest)
        for topic, *rest in zip(*(c.tolist() for c in unit_batch(batch, dispatcher)), strict=True)
    ]
    assert units == [tuple(unit) for record in records for unit in dispatcher.units(record)]
    assert list(zip(*(column.tolist() for column in key_batch(batch)), strict=True)) == [
        (code, record.physical_offset, record.store_timestamp)
        for record in records
        for code in dispatcher.keys(record)
    ]


DISPATCHERS = [
    Dispatcher(MessageStoreConfig()),
    Dispatcher(
        MessageStoreConfig(
            enable_multi_dispatch=False, explicit=frozenset({"enable_multi_dispatch"})
        )
    ),
    Dispatcher(MessageStoreConfig(message_delay_level="2s 1h")),
]
logs = st.lists(st.one_of(specs, specs, scheduled), max_size=40)
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


@every_backend
@quick
@given(logs, st.sampled_from(DISPATCHERS))
def test_sound_logs(backend: ScanBackend, records: list[Spec], dispatcher: Dispatcher) -> None:
    with TemporaryDirectory() as directory:
        files = damage(build_log(records, FILE_SIZE), [])
        assert_same(write(Path(directory), files, FILE_SIZE), dispatcher, backend)


@every_backend
@settings(quick, max_examples=times(150))
@given(logs, st.lists(harm, min_size=1, max_size=6), st.integers(0, 99), st.integers(0, 20_000))
def test_damaged_logs(
    backend: ScanBackend, records: list[Spec], harms: list[Harm], first: int, end: int
) -> None:
    with TemporaryDirectory() as directory:
        files = damage(build_log(records, FILE_SIZE), harms)
        log = write(Path(directory), files, FILE_SIZE)
        assert_same(log, DISPATCHERS[0], backend)
        found = [e.physical_offset for e in log.walk() if isinstance(e, Record)]
        if found:
            assert_same(log, DISPATCHERS[0], backend, found[first % len(found)], end)
        assert_same(log, DISPATCHERS[0], backend, None, end)


def random_spec(source: random.Random) -> Spec:
    names = source.sample(
        ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "trace"], source.randint(0, 5)
    )
    letters = source.choice(["abc123", "abc 1", "aé键😀"])
    data = "\x02".join(
        f"{n}\x01{''.join(source.choices(letters, k=source.randint(0, 40)))}" for n in names
    )
    return {
        "topic": b"Topic%d" % source.randint(0, 300),
        "body": source.randbytes(source.choice([0, 5, 59, 60, 63, 100, 122, 123, 185, 186, 900])),
        "properties": data.encode() + source.choice([b"", b"\x02"]),
        "sys_flag": source.choice([0, 0, 0, 8, 12, 16, 48]),
        "v2": source.random() < 0.05,
        "queue_id": source.randint(0, 8),
        "queue_offset": source.randint(0, 1000),
        "store_timestamp": source.randint(0, 1 << 42),
        "crc_error": int(source.random() < 0.02),
    }  # fmt: skip


@every_backend
@pytest.mark.parametrize("seed", [0, 2, 5])
def test_large_logs_at_real_sizes(backend: ScanBackend, seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    size = 1 << 20
    files = build_log([random_spec(source) for _ in range(5000)], size)
    harms = [
        ("zero", source.randrange(1 << 30), source.randint(1, 5000)) for _ in range(seed * 3)
    ] + [("flip", source.randrange(1 << 30), source.randint(0, 7)) for _ in range(seed * 5)]
    log = write(tmp_path, damage(files, harms), size)
    tuning = ScanTuning(
        batch_records=1000,
        window_bytes=(1 << 17, 1 << 20),
        lane_records=16,
        lane_bytes=(1 << 12, 1 << 14),
        chunk_bytes=1 << 16,
        crc_rows=100,
    )
    assert_same(log, DISPATCHERS[0], backend, tuning=tuning)


@every_backend
def test_bodies_that_look_like_records_are_not_taken_for_any(
    backend: ScanBackend, tmp_path: Path
) -> None:
    """A lane may begin in a body that holds whole records which name their own place."""
    size = 1 << 14
    plain = random_spec(random.Random(1)) | {
        "body": b"",
        "properties": b"",
        "sys_flag": 0,
        "v2": False,
    }
    records: list[Spec] = []
    for _ in range(6):
        at = sum(len(encode(0, spec)) for spec in records)
        body = b""
        while len(body) < 900:
            body += encode(at + PREFIXES[0].size + len(body), plain)
        records.append(plain | {"body": body, "topic": b"carrier"})
    assert_same(
        write(tmp_path, damage(build_log(records, size), []), size), DISPATCHERS[0], backend
    )


@every_backend
@pytest.mark.parametrize("length", [32767, 32766, 32760, 1000])
def test_long_properties_and_topics(backend: ScanBackend, length: int, tmp_path: Path) -> None:
    spec = random_spec(random.Random(7)) | {"sys_flag": 0, "v2": True, "body": b"x"}
    head = b"UNIQ_KEY\x01u\x02KEYS\x01"
    long_keys = [head + b"k" * (length - len(head)), (head + b"a b" * length)[:length],
                 (b"\x02TAGS\x01t" * length)[:length],
                 b"TAGS\x01" + b"\x80" * (length - 5)]  # fmt: skip
    records = [spec | {"properties": data} for data in long_keys]
    records += [spec | {"topic": b"t" * 32767}, spec | {"topic": b"t" * 129}, spec, records[0]]
    size = 1 << 18
    assert_same(
        write(tmp_path, damage(build_log(records, size), []), size), DISPATCHERS[0], backend
    )


@every_backend
def test_hostile_lengths(backend: ScanBackend, tmp_path: Path) -> None:
    spec = random_spec(random.Random(3)) | {"sys_flag": 0, "v2": False, "body": b"body"}
    record = bytearray(encode(0, spec))
    size = 1 << 12
    for at, width in ((0, 4), (36, 4), (84, 4), (92, 1), (93 + len(spec["topic"]), 2)):
        for value in (
            0,
            1,
            0x7F,
            0x80,
            0xFF,
            0x7FFF,
            0x8000,
            0xFFFF,
            0x7FFFFFFF,
            0x80000000,
            0xFFFFFFFF,
        ):
            data = bytearray(record)
            data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "big")
            assert_same(
                write(tmp_path, {0: bytes(data.ljust(size, b"\0"))}, size), DISPATCHERS[0], backend
            )


@every_backend
def test_an_empty_and_a_tiny_log(backend: ScanBackend, tmp_path: Path) -> None:
    assert_same(CommitLog(tmp_path, FILE_SIZE), DISPATCHERS[0], backend)
    for size in (0, 1, 7, 8, 90, 91, 92):
        assert_same(write(tmp_path, {0: bytes(size)}, FILE_SIZE), DISPATCHERS[0], backend)


# --- the parts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", None),
        (b"a\x01b", None),
        (b"a\x01b\x02", None),
        (b"a\x01\x02\x01b", None),
        (b"a\x01b\x02\x02c\x01d\x01e\x02\x02", None),
        (b"\x02", None),
        (b"a", "an entry has no separator between name and value"),
        (b"a\x01b\x02c", "an entry has no separator between name and value"),
        (b"a\x02a\x01b", "an entry has no separator between name and value"),
        (b"a\x01\0", "they hold a NUL"),
        (b"a\x01\xff", "they are not UTF-8"),
        (b"a\x01\xed\xa0\x80", "they are not UTF-8"),
    ],
)
def test_properties_problem(data: bytes, problem: str | None) -> None:
    assert properties_problem(data) == problem


@quick
@given(properties)
def test_locate_finds_what_the_decoder_keeps(data: bytes) -> None:
    decoded = decode_properties(data)
    found = {
        propertyscan._NAMES[number]: data[at : at + size].decode(errors="replace")
        for number, (at, size) in locate(data).items()
    }
    assert found.keys() == decoded.keys() & set(propertyscan._NAMES)
    if properties_problem(data) is None:
        assert found == {name: decoded[name] for name in found}


@quick
@given(
    st.lists(st.tuples(st.text(max_size=70), st.integers(0, 2**32 - 1)), min_size=1, max_size=20)
)
@example([("a" * 64, 1), ("", 5), ("é", 2**32 - 1)])
def test_hash_codes(rows: list[tuple[str, int]]) -> None:
    texts = [text.encode() for text, _ in rows]
    length = np.array([len(text) for text in texts], np.int64)
    start = np.cumsum(length) - length
    data = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
    assert hash_codes(data, start, length, tuning=SMALL_STEPS).view(np.int32).tolist() == [
        string_hash_code(text) for text, _ in rows
    ]


@given(st.binary(max_size=40), st.lists(st.integers(0, 39), max_size=5), st.integers(1, 50))
def test_gather_reads_zeros_beyond_the_data(data: bytes, places: list[int], width: int) -> None:
    start = [place for place in places if place <= len(data)]
    rows = gather(np.frombuffer(data, np.uint8), np.array(start, np.int64), width)
    assert [bytes(row) for row in rows] == [
        data[at : at + width].ljust(width, b"\0") for at in start
    ]


def test_topics_that_share_a_slot_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TopicTable()
    table._slots = np.zeros(2, np.int64)
    monkeypatch.setattr("rmqctl.engine.scan.topics._SLOT_BITS", 1)
    names = [
        b"a",
        b"b",
        b"a\0",
        b"ab" * 64,
        b"ab" * 64 + b"c",
        b"ab" * 63,
        b"abcdefgh",
        b"abcdefghi",
    ]
    length = np.array([len(name) for name in names], np.int64)
    data = np.frombuffer(b"".join(names), np.uint8)
    for _ in range(3):
        ids = table.lookup(data, np.cumsum(length) - length, length)
        assert [table.names[i].encode() for i in ids.tolist()] == names
    assert len(table.names) == len(names)
    assert table.id_of("ab" * 63) == names.index(b"ab" * 63)


def test_topics_of_one_name_are_one() -> None:
    """Java makes U+FFFD of each damaged byte, and a queue has the name that comes out."""
    table = TopicTable()
    names = [b"t\xff\xb6", b"t\xc3\xff", b"u", "t\ufffd\ufffd".encode(), b"t\xff\xb6"]
    length = np.array([len(name) for name in names], np.int64)
    data = np.frombuffer(b"".join(names), np.uint8)
    for _ in range(3):
        ids = table.lookup(data, np.cumsum(length) - length, length)
        assert ids.tolist() == [0, 0, 1, 0, 0]
    assert table.names == ["t\ufffd\ufffd", "u"]
    assert table.id_of("t\ufffd\ufffd") == 0
    assert len(table.key_prefix_array()) == len(table.allowed_array()) == 2


def test_body_crcs_of_every_length() -> None:
    data = random.Random(5).randbytes(1000)
    length = np.arange(300, dtype=np.int64)
    start = np.full(300, 88, np.int64)
    codes = PURE.body_crcs(np.frombuffer(data, np.uint8), start, length, SMALL_STEPS)
    assert codes.tolist() == [zlib.crc32(data[88 : 88 + n]) for n in range(300)]
