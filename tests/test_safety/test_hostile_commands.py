"""What commands make of hostile files beside the log: config/, properties, bodies, what they
follow, and of a disk that is full in the middle of their work."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.read.follow import LiveStore, LogFollower
from rmqctl.engine.record.bodies import decompress
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import BodyStatus
from rmqctl.engine.state import fastjson
from rmqctl.errors import StoreNotFound
from rmqctl.operations.look.follow import follow_log
from rmqctl.operations.look.walk import Selection
from tests import processes
from tests.test_cli.conftest import Cli, Done, cli, state
from tests.test_cli.test_manners import RAW
from tests.test_safety.support import broker_conf, small_config
from tests.test_safety.test_disk_full import fill, small_disk
from tests.test_safety.test_hostile import base, log_of, outside, record

__all__ = ["base", "cli", "small_disk"]  # Fixtures of other files.

CONFIG = small_config(log=1 << 18, queue=2000, slots=50, items=200)

SCHEDULED, HALF, OP = (
    b"SCHEDULE_TOPIC_XXXX",
    b"RMQ_SYS_TRANS_HALF_TOPIC",
    b"RMQ_SYS_TRANS_OP_HALF_TOPIC",
)
FOREVER = str(0x7FFFFFFFFFFFFFFF)
READING: list[tuple[str, ...]] = [
    ("topics",),
    ("groups",),
    ("groups", "--queues"),
    ("find", "u"),
    ("group", "set-offset", "g", "--topic", "ok", "--to", "end", "--new", "--dry-run"),
    ("schedule", "ls"),
    ("schedule", "deliver", "--dry-run"),
    ("schedule", "deliver", "--dry-run", "--skip-delivered", "--until", FOREVER),
    ("transaction", "ls"),
    ("transaction", "ls", "--all"),
    ("clean", "--dry-run", "--manual", "--disk-ratio", "99"),
    ("config", "check"),
    ("simulate-start",),
    ("checkpoint", "show"),
    ("lint",),
    ("simulate-start", "--as", "5.3.3"),
    ("du", "--by", "topic,queue,tag,producer-host,day"),
    ("stats",),
    ("offset", "--topic", SCHEDULED.decode(), "--queue-id", "0", "--time", "0", "--scan"),
    ("message", "--unique-key", "u"),
    ("find", "9", "--scan", "--body-as", "utf8", "--decompress"),
    ("walk", "commitlog", "--decompress", "--body-as", "utf8", "--filter", "DELAY IS NOT NULL"),
    ("rebuild", "all", "--missing", "--dry-run"),
    ("salvage", "--output", "/not/there", "--placeholders", "--dry-run"),
]


def properties(**values: bytes) -> bytes:
    return b"".join(name.encode() + b"\1" + value + b"\2" for name, value in values.items())


ESCAPES = "\x1b[31mred\x07\u202e\n".encode()
PLACES = [
    properties(REAL_TOPIC=topic, REAL_QID=queue_id, DELAY=delay, PGROUP=group, UNIQ_KEY=b"u")
    for topic, queue_id, delay, group in (
        (b"../../x", b"0", b"1", b"g"),
        (b"ok", b"0", b"2147483647", ESCAPES),
        (b"ok", b"-1", b"1", b""),
        (b"ok", b"99999999999", b"-9", b"g"),
        (b"ok", "\u0663".encode(), b"1", b"g"),
        (ESCAPES, b"0", b"1", b"g" * 3000),
        (b"\xff\xfe", b"1", b"1", b"\xff"),
        (b"x" * 255, b"0", b"1", b"g"),
        (b"", b"0", b"1", b"g"),
        (HALF, b"0", b"1", b"g"),
        (SCHEDULED, b"0", b"1", b"g"),
    )
]
PLACES += [b"", b"\1", b"\2", b"REAL_TOPIC", b"REAL_TOPIC\1"]
PLACES += [
    properties(
        REAL_TOPIC=b"ok",
        REAL_QID=b"0",
        PGROUP=b"g",
        TRANSACTION_CHECK_TIMES=b"99999999999",
        CHECK_IMMUNITY_TIME_IN_SECONDS=b"9999999999999999999",
        TRAN_PREPARED_QUEUE_OFFSET=b"9999999999999999999",
        INNER_MULTI_DISPATCH=b"../x,%LMQ%a",
        INNER_MULTI_QUEUE_OFFSET=b"0,0",
    )
]
BODIES = (b"body", b"0,1,2", b"9" * 19, b"1," * 300, b"")


def on(cli: Cli, root: Path, *line: str, format: str = "ndjson") -> Done:
    """A command on a store of the sizes of these tests."""
    conf = root.parent / "broker.conf"
    conf.write_text(broker_conf(CONFIG))
    return cli(*line, "--format", format, "--store", root, "--broker-conf", conf)


def maker(topic: bytes, given: dict[str, Any]) -> Callable[[int], bytes]:
    """What makes the record for its place."""
    return lambda at: record(at, topic, **given)


def hostile_store(cli: Cli, root: Path) -> list[str]:
    """A store in whose half, op and schedule topics stands whatever a record can hold; every
    queue's second unit points nowhere. The offsets of its records."""
    makers: list[Callable[[int], bytes]] = []
    offsets = []
    for number, place in enumerate(PLACES):
        for topic in (SCHEDULED, HALF, OP, b"ok"):
            given: dict[str, Any] = {
                "queue_id": (0, 1, 30)[number % 3] if topic == SCHEDULED else 0,
                "body": BODIES[number % len(BODIES)],
                "properties": (properties(TAGS=b"d") if topic == OP else b"") + place,
                "sys_flag": (0, 1, 4, 12)[number % 4],
            }
            makers.append(maker(topic, given))
    at = 0
    for make in makers:
        offsets.append(str(at))
        at += len(make(at))
    log_of(root, *makers, size=CONFIG.mapped_file_size_commit_log)
    assert on(cli, root, "rebuild", "all", "--missing").code == 0
    for path in root.glob(f"consumequeue/*/*/{0:020d}"):
        units = bytearray(path.read_bytes())
        units[20:40] = struct.pack(">qiq", 1 << 62, 0x7FFFFFFF, -(1 << 63) + 5)
        path.write_bytes(units)
    return offsets


@pytest.mark.parametrize("progress", [None, "-7", "3", "9223372036854775807"])
def test_hostile_properties_choose_no_path_and_reach_no_terminal(
    cli: Cli, base: Path, progress: str | None
) -> None:
    root = base / "store"
    offsets = hostile_store(cli, root)
    around = outside(base)
    if progress is not None:
        (root / "config").mkdir()
        group = "@CID_RMQ_SYS_TRANS"
        for name, keys in (
            ("delayOffset.json", ("1", "2", "31")),
            ("consumerOffset.json", tuple(f'"{t.decode()}{group}"' for t in (HALF, OP))),
        ):
            value = progress if name[0] == "d" else f"{{0:{progress}}}"
            table = ",".join(f"{key}:{value}" for key in keys)
            (root / "config" / name).write_text(f'{{"offsetTable":{{{table}}}}}')
    before = state(root)
    some = [
        *READING,
        ("transaction", "commit", "--dry-run", *offsets),
        ("transaction", "rollback", "--dry-run", *offsets, "7"),
    ]
    for line in some:
        for format in ("ndjson", "table", "csv"):
            done = on(cli, root, *line, format=format)
            assert done.code in (0, 1, 5), (line, done.err)
            assert not RAW.search(done.out) and not RAW.search(done.err)
    assert state(root) == before
    for line in (
        ("schedule", "deliver", "--until", FOREVER),
        ("schedule", "deliver", "--until", FOREVER, "--skip", "1:0-100", "--skip-delivered"),
        ("transaction", "commit", *offsets),
        ("transaction", "rollback", *offsets),
        ("flush",),
        ("clean", "--yes", "--manual"),
        ("group", "set-offset", "g", "--topic", "ok", "--to", "-1h", "--new", "--yes"),
    ):
        done = on(cli, root, *line)
        assert done.code in (0, 1, 5), (line, done.err)
        assert all(row.get("from_offset", 0) <= row.get("to_offset", 0) for row in done.rows)
    assert set(os.listdir(root)) <= {
        *("commitlog", "consumequeue", "index", "config", "checkpoint", "lock", "abort")
    }
    assert outside(base) == around


# --- config/ ------------------------------------------------------------------------------

HOSTILE_JSON = {
    "random bytes": bytes(range(256)) * 20,
    "deep objects": b'{"offsetTable":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    "deep arrays": b"[" * 100_000,
    "NaN": b'{"offsetTable":{1:NaN}}',
    "infinity": b'{"offsetTable":{1:1e999}}',
    "one key again and again": b'{"offsetTable":{' + b",".join([b"1:1"] * 2000) + b"}}",
    "lone surrogates": b'{"offsetTable":{"\\ud800@\\udfff":{0:5},1:"\\ud800"},'
    b'"topicConfigTable":{"\\ud800":{"readQueueNums":1,"writeQueueNums":1}}}',
    "huge integers": b'{"offsetTable":{1:' + b"9" * 40 + b',"t@g":{0:' + b"9" * 40 + b"}}}",
    "huger integers": b'{"offsetTable":{1:' + b"9" * 5000 + b"}}",
    "other types": b'{"offsetTable":[1],"topicConfigTable":7,"dataVersion":{"counter":[]}}',
    "hostile names": b'{"topicConfigTable":{"../../x":{"readQueueNums":1,"writeQueueNums":1},'
    b'"a\\u0000\\u001b[2J":{"readQueueNums":1,"writeQueueNums":1}},'
    b'"offsetTable":{"\\u001b]0;x\\u0007@\\u009b\\u202e":{0:5},"../x@..":{0:7}}}',
    "no object": b"[]",
    "zeros": bytes(4096),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "backslashes without an end": b'{"a":"' + b"\\\\" * 50_000,
}
NEW = ("--new", "--yes")
NAMES = (
    "delayOffset.json",
    "consumerOffset.json",
    "topics.json",
    "lmqConsumerOffset.json",
    "subscriptionGroup.json",
)


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_config_files(cli: Cli, base: Path, name: str) -> None:
    root = base / "store"
    hostile_store(cli, root)
    (root / "config").mkdir()
    for file in NAMES:
        (root / "config" / file).write_bytes(HOSTILE_JSON[name])
    before = state(root)
    for line in READING[:12]:
        for format in ("ndjson", "table"):
            done = on(cli, root, *line, format=format)
            assert done.code in (0, 1, 5), (line, done.err)
            assert not RAW.search(done.out) and not RAW.search(done.err)
            assert done.code != 5 or ("config" in done.err and done.err.count("\n") == 1)
    assert state(root) == before
    done = on(cli, root, "group", "set-offset", "g", "--topic", "ok", "--to", "end", *NEW)
    assert done.code in (0, 5), done.err
    if done.code == 5:
        assert state(root) == before
    else:
        again = on(cli, root, "group", "set-offset", "g", "--topic", "ok", "--to", "end", *NEW)
        assert (again.code, again.rows[-1]["changed"]) == (0, 0)


def test_places_of_many_duplicate_keys() -> None:
    """Counted on from one to the next: from the start, a hostile file would take hours."""
    text = "{" + ",\n".join(['"a":1', '"b":2'] * 10_000) + "}"
    twice: list[fastjson.DuplicateKey] = []
    assert fastjson.parse(text, duplicates=twice) == {"a": 1, "b": 2}
    assert len(twice) == 19_998
    assert twice[0] == ("a", 3, 1) and twice[-1] == ("b", 20_000, 1)
    on_one_line: list[fastjson.DuplicateKey] = []
    fastjson.parse(text.replace("\n", ""), duplicates=on_one_line)
    assert on_one_line[-1] == ("b", 1, 6 * 19_999 + 2)


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "dangling", "device", "holes"])
@pytest.mark.parametrize(
    "name", ["delayOffset.json", "consumerOffset.json", "delayOffset.json.bak"]
)
def test_config_files_that_are_none(cli: Cli, base: Path, kind: str, name: str) -> None:
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    root = base / "store"
    hostile_store(cli, root)
    (root / "config").mkdir()
    (base / "target").write_text('{"offsetTable":{1:1}}')
    place = root / "config" / name
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    elif kind == "device":
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    elif kind == "holes":
        place.touch()
        os.truncate(place, 1 << 40)
    else:
        place.symlink_to(base / ("target" if kind == "link" else "nowhere"))
    before = (base / "target").read_bytes()
    for line in (*READING[:12], ("schedule", "deliver", "--until", FOREVER), ("clean", "--yes")):
        done = on(cli, root, *line)
        assert done.code in (0, 1, 5), (line, done.err)
        assert done.code != 5 or str(root / "config") in done.err
    assert (base / "target").read_bytes() == before and not (base / "nowhere").exists()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("schedule deliver", "delayOffset.json"),
        ("serve --listen 127.0.0.1:0", "topics.json"),
        ("serve --listen 127.0.0.1:0", "subscriptionGroup.json"),
        ("serve --listen 127.0.0.1:0", "consumerOffset.json"),
        ("serve --listen 127.0.0.1:0", "delayOffset.json"),
    ],
)
def test_a_broken_config_file_is_told_of_before_anything_changes(
    copy_store: Callable[[str], Path],
    broker_conf_file: Callable[[str], Path],
    line: str,
    name: str,
) -> None:
    """To open a store for writing changes its checkpoint."""
    root = copy_store("broker")
    for broken in (name, f"{name}.bak"):
        (root / "config" / broken).write_text("{", "utf-8")
    before = state(root)
    command = [sys.executable, "-m", "rmqctl", *line.split(), "--store", str(root)]
    command += ["--broker-conf", str(broker_conf_file("broker"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (5, "")
    assert name in done.stderr and "rmqctl config check" in done.stderr
    assert state(root) == before


def test_a_log_of_requests_in_a_store_is_refused_before_anything_changes(
    copy_store: Callable[[str], Path], broker_conf_file: Callable[[str], Path], cli: Cli
) -> None:
    root = copy_store("broker")
    (root / "abort").touch()
    before = state(root)
    line = ["serve", "--listen", "127.0.0.1:0", "--access-log", str(root / "access.ndjson")]
    done = cli(*line, "--broker-conf", broker_conf_file("broker"), store=root)
    assert done.code == 2 and "--access-log" in done.err
    assert state(root) == before


# --- bodies -------------------------------------------------------------------------------


class Counting:
    """A decoder that counts the bytes that it is given."""

    given = 0

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder

    def decompress(self, data: bytes, *args: Any, **more: Any) -> bytes:
        Counting.given += len(data)
        return bytes(self._decoder.decompress(data, *args, **more))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)


def test_bodies_that_are_made_to_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty frames, and much behind a stream's end: what a decoder did not take is a copy, and
    must not be made for each piece of output, or for each frame, of all that is left."""
    import lz4.frame

    inflate, unframe = zlib.decompressobj, lz4.frame.LZ4FrameDecompressor
    monkeypatch.setattr(zlib, "decompressobj", lambda: Counting(inflate()))
    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", lambda: Counting(unframe()))
    zeros = 4 << 20
    stored = zlib.compress(bytes(zeros), 9) + bytes(16 << 20)
    assert decompress(stored, 1, zeros).data == bytes(zeros)
    assert Counting.given < 16 << 20
    Counting.given = 0
    empty = lz4.frame.compress(b"")
    frames = empty * 20_000
    assert decompress(frames, 1 | 1 << 8).data == b""
    assert Counting.given <= 20_000 << 12
    assert decompress(frames + lz4.frame.compress(b"x"), 1 | 1 << 8).data == b"x"
    assert decompress(frames[:-1], 1 | 1 << 8).status is BodyStatus.DAMAGED


# --- following ----------------------------------------------------------------------------


class Looks:
    """A :class:`~rmqctl.operations.look.follow.Patience` of so many looks; ``then`` after the
    first."""

    def __init__(self, then: Any, most: int = 200) -> None:
        self.left = most
        self._then = then

    def ended(self) -> bool:
        return self.left <= 0

    def wait(self) -> None:
        self.left -= 1
        then, self._then = self._then, None
        if then is not None:
            then()


def test_following_a_store_that_has_gone_ends(cli: Cli, base: Path) -> None:
    from rmqctl.engine.messagestore import MessageStore

    root = base / "store"
    hostile_store(cli, root)
    looks = Looks(lambda: shutil.rmtree(root))
    with MessageStore(root, CONFIG) as store, pytest.raises(StoreNotFound):
        list(follow_log(store, Selection(), looks))
    assert looks.left > 0


@pytest.mark.parametrize("change", ["unlink", "shrink", "grow", "zeros", "fifo", "link"])
def test_following_a_log_file_that_changes_its_nature(cli: Cli, base: Path, change: str) -> None:
    """Nothing but moves, damage and errors of ours; nothing that was not written as a record."""
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.errors import RmqctlError

    root = base / "store"
    hostile_store(cli, root)
    with LiveStore(root, CONFIG) as live:
        follower = LogFollower(live, 0)
        # The newest record is settled at the second look.
        written = [e for _ in range(2) for e in follower.look() if isinstance(e, Record)]
    path = root / f"commitlog/{0:020d}"

    def then() -> None:
        if change in ("shrink", "grow"):
            os.truncate(path, 100 if change == "shrink" else 1 << 40)
            return
        if change == "zeros":
            path.write_bytes(bytes(path.stat().st_size))
            return
        path.unlink()
        if change == "fifo":
            os.mkfifo(path)
        elif change == "link":
            path.symlink_to("/dev/zero")

    places = {entry.physical_offset for entry in written}
    with MessageStore(root, CONFIG) as store:
        try:
            for row in follow_log(store, Selection(), Looks(then)):
                assert row["type"] != "message" or row["physical_offset"] in places
        except RmqctlError as error:
            assert error.exit_code in (3, 5)


# --- the full disk ------------------------------------------------------------------------

FULL_DISK = [
    ("schedule", "deliver", "--until", FOREVER),
    ("transaction", "commit"),
    ("transaction", "rollback"),
    ("rebuild", "all", "--missing"),
    ("clean", "--yes", "--manual"),
    ("group", "set-offset", "g", "--topic", "SCHEDULE_TOPIC_XXXX", "--to", "end", "--new", "--yes"),
    ("put", "--from", "lines", "--flush", "async", "--transient-store-pool"),
    ("put", "--from", "lines", "--batch", "7"),
]


@pytest.mark.parametrize("leave", [0, 4096, 12288, 20480])
@pytest.mark.parametrize("line", FULL_DISK, ids=" ".join)
def test_a_full_disk_in_the_middle_of_a_command(
    cli: Cli, small_disk: Path, tmp_path: Path, line: tuple[str, ...], leave: int
) -> None:
    """Run in a process of its own: a map with no page beneath it would end it by SIGBUS."""
    root = small_disk / "store"
    offsets = waiting_store(root)
    if "--missing" in line:
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
    lines = tmp_path / "lines"
    lines.write_text(('{"topic":"t","keys":"k","body":"' + "x" * 400 + '"}\n') * 40)
    arguments = [str(lines) if part == "lines" else part for part in line]
    arguments += offsets if line[0] == "transaction" else []
    conf = tmp_path / "broker.conf"
    conf.write_text(broker_conf(CONFIG))
    filler = fill(small_disk, leave)
    where = ["--store", str(root), "--broker-conf", str(conf), "--format", "ndjson"]
    done = processes.run("rmqctl", *arguments, *where)
    assert done.returncode in (0, 1, 5), done
    assert "Traceback" not in done.stderr
    assert done.returncode != 5 or "No space left" in done.stderr
    if done.returncode == 5 and line[0] != "put":
        assert str(root) in done.stderr and "free space" in done.stderr
    filler.unlink()
    again = on(cli, root, *arguments)
    assert again.code in (0, 1), again
    checked = on(cli, root, "verify")
    assert checked.code == 0, checked.out


def waiting_store(root: Path) -> list[str]:
    """20 delayed messages and 20 half messages; the offsets of these."""
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.record.message import MessageExtBrokerInner

    half = {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "g", "TRAN_MSG": "true"}
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        delayed = [
            MessageExtBrokerInner(
                "orders", b"body", properties={"DELAY": "1", "KEYS": f"k{number}"}
            )
            for number in range(20)
        ]
        results = store.put_messages(delayed)
        halves = [
            MessageExtBrokerInner(HALF.decode(), b"body", properties=half | {"UNIQ_KEY": f"u{n}"})
            for n in range(20)
        ]
        results += store.put_messages(halves)
    assert all(result.is_ok for result in results)
    return [str(result.append.wrote_offset) for result in results[20:] if result.append]


# --- messages far apart, times and numbers at their ends ----------------------------------


def test_what_is_put_back_may_lie_in_many_log_files(cli: Cli, base: Path) -> None:
    """More than stay mapped: that which is written must be among those that do."""
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.record.message import MessageExtBrokerInner

    root = base / "store"
    half = {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "g", "TRAN_MSG": "true"}
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(8):
            some = [
                MessageExtBrokerInner("orders", b"delayed", properties={"DELAY": "1"}),
                MessageExtBrokerInner(HALF.decode(), b"half", properties=half),
                MessageExtBrokerInner("filler", bytes(CONFIG.mapped_file_size_commit_log * 3 // 4)),
            ]
            assert all(result.is_ok for result in store.put_messages(some)), number
        files = len(store.commit_log.files.entries)
    assert files == 8
    done = on(cli, root, "schedule", "deliver", "--until", FOREVER)
    assert done.code == 0 and done.rows[-1]["delivered"] == 8, done.err
    offsets = [row["physical_offset"] for row in on(cli, root, "transaction", "ls").rows[:-1]]
    done = on(cli, root, "transaction", "commit", *map(str, offsets))
    assert done.code == 0 and done.rows[-1]["done"] == 8, done.err
    assert on(cli, root, "verify").code == 0


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("timestamp", [(1 << 63) - 1, -(1 << 63)])
def test_a_delivery_time_beyond_javas_numbers_wraps(
    cli: Cli, base: Path, timestamp: int, count: int
) -> None:
    """``ScheduleMessageService#computeDeliverTimestamp`` adds two longs. ``count`` decides between
    the scalar and the batch way of dispatch."""

    place = properties(REAL_TOPIC=b"ok", REAL_QID=b"0", DELAY=b"2")
    size = len(record(0, SCHEDULED, properties=place))

    def delayed(at: int) -> bytes:
        made = record(at, SCHEDULED, queue_id=1, queue_offset=at // size, properties=place)
        return made[:56] + timestamp.to_bytes(8, "big", signed=True) + made[64:]

    root = log_of(base / "store", *[delayed] * count, size=CONFIG.mapped_file_size_commit_log)
    assert on(cli, root, "rebuild", "all", "--missing").code == 0
    assert on(cli, root, "verify").rows[-1]["errors"] == 0
    expected = (timestamp + 5000 + (1 << 63)) % (1 << 64) - (1 << 63)
    units = [row for row in on(cli, root, "walk", "queue").rows if row["type"] == "unit"]
    assert [row["tags_code"] for row in units] == [expected] * count
    assert on(cli, root, "schedule", "ls").code == 0
    assert on(cli, root, "schedule", "deliver", "--until", FOREVER).code in (0, 1)


@pytest.mark.parametrize("name", ["maxIndexNum", "mappedFileSizeCommitLog", "messageDelayLevel"])
@pytest.mark.parametrize("digits", [20, 5000])
def test_long_numbers_of_a_broker_conf_are_usage_errors(
    cli: Cli, base: Path, name: str, digits: int
) -> None:
    root = base / "store"
    hostile_store(cli, root)
    conf = base.parent / "long.conf"
    conf.write_text(f"{name}={'9' * digits}{'d' if name == 'messageDelayLevel' else ''}\n")
    done = cli("verify", "--store", root, "--broker-conf", conf)
    assert done.code == 2 and name in done.err + conf.read_text()
    assert len(done.err) < 300 and done.err.count("\n") == 1


def test_a_nul_in_a_broker_conf_is_a_usage_error(cli: Cli, base: Path) -> None:
    root = base / "store"
    hostile_store(cli, root)
    (root / "commitlog").rename(root / "a")
    conf = base.parent / "nul.conf"
    conf.write_text(f"storePathCommitLog={root}/a,{root}/b\0\n")
    done = cli("verify", "--store", root, "--broker-conf", conf)
    assert done.code == 2 and "line 1" in done.err, done.err
