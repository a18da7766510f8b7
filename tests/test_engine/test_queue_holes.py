"""Places in a queue at which a start would cut it: nothing is put behind them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rmqctl.engine.files.filequeue import FileMisnamed
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.queue.errors import LastUnitTooLong, QueueHasHole, UnitBehindLog
from rmqctl.engine.rehearsal.rehearse import rehearse
from tests.test_safety.support import assert_clean, message, small_config, tree

CONFIG = small_config(queue=20 * UNIT_SIZE)
UNITS = 70
#: The first of the three files that a start reads has this unit first.
READ_FROM = 20


def make(root: Path) -> tuple[str, int]:
    """A store with a queue of some files, and one whose only message is the last: a start does not
    dispatch what is before that; topic and queue id."""
    one = message(0)
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(UNITS):
            again = message(number)
            again.topic, again.queue_id = one.topic, one.queue_id
            assert store.put_message(again, flush=False).is_ok
        last = message(0)
        last.topic = "last"
        assert store.put_message(last).is_ok
    return one.topic, one.queue_id


def change_unit(root: Path, where: tuple[str, int], number: int, what: str) -> None:
    files = sorted((root / "consumequeue" / where[0] / str(where[1])).iterdir())
    data = bytearray(files[number // 20].read_bytes())
    at = number % 20 * UNIT_SIZE
    physical_offset, size, code = UNIT.unpack_from(data, at)
    units = {
        "zeros": (0, 0, 0),
        "no size": (physical_offset, 0, code),
        "size of -1": (physical_offset, -1, code),
        "sign of the size": (physical_offset, size - (1 << 31), code),
        "sign of the offset": (physical_offset - (1 << 63), size, code),
        "another place": (physical_offset + 1, size + 256, code),
        "behind the log": (1 << 40, size, code),
        "the begin of the log": (0, size, code),
    }
    UNIT.pack_into(data, at, *units[what])
    files[number // 20].write_bytes(data)


@pytest.mark.parametrize("number", [READ_FROM - 1, READ_FROM + 1, 45, UNITS - 2])
@pytest.mark.parametrize(
    "what",
    [
        *("zeros", "no size", "size of -1", "sign of the size", "sign of the offset"),
        "another place",
    ],
)
def test_what_a_start_would_cut_off_is_not_put(tmp_path: Path, number: int, what: str) -> None:
    root = tmp_path / "store"
    where = make(root)
    change_unit(root, where, number, what)
    before = tree(root / "consumequeue")
    again = message(UNITS)
    again.topic, again.queue_id = where
    is_cut = what != "another place" and number >= READ_FROM
    started = rehearse(root, CONFIG, as_5=False)
    (queue,) = [one for one in started.queues if (one.topic, one.queue_id) == where]
    assert queue.max_offset == (number if is_cut else UNITS)
    with MessageStore(root, CONFIG, writable=True) as store:
        if is_cut:
            with pytest.raises(QueueHasHole, match=f"queue offset {number}"):
                store.put_message(again)
        else:
            assert store.put_message(again).is_ok
    assert (tree(root / "consumequeue") == before) == is_cut


@pytest.mark.parametrize("topic", ["orders", "it's $(touch x)", "a`touch x`b", "--store\u202e"])
def test_the_command_that_makes_the_queue_anew_is_of_this_topic(topic: str) -> None:
    """A name from a store is pasted into a shell, which runs nothing of it."""
    for error in (QueueHasHole, UnitBehindLog, LastUnitTooLong):
        told = error(topic=topic, queue_id=3, queue_offset=1, log_end=2, physical_offset=4)
        (command,) = re.findall(r"`rmqctl ([^`]+)`", str(told))
        done = subprocess.run(
            ["bash", "-c", rf"printf '%s\0' {command}"], capture_output=True, check=True
        )
        words = done.stdout.decode().split("\0")[:-1]
        assert words[:3] == ["rebuild", "queues", "--in-place"]
        assert words[3:] == ["--topic", topic, "--queue-id", "3"]


def test_units_behind_a_hole_that_a_file_begins_with_stay(tmp_path: Path) -> None:
    """The file is found empty, for the end of its units is looked for at halves: it was not made
    ahead."""
    root = tmp_path / "store"
    where = make(root)
    for number in (60, 61, 62, 63, 64, 65):
        change_unit(root, where, number, "zeros")
    before = tree(root / "consumequeue")
    again = message(UNITS)
    again.topic, again.queue_id = where
    with (
        MessageStore(root, CONFIG, writable=True) as store,
        pytest.raises(QueueHasHole, match="queue offset 60"),
    ):
        store.put_message(again)
    assert tree(root / "consumequeue") == before


def test_a_last_unit_that_ends_behind_the_log_is_followed_by_none(tmp_path: Path) -> None:
    """All that is put would count as dispatched, and be in no queue."""
    root = tmp_path / "store"
    where = make(root)
    path = max((root / "consumequeue" / where[0] / str(where[1])).iterdir())
    data = bytearray(path.read_bytes())
    at = (UNITS - 1) % 20 * UNIT_SIZE
    physical_offset, size, code = UNIT.unpack_from(data, at)
    UNIT.pack_into(data, at, physical_offset, size | 1 << 29, code)
    path.write_bytes(data)
    again = message(UNITS)
    again.topic, again.queue_id = where
    with (
        MessageStore(root, CONFIG, writable=True) as store,
        pytest.raises(LastUnitTooLong, match="Nothing was put"),
    ):
        store.put_message(again)


@pytest.mark.parametrize("number", [READ_FROM + 1, 60, 61, UNITS - 2])
def test_nothing_is_put_behind_a_unit_of_a_place_behind_the_log(
    tmp_path: Path, number: int
) -> None:
    """A start goes back in the last file to the first of them, and in others no further."""
    root = tmp_path / "store"
    where = make(root)
    change_unit(root, where, number, "behind the log")
    before = tree(root / "consumequeue")
    (queue,) = [
        one
        for one in rehearse(root, CONFIG, as_5=False).queues
        if (one.topic, one.queue_id) == where
    ]
    is_cut = number >= UNITS // 20 * 20
    assert queue.max_offset == (number if is_cut else UNITS)
    again = message(UNITS)
    again.topic, again.queue_id = where
    with MessageStore(root, CONFIG, writable=True) as store:
        if is_cut:
            with pytest.raises(UnitBehindLog, match=f"unit at queue offset {number} of"):
                store.put_message(again)
        else:
            assert store.put_message(again).is_ok
    assert (tree(root / "consumequeue") == before) == is_cut


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_lost_its_end_has_units_of_it_before_a_damaged_last_one_cut(
    tmp_path: Path, is_clean: bool
) -> None:
    """They would be of the next messages' bytes, one after the other."""
    root = tmp_path / "store"
    where = make(root)
    first, lost = 40, UNITS - 3
    change_unit(root, where, UNITS - 1, "the begin of the log")
    with MessageStore(root, CONFIG) as store:
        queue = store.consume_queue(*where)
        assert queue is not None
        kept = queue.units(first, lost)
        end = max(unit.physical_offset + unit.size for _, unit in kept)
    log = root / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    log.write_bytes(data[:end] + bytes(len(data) - end))
    if not is_clean:
        (root / "abort").touch()
    started = rehearse(root, CONFIG, as_5=False)
    assert {one.max_offset for one in started.queues if one.topic == where[0]} == {lost}
    with MessageStore(root, CONFIG, writable=True) as store:
        other = message(0)
        other.topic = "other"
        assert store.put_message(other).is_ok
        queue = store.consume_queue(*where)
        assert queue is not None
        assert queue.max_offset == lost


SMALL = small_config(queue=3 * UNIT_SIZE)


@pytest.mark.parametrize("rest", ["zzoo", "zzoz", "zzzo", "zzzz", "mzzz", "zmzz", "zzmm", "mmzz"])
@pytest.mark.parametrize("first", ["o", "z"])
def test_behind_a_missing_file_all_is_dispatched_again(
    tmp_path: Path, first: str, rest: str
) -> None:
    """A crash has lost the second file of a queue (m), and what is in others (z)."""
    root = tmp_path / "store"
    with MessageStore(root, SMALL, writable=True, create=True) as store:
        for _ in range(17):
            one = message(0)
            assert store.put_message(one, flush=False).is_ok
    queue = root / "consumequeue" / one.topic / str(one.queue_id)
    for path, what in zip(sorted(queue.iterdir()), f"{first}m{rest}", strict=True):
        if what == "m":
            path.unlink()
        elif what == "z":
            path.write_bytes(bytes(path.stat().st_size))
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    with MessageStore(root, SMALL, writable=True) as store:
        other = message(1)
        assert store.put_message(other).is_ok
        assert store.put_message(message(0)).is_ok
    with MessageStore(root, SMALL) as store:
        found = store.consume_queue(one.topic, one.queue_id)
        assert found is not None
        assert [number for number, _ in found.units(0, found.max_offset)] == list(range(18))
    assert_clean(root, SMALL)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_file_whose_name_no_file_has_is_refused(tmp_path: Path, is_killed: bool) -> None:
    """Nothing could be put behind its units: a start, or a put, had no file for them."""
    root, name = tmp_path / "store", f"{1:020d}"
    topic, queue_id = make(root)
    first = min((root / "consumequeue" / topic / str(queue_id)).iterdir())
    first.rename(first.with_name(name))
    if is_killed:
        (root / "abort").touch()
        (root / "checkpoint").unlink()
    again = message(UNITS)
    again.topic, again.queue_id = topic, queue_id
    before = tree(root)
    with pytest.raises(FileMisnamed, match=name):  # noqa: SIM117
        with MessageStore(root, CONFIG, writable=True) as store:
            store.put_message(again, flush=False)
    assert {path: one for path, one in tree(root).items() if path in before} == before
