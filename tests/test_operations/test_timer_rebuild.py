"""``timer rebuild``: a wheel of what waits, in place of any other, or of none."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.files.paths import TIMER_CHECKPOINT, TIMER_LOG, TIMER_WHEEL
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services import timerset
from rmqctl.engine.services.timer import Timer
from rmqctl.engine.timer.timercheck import TimerCheckpoint, encode, read_timer_checkpoint
from rmqctl.errors import CannotWrite, FileLengthContradiction, NeedsConsent, StoreInUse, UsageError
from rmqctl.operations.look.timer import timer_messages
from rmqctl.operations.mend import timer
from rmqctl.operations.mend.plainstore import write_plain_store
from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
from rmqctl.operations.mend.swap import swap
from rmqctl.operations.mend.timer import rebuild_timer
from rmqctl.operations.verify.laterstart import check_later_start
from rmqctl.operations.verify.timer import check_timer
from tests.golden_data import broker_conf, expected, tree_content

(END,) = [row["now"] for row in expected("timer")["end"]]
DAY = 24 * 3_600_000
CONFIG = broker_conf("timer")


@pytest.fixture
def root(copy_store: Callable[[str], Path]) -> Path:
    return copy_store("timer")


def rebuilt(root: Path, now: int = END) -> Any:
    return rebuild_timer(root, CONFIG, now, consent=True, dry_run=False)


def states(root: Path, now: int = END) -> dict[str | None, str]:
    with MessageStore(root, CONFIG) as store:
        rows = [row for row in timer_messages(store, now) if row["type"] == "timer_message"]
    assert len({row["keys"] for row in rows}) == len(rows)
    return {row["keys"]: row["state"] for row in rows}


def lose(root: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()


@pytest.mark.parametrize("lost", [(), (TIMER_WHEEL,), (TIMER_LOG,), (TIMER_WHEEL, TIMER_LOG)])
def test_what_waited_waits_and_is_in_the_wheel(root: Path, lost: tuple[str, ...]) -> None:
    before = states(root)
    lose(root, *lost)
    summary = rebuilt(root)
    assert states(root) == before
    assert list(check_timer(root, CONFIG)) == []
    assert (summary["messages"], summary["recalls"], summary["superseded"]) == (14, 1, 2)
    assert (summary["done"], summary["doubtful"]) == (5, 0)
    (kept,) = summary["kept"]
    assert (root / kept / TIMER_CHECKPOINT).is_file()
    # Where a start goes on with the queue is behind its last message.
    with MessageStore(root, CONFIG) as store:
        timer = Timer(store)
        assert timer.enqueue_offset() == 22 == timer.checkpoint.queue_offset
        timer.close()
    again = rebuilt(root)
    assert {**again, "kept": []} == {**summary, "kept": []}


@pytest.mark.parametrize("dry_run", [False, True])
def test_it_says_how_far_it_is(root: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool) -> None:
    monkeypatch.setattr(timerset, "_UNITS_AT_ONCE", 4)
    told: list[tuple[int, int]] = []
    rebuild_timer(
        *(root, CONFIG, END),
        consent=not dry_run,
        dry_run=dry_run,
        progress=lambda done, total: told.append((done, total)),
    )
    # The queue has 22 units, and each of them is looked at twice.
    looks = [*range(0, 22, 4)]
    assert told == [(done, 44) for done in [*looks, *(22 + done for done in looks)]]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_log_file_of_a_wrong_length_is_refused(root: Path, dry_run: bool) -> None:
    """The queue ends where the log does: nothing tells of the messages behind that."""
    os.truncate(root / "commitlog" / f"{0:020d}", 5000)
    before = tree_content(root)
    with pytest.raises(FileLengthContradiction):
        rebuild_timer(root, CONFIG, END, consent=not dry_run, dry_run=dry_run)
    after = tree_content(root)
    assert {name: after[name] for name in before} == before


def test_units_are_those_that_the_broker_wrote(root: Path) -> None:
    """But for the time at which they were put in, and for their places."""
    said = {row["offsetPy"]: row for row in expected("timer")["timer_unit"]}
    rebuilt(root)
    with MessageStore(root, CONFIG) as store:
        timer = Timer(store)
        units = list(timer.log.units())
        timer.close()
    for unit in units:
        row = said.get(unit.physical_offset)
        if row is None or unit.is_roll:
            continue  # Was not in the wheel, or goes into another slot by the time.
        assert unit.slot_timestamp == row["currWriteTime"] + row["delayedTime"]
        assert (unit.magic, unit.total_size) == (row["magic"], row["sizePy"])
        assert unit.topic_hash == row["topicHash"]


def test_what_a_start_would_pass_over_is_due(root: Path) -> None:
    assert "overdue" in states(root, END + 8 * DAY).values()
    summary = rebuilt(root, END + 8 * DAY)
    found = states(root, END + 8 * DAY)
    assert {state for name, state in found.items() if name != "recalled"} == {"due"}
    assert summary["due"] == 13 and summary["doubtful"] == 0 and found["recalled"] == "recalled"


def test_what_is_late_still_waits_after_another_run(root: Path) -> None:
    """It is in a slot behind its time, and the clock of the new timer is behind that time, too."""
    now = END + 8 * DAY
    summary, found = rebuilt(root, now), states(root, now)
    assert {**rebuilt(root, now), "kept": []} == {**summary, "kept": []}
    assert states(root, now) == found
    # Nor does it matter how much later that is.
    assert rebuilt(root, now + 8 * DAY)["messages"] == summary["messages"] == 14
    assert states(root, now + 8 * DAY) == found


def test_a_clock_that_is_ahead_of_the_time_tells_nothing(root: Path) -> None:
    """No broker has one. In the new wheel it would hide all that comes in until then."""
    before = states(root)
    path = root / TIMER_CHECKPOINT
    path.write_bytes(encode(TimerCheckpoint(END + 30 * DAY, 1144, 20, 20)))
    summary = rebuilt(root)
    assert summary["read_timestamp"] <= END and summary["delivered_before"] == 3
    found = states(root)
    assert {name: found[name] for name in before} == before
    assert set(found) - set(before) == {"recalled-before"} and summary["doubtful"] == 1


def test_without_a_check_point_copies_tell(root: Path) -> None:
    lose(root, TIMER_WHEEL, TIMER_LOG, TIMER_CHECKPOINT)
    summary = rebuilt(root)
    found = states(root)
    assert summary["delivered_before"] == 3 and not [n for n in found if "delivered" in str(n)]
    # Whom a recall has kept back then cannot be told from whom a kill has.
    assert found["recalled-before"] == "due" and summary["doubtful"] == 1
    assert found["far"] == "rolled" and found["recalled"] == "recalled"


def test_a_log_whose_last_message_is_done_still_ends_with_it(root: Path) -> None:
    """Else a start would put it into the wheel, and deliver it, once more."""
    last = max(row["timeMs"] for row in expected("timer")["slot"])
    path = root / TIMER_CHECKPOINT
    path.write_bytes(encode(TimerCheckpoint(last - DAY, 1144, 22, 22, 1, 2, 3)))
    rebuilt(root, last)
    assert set(states(root, last)) == {"far", "pending-2"}
    with MessageStore(root, CONFIG) as store:
        timer = Timer(store)
        assert sum(1 for _ in timer.log.units()) == 3
        assert timer.enqueue_offset() == 22
        timer.close()
    found = read_timer_checkpoint(path)
    assert found is not None and found[4:] == (1, 2, 3)
    assert list(check_timer(root, CONFIG, last)) == []


def test_a_failure_amid_the_files_says_that_no_broker_starts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new files are thrown away, and the wheel of one byte stands there."""
    before = states(root)

    def fails(store: Path, staging: Path, kept: Path, name: Path) -> None:
        if str(name) == TIMER_LOG:
            raise OSError(errno.EIO, "Input/output error")
        swap(store, staging, kept, name)

    with monkeypatch.context() as patch:
        patch.setattr(timer, "swap", fails)
        with pytest.raises(timer.TimerCutOff, match="no broker of 5") as refused:
            rebuilt(root)
    assert timer.is_cut_off(root) and "stays valid" not in str(refused.value)
    (kept,) = root.glob("rmqctl-old-*")
    assert f"lies in {kept.name}." in str(refused.value) and (kept / TIMER_WHEEL).is_file()
    rebuilt(root)
    assert not timer.is_cut_off(root) and states(root) == before


def test_nothing_changes_without_consent_or_under_a_lock(root: Path) -> None:
    before = tree_content(root)
    with pytest.raises(NeedsConsent, match="14 messages"):
        rebuild_timer(root, CONFIG, END, consent=False, dry_run=False)
    assert rebuild_timer(root, CONFIG, END, consent=False, dry_run=True)["messages"] == 14
    assert tree_content(root) == before
    lock = StoreLock(root)
    try:
        with pytest.raises(StoreInUse):
            rebuilt(root)
    finally:
        lock.release()
    left = tree_content(root)
    left.pop("lock", None)
    assert left == before


@pytest.mark.parametrize("changes", range(1, 8))
def test_no_broker_starts_on_half_of_it(
    root: Path, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever rename is the last one that comes about: the timer is the old one, or the new one,
    or has a wheel on which no broker starts; another run ends it."""
    before = states(root)
    done = 0

    class Killed(BaseException):
        pass

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done > changes:
                raise Killed
            return real(*arguments, **more)

        return run

    monkeypatch.setattr("rmqctl.operations.mend.swap.exchange", counted(_exchange()))
    monkeypatch.setattr(Path, "rename", counted(Path.rename))
    monkeypatch.setattr(os, "rename", counted(os.rename))
    try:
        rebuilt(root)
    except Killed:
        pass
    monkeypatch.undo()
    blocked = [one.code for one in check_later_start(root)]
    if not blocked:
        assert states(root) == before
        assert not [one for one in check_timer(root, CONFIG) if one.severity != "info"]
    else:
        assert blocked == ["timer-wheel-length"]
    rebuilt(root)
    assert states(root) == before and list(check_later_start(root)) == []


def _exchange() -> Callable[..., Any]:
    from rmqctl.operations.mend.swap import exchange

    return exchange


def test_a_full_disk_leaves_the_old_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree_content(root)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="No space"):
        rebuilt(root)
    monkeypatch.undo()
    left = tree_content(root)
    left.pop("lock", None)
    assert left == before


def test_what_is_left_of_a_log_file_is_no_size_for_new_ones(root: Path) -> None:
    before = states(root)
    shutil.rmtree(root / TIMER_LOG)
    (root / TIMER_LOG).mkdir()
    (root / TIMER_LOG / f"{0:020d}").write_bytes(b"x" * 10)
    config = replace(CONFIG, explicit=frozenset())
    rebuild_timer(root, config, END, consent=True, dry_run=False)
    assert {path.stat().st_size for path in (root / TIMER_LOG).iterdir()} == {520}
    assert states(root) == before


@pytest.mark.parametrize(("lost", "late"), [((), 9 * DAY), ((TIMER_CHECKPOINT,), 0)])
def test_what_is_due_waits_still_when_the_timer_is_made_anew_again(
    root: Path, lost: tuple[str, ...], late: int
) -> None:
    """The first one's check point says later than when they were to be delivered."""
    lose(root, *lost)
    first = rebuilt(root, END + late)
    assert first["read_timestamp"] > END - 60_000 and first["due"]
    before = states(root, END + late + 1000)
    again = rebuilt(root, END + late + 5000)
    names = "messages", "recalls"
    assert [again[name] for name in names] == [first[name] for name in names]
    assert states(root, END + late + 6000) == before


@pytest.mark.parametrize("makes", ["salvage", "export"])
def test_a_new_store_gets_a_timer_of_what_waits(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, makes: str
) -> None:
    monkeypatch.setattr(timer, "system_clock", lambda: END)
    output = tmp_path / "new"
    if makes == "salvage":
        plan = plan_salvage(Salvage(root, CONFIG, output))
        write_salvage(plan)
        plan.close()
    else:
        write_plain_store(root, CONFIG, output)
    assert states(output) == states(root)
    assert list(check_timer(output, CONFIG)) == []
    assert not [one.name for one in output.iterdir() if one.name.startswith("rmqctl-")]


def test_a_store_without_a_timer_gets_none(copy_store: Callable[[str], Path]) -> None:
    """With a wheel it would be one of 5.x, to which messages for a time are put."""
    root = copy_store("basic")
    before = tree_content(root)
    for dry_run in (False, True):
        with pytest.raises(UsageError, match=r"no broker of 5\.x"):
            rebuild_timer(root, broker_conf("basic"), END, consent=not dry_run, dry_run=dry_run)
    assert tree_content(root) == before
