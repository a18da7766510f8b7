"""Stores of many queues: who looks at one, or at the log, opens no other, and finds the same."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats.constants import INT_MAX, LONG_MAX
from rmqctl.engine.files import paths
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue import queuetable
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE, ConsumeQueue
from rmqctl.engine.queue.ends import QueueEnd, queue_end
from rmqctl.engine.services import retention
from rmqctl.engine.services.anyqueue import queue_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.start.lastrecord import last_record, proven_last
from rmqctl.engine.start.logend import find_end
from rmqctl.operations.doctor import simulatestart
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.doctor.startrows import rows
from rmqctl.operations.look.dump import dump_record
from rmqctl.operations.look.message import look_message
from rmqctl.operations.look.pull import pull
from rmqctl.operations.look.queues import queues
from rmqctl.operations.look.topics import unit_bytes
from rmqctl.operations.look.walk import Selection, walk_commit_log
from rmqctl.operations.look.walkqueues import walk_queues
from tests import golden_data
from tests.test_safety.support import Clock, message, small_config

CONFIG = small_config()
QUEUES = 40
DAMAGE = sorted(path.stem for path in (golden_data.GOLDEN / "damage").glob("*.json"))


@pytest.fixture
def many(tmp_path: Path) -> Path:
    root = tmp_path / "many"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(2 * QUEUES):
            queued = message(number, topic=f"topic{number % QUEUES:02d}", queue_id=0)
            assert store.put_message(queued, flush=False).is_ok
    return root


def topics_looked_at(
    root: Path, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]
) -> set[str]:
    """The topics whose directories, or files in them, are opened or listed while ``do`` runs."""
    seen: set[str] = set()
    base = f"{root / paths.CONSUME_QUEUE}/"

    def noted(real: Callable[..., object]) -> Callable[..., object]:
        def call(path: object = ".", *rest: object, **named: object) -> object:
            text = str(path)
            if text.startswith(base):
                seen.add(text.removeprefix(base).split("/")[0])
            return real(path, *rest, **named)

        return call

    with monkeypatch.context() as patched:
        for name in ("open", "listdir", "scandir", "stat"):
            patched.setattr(os, name, noted(getattr(os, name)))
        do()
    # Whether they are in RocksDB; it is no topic's.
    return seen - {"CURRENT"}


# --- who looks at what ---------------------------------------------------------------------------


def looked(store: MessageStore) -> object:
    return look_message(store, "0", "text", 1 << 20)


def dumped(store: MessageStore) -> object:
    return list(dump_record(store, 0))


def walked(store: MessageStore) -> object:
    return list(walk_commit_log(store, Selection(), body="none", decompress_limit=1 << 20))


def topics_seen_by(
    look: Callable[[MessageStore], object], many: Path, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """The topics whose queues a reader looks at; it must find something."""

    def do() -> None:
        with MessageStore(many, CONFIG) as store:
            assert look(store)

    return topics_looked_at(many, monkeypatch, do)


@pytest.mark.parametrize("look", [looked, dumped, walked])
def test_who_looks_at_the_log_opens_no_queue(
    many: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[MessageStore], object]
) -> None:
    seen = topics_seen_by(look, many, monkeypatch)
    # Three queues' files say how long they are.
    assert seen <= {"topic00", "topic01", "topic02"}


def listed(store: MessageStore) -> object:
    return list(queues(store, "topic20"))[:-1]


def walked_queue(store: MessageStore) -> object:
    return list(walk_queues(store, Selection(topic="topic20")))


def numbered(store: MessageStore) -> object:
    return list(queue_directories(store, "topic20"))


@pytest.mark.parametrize("look", [listed, walked_queue, numbered])
def test_who_looks_at_a_topic_looks_at_no_other(
    many: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[MessageStore], object]
) -> None:
    seen = topics_seen_by(look, many, monkeypatch)
    assert seen <= {"topic00", "topic01", "topic02", "topic20", f"topic{QUEUES - 1}"}


def test_a_pull_opens_its_queue_and_the_one_of_the_last_record(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do() -> None:
        with MessageStore(many, CONFIG) as store:
            *rows, summary = pull(store, "topic20", 0, 0)
            assert len(rows) == 2 and summary["status"] == "FOUND"

    seen = topics_looked_at(many, monkeypatch, do)
    assert seen <= {"topic00", "topic01", "topic02", "topic20", f"topic{QUEUES - 1}"}
    assert "topic20" in seen


def test_a_put_lists_each_queue_once_and_maps_its_own(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    mapped: list[Path] = []
    real, real_init = os.listdir, ConsumeQueue.__init__

    def listdir(path: object = ".") -> list[str]:
        listed.append(str(path))
        return real(path)  # type: ignore[call-overload, no-any-return]

    def init(self: ConsumeQueue, directory: Path, *rest: object, **named: object) -> None:
        mapped.append(directory)
        real_init(self, directory, *rest, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", listdir)
        patched.setattr(ConsumeQueue, "__init__", init)
        with MessageStore(many, CONFIG, writable=True, clock=Clock(1_800_000_000_000)) as store:
            assert store.put_message(message(5, topic="topic20", queue_id=0)).is_ok
    own = many / "consumequeue/topic20/0"
    assert mapped == [own]
    of_queues = [path for path in listed if path.endswith("/0") and path != str(own)]
    # Those of the first queues also say how long files are.
    assert len(of_queues) <= QUEUES + 3 and len(set(of_queues)) == QUEUES - 1


def test_who_lists_the_queues_looks_at_each_once(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First for files of a wrong length, then for the rows."""
    with MessageStore(many, CONFIG) as store:
        expected = list(queues(store))
    asked: list[tuple[str, int]] = []

    def end(topic: str, queue_id: int, directory: str, file_size: int) -> QueueEnd | None:
        asked.append((topic, queue_id))
        return queue_end(topic, queue_id, directory, file_size)

    monkeypatch.setattr(queuetable, "queue_end", end)
    with MessageStore(many, CONFIG) as store:
        assert not store.irregular
        assert list(queues(store)) == expected
        assert len(asked) == len(set(asked)) == QUEUES
        store.queues.close()
        assert list(queues(store)) == expected  # A queue that is opened again is looked at again.
    assert len(asked) == 2 * QUEUES


# --- the same end --------------------------------------------------------------------------------


def test_a_start_is_simulated_without_a_map_of_sound_queues(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapping each of 100,000 queues twice took most of the time."""
    expected = list(rows(simulate_start(many, CONFIG, at=0)))

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("a queue was opened")

    for module in (simulatestart, retention):
        monkeypatch.setattr(module, "ConsumeQueue", opened)
    simulation = simulate_start(many, CONFIG, at=0)
    assert list(rows(simulation)) == expected
    assert len(simulation.queues) == QUEUES and not simulation.queue_messages_lost


def golden_copies(copy_store: Callable[[str], Path]) -> Iterator[tuple[str, Path]]:
    for name in golden_data.STORES:
        yield name, copy_store(name)


def full_end(root: Path, config: MessageStoreConfig) -> object:
    """The log's end as all queues tell it."""
    with MessageStore(root, config) as store:
        end = find_end(store.commit_log, store.newest_units())
        end_offset = store.commit_log.files.end_offset
    return end._replace(offset=end_offset) if end.obstacle is not None else end


def check_end(root: Path, config: MessageStoreConfig) -> bool:
    """Whether the last record alone told the end, which must be what all queues tell: not where it
    has no unit, as one that ends a transaction."""
    with MessageStore(root, config) as store:
        found = store.obstacle
        is_quick = proven_last(store.commit_log, store.queues) is not None
    assert found == full_end(root, config)
    return is_quick


@pytest.mark.parametrize("name", golden_data.STORES)
def test_the_last_record_tells_what_all_queues_do(name: str, golden: Callable[[str], Path]) -> None:
    assert check_end(golden(name), golden_data.broker_conf(name)) == (name != "transaction")


@pytest.mark.parametrize("case", DAMAGE)
def test_of_a_damaged_store_too(case: str, copy_store: Callable[[str], Path]) -> None:
    found = golden_data.damage_case(case)
    root = copy_store(found["base"])
    golden_data.apply_damage(root, found["ops"])
    check_end(root, golden_data.broker_conf(found["base"]))


@pytest.mark.parametrize("seed", range(40))
def test_of_stores_with_damage_near_the_end(seed: int, many: Path, chance: random.Random) -> None:
    """Bytes changed, zeroed or cut, in the last records and in queues."""
    lots = random.Random(f"{chance.random()} {seed}")
    with MessageStore(many, CONFIG) as store:
        end = store.max_offset
    log = many / "commitlog" / f"{0:020d}"
    queues = sorted((many / "consumequeue").glob("*/0/*"))
    for _ in range(lots.randrange(1, 4)):
        path = lots.choice([log, log, lots.choice(queues)])
        data = bytearray(path.read_bytes())
        at = end - lots.randrange(1, 600) if path == log else lots.randrange(45)
        size = lots.choice([1, 4, 20, 300])
        piece = lots.choice([bytes(size), lots.randbytes(size)])
        data[at : at + size] = piece[: len(data) - at]
        path.write_bytes(data)
    check_end(many, CONFIG)


def test_a_record_without_its_unit_is_no_proof(many: Path) -> None:
    """It may be what a recovery has cut: then the units say so, and its queue ends before it."""
    unit = many / f"consumequeue/topic{QUEUES - 1}/0/{0:020d}"
    data = bytearray(unit.read_bytes())
    data[UNIT_SIZE : 2 * UNIT_SIZE] = bytes(UNIT_SIZE)
    unit.write_bytes(data)
    assert not check_end(many, CONFIG)
    log = open_commit_log(many, CONFIG, CONFIG.mapped_file_size_commit_log)
    found = last_record(log)
    assert found is not None and found.topic == f"topic{QUEUES - 1}"


@pytest.mark.parametrize("size", [100, 70_000, 2_000_000])
def test_a_long_last_record_is_found(tmp_path: Path, size: int) -> None:
    config = small_config(log=4 << 20)
    with MessageStore(tmp_path / "s", config, writable=True, create=True) as store:
        for _ in range(3):
            assert store.put_message(message(1, body=b"x" * size)).is_ok
    assert check_end(tmp_path / "s", config)


# --- the same queue ------------------------------------------------------------------------------


def check_queue(where: Path, file_size: int) -> bool:
    """Whether the queue was told without a map, as its map tells."""
    found = queue_end("T", 0, str(where), file_size)
    queue = ConsumeQueue(where, "T", 0, file_size)
    if found is not None:
        assert not queue.files.irregular and not queue.files.foreign
        assert found[:4] == ("T", 0, queue.max_offset, queue.unit(queue.max_offset - 1))
        first = queue.files.min_offset // UNIT_SIZE
        if len(queue.files.entries) == 1:
            has_units = queue.max_offset > first
            assert found[4:] == (first, queue.unit(first) if has_units else None)
        else:
            assert found[4:] == (None, None)
        check_range(found, queue)
    return found is not None


def check_range(found: QueueEnd, queue: ConsumeQueue) -> None:
    """What the end tells of a start's cuts is what the queue's own cut finds."""
    for log_min, log_end in ((0, LONG_MAX), (1, LONG_MAX), (0, 100), (150, LONG_MAX)):
        first = found.first_within(log_min, log_end)
        if first is not None:
            queue.cut(log_min, log_end)
            assert (first, found.max_offset) == (queue.min_offset, queue.max_offset)
            files = queue.files
            known = ConsumeQueue(files.directory, "T", 0, files.file_size, known=found)
            assert facts(known) == facts(queue)
            opened = ConsumeQueue(files.directory, "T", 0, files.file_size)
            for one in (known, opened):
                one.cut(150, 200)
            assert facts(known) == facts(opened)


def facts(queue: ConsumeQueue) -> tuple[object, ...]:
    """What a queue says of its ends."""
    return queue.min_offset, queue.max_offset, queue.max_physical_offset, queue.ends()


@pytest.mark.parametrize("name", golden_data.STORES)
def test_golden_queues_end_where_their_maps_end(name: str, golden: Callable[[str], Path]) -> None:
    size = golden_data.broker_conf(name).mapped_file_size_consume_queue // UNIT_SIZE * UNIT_SIZE
    directories = list(paths.queue_directories(golden(name) / "consumequeue"))
    told = [check_queue(where.path, size) for where in directories]
    assert all(told)


def units(*written: bool) -> bytes:
    return b"".join(
        UNIT.pack(100 * at, 100, 7) if one else bytes(UNIT_SIZE) for at, one in enumerate(written)
    )


#: Files by their first units, of ten each, and whether it takes no map to tell their end.
SHAPES: dict[str, tuple[dict[int, bytes], bool]] = {
    "no file": ({}, False),
    "no unit": ({0: units()}, True),
    "one": ({0: units(True)}, True),
    "full": ({0: units(*[True] * 10)}, True),
    "two files": ({0: units(*[True] * 10), 10: units(True, True)}, True),
    "one ahead": ({0: units(*[True] * 10), 10: units()}, False),
    "begins late": ({20: units(True)}, True),
    "a hole": ({0: units(True, False, True)}, True),
    "at no unit": ({7: units(True)}, True),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ahead", [0, 4096 * 20 - 200], ids=["dense", "sparse"])
def test_queues_of_all_shapes_end_where_their_maps_end(
    tmp_path: Path, shape: str, ahead: int
) -> None:
    files, is_told = SHAPES[shape]
    size = 200 + ahead
    for first, data in files.items():
        path = tmp_path / f"{first // 10 * size + first % 10 * UNIT_SIZE:020d}"
        path.write_bytes(data)
        os.truncate(path, size)
    assert check_queue(tmp_path, size) == is_told


@pytest.mark.parametrize("what", ["short", "long", "foreign", "fifo", "directory", "link", "gone"])
def test_what_is_no_sound_queue_is_left_to_its_maps(tmp_path: Path, what: str) -> None:
    where = tmp_path / "0"
    where.mkdir()
    last, size = where / f"{200:020d}", 200
    (where / f"{0:020d}").write_bytes(units(*[True] * 10))
    last.write_bytes(units(True).ljust(size, b"\0"))
    if what in ("short", "long"):
        os.truncate(where / f"{0:020d}", 199 if what == "short" else 300)
    elif what == "foreign":
        (where / "notes").touch()
    else:
        last.unlink()
        if what == "fifo":
            os.mkfifo(last)
        elif what == "directory":
            last.mkdir()
        elif what == "link":
            last.symlink_to("nowhere")
        else:
            (where / f"{0:020d}").unlink()
            where.rmdir()
    assert queue_end("T", 0, str(where), size) is None


# --- a file that is cut while it is looked at ----------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 10, 20, 25, 100])
def test_a_file_that_is_cut_before_it_is_read_is_short(
    many: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Its length has been asked for before: it is what the queue says of a file of that length."""
    size = CONFIG.mapped_file_size_consume_queue
    directory = many / paths.CONSUME_QUEUE / "topic00" / "0"
    (path,) = directory.iterdir()
    real = os.pread

    def cut(descriptor: int, count: int, offset: int) -> bytes:
        os.truncate(path, left)
        return real(descriptor, count, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", cut)
        assert queue_end("topic00", 0, str(directory), size) is None
    os.truncate(path, size)
    assert queue_end("topic00", 0, str(directory), size) is not None


@pytest.mark.parametrize("left", [0, 10, 20, 25])
def test_units_of_a_file_that_is_cut_while_the_queue_is_open_are_in_no_file(
    many: Path, left: int
) -> None:
    directory = many / paths.CONSUME_QUEUE / "topic00" / "0"
    queue = ConsumeQueue(directory, "topic00", 0, CONFIG.mapped_file_size_consume_queue)
    try:
        before = dict(queue.units(0, queue.max_offset))
        assert len(before) == queue.max_offset == 2
        (path,) = directory.iterdir()
        os.truncate(path, left)
        whole = left // UNIT_SIZE
        assert dict(queue.units(0, 2)) == {number: before[number] for number in range(whole)}
        assert [queue.unit(number) for number in range(2)] == [*before.values()][:whole] + [
            None
        ] * (2 - whole)
        assert len(queue.stored(0, 2)) == len(queue.window(0, 2)) * UNIT_SIZE == whole * UNIT_SIZE
    finally:
        queue.close()


@pytest.mark.parametrize(("unit", "size"), [((0, 90, 7), 90), ((100, INT_MAX, 7), 0)])
def test_the_bytes_of_one_unit_are_those_of_many(
    tmp_path: Path, unit: tuple[int, int, int], size: int
) -> None:
    """A size that only a filler has counts for nothing."""
    for count in (1, 2):
        where = tmp_path / str(count)
        where.mkdir()
        (where / f"{0:020d}").write_bytes((UNIT.pack(*unit) * count).ljust(1000, b"\0"))
        assert unit_bytes(ConsumeQueue(where, "T", 0, 1000)) == count * size
