"""What ``verify`` says of a timer: nothing of a sound one or of a killed broker's, and of each
damage its code, at its place."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.engine.files.paths import TIMER_CHECKPOINT, TIMER_LOG, TIMER_WHEEL
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.operations.look.timer import timer_messages
from rmqctl.operations.verify.findings import Finding
from rmqctl.operations.verify.timer import check_timer
from tests.conftest import Golden
from tests.golden_data import broker_conf, copy_tree, expected, tree_content

SLOTS = {row["timeMs"]: row for row in expected("timer")["slot"]}
UNITS = expected("timer")["timer_unit"]
#: Slot of four messages that wait.
BUSY = next(row for row in SLOTS.values() if row["firstPos"] == 416)
#: One whose unit stands before what a start reads of the log, and puts right.
EARLY = next(row for row in SLOTS.values() if row["lastPos"] == 364)
(END,) = [row["now"] for row in expected("timer")["end"]]
FIRST, SECOND, THIRD = (f"{TIMER_LOG}/{start:020d}" for start in (0, 520, 1040))


def write(root: Path, name: str, position: int, data: bytes) -> None:
    with (root / name).open("r+b") as file:
        file.seek(position)
        file.write(data)


def long_at(root: Path, name: str, position: int, value: int) -> None:
    write(root, name, position, struct.pack(">q", value))


def no_wheel(root: Path) -> None:
    (root / TIMER_WHEEL).unlink()


def short_log_file(root: Path) -> None:
    with (root / SECOND).open("r+b") as file:
        file.truncate(519)


def no_log_file(root: Path) -> None:
    (root / SECOND).unlink()


def torn_unit(root: Path) -> None:
    write(root, THIRD, 52 + 12, b"\x7f")


def log_cut(root: Path) -> None:
    (root / THIRD).unlink()


def no_checkpoint(root: Path) -> None:
    (root / TIMER_CHECKPOINT).unlink()


def queue_ahead(root: Path) -> None:
    long_at(root, TIMER_CHECKPOINT, 16, 23)


def clock_ahead(root: Path) -> None:
    long_at(root, TIMER_CHECKPOINT, 0, END + 3_600_000)


def clock_negative(root: Path) -> None:
    long_at(root, TIMER_CHECKPOINT, 0, -1)


def long_behind(root: Path) -> None:
    """The moment before the last three of the first five units."""
    write(root, TIMER_CHECKPOINT, 8, struct.pack(">3q", 104, 2, 2))


def early_magic(root: Path) -> None:
    """Of a unit that no start checks."""
    write(root, FIRST, 364 + 12, b"\x40")


def slot_elsewhere(root: Path) -> None:
    long_at(root, TIMER_WHEEL, 7 * 32, BUSY["timeMs"] // 1000)


def slot_lost(root: Path) -> None:
    write(root, TIMER_WHEEL, EARLY["index"] * 32, bytes(32))


def slot_astray(root: Path) -> None:
    long_at(root, TIMER_WHEEL, EARLY["index"] * 32 + 16, 365)


def chain_loops(root: Path) -> None:
    long_at(root, FIRST, 416 + 4, 520)


def log_file_expired(root: Path) -> None:
    """As retention does it, whose first message behind it waits no more."""
    path = root / "commitlog" / f"{0:020d}"
    path.rename(path.with_name(f"{65536:020d}"))


def log_ends_early(root: Path) -> None:
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(7904)
        file.write(bytes(8870 - 7904))
    (root / "consumequeue" / "rmq_sys_wheel_timer" / "0" / f"{0:020d}").unlink()


def other_size(root: Path) -> None:
    write(root, THIRD, 36, struct.pack(">i", 318))


DAMAGE: dict[Callable[[Path], None], tuple[str, str]] = {
    no_wheel: ("timer-wheel-missing", TIMER_WHEEL),
    short_log_file: ("timer-log-length", SECOND),
    no_log_file: ("timer-log-file-missing", SECOND),
    torn_unit: ("timer-log-cut-short", THIRD),
    log_cut: ("timer-log-lost", TIMER_CHECKPOINT),
    no_checkpoint: ("timer-checkpoint-missing", TIMER_CHECKPOINT),
    clock_ahead: ("timer-clock-implausible", TIMER_CHECKPOINT),
    clock_negative: ("timer-clock-implausible", TIMER_CHECKPOINT),
    long_behind: ("timer-checkpoint-behind", TIMER_CHECKPOINT),
    early_magic: ("timer-unit-damaged", FIRST),
    queue_ahead: ("timer-queue-lost", TIMER_CHECKPOINT),
    slot_elsewhere: ("timer-slot-misplaced", TIMER_WHEEL),
    slot_lost: ("timer-unit-unreachable", FIRST),
    slot_astray: ("timer-chain-broken", TIMER_WHEEL),
    chain_loops: ("timer-chain-broken", TIMER_WHEEL),
    log_file_expired: ("timer-message-expired", FIRST),
    log_ends_early: ("timer-unit-past-log-end", THIRD),
    other_size: ("timer-unit-mismatch", THIRD),
}


def found_in(root: Path) -> list[Finding]:
    config = replace(broker_conf("timer"), explicit=frozenset())
    return list(check_timer(root, config, END))


def test_a_sound_timer_has_no_finding_but_that_it_is_behind(golden: Golden) -> None:
    assert [one.code for one in found_in(golden("timer"))] == ["timer-behind"]
    assert [one.code for one in found_in(golden("basic"))] == []


def test_a_machine_whose_clock_is_behind_finds_nothing(golden: Golden) -> None:
    """The log's last record was stored after what the timer has delivered."""
    assert {one.severity for one in check_timer(golden("timer"), broker_conf("timer"), 0)} == {
        "info"
    }


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_each_damage_is_named(
    damage: Callable[[Path], None], copy_store: Callable[[str], Path]
) -> None:
    root = copy_store("timer")
    damage(root)
    before = tree_content(root)
    findings = found_in(root)
    assert DAMAGE[damage] in [(one.code, one.path) for one in findings]
    assert tree_content(root) == before


def test_what_a_start_puts_right_is_no_finding(copy_store: Callable[[str], Path]) -> None:
    """A killed broker: the wheel of a second ago, and a check point of one before that."""
    root = copy_store("timer")
    for row in SLOTS.values():
        if row["lastPos"] >= 1040:
            last = max(u["position"] for u in UNITS if u["position"] < 1040
                       and u["currWriteTime"] + u["delayedTime"] == row["timeMs"]) \
                if row["firstPos"] < 1040 else None  # fmt: skip
            if last is None:
                write(root, TIMER_WHEEL, row["index"] * 32, bytes(32))
            else:
                long_at(root, TIMER_WHEEL, row["index"] * 32 + 16, last)
    long_at(root, TIMER_CHECKPOINT, 8, 1040)
    for at in (16, 24):
        long_at(root, TIMER_CHECKPOINT, at, 17)
    findings = found_in(root)
    assert [one.severity for one in findings] == ["info"]
    with MessageStore(root, broker_conf("timer")) as store:
        *rows, summary = timer_messages(store, END)
    states = [row["state"] for row in rows if row["type"] == "timer_message"]
    assert len(states) == 14 and states.count("pending") == 12
    assert summary["type"] == "summary" and summary["not_in_wheel"] == 2


@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from([TIMER_WHEEL, FIRST, SECOND, THIRD, TIMER_CHECKPOINT]),
            st.integers(0, 519),
            st.one_of(
                st.binary(min_size=1, max_size=52),
                st.sampled_from([2**63 - 1, -(2**63), -1, 0, 52, 2**31]).map(
                    lambda number: struct.pack(">q", number)
                ),
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_bytes_in_timer_files_are_findings(
    changes: list[tuple[str, int, bytes]], golden: Golden, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("timer") / "store"
    copy_tree(golden("timer"), root)
    try:
        for name, position, data in changes:
            position += BUSY["index"] * 32 if name == TIMER_WHEEL else 0
            write(root, name, position, data)
        assert found_in(root)
        with MessageStore(root, MessageStoreConfig()) as store:
            *_, last = timer_messages(store, END)
            assert last["type"] == "summary"
    except RmqctlError as error:
        assert "\x1b" not in str(error)
    finally:
        shutil.rmtree(root)
