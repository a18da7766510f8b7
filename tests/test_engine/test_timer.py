"""The timer's files: what 5.3.3's own classes read in them, and any bytes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from formats import constants, layouts
from formats.timer import CHECKPOINT, SLOT, UNIT
from rmqctl.engine.files.paths import TIMER_CHECKPOINT, TIMER_LOG, TIMER_WHEEL
from rmqctl.engine.settings.filesizes import timer_log_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.timer.timercheck import TimerCheckpoint, encode, read_timer_checkpoint
from rmqctl.engine.timer.timerlog import UNIT_SIZE, TimerLog
from rmqctl.engine.timer.wheel import SLOT_SIZE, WHEEL_SIZE, TimerWheel
from tests.conftest import Golden
from tests.golden_data import broker_conf, expected

TIME = 1_746_000_000_000


def unit(prev: int = -1, **values: int) -> bytes:
    """A unit of :data:`TIME`."""
    fields = {
        "size": UNIT_SIZE,
        "prev_position": prev,
        "magic": 1,
        "write_timestamp": TIME - 60_000,
        "delay_milliseconds": 60_000,
        "physical_offset": 0,
        "total_size": 100,
        "topic_hash": 0,
        "reserved": 0,
    }
    built: bytes = UNIT.build(fields | values)
    return built


def timer_log(directory: Path, *files: bytes) -> TimerLog:
    """A log of these files, all as long as the first."""
    directory.mkdir(exist_ok=True)
    for number, data in enumerate(files):
        (directory / f"{number * len(files[0]):020d}").write_bytes(data)
    return TimerLog(directory, len(files[0]))


def test_the_layouts_are_the_ones_of_the_constants() -> None:
    assert SLOT.sizeof() == SLOT_SIZE == 32
    assert UNIT.sizeof() == constants.TIMER_UNIT_SIZE == UNIT_SIZE
    assert layouts.TIMER_CHECKPOINT.size == CHECKPOINT.sizeof()
    assert WHEEL_SIZE == 38_707_200


def test_what_the_brokers_classes_read_is_read(golden: Golden) -> None:
    root, said = golden("timer"), expected("timer")
    wheel = TimerWheel(root / TIMER_WHEEL)
    slots = [
        {
            "kind": "slot",
            "index": slot.number,
            "timeMs": slot.time * 1000,
            "firstPos": slot.first_position,
            "lastPos": slot.last_position,
            "num": slot.messages,
        }
        for slot in wheel.slots()
    ]
    assert sorted(slots, key=lambda row: str(row["index"])) == said["slot"]
    assert all(slot.is_in_place for slot in wheel.slots())
    assert len(wheel) == len(slots) and wheel.size == WHEEL_SIZE

    log = TimerLog(root / TIMER_LOG, timer_log_file_size(root, MessageStoreConfig()))
    units = [list(one) for one in log.units()]
    assert units == [
        [value for name, value in row.items() if name != "kind"] for row in said["timer_unit"]
    ]
    assert log.end == units[-1][0] + UNIT_SIZE
    assert [log.unit(one[0]) is not None for one in units] == [True] * len(units)
    found = read_timer_checkpoint(root / TIMER_CHECKPOINT)
    (row,) = said["timercheck"]
    assert found is not None and list(found[:4]) == [v for k, v in row.items() if k != "kind"]
    assert encode(found) == (root / TIMER_CHECKPOINT).read_bytes()
    log.close()


def test_every_unit_is_in_the_chain_of_its_slot(golden: Golden) -> None:
    root = golden("timer")
    log = TimerLog(root / TIMER_LOG, broker_conf("timer").mapped_file_size_timer_log)
    chains = [
        log.chain(slot.last_position, slot.time, 1000)
        for slot in TimerWheel(root / TIMER_WHEEL).slots()
    ]
    assert not any(chain.broken for chain in chains)
    in_chains = [position for chain in chains for position in chain.positions]
    assert sorted(in_chains) == [one.position for one in log.units()]
    log.close()


def test_a_chain_only_goes_backwards(tmp_path: Path) -> None:
    to_itself = timer_log(tmp_path / "a", unit(0))
    assert to_itself.chain(0, TIME // 1000, 1000).broken == "the unit at 0 leads forward, to 0"
    round_and_round = timer_log(tmp_path / "b", unit(52) + unit(0))
    found = round_and_round.chain(52, TIME // 1000, 1000)
    assert list(found.positions) == [52, 0] and "leads forward" in found.broken
    of_another_time = timer_log(tmp_path / "c", unit(delay_milliseconds=1) + unit(0))
    found = of_another_time.chain(52, TIME // 1000, 1000)
    assert list(found.positions) == [52] and "is of" in found.broken
    for position in (-7, 51, 104, 1 << 62):
        assert timer_log(tmp_path / "d", unit(), unit()).chain(position, 1, 1000).broken


def test_the_log_ends_at_the_first_unit_that_is_none(tmp_path: Path) -> None:
    blank = b"\0\0\0\x10" + bytes(8) + constants.BLANK_MAGIC_CODE.to_bytes(4, "big")
    first = unit() + unit() + blank
    whole = timer_log(tmp_path / "whole", first, first)
    assert (whole.end, whole.closed_end) == (2 * len(first) - len(blank), 2 * len(first))
    assert timer_log(tmp_path / "zeros", first, bytes(len(first))).end == len(first)
    assert timer_log(tmp_path / "torn", unit() + unit(magic=16) + unit()).end == UNIT_SIZE
    assert timer_log(tmp_path / "short", unit() + unit(size=51)).end == UNIT_SIZE
    timer_log(tmp_path / "gap", first, first, first)
    (tmp_path / "gap" / f"{len(first):020d}").unlink()
    assert TimerLog(tmp_path / "gap", len(first)).closed_end == len(first)
    assert TimerLog(tmp_path / "nothing", 520).end == 0
    assert timer_log(tmp_path / "open", unit() + bytes(16), first).end == UNIT_SIZE


def test_nobody_looks_for_the_end_where_no_start_checks(tmp_path: Path) -> None:
    odd = unit() + unit(magic=1 << 20) + bytes(UNIT_SIZE) + unit()
    log = timer_log(tmp_path / "log", odd, unit() + unit(size=7))
    assert (log.end, len(list(log.units()))) == (UNIT_SIZE, 1)
    log = TimerLog(tmp_path / "log", len(odd))
    log.checked_from = len(odd) + 7
    assert log.end == len(odd) + UNIT_SIZE
    places = [one.position for one in log.units()]
    assert places == [0, UNIT_SIZE, 3 * UNIT_SIZE, len(odd)]
    assert log.unit(2 * UNIT_SIZE) is None and log.unit(len(odd) + UNIT_SIZE) is None


@given(data=st.binary(max_size=400), position=st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_are_a_log(data: bytes, position: int) -> None:
    with TemporaryDirectory() as name:
        log = timer_log(Path(name) / "log", data, data)
        units = list(log.units())
        assert log.end <= 2 * len(data) and len(units) <= 2 * len(data) // UNIT_SIZE
        for at in (position, 0, UNIT_SIZE):
            assert len(log.chain(at, 0, 1000).positions) <= 2 * len(data) // UNIT_SIZE + 1
        log.close()


@given(data=st.binary(max_size=200), at=st.integers(0, 100))
def test_any_bytes_are_a_wheel_and_a_check_point(data: bytes, at: int) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "file"
        path.write_bytes(bytes(at) + data)
        wheel = TimerWheel(path)
        assert len(list(wheel.slots(-(2**63)))) == len(wheel) <= len(data) // SLOT_SIZE + 1
        found = read_timer_checkpoint(path)
        assert (found is None) == (at + len(data) < 56)
        assert read_timer_checkpoint(path.with_name("none")) is None


def test_a_wheel_of_holes_and_data(tmp_path: Path) -> None:
    path = tmp_path / "wheel"
    times = {0: constants.TIMER_SLOTS, 5: 5, 700_000: 7, constants.TIMER_SLOTS - 1: -1}
    with path.open("wb") as file:
        file.truncate(WHEEL_SIZE + 32)
        for number, time in [*times.items(), (constants.TIMER_SLOTS, 1)]:
            file.seek(number * SLOT_SIZE)
            file.write(SLOT.build({"time": time, "first_position": 1, "last_position": 2,
                                   "count": 3, "magic": 0}))  # fmt: skip
    wheel = TimerWheel(path)
    assert {slot.number: slot.time for slot in wheel.slots(-1)} == times
    assert [slot.time for slot in wheel.slots(6)] == [7, constants.TIMER_SLOTS]
    assert [slot.number for slot in wheel.slots() if slot.is_in_place] == [5, 0]


def test_the_size_of_a_log_file_is_that_of_the_files(golden: Golden, tmp_path: Path) -> None:
    assert timer_log_file_size(golden("timer"), MessageStoreConfig()) == 520
    assert timer_log_file_size(tmp_path, MessageStoreConfig()) == 104_857_600
    config = parse_broker_conf("mappedFileSizeTimerLog=1040\ntimerPrecisionMs=100\n")
    assert timer_log_file_size(tmp_path, config) == 1040 and config.timer_precision_ms == 100
    assert "timerPrecisionMs" not in MessageStoreConfig().properties()
    assert encode(TimerCheckpoint()) == bytes(4096)
