"""ConsumeQueue: one unit at a time or as arrays, with gaps, doubles, rolls and a late start."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.queue.consumequeue import UNIT, ConsumeQueue, Unit
from rmqctl.engine.queue.queuewriter import PRE_BLANK, ConsumeQueueWriter
from rmqctl.engine.queue.recovery import written_units
from rmqctl.errors import FileLengthContradiction
from tests.golden_data import tree_content

UNITS_A_FILE = 5
FILE_SIZE = UNITS_A_FILE * 20


def where_in(root: Path) -> Path:
    return root / "consumequeue" / "T" / "0"


def queue_at(root: Path) -> ConsumeQueueWriter:
    return ConsumeQueueWriter(where_in(root), "T", 0, FILE_SIZE, root)


def reading(root: Path) -> ConsumeQueue:
    return ConsumeQueue(where_in(root), "T", 0, FILE_SIZE)


Rows = list[tuple[int, int, int, int]]


@st.composite
def rows_in_log_order(draw: st.DrawFn) -> Rows:
    """``(physical offset, size, tags code, queue offset)``: mostly one after the other, with gaps
    in the queue, doubles of what is there, and a first unit that may be late."""
    physical_offset, queue_offset = draw(st.integers(0, 500)), draw(st.integers(0, 23))
    rows: Rows = []
    for _ in range(draw(st.integers(1, 25))):
        size = draw(st.integers(1, 200))
        code = draw(st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31), 2**62]))
        rows.append((physical_offset, size, code, queue_offset))
        step = draw(st.sampled_from(["next"] * 6 + ["gap", "back", "again"]))
        if step == "again":
            continue
        physical_offset += size + draw(st.sampled_from([0, 0, 0, 7]))
        queue_offset += 1
        if step == "gap":
            queue_offset += draw(st.integers(1, 12))
        elif step == "back":
            queue_offset = max(0, queue_offset - draw(st.integers(1, 4)))
    return rows


@example([[(100, 194, 0, 5)], [(5, 11, 0, 11), (106, 200, 0, 14), (106, 33, 0, 14)]], 100)
@given(st.lists(rows_in_log_order(), min_size=1, max_size=3), st.sampled_from([0, 3, 100]))
def test_arrays_give_what_one_at_a_time_gives(
    tmp_path_factory: pytest.TempPathFactory, bulks: list[Rows], max_gap: int
) -> None:
    base = tmp_path_factory.mktemp("queues")
    one, many = queue_at(base / "one"), None
    (base / "one").mkdir()
    (base / "many").mkdir()
    many = queue_at(base / "many")
    for rows in bulks:
        for row in rows:
            one.put_message_position_info(*row, max_gap=max_gap)
        columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
        many.put_units(*columns, max_gap=max_gap)
        assert many.max_offset == one.max_offset
        assert many.max_physical_offset == one.max_physical_offset
        assert many.min_offset == one.min_offset
    one.close()
    many.close()
    assert tree_content(base / "many") == tree_content(base / "one")
    again = reading(base / "many")
    assert again.max_offset == one.max_offset
    assert again.max_physical_offset == one.max_physical_offset
    again.close()


def test_the_place_before_a_late_first_unit_is_filled(tmp_path: Path) -> None:
    queue = queue_at(tmp_path)
    assert queue.put_message_position_info(900, 90, 7, 12)
    assert (queue.min_offset, queue.max_offset) == (12, 13)
    queue.close()
    (file,) = (tmp_path / "consumequeue/T/0").iterdir()
    assert file.name == f"{2 * FILE_SIZE:020d}"
    wanted = PRE_BLANK * 2 + UNIT.pack(900, 90, 7)
    assert file.read_bytes() == wanted.ljust(FILE_SIZE, b"\0")
    assert PRE_BLANK.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"


def test_a_gap_is_appended_at_the_end_unless_it_may_be_filled(tmp_path: Path) -> None:
    for name, max_gap, place in (("engine", 0, 1), ("filled", 3, 4)):
        (tmp_path / name).mkdir()
        queue = queue_at(tmp_path / name)
        queue.put_message_position_info(0, 100, 1, 0)
        queue.put_message_position_info(400, 100, 2, 4, max_gap=max_gap)
        assert queue.max_offset == place + 1
        assert queue.unit(place) == Unit(400, 100, 2)
        between = [queue.unit(at) for at in range(1, place)]
        assert all(unit is not None and unit.is_pre_blank for unit in between)
        queue.close()


def test_what_is_there_is_not_put_twice(tmp_path: Path) -> None:
    queue = queue_at(tmp_path)
    assert queue.put_message_position_info(0, 100, 1, 0)
    assert queue.put_message_position_info(100, 100, 2, 1)
    assert not queue.put_message_position_info(100, 100, 2, 1)  # known by its place in the log
    assert not queue.put_message_position_info(300, 100, 3, 1)  # the place in the queue is taken
    assert queue.put_message_position_info(300, 100, 3, 0)  # queue offset 0 is not checked
    assert queue.max_offset == 3
    queue.close()


def test_nor_is_the_first_unit_behind_one_of_a_wrong_place(tmp_path: Path) -> None:
    """By its damaged last unit the queue has less of the log than its first one says."""
    queue = queue_at(tmp_path)
    for number in range(3):
        queue.put_message_position_info(400 + 100 * number, 100, 1, number)
    queue.close()
    (file,) = (tmp_path / "consumequeue/T/0").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:40] + UNIT.pack(0, 100, 1) + data[60:])
    queue = queue_at(tmp_path)
    columns = (np.array(one) for one in ((400, 500, 600), (100,) * 3, (1,) * 3, (0, 1, 2)))
    queue.put_units(*columns)
    assert queue.max_offset == 3
    queue.close()


@pytest.mark.parametrize("first", [0, 4, 8])
def test_fillers_at_the_end_are_followed_by_the_unit_that_they_are_for(
    tmp_path: Path, first: int
) -> None:
    """A kill comes between the two: what stands before them is not put again, nor written over."""
    queue = queue_at(tmp_path)
    for number in range(5):
        queue.put_message_position_info(100 * number, 100, 1, number)
    queue._fill(3)
    queue.close()
    queue = queue_at(tmp_path)
    for number in (*range(first, 5), 8, 9):
        is_put = queue.put_message_position_info(100 * number, 100, 1, number, max_gap=10)
        assert is_put == (number >= 8)
    wanted = [Unit(100 * number, 100, 1) for number in (0, 1, 2, 3, 4, 8, 9)]
    wanted[5:5] = [Unit._make(UNIT.unpack(PRE_BLANK))] * 3
    assert [queue.unit(number) for number in range(queue.max_offset)] == wanted
    queue.close()


def test_the_range_of_the_log_cuts_a_queue(tmp_path: Path) -> None:
    queue = queue_at(tmp_path)
    for at in range(12):
        queue.put_message_position_info(at * 100, 100, at, at)
    queue.cut(250, 801)
    assert (queue.min_offset, queue.max_offset) == (3, 9)
    assert queue.max_physical_offset == 900
    assert queue.unit(10) == Unit(1000, 100, 10)
    queue.close()


@pytest.mark.parametrize("written", [0, 1, 4, 5, 6, 10, 14])
def test_the_end_is_found_wherever_it_is(tmp_path: Path, written: int) -> None:
    queue = queue_at(tmp_path)
    for at in range(written):
        queue.put_message_position_info(at * 100, 100, 0, at)
    queue.close()
    again = reading(tmp_path)
    assert again.max_offset == written
    assert [at for at, _ in again.units(0, written)] == list(range(written))
    assert len(again.window(0, 100)) == min(UNITS_A_FILE, 0 if not written else UNITS_A_FILE)
    again.close()


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    queue = queue_at(tmp_path)
    queue.put_message_position_info(0, 100, 0, 0)
    queue.close()
    (file,) = (tmp_path / "consumequeue/T/0").iterdir()
    file.write_bytes(bytes(FILE_SIZE - 20))
    with pytest.raises(FileLengthContradiction, match="80 bytes, but 100"):
        queue_at(tmp_path)
    with pytest.raises(FileLengthContradiction):
        ConsumeQueue(where_in(tmp_path), "T", 0, FILE_SIZE, strict=True)


@pytest.mark.parametrize("size", [0, 19, 50, FILE_SIZE + 1, 10 * FILE_SIZE])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_reader_has_the_units_that_are_there(tmp_path: Path, number: int, size: int) -> None:
    """Of three files one is too short or too long, and a fourth begins at no unit."""
    queue = queue_at(tmp_path)
    for at in range(3 * UNITS_A_FILE - 1):
        queue.put_message_position_info(at * 100, 100, at, at)
    queue.close()
    where = where_in(tmp_path)
    path = where / f"{number * FILE_SIZE:020d}"
    os.truncate(path, size)
    (where / f"{4 * FILE_SIZE + 7:020d}").write_bytes(bytes(FILE_SIZE))
    first = number * UNITS_A_FILE
    lost = set(range(first + size // 20, first + UNITS_A_FILE))
    expected = [at for at in range(3 * UNITS_A_FILE - 1) if at not in lost]
    again = reading(tmp_path)
    assert [entry.path for entry in again.files.irregular] == [path]
    assert again.max_offset == max(expected) + 1
    found = dict(again.units(0, again.max_offset))
    assert list(found) == expected
    assert all(unit == (at * 100, 100, at) for at, unit in found.items())
    assert list(again.units(40, 60)) == []
    for at in range(-1, 60):
        unit, window = again.unit(at), again.window(at, 1)
        assert (unit is None) is (len(window) == 0)
        if at in expected:
            assert unit == found[at] == tuple(window[0].tolist())
        else:
            assert unit is None or not unit.is_written
    again.close()


class Killed(BaseException):
    """Instead of SIGKILL."""


@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("end", [4, 17, 29])
def test_a_kill_leaves_no_unit_that_is_half_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int, part: int
) -> None:
    """Its size would stand, and an offset that is another's."""
    units = [Unit(0x1234_5678_9ABC + 0x12345 * number, 0x12345, number) for number in range(30)]
    write, left = MappedFile.write, 0

    def dying(mapped: MappedFile, position: int, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            # Four bytes are stored at once.
            data = data[: len(data) * part // 4] if len(data) > 4 else b""
        write(mapped, position, data)
        if left == 0:
            raise Killed

    for stop in range(1, 10):
        directory = tmp_path / str(stop)
        queue = ConsumeQueueWriter(directory, "T", 0, 20 * 10, tmp_path)
        for number, unit in enumerate(units):
            queue.put_message_position_info(*unit, number)
        left = stop
        with monkeypatch.context() as patched:
            patched.setattr(MappedFile, "write", dying)
            try:
                queue.clear_from(end)
            except Killed:
                pass
        queue.close()
        after = ConsumeQueue(directory, "T", 0, 20 * 10)
        known = written_units(after).end
        assert known >= end
        assert [after.unit(number) for number in range(known)] == units[:known]
        after.close()
        if left > 0:
            break
    assert left > 0 and known == end
