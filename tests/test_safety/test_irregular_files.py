"""What a kill or a full disk leaves: files of no length, of a wrong one, or of a wrong kind.

Readers go as far as the truth goes and say what they lack; writers refuse, and change nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from tests.test_cli.conftest import BORN, CONFIG, Cli, cli, message, state, store

__all__ = ["cli", "store"]  # Fixtures of other files.

QUEUE = "consumequeue/orders/0"
LOG_SIZE, QUEUE_SIZE = (
    CONFIG.mapped_file_size_commit_log,
    CONFIG.mapped_file_size_consume_queue,
)
UNITS = 30
READING: list[tuple[str, ...]] = [
    ("info",),
    ("queues",),
    ("topics",),
    ("groups", "--queues"),
    ("walk", "commitlog"),
    ("walk", "queue"),
    ("walk", "index"),
    ("pull", "--topic", "orders", "--queue-id", "0"),
    ("pull", "--topic", "orders", "--queue-id", "1"),
    ("offset", "--topic", "orders", "--queue-id", "0", "--time", str(BORN)),
    ("index", "query", "--topic", "orders", "--key", "order-2"),
    ("index", "info"),
    ("message", "--unique-key", "none"),
    ("find", "order-2"),
    ("find", "order-2", "--scan"),
    ("schedule", "ls"),
    ("transaction", "ls"),
    ("du",),
    ("stats",),
    ("config", "check"),
    ("clean", "--dry-run"),
    ("verify",),
]


#: What looks at the log, at one queue, or at the index, speaks of that alone.
OF_QUEUE = {"pull", "offset"}
OF_NO_QUEUE = {("walk", "commitlog"), ("walk", "index"), ("index", "query"), ("index", "info")}
OF_NO_QUEUE |= {("message", "--unique-key")}


def speaks_of(line: tuple[str, ...], damaged: str) -> bool:
    if line[0] in OF_QUEUE and damaged.startswith("consumequeue/"):
        return damaged.startswith(f"consumequeue/{line[2]}/{line[4]}/")
    return line[:2] not in OF_NO_QUEUE or not damaged.startswith("consumequeue/")


def files_of(root: Path, structure: str) -> list[Path]:
    return sorted((root / structure).iterdir())


Damage = Callable[[Path], Path]


def cut(structure: str, number: int, size: int) -> Damage:
    def damage(root: Path) -> Path:
        path = files_of(root, structure)[number]
        os.truncate(path, size)
        return path

    return damage


def made(name: str, kind: str = "file") -> Damage:
    def damage(root: Path) -> Path:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "fifo":
            path.unlink(missing_ok=True)
            os.mkfifo(path)
        else:
            path.touch()
        return path

    return damage


#: What is damaged, and how many messages of the first queue can still be pulled.
CASES: dict[str, tuple[Damage, int]] = {
    "queue-next-empty": (made(f"{QUEUE}/{QUEUE_SIZE:020d}"), UNITS),
    "queue-next-fifo": (made(f"{QUEUE}/{QUEUE_SIZE:020d}", "fifo"), UNITS),
    "queue-other-empty": (made(f"consumequeue/a/0/{0:020d}"), UNITS),
    "queue-empty": (cut(QUEUE, 0, 0), 0),
    "queue-short": (cut(QUEUE, 0, 107), 5),
    "queue-long": (cut(QUEUE, 0, 2 * QUEUE_SIZE), UNITS),
    "queue-fifo": (made(f"{QUEUE}/{0:020d}", "fifo"), 0),
    "log-next-empty": (made(f"commitlog/{8 * LOG_SIZE:020d}"), UNITS),
    "log-long": (cut("commitlog", 0, 3 * LOG_SIZE), UNITS),
    "log-one-more": (cut("commitlog", 1, LOG_SIZE + 1), UNITS),
    "log-next-fifo": (made(f"commitlog/{8 * LOG_SIZE:020d}", "fifo"), UNITS),
}


@pytest.mark.parametrize("case", CASES)
def test_readers_go_on_and_say_what_they_lack(case: str, cli: Cli, store: Path) -> None:
    damage, pulled = CASES[case]
    damaged = str(damage(store).relative_to(store))
    before = state(store)
    for line in READING:
        done = cli(*line, "--format", "ndjson", store=store)
        assert done.code in (0, 1), (line, done.err)
        if line[0] == "verify":
            found = [row for row in done.rows if row.get("path") == damaged]
            codes = {"foreign-file", "file-length-mismatch"}
            assert done.code == 1 and {row["code"] for row in found} <= codes and found
        else:
            told = speaks_of(line, damaged)
            assert (damaged in done.err, "verify" in done.err) == (told, told), (line, done.err)
        if line[0] == "info":
            assert [text.partition(":")[0] for text in done.rows[0]["irregular"]] == [damaged]
        elif line[:2] == ("walk", "commitlog"):
            # What a file has too much is not of the log.
            assert done.code == 0 and done.rows[-1]["messages"] == 60
            assert done.rows[-1]["damages"] == 0
        elif line[0] == "pull":
            messages = [row for row in done.rows if row["type"] == "message"]
            wanted = 29 if line[-1] == "1" else pulled
            assert len(messages) == wanted, (line, done.rows[-1])
    assert state(store) == before
    done = cli("put", "--topic", "orders", "--body", "x", store=store)
    assert done.code == 5 and damaged in done.err
    for line in (("clean", "--yes"), ("rebuild", "all", "--missing", "--dry-run")):
        done = cli(*line, store=store)
        assert done.code == 5 and damaged in done.err
    assert state(store) == before


def test_walks_tell_what_files_lack(cli: Cli, store: Path) -> None:
    """The queue in four files of 10 units: one cut, one missing, one that begins at no unit."""
    queue = store / QUEUE
    units = (queue / f"{0:020d}").read_bytes()
    for number in (0, 1, 3):
        piece = units[number * 200 : number * 200 + 200]
        (queue / f"{number * 200:020d}").write_bytes(piece[: 50 if number == 1 else 200])
    (queue / f"{1007:020d}").write_bytes(units[:200])
    for path in store.glob("consumequeue/*/*/*"):
        if path.parent != queue:
            os.truncate(path, 600)
    conf = store.parent / "other.conf"
    conf.write_text("mappedFileSizeConsumeQueue=200\nmaxHashSlotNum=50\nmaxIndexNum=200\n")
    line = ("--format", "ndjson", "--store", store, "--broker-conf", conf)
    done = cli("walk", "queue", "--topic", "orders", "--queue-id", "0", *line)
    assert done.code == 1
    *rows, summary = done.rows
    holes = [row for row in rows if row["type"] == "damage"]
    assert [(row["queue_offset"], row["length"], row["reason"]) for row in holes] == [
        (12, 8, "file-length-mismatch"),
        (20, 10, "consumequeue-file-missing"),
        (40, 10, "consumequeue-file-missing"),
    ]
    offsets = [row["queue_offset"] for row in rows if row["type"] == "unit"]
    assert offsets == list(range(12)) and summary["units"] == 12
    assert holes[0]["found"] == "50 bytes"


def test_index_files_of_a_wrong_length_are_left_out(cli: Cli, store: Path) -> None:
    keys = [f"order-{number}" for number in range(59)]
    conf = store.parent / "other.conf"
    conf.write_text("mappedFileSizeCommitLog=2048\nmaxHashSlotNum=10\nmaxIndexNum=50\n")
    line = ("--format", "ndjson", "--store", store, "--broker-conf", conf)
    assert cli("rebuild", "index", "--in-place", "--yes", *line).code == 0
    assert cli("rebuild", "index", "--purge", "--yes", *line).code in (0, 2)
    first, second, third = files_of(store, "index")
    second_names = {row["file"] for row in cli("walk", "index", *line).rows[:-1]}
    assert second_names == {first.name, second.name, third.name}
    whole = second.read_bytes()
    for size in (0, 39, 100, len(whole) + 1):
        second.write_bytes(whole[:size].ljust(size, b"\0"))
        before = state(store)
        done = cli("walk", "index", *line)
        assert done.code == 1 and f"{second.name} ({size} bytes)" in done.err
        assert {row["file"] for row in done.rows[:-1]} == {first.name, third.name}
        found = 0
        for key in keys:
            done = cli("index", "query", "--topic", "orders", "--key", key, *line)
            assert second.name in done.err and "rebuild index" in done.err
            found += done.code == 0
        assert 0 < found < len(keys)
        done = cli("clean", "--dry-run", "--manual", "--disk-ratio", "99", *line)
        removed = {row["path"] for row in done.rows if row.get("structure") == "index"}
        assert done.code == 0 and f"index/{second.name}" not in removed
        assert state(store) == before


def test_a_geometry_that_fits_no_index_file_is_an_error(cli: Cli, store: Path) -> None:
    conf = store.parent / "other.conf"
    conf.write_text("maxHashSlotNum=51\nmaxIndexNum=200\n")
    done = cli("walk", "index", "--store", store, "--broker-conf", conf)
    assert done.code == 5 and "maxHashSlotNum" in done.err


@pytest.mark.parametrize("structure", ["commitlog", QUEUE])
def test_an_empty_first_file_tells_no_size(structure: str, cli: Cli, store: Path) -> None:
    """Without a broker.conf the other files say how long a file is."""
    if structure == QUEUE:
        (store / QUEUE / f"{QUEUE_SIZE:020d}").write_bytes(bytes(QUEUE_SIZE))
    cut(structure, 0, 0)(store)
    conf = store.parent / "other.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    row = cli("info", "--format", "ndjson", "--store", store, "--broker-conf", conf).rows[0]
    sizes = row["commitlog_file_size"], row["consumequeue_file_size"]
    assert sizes == (LOG_SIZE, QUEUE_SIZE)
    assert len(row["irregular"]) == 1


@pytest.mark.parametrize("kind", ["fifo", "directory"])
@pytest.mark.parametrize("suffix", ["", ".bak"])
def test_what_is_no_file_in_config_is_a_finding(
    suffix: str, kind: str, cli: Cli, store: Path
) -> None:
    config = store / "config"
    config.mkdir()
    offsets = '{"offsetTable":{"orders@g":{0:1,1:1}}}'
    for name in ("consumerOffset.json", "consumerOffset.json.bak", "topics.json"):
        (config / name).write_text(offsets if name.startswith("c") else "{}")
    place = config / f"consumerOffset.json{suffix}"
    place.unlink()
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    done = cli("config", "check", "--format", "ndjson", store=store)
    assert done.code == 1
    (found,) = [row for row in done.rows if row.get("path") == f"config/{place.name}"]
    assert found["code"] == ("config-backup-unreadable" if suffix else "config-unreadable")
    assert "not a regular file" in found["found"]
    assert done.rows[-1]["files"] == 2
    # Who looks for progress takes the copy, as a broker does of a broken file.
    done = cli("clean", "--dry-run", "--format", "ndjson", store=store)
    assert done.code == 0
    assert {row["group"] for row in done.rows if row["type"] == "progress"} == {"g"}


def test_a_queue_file_of_no_whole_units_tells_no_size(cli: Cli, store: Path) -> None:
    """A writer that took it for the size of a queue file would store units that nobody reads."""
    shutil.rmtree(store / "consumequeue")
    place = store / QUEUE / f"{0:020d}"
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(7))
    conf = store.parent / "other.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    before = state(store)
    done = cli("put", "--topic", "t", "--body", "x", "--store", store, "--broker-conf", conf)
    assert done.code == 5 and "has 7 bytes, but 6000000 are expected" in done.err
    assert state(store) == before


#: Lengths of a log's files, wrong ones among them, and whether the broker.conf says the right one.
LENGTHS: dict[str, tuple[list[int], bool]] = {
    "cut": ([1500], True),
    "cut-in-zeros": ([2000], True),
    "long": ([LOG_SIZE + 100], True),
    "of-another-power": ([1024], True),
    "first-cut": ([1500, LOG_SIZE], True),
    "all-cut": ([1500, 1501], True),
    "cut-no-conf": ([1500], False),
    "cut-in-zeros-no-conf": ([2000], False),
    "long-no-conf": ([LOG_SIZE + 100], False),
    "first-cut-no-conf": ([1500, LOG_SIZE], False),
    "first-half-no-conf": ([LOG_SIZE // 2, LOG_SIZE], False),
    "last-half-no-conf": ([LOG_SIZE, LOG_SIZE // 2], False),
    "all-cut-no-conf": ([1500, 1501], False),
    "all-long-no-conf": ([LOG_SIZE + 8, LOG_SIZE + 9], False),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_a_log_without_a_file_of_its_length(case: str, cli: Cli, tmp_path: Path) -> None:
    """The names tell the size, else the configuration; where nothing does, no command writes."""
    lengths, says_size = LENGTHS[case]
    root = tmp_path / "one"
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        for number in range(6 + 12 * (len(lengths) - 1)):
            assert opened.put_message(message(number)).is_ok
    files = files_of(root, "commitlog")
    assert len(files) == len(lengths)
    wrong = {}
    for path, size in zip(files, lengths, strict=True):
        os.truncate(path, size)
        if size != LOG_SIZE:
            wrong[str(path.relative_to(root))] = size
    conf = tmp_path / "broker.conf"
    said = f"mappedFileSizeCommitLog={LOG_SIZE}\n" if says_size else ""
    conf.write_text(f"{said}mappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=50\nmaxIndexNum=200\n")
    more = ("--store", root, "--broker-conf", conf)
    before = state(root)
    for line in READING:
        done = cli(*line, "--format", "ndjson", *more)
        assert done.code in (0, 1), (line, done.err)
        if line == ("verify",):
            code = "file-length-mismatch"
            if len(lengths) == 1 and not says_size:
                code = "file-length-unproven"
            found = {row["path"] for row in done.rows if row.get("code") == code}
            assert done.code == 1 and found == set(wrong)
        elif line == ("info",) and (says_size or len(lengths) > 1):
            assert done.rows[0]["commitlog_file_size"] == LOG_SIZE
    put = ("put", "--topic", "orders", "--body", "x")
    for line in (put, ("flush",), ("flush", "--dry-run")):
        done = cli(*line, *more)
        assert done.code == 5 and any(name in done.err for name in wrong), done.err
    assert state(root) == before


def test_one_file_of_a_usual_length_is_believed(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "one"
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        assert opened.put_message(message(0)).is_ok
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    more = ("--store", root, "--broker-conf", conf)
    for number in range(12):
        assert cli("put", "--topic", "orders", "--body", "x" * 200, *more).code == 0, number
    assert [path.stat().st_size for path in files_of(root, "commitlog")] == [LOG_SIZE] * 2
    assert cli("verify", *more).code == 0


def test_a_configuration_that_all_files_deny_is_refused(cli: Cli, store: Path) -> None:
    conf = store.parent / "other.conf"
    for size in (LOG_SIZE // 2, LOG_SIZE + 1, 1 << 30):
        conf.write_text(f"mappedFileSizeCommitLog={size}\n")
        done = cli("verify", "--store", store, "--broker-conf", conf)
        assert done.code == 5 and "without one, verify goes by the files" in done.err


def test_a_rebuild_says_what_of_the_log_it_lacks(cli: Cli, store: Path) -> None:
    """What is made of a log that was cut fits it, and `verify` would find nothing wrong there."""
    last = cut("commitlog", -1, 1000)(store)
    said = f"note: {last.relative_to(store)}: 1000 bytes, not {LOG_SIZE}. What they lack is left"
    for line in (
        ("--output", store.parent / "new"),
        ("--output", store.parent / "newer", "--dry-run"),
        ("--in-place", "--dry-run"),
        ("--in-place", "--yes"),
    ):
        done = cli("rebuild", "all", *line, store=store)
        assert done.code == 0 and done.err.count(said) == 1, (line, done.err)


def test_no_rebuild_replaces_queues_of_a_log_that_may_have_been_cut(
    cli: Cli, tmp_path: Path
) -> None:
    root = tmp_path / "one"
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        for number in range(6):
            assert opened.put_message(message(number)).is_ok
    os.truncate(files_of(root, "commitlog")[0], 2000)
    (root / "abort").touch()
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=50\nmaxIndexNum=200\n")
    line = ("rebuild", "queues", "--in-place", "--yes", "--store", root, "--broker-conf", conf)
    before = files_of(root, "consumequeue/orders/0")[0].read_bytes()
    done = cli(*line)
    assert done.code == 5 and "has 2000 bytes, and nothing confirms" in done.err
    assert files_of(root, "consumequeue/orders/0")[0].read_bytes() == before
    assert (root / "abort").exists()


@pytest.mark.parametrize("case", ["queue-next-empty", "queue-other-empty", "log-next-empty"])
def test_an_empty_last_file_of_a_store_of_5_x_goes(case: str, cli: Cli, store: Path) -> None:
    """As with the start of 5.x (``MappedFileQueue#doLoad``); of any other file nothing is known."""
    (store / "compaction").mkdir()
    empty = CASES[case][0](store)
    before = state(store)
    done = cli("verify", "--format", "ndjson", store=store)
    (found,) = [row for row in done.rows if row.get("path") == str(empty.relative_to(store))]
    assert done.code == 0 and (found["code"], found["severity"]) == ("file-length-mismatch", "info")
    for line in (("put", "--topic", "orders", "--body", "x"), ("clean",)):
        assert cli(*line, "--dry-run", store=store).code == 0
    assert state(store) == before
    assert cli("put", "--topic", "orders", "--body", "x", store=store).code == 0
    assert not empty.exists()
    assert cli("verify", store=store).code == 0
    # One that is not the last, or not empty, keeps a broker of 5.x from starting, too.
    os.truncate(files_of(store, QUEUE)[0], 10)
    empty = CASES[case][0](store)
    before = state(store)
    assert cli("put", "--topic", "orders", "--body", "x", store=store).code == 5
    assert state(store) == before


@pytest.mark.parametrize("line", [("info",), ("checkpoint", "show")])
def test_what_is_no_file_is_not_told_as_of_rights(
    line: tuple[str, ...], cli: Cli, store: Path
) -> None:
    place = store / "checkpoint"
    place.unlink(missing_ok=True)
    place.mkdir()
    done = cli(*line, store=store)
    assert done.code == 5
    assert "checkpoint: it is not a regular file. See what it is (`ls -ld`)" in done.err
    assert "rights" not in done.err
