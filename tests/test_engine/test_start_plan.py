"""From where a start after a crash dispatches again, by what is left of queues and index."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats.constants import TRANSACTION_PREPARED_TYPE
from rmqctl.engine.index.header import ITEM
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.state.checkpoint import Checkpoint, write_checkpoint
from rmqctl.errors import DamagedStore
from tests.golden_data import broker_conf, expected
from tests.test_safety.support import TIME, Clock, assert_clean, message, small_config, tree

CONFIG = broker_conf("basic")
NEWEST = max(row["storeTimestamp"] for row in expected("basic")["message"])
#: The last file of the log: a start reads from there if the checkpoint says that it may.
LAST_FILE = 6 * 65536
#: Of stores of a few messages.
SMALL = small_config(log=1 << 12, queue=2000)
Copy = Callable[[str], Path]


@pytest.fixture
def killed(copy_store: Copy) -> Path:
    """A store whose broker was killed, and whose checkpoint claims all that there is."""
    root = copy_store("basic")
    write_checkpoint(root, root / "checkpoint", Checkpoint(*(NEWEST + 5000,) * 3))
    (root / "abort").touch()
    return root


def queue_files(root: Path) -> Iterator[Path]:
    """The queue files that have units of records on both sides of the place to read from."""
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        offsets = [offset for offset, size, _ in UNIT.iter_unpack(path.read_bytes()) if size]
        if offsets and offsets[0] < LAST_FILE <= offsets[-1]:
            yield path


def cut_units(path: Path, least: int) -> int:
    """Makes zeros of a queue's units of records from ``least`` on; how many."""
    data, cut = bytearray(path.read_bytes()), 0
    for at in range(0, len(data), UNIT_SIZE):
        offset, size, _ = UNIT.unpack_from(data, at)
        if size and offset >= least:
            data[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
            cut += 1
    path.write_bytes(data)
    return cut


def dispatch_from(root: Path) -> int:
    with MessageStore(root, CONFIG) as store:
        plan = store.start_plan()
    assert plan.scan is not None and plan.scan.physical_offset == LAST_FILE
    return plan.dispatch_from


def start(root: Path) -> None:
    with MessageStore(root, CONFIG, writable=True):
        pass
    assert_clean(root, CONFIG)


def test_units_behind_the_place_alone_are_dispatched_from_there(killed: Path) -> None:
    before = tree(killed / "consumequeue")
    for path in queue_files(killed):
        cut_units(path, LAST_FILE)
    assert tree(killed / "consumequeue") != before
    assert dispatch_from(killed) == LAST_FILE
    start(killed)
    assert tree(killed / "consumequeue") == before


@pytest.mark.parametrize("least", [0, 100_000, 300_000])
def test_a_queue_that_lacks_units_before_the_place_gets_these_too(killed: Path, least: int) -> None:
    """A broker would go on behind the gap, or, with no unit left, put units of other offsets at the
    queue's begin."""
    before = tree(killed / "consumequeue")
    path = next(queue_files(killed))
    assert cut_units(path, least) > cut_units(path, LAST_FILE)
    assert dispatch_from(killed) < LAST_FILE
    start(killed)
    assert tree(killed / "consumequeue") == before


@pytest.mark.parametrize("level", ["queue", "topic"])
def test_a_queue_whose_directory_is_gone_is_made_again(killed: Path, level: str) -> None:
    """A broker would make it anew, with pre-blank units in place of the messages before."""
    before = tree(killed / "consumequeue")
    directory = next(queue_files(killed)).parent
    shutil.rmtree(directory if level == "queue" else directory.parent)
    assert dispatch_from(killed) == 0
    start(killed)
    assert tree(killed / "consumequeue") == before


@pytest.mark.parametrize("config", ["deleted", "named", "broken"])
def test_a_deleted_topic_costs_no_start_the_whole_log(killed: Path, config: str) -> None:
    """A broker deletes the queues of a topic that it does not know (any more)."""
    directory = next(queue_files(killed)).parent
    shutil.rmtree(directory)
    table: dict[str, object] = {directory.parent.name if config == "named" else "other": {}}
    text = json.dumps({"topicConfigTable": table}) if config != "broken" else "{"
    (killed / "config").mkdir(exist_ok=True)
    (killed / "config" / "topics.json").write_text(text)
    assert dispatch_from(killed) == (LAST_FILE if config == "deleted" else 0)


def test_a_queue_that_begins_behind_the_place_is_read_from_there(killed: Path) -> None:
    """Its directory may be missing, since a kill may have come before it was made."""
    with MessageStore(killed, CONFIG, writable=True) as store:
        assert store.put_message(message(0, "new")).is_ok
    before = tree(killed / "consumequeue")
    shutil.rmtree(killed / "consumequeue" / "new")
    (killed / "abort").touch()
    assert dispatch_from(killed) == LAST_FILE
    start(killed)
    assert tree(killed / "consumequeue") == before


def test_without_any_queue_all_are_made_again(killed: Path) -> None:
    before = tree(killed / "consumequeue")
    shutil.rmtree(killed / "consumequeue")
    assert dispatch_from(killed) == 0
    start(killed)
    assert tree(killed / "consumequeue") == before


def test_the_index_gets_items_that_it_lacks_before_the_place(killed: Path) -> None:
    """The page of an item did not reach the disk."""
    path = max((killed / "index").iterdir())
    before = path.read_bytes()
    start_of_items = CONFIG.index_geometry.item_position(1)
    items = list(ITEM.iter_unpack(before[start_of_items:]))
    lost = sum(0 < item[1] < LAST_FILE for item in items) // 2
    assert 0 < items[0][1] < items[lost - 1][1] <= items[lost][1] < LAST_FILE
    path.write_bytes(before[: start_of_items + lost * ITEM.size].ljust(len(before), b"\0"))
    assert dispatch_from(killed) == items[lost - 1][1]
    start(killed)
    assert path.read_bytes() == before


def put(store: MessageStore, sys_flag: int = 0) -> int:
    """Puts a message, and returns its size."""
    result = store.put_message(MessageExtBrokerInner("t", b"x" * 200, sys_flag=sys_flag))
    assert result.stored is not None
    return result.stored.wrote_bytes


def flip(path: Path, number: int) -> None:
    """Flips a bit in the body of the ``number``-th record of a file of the log."""
    data, at = bytearray(path.read_bytes()), 0
    for _ in range(number + 1):
        at = data.index(b"x" * 200, at + 1)
    data[at] ^= 1
    path.write_bytes(data)


def test_a_prepared_message_does_not_tell_where_its_queue_begins(tmp_path: Path) -> None:
    """It has no unit, and its queue offset is 0."""
    with MessageStore(tmp_path, SMALL, writable=True, create=True, clock=Clock()) as store:
        size = put(store)
        while store.max_offset < 3 << 12 or (store.max_offset % 4096) + size + 8 <= 4096:
            put(store)
        put(store, TRANSACTION_PREPARED_TYPE)
        put(store)
        begin = store.commit_log.files.entries[-1].file_from_offset
        assert store.max_offset == begin + 2 * size
        claimed = store.commit_log.record_at(begin).store_timestamp + 5000
    before = tree(tmp_path / "consumequeue")
    (path,) = (tmp_path / "consumequeue" / "t" / "0").iterdir()
    assert cut_units(path, begin - 3 * size) == 3
    write_checkpoint(tmp_path, tmp_path / "checkpoint", Checkpoint(claimed, claimed, claimed))
    (tmp_path / "abort").touch()
    with MessageStore(tmp_path, SMALL, writable=True) as store:
        assert store.plan.scan is not None and store.plan.scan.physical_offset == begin
    assert tree(tmp_path / "consumequeue") == before
    assert_clean(tmp_path, SMALL)


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
def test_a_unit_of_the_very_end_of_the_log_is_of_no_record(tmp_path: Path, abort: bool) -> None:
    with MessageStore(tmp_path, SMALL, writable=True, create=True, clock=Clock()) as store:
        sizes = [put(store) for _ in range(3)]
        (entry,) = store.commit_log.files.entries
    end = sum(sizes[:2])
    with entry.path.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(sizes[2]), end)
    if abort:
        (tmp_path / "abort").touch()
    with MessageStore(tmp_path, SMALL) as store:
        plan = store.start_plan()
        (cut,) = plan.queue_cuts
    assert plan.end.offset == end and (cut.topic, cut.end, cut.max_offset) == ("t", 2, 3)
    with MessageStore(tmp_path, SMALL, writable=True, clock=Clock()) as store:
        put(store)
        assert [one.queue_offset for one in store.get_message("t", 0, 0).records] == [0, 1, 2]
    assert_clean(tmp_path, SMALL)


@pytest.mark.parametrize(("sound", "has_queues"), [(0, True), (1, True), (1, False), (2, False)])
def test_the_last_sound_record_tells_what_a_checkpoint_may_claim(
    tmp_path: Path, sound: int, has_queues: bool
) -> None:
    """In the file from which a start reads, so many records are sound. If there is none, the queues
    know the one before."""
    with MessageStore(tmp_path, SMALL, writable=True, create=True, clock=Clock()) as store:
        while len(store.commit_log.files.entries) < 3:
            size = put(store)
        begin = store.commit_log.files.entries[-1].file_from_offset
        for _ in range(sound):
            put(store)
        damaged, path = begin + sound * size, store.commit_log.files.entries[-1].path
        newest = max(
            record.store_timestamp
            for record in store.get_message("t", 0, 0).records
            if record.physical_offset < damaged
        )
    flip(path, sound)
    if not has_queues:
        shutil.rmtree(tmp_path / "consumequeue")
    claimed = newest + 5000
    write_checkpoint(tmp_path, tmp_path / "checkpoint", Checkpoint(claimed, claimed, claimed))
    (tmp_path / "abort").touch()
    with MessageStore(tmp_path, SMALL) as store:
        plan = store.start_plan()
    assert plan.scan is not None and plan.scan.physical_offset == begin
    assert plan.end == (damaged, newest, None)


def test_a_record_of_the_same_time_behind_damage_is_not_overwritten(tmp_path: Path) -> None:
    """Only older ones are what a truncation has left."""
    with MessageStore(tmp_path, SMALL, writable=True, create=True, clock=lambda: TIME) as store:
        sizes = [put(store) for _ in range(3)]
    flip(tmp_path / "commitlog" / f"{0:020d}", 1)
    shutil.rmtree(tmp_path / "consumequeue")
    with MessageStore(tmp_path, SMALL) as store:
        end = store.start_plan().end
    assert end.offset == sizes[0] and end.obstacle is not None
    with pytest.raises(DamagedStore, match="newer records stand behind"):
        MessageStore(tmp_path, SMALL, writable=True)


def test_without_queues_the_end_is_looked_for_in_the_last_file(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, writable=True, create=True, clock=Clock()) as store:
        while len(store.commit_log.files.entries) < 2:
            put(store)
        end = store.max_offset
    flip(tmp_path / "commitlog" / f"{0:020d}", 3)
    shutil.rmtree(tmp_path / "consumequeue")
    with MessageStore(tmp_path, SMALL) as store:
        assert store.start_plan().end[::2] == (end, None)


def test_a_queue_without_older_units_may_not_have_its_name_on_disk(tmp_path: Path) -> None:
    """Nor may what is above it."""
    with MessageStore(tmp_path, SMALL, writable=True, create=True, clock=Clock()) as store:
        put(store)
    (tmp_path / "abort").touch()
    with MessageStore(tmp_path, SMALL) as store:
        doubtful = set(store.start_plan().doubtful)
    queue = tmp_path / "consumequeue" / "t" / "0"
    assert {*queue.iterdir(), queue, *list(queue.parents)[:3]} <= doubtful


def test_a_lost_extension_makes_nothing_before_the_place_anew(copy_store: Copy) -> None:
    """Units of records from there on are dispatched again, and with them what they lead to."""
    root, config = copy_store("cqext"), broker_conf("cqext")
    newest = max(row["storeTimestamp"] for row in expected("cqext")["message"])
    write_checkpoint(root, root / "checkpoint", Checkpoint(*(newest + 5000,) * 3))
    (root / "abort").touch()
    for queue in (root / "consumequeue_ext").glob("*/*"):
        shutil.rmtree(queue)
    with MessageStore(root, config) as store:
        plan = store.start_plan()
    assert plan.scan is not None and plan.scan.physical_offset > 0
    assert plan.dispatch_from == plan.scan.physical_offset
    assert any(cut.is_astray for cut in plan.queue_cuts)


@pytest.mark.parametrize("kept", [8, 10, 12])
def test_units_that_lack_in_front_of_the_files_that_a_start_reads_are_made_again(
    tmp_path: Path, kept: int
) -> None:
    """It reads the last three, of ten units each (``ConsumeQueue#recover``)."""
    config = small_config(queue=10 * UNIT_SIZE)
    with MessageStore(tmp_path, config, writable=True, create=True, clock=Clock()) as store:
        for _ in range(40):
            put(store)
    before = tree(tmp_path / "consumequeue")
    files = sorted((tmp_path / "consumequeue" / "t" / "0").iterdir())
    for number, path in enumerate(files):
        units = max(kept - number * 10, 0)
        path.write_bytes(path.read_bytes()[: units * UNIT_SIZE].ljust(10 * UNIT_SIZE, b"\0"))
    (tmp_path / "abort").touch()
    with MessageStore(tmp_path, config) as store:
        (cut,) = store.start_plan().queue_cuts
    assert cut.end == kept
    with MessageStore(tmp_path, config, writable=True, clock=Clock()):
        pass
    assert tree(tmp_path / "consumequeue") == before
    assert_clean(tmp_path, config)


@pytest.mark.parametrize("why", ["a queue", "the index"])
def test_what_is_read_for_one_queue_shows_where_others_are_short(tmp_path: Path, why: str) -> None:
    """Queue B has no message in the last file, and lacks units since before the place to which
    queue A, or the index, leads back: a unit at that place would be of another queue offset."""
    with MessageStore(tmp_path, SMALL, writable=True, create=True, clock=Clock()) as store:
        for number, topic in enumerate("BBABA"):
            keys = int(why == "a queue" or number == 3)
            assert store.put_message(message(number, topic, 0, bytes(500), keys)).is_ok
        assert store.put_message(message(5, "A", 0, bytes(2000), keys=0)).is_ok
        places = {
            topic: [row.physical_offset for row in store.get_message(topic, 0, 0).records]
            for topic in "AB"
        }
        begin = store.max_offset // 4096 * 4096
        claimed = store.commit_log.record_at(begin).store_timestamp + 5000
    before = tree(tmp_path / "consumequeue")
    for topic in "AB" if why == "a queue" else "B":
        (path,) = (tmp_path / "consumequeue" / topic / "0").iterdir()
        assert cut_units(path, places[topic][1]) == 2
    write_checkpoint(tmp_path, tmp_path / "checkpoint", Checkpoint(claimed, claimed, claimed))
    (tmp_path / "abort").touch()
    with MessageStore(tmp_path, SMALL, writable=True) as store:
        assert store.plan.scan is not None and store.plan.scan.physical_offset == begin
        assert store.plan.dispatch_from == places["B"][1]
    assert tree(tmp_path / "consumequeue") == before
    assert_clean(tmp_path, SMALL)
