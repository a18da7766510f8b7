"""Stores that somebody made to hurt: topics as paths, links, special files, lengths, cycles."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.paths import open_listed
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import End, Record
from rmqctl.errors import RmqctlError, SymbolicLinkRefused, TopicNotAllowed
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import verify
from rmqctl.operations.verify.findings import Finding
from tests.descriptors import open_descriptors
from tests.test_safety.support import Clock, assert_clean, findings, message, small_config, tree

TOP = Path(__file__).parents[2]
CONFIG = small_config()
LOG = f"commitlog/{0:020d}"
QUEUE = f"consumequeue/topic0/0/{0:020d}"

#: Topics that a record can hold and that are no directory below consumequeue/.
BAD_TOPICS = [
    b"../../outside",
    b"../x",
    b"..",
    b".",
    b"a/b",
    b"/etc/x",
    b"a\\b",
    b"a\0b",
    b"\0",
    b"x/",
    b"./x",
]


def record(
    offset: int,
    topic: bytes,
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    body: bytes = b"body",
    properties: bytes = b"",
    magic: int = 0xDAA320A7,
    **wrong: int,
) -> bytes:
    """A record written by nothing of ours; ``wrong`` replaces total_size, body_length, ...."""
    tail = (struct.pack(">H", len(topic)) if magic & 0xF == 0xB else bytes((len(topic),))) + topic
    tail += struct.pack(">h", wrong.get("properties_length", len(properties))) + properties
    size = 88 + len(body) + len(tail)
    return (
        struct.pack(
            ">iIiiiqqiq4siq4siiqi",
            wrong.get("total_size", size),
            magic,
            zlib.crc32(body) & 0x7FFFFFFF,
            queue_id,
            0,
            queue_offset,
            offset,
            wrong.get("sys_flag", 0),
            1_700_000_000_000,
            b"\x0a\0\0\1",
            1234,
            1_700_000_000_000,
            b"\x0a\0\0\2",
            10911,
            0,
            wrong.get("prepared", 0),
            wrong.get("body_length", len(body)),
        )
        + body
        + tail
    )


def log_of(root: Path, *makers: Any, size: int = 1 << 16) -> Path:
    """A store of nothing but a log with what the makers give for their offsets."""
    data = b""
    for maker in makers:
        data += maker(len(data))
    (root / "commitlog").mkdir(parents=True)
    (root / LOG).write_bytes(data.ljust(size, b"\0"))
    return root


@pytest.fixture
def base(fast_path: Path) -> Path:
    """An empty directory with neighbours, of which none may change."""
    (fast_path / "around" / "neighbour").mkdir(parents=True)
    (fast_path / "around" / "neighbour" / "file").write_bytes(b"not yours")
    return fast_path / "around"


@pytest.fixture
def store(base: Path) -> Path:
    root = base / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as opened:
        opened.put_messages([message(number) for number in range(30)])
    return root


def outside(base: Path) -> dict[str, bytes]:
    """All around the store."""
    return {name: data for name, data in tree(base).items() if not name.startswith("store")}


# --- topics -------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", BAD_TOPICS)
@pytest.mark.parametrize("count", [1, 100])
def test_a_topic_of_a_record_never_leaves_consumequeue(
    base: Path, topic: bytes, count: int
) -> None:
    """``count`` decides between the scalar and the batch way of dispatch."""
    before = outside(base)
    hostile = [lambda at: record(at, topic, properties=b"KEYS\x01k\x02TAGS\x01t")] * count
    root = log_of(base / "store", *hostile, lambda at: record(at, b"good"))
    codes = [row.code for row in findings(root, CONFIG)]
    assert codes.count("topic-not-allowed") == count
    summary = rebuild_to(plan_rebuild(root, CONFIG, "all"), base / "store-rebuilt")
    assert summary.refused_topics == [topic.decode()]
    assert sorted(os.listdir(base / "store-rebuilt" / "consumequeue")) == ["good"]
    with MessageStore(root, CONFIG, writable=True) as opened:
        assert opened.put_message(message(1)).is_ok
        with pytest.raises(TopicNotAllowed):
            opened.consume_queue(topic.decode(), 0)
    assert sorted(os.listdir(root / "consumequeue")) == ["good", "topic1"]
    rebuild_in_place(plan_rebuild(root, CONFIG, "all"))
    assert sorted(os.listdir(root / "consumequeue")) == ["good", "topic1"]
    assert outside(base) == before


def test_a_record_with_a_topic_of_300_bytes(base: Path) -> None:
    """Possible with the two-byte length of 5.1: longer than any file name."""
    before = outside(base)
    long = b"t" * 300
    root = log_of(base / "store", lambda at: record(at, long, magic=0xDAA320AB))
    assert "topic-not-allowed" in [row.code for row in findings(root, CONFIG)]
    rebuild_to(plan_rebuild(root, CONFIG, "all"), base / "store-rebuilt")
    assert not (base / "store-rebuilt" / "consumequeue").exists()
    assert outside(base) == before


def test_a_record_without_a_topic_is_damage(base: Path) -> None:
    root = log_of(base / "store", lambda at: record(at, b""), lambda at: record(at, b"good"))
    assert "topic-length-out-of-range" in [row.code for row in findings(root, CONFIG)]


@pytest.mark.parametrize("names", [b"../../x", b"ok,../x", b"a/b,c", b"..,.", b"%LMQ%/../../x"])
def test_names_of_extra_queues_are_topics_too(base: Path, names: bytes) -> None:
    before = outside(base)
    offsets = b",".join([b"0"] * (names.count(b",") + 1))
    properties = b"INNER_MULTI_DISPATCH\x01" + names + b"\x02INNER_MULTI_QUEUE_OFFSET\x01" + offsets
    for count in (1, 100):
        root = base / f"store{count}"
        log_of(root, *[lambda at: record(at, b"good", properties=properties)] * count)
        rebuild_to(plan_rebuild(root, CONFIG, "queues"), base / f"store{count}-rebuilt")
        made = set(os.listdir(base / f"store{count}-rebuilt" / "consumequeue"))
        assert made <= {"good", "ok", "c"}
    assert outside(base) == before


@pytest.mark.parametrize("topic", [*(t.decode() for t in BAD_TOPICS), "", "t" * 300, "ü" * 130])
def test_put_refuses_such_topics(base: Path, store: Path, topic: str) -> None:
    before = outside(base)
    with MessageStore(store, CONFIG, writable=True) as opened:
        end = opened.max_offset
        with pytest.raises(TopicNotAllowed):
            opened.put_message(MessageExtBrokerInner(topic, b"x"))
        with pytest.raises(TopicNotAllowed):
            list(opened.put_stream([message(31), MessageExtBrokerInner(topic, b"x")]))
        assert opened.max_offset > end, "what came before it is stored"
        assert opened.put_message(message(32)).is_ok
    assert_clean(store, CONFIG)
    assert outside(base) == before


def test_a_topic_of_128_bytes_is_refused_by_a_status(store: Path) -> None:
    with MessageStore(store, CONFIG, writable=True) as opened:
        assert opened.put_message(MessageExtBrokerInner("t" * 128, b"x")).status.value == (
            "MESSAGE_ILLEGAL"
        )


def test_a_refused_message_among_others_loses_no_unit(base: Path) -> None:
    """The second message raises after the first was appended."""
    from dataclasses import replace

    config = replace(CONFIG, enable_multi_dispatch=True, enable_lmq=True)
    root = base / "store"
    with MessageStore(root, config, writable=True, create=True) as opened:
        bad = MessageExtBrokerInner("t", b"x", properties={"INNER_MULTI_DISPATCH": "ok,../x"})
        with pytest.raises(TopicNotAllowed):
            opened.put_messages([message(1, "t", 0), bad])
        assert opened.put_message(message(2, "t", 0)).is_ok
    assert_clean(root, config)


# --- links --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        "commitlog",
        LOG,
        "consumequeue",
        "consumequeue/topic0",
        "consumequeue/topic0/0",
        QUEUE,
        "index",
        "index/*",
        "checkpoint",
        "lock",
        "abort",
    ],
)
def test_no_link_is_followed_for_writing(base: Path, store: Path, part: str) -> None:
    """The part moves out of the store and a link takes its place."""
    if part == "abort":
        (store / "abort").touch()
    place = next(store.glob(part))
    target = base / "target"
    place.rename(target)
    place.symlink_to(target)
    before = outside(base)
    assert "target" in before or target.is_dir()
    with (
        pytest.raises(SymbolicLinkRefused),
        MessageStore(store, CONFIG, writable=True) as opened,
    ):
        opened.put_message(message(0, "topic0", 0))
    assert outside(base) == before
    # Reading goes through it.
    with MessageStore(store, CONFIG) as reader:
        assert reader.get_message("topic0", 0, 0).records
    if part not in ("lock", "abort", "checkpoint"):
        assert "symbolic-link" in [row.code for row in findings(store, CONFIG)]


@pytest.mark.parametrize("name", ["checkpoint", "lock", "abort"])
def test_no_dangling_link_is_followed(base: Path, store: Path, name: str) -> None:
    before = outside(base)
    (store / name).unlink(missing_ok=True)
    (store / name).symlink_to(base / "nowhere")
    with pytest.raises(SymbolicLinkRefused):
        MessageStore(store, CONFIG, writable=True)
    assert outside(base) == before


@pytest.mark.parametrize("part", ["consumequeue", "index", "rmqctl-new", "consumequeue/topic0"])
def test_a_rebuild_in_place_follows_no_link(base: Path, store: Path, part: str) -> None:
    target = base / "target"
    if (store / part).exists():
        (store / part).rename(target)
    else:
        target.mkdir()
    (store / part).symlink_to(target)
    before, within = outside(base), tree(store)
    topic = "topic0" if "topic0" in part else None
    with pytest.raises(SymbolicLinkRefused):
        rebuild_in_place(plan_rebuild(store, CONFIG, "queues" if topic else "all", topic=topic))
    assert outside(base) == before
    assert tree(store) == within


def test_a_new_queue_in_a_linked_topic_loses_nothing(base: Path, store: Path) -> None:
    """The link stands where only the unit would go: the message must not be half stored."""
    (base / "target").mkdir()
    (store / "consumequeue" / "linked").symlink_to(base / "target")
    with MessageStore(store, CONFIG, writable=True) as opened:
        end = opened.max_offset
        with pytest.raises(SymbolicLinkRefused):
            opened.put_message(message(1, "linked", 0))
        assert opened.max_offset == end
        assert opened.put_message(message(2)).is_ok
    assert os.listdir(base / "target") == []
    assert_clean(store, CONFIG, "symbolic-link")


# --- special files ------------------------------------------------------------------------

PARTS = [
    "commitlog",
    LOG,
    "consumequeue",
    "consumequeue/topic0",
    "consumequeue/topic0/0",
    QUEUE,
    "index",
    "index/*",
    "checkpoint",
    "lock",
    "abort",
]


def replaced(store: Path, part: str, kind: str) -> Path:
    place = next(iter(store.glob(part)), store / part)
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    elif kind == "file":
        place.write_bytes(b"a file")
    elif kind == "device":
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    return place


def attempts(store: Path, aside: Path) -> Iterator[Any]:
    """Everything that touches a store."""

    def write() -> None:
        with MessageStore(store, CONFIG, writable=True) as opened:
            opened.put_message(message(0, "topic0", 0))

    def read() -> None:
        with MessageStore(store, CONFIG) as opened:
            opened.get_message("topic0", 0, 0)
            list(opened.query_message("topic0", "k3-0"))
            for _ in opened.commit_log.walk():
                pass

    yield lambda: list(verify(store, CONFIG))
    yield read
    yield lambda: rebuild_to(plan_rebuild(store, CONFIG, "all"), aside)
    yield write


@pytest.mark.parametrize("kind", ["fifo", "directory", "file", "device"])
@pytest.mark.parametrize("part", PARTS)
def test_special_files_neither_hang_nor_surprise(
    base: Path, store: Path, part: str, kind: str
) -> None:
    """Each attempt ends quickly, and with nothing but an error of ours."""
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    place = replaced(store, part, kind)
    for attempt in attempts(store, base / "rebuilt"):
        started = time.process_time()
        try:
            attempt()
        except RmqctlError as error:
            assert error.exit_code in (3, 4, 5), error
        assert time.process_time() - started < 60
    if kind == "fifo":
        assert stat.S_ISFIFO(place.lstat().st_mode)


# --- lengths ------------------------------------------------------------------------------

LENGTHS = [
    {"total_size": 0x7FFFFFFF},
    {"total_size": -1},
    {"total_size": -0x80000000},
    {"total_size": 0},
    {"total_size": 8},
    {"body_length": 0x7FFFFFFF},
    {"body_length": -1},
    {"body_length": -0x80000000},
    {"properties_length": 0x7FFF},
    {"properties_length": -1},
    {"properties_length": -0x8000},
    {"total_size": 0x7FFFFFFF, "body_length": 0x7FFFFF00},
    {"sys_flag": 0x30},
]


@pytest.mark.parametrize("wrong", LENGTHS, ids=str)
def test_a_length_allocates_nothing_and_ends_no_walk(base: Path, wrong: dict[str, int]) -> None:
    values: dict[str, Any] = {"body": b"b" * 100, **wrong}

    def hostile(at: int) -> bytes:
        return record(at, b"good", **values)

    root = log_of(
        base / "store", lambda at: record(at, b"good"), hostile, lambda at: record(at, b"t")
    )
    last = len(record(0, b"good")) + len(hostile(0))
    tracemalloc.start()
    try:
        log = CommitLog(root / "commitlog", 1 << 16)
        entries = list(log.walk())
        log.close()
        rows = [row for row in verify(root, CONFIG) if isinstance(row, Finding)]
        rebuild_to(plan_rebuild(root, CONFIG, "all"), base / "rebuilt")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert isinstance(entries[-1], End)
    found = [entry.physical_offset for entry in entries if isinstance(entry, Record)]
    assert last in found, "the walk goes on behind it"
    structures = {row.structure for row in rows}
    assert (
        "commitlog" in structures or wrong.get("properties_length", 0) < 0 or "body" in str(wrong)
    )


LIMITED = """
import resource, sys
from pathlib import Path
import numpy
from tests.test_safety.test_hostile import CONFIG
from rmqctl.operations.verify import verify
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
import rmqctl.engine.scan.scanner
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]), int(sys.argv[3])))
codes = [getattr(row, "code", "") for row in verify(Path(sys.argv[1]), CONFIG)]
rebuild_to(plan_rebuild(Path(sys.argv[1]), CONFIG, "all"), Path(sys.argv[2]))
print(" ".join(codes))
"""


def test_in_little_memory(base: Path) -> None:
    """Lengths of gigabytes, a unit at the end of the number range, a gap of exabytes between
    files: all in 1.5 GiB of address space."""
    root = log_of(
        base / "store",
        lambda at: record(at, b"t"),
        lambda at: record(at, b"t", total_size=0x7FFFFFF0, body_length=0x7FFFFF00),
        lambda at: record(at, b"t", queue_offset=1),
    )
    far = 0x7FFFFFFFFFFF0000
    (root / "commitlog" / f"{far:020d}").write_bytes(
        record(far, b"t", queue_offset=1 << 40).ljust(1 << 16, b"\0")
    )
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(root), str(base / "rebuilt"), str(1536 << 20)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "commitlog-file-missing" in done.stdout
    size = sum(p.stat().st_blocks * 512 for p in (base / "rebuilt").rglob("*") if p.is_file())
    assert size < 400 << 20


@pytest.mark.parametrize("queue_offset", [-1, 1 << 40, (1 << 63) // 20 - 1, (1 << 63) - 1])
@pytest.mark.parametrize("queue_id", [0, -1, 0x7FFFFFFF, -0x80000000])
def test_queue_numbers_and_offsets_of_any_size(
    base: Path, queue_offset: int, queue_id: int
) -> None:
    for count in (1, 100):
        root = base / f"store{count}"
        log_of(
            root,
            *[lambda at: record(at, b"t", queue_id=queue_id, queue_offset=queue_offset)] * count,
            lambda at: record(at, b"good"),
        )
        try:
            rebuild_to(plan_rebuild(root, CONFIG, "all"), base / f"rebuilt{count}")
        except RmqctlError as error:
            assert error.exit_code == 5
        list(verify(root, CONFIG))
        try:
            with MessageStore(root, CONFIG, writable=True) as opened:
                opened.put_message(message(0, "good", 0))
        except RmqctlError as error:
            assert error.exit_code == 5
        list(verify(root, CONFIG))


# --- queues and index ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    [
        (0x7FFFFFFFFFFFFFFF, 0x7FFFFFFF, -1),
        (1 << 62, 100, 0),
        (-1, 100, 0),
        (0, -1, 0),
        (0, 0x7FFFFFFF, 5),
        (50, 0x7FFFFFFF, -(2**63)),
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 2, 4, 20])
def test_units_that_point_anywhere(store: Path, unit: tuple[int, int, int], at: int) -> None:
    with open(store / QUEUE, "r+b") as file:
        file.seek(at * 20)
        file.write(struct.pack(">qiq", *unit))
    assert findings(store, CONFIG)
    with MessageStore(store, CONFIG) as reader:
        for offset in range(7):
            reader.get_message("topic0", 0, offset)
    try:
        with MessageStore(store, CONFIG, writable=True) as opened:
            acknowledged = [opened.put_message(message(n, "topic0", 0)) for n in range(3)]
            for result in acknowledged:
                if result.is_ok:
                    assert result.append is not None
                    opened.look_message_by_offset(result.append.wrote_offset)
    except RmqctlError as error:
        assert error.exit_code == 5


def test_index_chains_with_cycles(store: Path) -> None:
    """Items point to themselves, to the next one, out of the file: no query and no check loops."""
    path = next((store / "index").iterdir())
    geometry = CONFIG.index_geometry
    good = path.read_bytes()
    for link in ("self", "next", "far", "negative"):
        data = bytearray(good)
        for number in range(1, 31):
            value = {"self": number, "next": number + 1, "far": 0x7FFFFFFF, "negative": -5}[link]
            struct.pack_into(">i", data, geometry.item_position(number) + 16, value)
        path.write_bytes(data)
        started = time.process_time()
        assert findings(store, CONFIG)
        with MessageStore(store, CONFIG) as reader:
            for number in range(30):
                hits = list(reader.query_message(f"topic{number % 3}", f"k{number}-0"))
                assert len(hits) <= 1000
        with MessageStore(store, CONFIG, writable=True) as opened:
            assert opened.put_message(message(40)).is_ok
        assert time.process_time() - started < 60


@pytest.mark.parametrize("count", [0, -1, 1000, 999, 0x7FFFFFFF, -0x80000000])
def test_index_counts_of_any_size(store: Path, count: int) -> None:
    path = next((store / "index").iterdir())
    with open(path, "r+b") as file:
        file.seek(36)
        file.write(struct.pack(">i", count))
    assert findings(store, CONFIG)
    with MessageStore(store, CONFIG) as reader:
        list(reader.query_message("topic0", "k3-0"))
    (store / "abort").touch()
    try:
        with MessageStore(store, CONFIG, writable=True) as opened:
            opened.put_message(message(40))
    except RmqctlError as error:
        assert error.exit_code == 5
    service = IndexService(store / "index", CONFIG.index_geometry)
    assert sum(file.item_count for file in service.files()) < 3000


def test_two_thousand_topics(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor stays open, of so many queues."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    root = fast_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        opened.put_message(message(0))
    origin = root / "consumequeue" / "topic0" / "0" / f"{0:020d}"
    empty = fast_path / "empty"
    empty.write_bytes(bytes(1000))
    for number in range(2000):
        where = root / "consumequeue" / f"many{number}" / "0"
        where.mkdir(parents=True)
        os.link(empty, where / origin.name)
    open_before = open_descriptors()
    with MessageStore(root, CONFIG, writable=True) as opened:
        for number in range(0, 2000, 5):
            found = opened.consume_queue(f"many{number}", 0)
            assert found is not None and found.max_offset == 0
        assert opened.put_message(message(1)).is_ok
        assert len(os.listdir("/proc/self/fd")) < open_before + 300
    assert_clean(root, CONFIG)
    assert open_descriptors() == open_before


# --- files that change, files that cannot be read -------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 19, 20, 500, 4096, 5000])
@pytest.mark.parametrize("part", [LOG, QUEUE, "index/*", "checkpoint"])
def test_files_that_shrink_between_listing_and_mapping(
    store: Path, monkeypatch: pytest.MonkeyPatch, part: str, size: int
) -> None:
    """No SIGBUS, which would end this process, and nothing but errors of ours."""
    import rmqctl.engine.files.mappedfile as module

    path = next(store.glob(part))
    whole = path.read_bytes()

    def shrinking(opened: Path) -> int:
        if opened == path and len(whole) > size:
            os.truncate(path, size)
        return open_listed(opened)

    for attempt in attempts(store, store.parent / "rebuilt"):
        path.write_bytes(whole)
        with monkeypatch.context() as patched:
            patched.setattr(module, "open_listed", shrinking)
            try:
                attempt()
            except RmqctlError as error:
                assert error.exit_code in (3, 4, 5)


UNPRIVILEGED = """
import os, sys
from pathlib import Path
# All of it now: nobody may not be able to read Python itself.
import encodings.idna, formats.derive, rmqctl.engine.scan.scanner, rmqctl.engine.dispatch.rules
from rmqctl.errors import RmqctlError
from tests.test_safety import test_hostile as here
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for attempt in here.attempts(Path(sys.argv[1]), Path(sys.argv[2])):
    try:
        attempt()
        print("done")
    except RmqctlError as error:
        print(type(error).__name__, error.exit_code)
"""


@pytest.mark.parametrize("part", [LOG, QUEUE, "index/*", "checkpoint", "commitlog", "consumequeue"])
def test_unreadable_files_are_errors_of_ours(base: Path, store: Path, part: str) -> None:
    """Root may read everything: then the child is nobody."""
    for path in (base.parent, base, store):
        path.chmod(0o755)
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    place = next(store.glob(part))
    place.chmod(0)
    before = tree(store)
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(store), str(base / "rebuilt")],
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    place.chmod(0o755)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("\n")[:4]
    assert len(answers) == 4
    assert answers[3].split()[1] == "4", "no right to write"
    assert all(a == "done" or a.split()[1] in ("4", "5") for a in answers)
    place.chmod(0)
    assert tree(store) == before or os.geteuid() == 0
    place.chmod(0o755)
