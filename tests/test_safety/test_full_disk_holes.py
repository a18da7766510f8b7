"""Holes of sparse files on a disk that is full: no page can be had for them, and whoever looks at
one through a map, or stores into one, is ended by the kernel."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from tests import processes
from tests.test_safety.support import Clock, assert_clean, broker_conf, message, small_config
from tests.test_safety.test_disk_full import fill, mounted

CONFIG = small_config()
COUNT = 120
#: Everything that reads.
READING = [
    ["info"],
    ["queues"],
    ["walk", "commitlog", "--body-as", "hex"],
    ["walk", "queue", "--topic", "topic0"],
    ["walk", "index"],
    ["dump", "record", "0"],
    ["dump", "unit", "topic0", "0", "0"],
    ["dump", "checkpoint"],
    ["pull", "--topic", "topic0", "--queue-id", "0", "--offset", "0", "--max-messages", "99"],
    ["index", "info"],
    ["index", "query", "--topic", "topic1", "--key", "k7-0"],
    ["index", "query", "--topic", "topic1", "--key", "none"],
    ["offset", "--topic", "topic0", "--queue-id", "0", "--time", "0"],
    ["du"],
    ["find", "k7-0"],
    ["find", "k7-0", "--scan"],
    ["stats"],
    ["topics"],
    ["groups"],
    ["clean", "--dry-run"],
    ["verify"],
]
Answer = tuple[int, str, str]


def make_ext4(disk: Path) -> bool:
    """A file system with blocks of a quarter of a page."""
    image = disk.with_name("image")
    with image.open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-b", "1024", "-m", "0", str(image)], check=True)
    disk.mkdir()
    done = subprocess.run(["mount", "-o", "loop", str(image), str(disk)], capture_output=True)
    return done.returncode == 0


def make_tmpfs(disk: Path) -> bool:
    return mounted(disk, "size=1m,nr_inodes=300")


@pytest.fixture(params=[make_tmpfs, make_ext4], ids=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    if os.geteuid() != 0 or not request.param(place):
        pytest.skip("no right to mount a file system here (needs root)")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, some of whose bodies are zeros over whole pages."""
    root = tmp_path_factory.mktemp("sound") / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(COUNT):
            body = bytes(12_000) if number % 10 == 5 else None
            assert store.put_message(message(number, body=body), flush=False).is_ok
    return root


def copied(root: Path, disk: Path) -> Path:
    """A copy with a hole wherever there are zeros."""
    copy = disk / "store"
    subprocess.run(["cp", "-r", "--sparse=always", str(root), str(copy)], check=True)
    return copy


def run(lines: list[list[str]], root: Path, conf: Path) -> list[Answer]:
    """What commands answer; all in one process, from the directory of the store."""
    conf.write_text(broker_conf(CONFIG))
    more = ["--store", "store", "--broker-conf", str(conf), "--format", "ndjson"]
    words = json.dumps([[*line, *more] for line in lines])
    done = processes.run("tests.test_safety.commands", words, cwd=root.parent)
    answers = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    ended = f"after {lines[len(answers) - 1] if answers else None}: {done.stderr[-2000:]!r}"
    assert (done.returncode, len(answers)) == (0, len(lines)), ended
    return answers


def fill_up(disk: Path, leave: int) -> None:
    """Takes all but about ``leave`` bytes."""
    fill(disk, leave)
    if not leave:
        with (disk / "filler").open("ab", 0) as file:
            try:
                while file.write(b"x" * 512):
                    pass
            except OSError:
                pass


def lines_of(path: Path, count: int) -> Path:
    rows = (
        {"topic": f"topic{n % 4}", "queue_id": n % 3, "body": "y" * (n * 37 % 900), "keys": f"n{n}"}
        for n in range(count)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("leave", [0, 1024, 4096, 20_480])
def test_writers_are_refused_and_readers_go_on(
    sound: Path, disk: Path, tmp_path: Path, leave: int
) -> None:
    root = copied(sound, disk)
    fill_up(disk, leave)
    source = lines_of(tmp_path / "in", 3000)
    writing = [
        ["put", "--from", str(source)],
        ["put", "--topic", "topic0", "--body", "x" * 9000],
        ["put", "--topic", "fresh", "--body", "x"],
        ["flush"],
        ["put", "--topic", "topic0", "--keys", "k", "--body", "x"],
    ]
    written = run(writing, root, tmp_path / "conf")
    assert all(code in (0, 5) for code, _, _ in written)
    assert written[0][0] == 5 and "No space" in written[0][2]
    answers = run(READING, root, tmp_path / "conf")
    nothing = READING.index(["index", "query", "--topic", "topic1", "--key", "none"])
    for line, (code, _, err) in zip(READING, answers, strict=True):
        assert code == int(line == READING[nothing]), (line, err)
    (disk / "filler").unlink()
    again = run([*writing[1:], *READING], root, tmp_path / "conf")
    assert all(code == 0 for code, _, _ in again[:4])
    stored = [json.loads(row) for _, out, _ in written for row in out.splitlines()]
    acknowledged = {row["wrote_offset"] for row in stored if row.get("status") == "PUT_OK"}
    with MessageStore(root, CONFIG) as store:
        found = {e.physical_offset for e in store.commit_log.walk() if isinstance(e, Record)}
    assert acknowledged <= found and len(found) >= COUNT
    assert_clean(root, CONFIG)


def zero_from(root: Path, number: int, part: Callable[[Record], int]) -> None:
    """Makes zeros of the log from a place in its ``number``-th record on."""
    with MessageStore(root, CONFIG) as store:
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
        mapped, position = store.commit_log.locate(records[number].physical_offset)
        start, size = position + part(records[number]), mapped.size
    with mapped.path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(size - start))


CUTS: dict[str, Callable[[Record], int]] = {
    "prefix": lambda record: 40,
    "body": lambda record: 95,
    "topic": lambda record: record.total_size - 60,
    "properties": lambda record: record.total_size - 10,
}


@pytest.mark.parametrize("cut", [None, *CUTS])
def test_readers_see_on_a_full_tmpfs_what_they_see_elsewhere(
    sound: Path, tmp_path: Path, cut: str | None
) -> None:
    """Records whose bodies are holes, and records that end in one, in the middle and at the end."""
    disk = tmp_path / "disk"
    if os.geteuid() != 0 or not make_tmpfs(disk):
        pytest.skip("no right to mount a file system here (needs root)")
    try:
        beside = tmp_path / "elsewhere" / disk.name  # What a broker is called follows from it.
        beside.mkdir(parents=True)
        elsewhere = copied(sound, beside)
        if cut is not None:
            zero_from(elsewhere, -1, CUTS[cut])
            zero_from(elsewhere, 5, CUTS[cut])
        root = copied(elsewhere, disk)
        fill_up(disk, 0)
        before = os.statvfs(disk).f_bfree
        expected = run(READING, elsewhere, tmp_path / "conf")
        found = run(READING, root, tmp_path / "conf")
        assert os.statvfs(disk).f_bfree == before == 0
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    for line, one, other in zip(READING, found, expected, strict=True):
        # How much of a disk the files take is another matter on each.
        if line not in (["info"], ["du"], ["clean", "--dry-run"]):
            code, *texts = one
            assert (code, *(text.replace(str(root), str(elsewhere)) for text in texts)) == other, (
                line
            )
