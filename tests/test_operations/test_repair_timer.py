"""repair of a timer of 5.x: for what verify says of it, whole, and taken back to the byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.paths import TIMER_CHECKPOINT, TIMER_LOG, TIMER_WHEEL
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import CannotWrite
from rmqctl.operations.look.timer import timer_messages
from rmqctl.operations.mend.timer import rebuild_timer
from rmqctl.operations.repair import model, stage, words
from rmqctl.operations.repair.apply import apply, resume, undo
from rmqctl.operations.repair.errors import RepairCutOff, RepairOvertaken
from rmqctl.operations.repair.model import Plan
from rmqctl.operations.repair.plan import make_plan
from rmqctl.operations.repair.planfile import plan_text, read_plan
from rmqctl.operations.verify import INFO, Finding, verify
from tests.golden_data import broker_conf, copy_tree, state, tree_content
from tests.test_operations.test_verify_timer import (
    DAMAGE,
    END,
    clock_ahead,
    log_ends_early,
    log_file_expired,
    no_wheel,
    slot_lost,
)

CONFIG = replace(broker_conf("timer"), explicit=frozenset())
PARTS = (TIMER_WHEEL, TIMER_LOG, TIMER_CHECKPOINT)


@pytest.fixture(autouse=True)
def at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's own last moment is now."""
    for module in (stage, words):
        monkeypatch.setattr(module, "system_clock", lambda: END)


def planned(root: Path) -> Plan:
    """The plan for a store, by way of its file."""
    path = root.with_name("plan.json")
    path.write_text(plan_text(make_plan(root, CONFIG)))
    return read_plan(path)


def codes_of(root: Path) -> set[str]:
    found = verify(root, CONFIG)
    return {one.code for one in found if isinstance(one, Finding) and one.severity != INFO}


def content_of(root: Path) -> dict[str, Any]:
    return {name: one for name, one in tree_content(root).items() if name != "lock"}


def timer_of(root: Path) -> dict[str, Any]:
    """Bytes of the timer's files."""
    names = tuple(f"{name}/" for name in PARTS)
    return {name: one for name, one in content_of(root).items() if f"{name}/".startswith(names)}


def copy_with_times(source: Path, target: Path) -> Path:
    """A plan knows files that are too long to be read whole by their times, too."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
    return target


def listed(root: Path) -> list[Any]:
    with MessageStore(root, CONFIG) as store:
        return list(timer_messages(store, END))


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_what_verify_says_of_a_timer_is_repaired_and_undone(
    damage: Callable[[Path], None], copy_store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = copy_store("timer")
    damage(root)
    before, content, codes = state(root), content_of(root), codes_of(root)
    plan = planned(root)
    assert state(root) == before
    if damage is clock_ahead and not codes:
        return  # The machine's clock has come there.
    if damage in (log_file_expired, log_ends_early):
        # The messages are nowhere, or the queue that names them has to come first.
        assert model.REBUILD_TIMER not in {step.action for step in plan.steps}
        return
    (step,) = plan.steps
    assert (step.action, step.path) == (model.REBUILD_TIMER, TIMER_WHEEL)
    assert set(step.mends) == codes
    other = copy_tree(root, tmp_path / "other")
    done = apply(root, CONFIG, plan)
    assert codes_of(root) == set()
    rebuild_timer(other, CONFIG, END, consent=True, dry_run=False)
    assert timer_of(root) == timer_of(other)
    assert listed(root) == listed(other)
    assert done.backup is not None and done.backup.is_dir()
    assert undo(root, CONFIG).state == "undone"
    assert content_of(root) == content


def test_what_cannot_be_made_yet_says_why(copy_store: Callable[[str], Path]) -> None:
    root = copy_store("timer")
    no_wheel(root)
    shutil.rmtree(root / "index")
    plan = planned(root)
    assert [step.action for step in plan.steps] == [model.REBUILD_INDEX]
    (left,) = make_plan(root, CONFIG).left
    assert left.found.code == "timer-wheel-missing"
    assert "make a new plan when these are mended" in left.why
    apply(root, CONFIG, plan)
    apply(root, CONFIG, planned(root))
    assert codes_of(root) == set()


@pytest.mark.parametrize("damage", [slot_lost, no_wheel], ids=lambda one: one.__name__)
def test_cut_off_between_any_two_renames(
    damage: Callable[[Path], None],
    copy_store: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No wheel stands there unless log and check point are its own; both ways lead on."""
    root = copy_store("timer")
    damage(root)
    old, content = timer_of(root), content_of(root)
    plan = planned(root)
    whole = copy_with_times(root, tmp_path / "whole")
    apply(whole, CONFIG, plan)
    new = timer_of(whole)
    rename, cut_off = os.rename, 0
    for number in range(20):
        store = copy_with_times(root, tmp_path / str(number))
        monkeypatch.setattr(os, "rename", _until(rename, number))
        try:
            apply(store, CONFIG, plan)
        except CannotWrite:
            assert content_of(store) == content
            continue
        except RepairCutOff:
            cut_off += 1
        else:
            break
        finally:
            monkeypatch.setattr(os, "rename", rename)
        now = timer_of(store)
        assert TIMER_WHEEL not in now or now in (old, new)
        other = copy_with_times(store, tmp_path / f"{number}-undone")
        assert undo(other, CONFIG).state == "undone"
        assert content_of(other) == content
        assert resume(store, CONFIG).state == "applied"
        assert timer_of(store) == new
    assert cut_off >= 5 and timer_of(store) == new and codes_of(store) == set()


def _until(rename: Callable[..., None], number: int) -> Callable[..., None]:
    """Renames that fail from one on, as on a disk that has gone."""
    left = [number]

    def limited(source: Any, target: Any) -> None:
        if not left[0]:
            raise OSError(5, "Input/output error", str(source))
        left[0] -= 1
        rename(source, target)

    return limited


def test_a_broker_that_made_a_wheel_meanwhile_is_told(
    copy_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_store("timer")
    slot_lost(root)
    plan = planned(root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", _until(os.rename, 2))
        with pytest.raises(RepairCutOff):
            apply(root, CONFIG, plan)
    (root / TIMER_WHEEL).write_bytes(bytes(32))
    for way in (resume, undo):
        with pytest.raises(RepairOvertaken, match="timerwheel was changed"):
            way(root, CONFIG)
