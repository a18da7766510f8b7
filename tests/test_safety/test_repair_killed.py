"""``repair`` killed by SIGKILL before any of its calls that change something: what it leaves is
ended, or taken back, and both again when they are killed."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

from rmqctl.engine.files.unfinished import RepairUnfinished, is_amid_repair
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.doctor.lint import Summary, lint
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.repair.apply import apply, resume, undo
from rmqctl.operations.repair.plan import make_plan
from rmqctl.operations.repair.planfile import plan_text, read_plan
from tests import processes
from tests.test_operations.broken_store import (
    break_store,
    everything,
    make_sound_store,
    without_backups,
)
from tests.test_operations.small_store import CONFIG, findings_of

#: The calls that change a directory or a file, or wait until it is on disk.
_KILLED = """
import os, signal, sys
from pathlib import Path
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.operations.repair import apply
from rmqctl.operations.repair.planfile import read_plan
from tests.test_operations.small_store import CONFIG

root, work, plan, left = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
only = sys.argv[5] == "moves"
done = 0

def step(call):
    def stepped(*arguments, **named):
        global done
        if only and not os.path.exists(root / "rmqctl-repair/journal.json"):
            return call(*arguments, **named)
        if done == left:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return call(*arguments, **named)
    return stepped

for name in ("rename", "mkdir", "rmdir", "unlink", "pwrite", "fsync", "link"):
    setattr(os, name, step(getattr(os, name)))
MappedFile.write = step(MappedFile.write)
if work == "apply":
    apply.apply(root, CONFIG, read_plan(plan))
else:
    getattr(apply, work)(root, CONFIG)
print(done)
"""


def run(root: Path, work: str, plan: Path, left: int, *, only_moves: bool = False) -> int | None:
    """Does some work and is killed before its call number ``left``; how many there are in all,
    None: it was killed."""
    where = "moves" if only_moves else "all"
    done = processes.run("-c", _KILLED, str(root), work, str(plan), str(left), where)
    assert done.returncode in (0, -9), done.stderr
    return int(done.stdout) if done.returncode == 0 else None


class Trial:
    """A broken store, its plan, and what it is before and after."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._numbers = itertools.count()
        self.root = break_store(make_sound_store(directory / "store"))
        self.plan = directory / "plan.json"
        self.plan.write_text(plan_text(make_plan(self.root, CONFIG)))
        self.before = everything(self.root)
        done = self.copy()
        apply(done, CONFIG, read_plan(self.plan))
        self.after = self.named(done)

    def copy(self, of: Path | None = None) -> Path:
        """A store of its own, of the broken one or another."""
        return Path(shutil.copytree(of or self.root, self.directory / f"{next(self._numbers)}"))

    def named(self, root: Path) -> dict[str, str | bytes]:
        """A repaired store; index files, named by the time of their making, by numbers."""
        found = without_backups(everything(root))
        index = sorted(name for name in found if name.startswith("index/"))
        return {f"index/{index.index(n)}" if n in index else n: one for n, one in found.items()}

    def assert_old(self, root: Path) -> None:
        assert everything(root) == self.before

    def assert_new(self, root: Path) -> None:
        assert self.named(root) == self.after
        assert findings_of(root)[0] == []


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("killed"))


def end(trial: Trial, root: Path, chance: random.Random) -> None:
    """What a killed repair has left is brought to the new state, or the old one, by a run that may
    be killed as well, at once or a few times."""
    work = chance.choice(("resume", "undo"))
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        if not is_amid_repair(root):
            break
        run(root, work, trial.plan, chance.randrange(60))
        work = chance.choice(("resume", "undo"))
    if not (root / "rmqctl-repair").exists():
        # What was killed had done it, whole.
        content = everything(root)
        if content == trial.before:
            return
        trial.assert_new(root)
        undo(root, CONFIG)
        trial.assert_old(root)
        return
    can_resume = (root / "rmqctl-repair/plan.json").exists()
    if work == "resume" and can_resume:
        resume(root, CONFIG)
        trial.assert_new(root)
    undo(root, CONFIG)
    trial.assert_old(root)


def places(calls: int, is_deep: bool, chance: random.Random, few: int) -> list[int]:
    """Numbers of calls before which a run is killed."""
    return (
        list(range(calls)) if is_deep or calls <= few else sorted(chance.sample(range(calls), few))
    )


def test_a_kill_between_any_two_moves(trial: Trial, chance: random.Random) -> None:
    for left in range(200):
        root = trial.copy()
        if run(root, "apply", trial.plan, left, only_moves=True) is not None:
            break
        assert is_amid_repair(root) or not (root / "rmqctl-repair").exists()
        end(trial, root, chance)
        shutil.rmtree(root)
    assert 25 < left < 200
    trial.assert_new(root)


def test_nobody_writes_to_a_store_amid_its_repair(trial: Trial) -> None:
    root = trial.copy()
    assert run(root, "apply", trial.plan, 20, only_moves=True) is None
    before = everything(root)
    with pytest.raises(RepairUnfinished):
        MessageStore(root, CONFIG, writable=True)
    with pytest.raises(RepairUnfinished):
        rebuild_in_place(plan_rebuild(root, CONFIG, "all"))
    with pytest.raises(RepairUnfinished):
        apply(root, CONFIG, read_plan(trial.plan))
    with pytest.raises(RepairUnfinished):
        make_plan(root, CONFIG)
    told = [*findings_of(root)[0], *lint(root, CONFIG, Summary())]
    assert [found.path for found in told if found.code == "repair-unfinished"] == [
        "rmqctl-repair",
        "rmqctl-repair",
    ]
    assert everything(root) == before


def test_a_kill_while_it_builds_has_changed_nothing(
    trial: Trial, chance: random.Random, is_deep: bool
) -> None:
    root = trial.copy()
    calls = run(root, "apply", trial.plan, 1 << 30)
    assert calls is not None
    for left in places(calls, is_deep, chance, 8):
        root = trial.copy()
        assert run(root, "apply", trial.plan, left) is None
        if not is_amid_repair(root) and (root / "rmqctl-repair").exists():
            content = everything(root)
            kept = {n: c for n, c in content.items() if not n.startswith("rmqctl-repair")}
            assert kept == trial.before
        end(trial, root, chance)
        shutil.rmtree(root)


@pytest.mark.parametrize("work", ["undo", "resume"])
def test_a_kill_while_it_is_ended_or_taken_back(
    trial: Trial, chance: random.Random, is_deep: bool, work: str
) -> None:
    """Of a repair that was done, and of one that was cut off in the middle of its moves."""
    base = trial.copy()
    if work == "undo":
        apply(base, CONFIG, read_plan(trial.plan))
    else:
        assert run(base, "apply", trial.plan, 15, only_moves=True) is None
    root = trial.copy(base)
    calls = run(root, work, trial.plan, 1 << 30, only_moves=True)
    assert calls is not None and calls > 15
    (trial.assert_old if work == "undo" else trial.assert_new)(root)
    for left in places(calls, is_deep, chance, 12):
        root = trial.copy(base)
        assert run(root, work, trial.plan, left, only_moves=True) is None
        end(trial, root, chance)
        shutil.rmtree(root)
