"""rebuild --in-place puts what it has built into place: at once where the system can, and so that a
kill at any moment leaves each directory old or new, whole."""

from __future__ import annotations

import errno
import itertools
import shutil
from pathlib import Path

import pytest

from rmqctl.errors import (
    CannotRead,
    CannotWrite,
    StoreInUse,
    StoreReadOnly,
    SymbolicLinkRefused,
)
from rmqctl.operations.mend import recovery
from rmqctl.operations.mend import swap as swaps
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.mend.swap import (
    SwapCutOff,
    exchange,
    kept_directories,
    purge,
    swap,
)
from tests import processes
from tests.golden_data import tree_content
from tests.test_operations.small_store import CONFIG, findings_of, make_small_store


@pytest.fixture(params=["exchange", "two renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "two renames":
        monkeypatch.setattr(swaps, "exchange", lambda one, other: False)
    way: str = request.param
    return way


def directory(path: Path, text: str) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_text(text)
    return path


def test_this_system_exchanges_names(tmp_path: Path) -> None:
    """Else the kill tests below would say nothing of it."""
    one, other = directory(tmp_path / "one", "1"), directory(tmp_path / "other", "2")
    assert exchange(one, other)
    assert (one / "file").read_text() + (other / "file").read_text() == "21"
    with pytest.raises(FileNotFoundError):
        exchange(one, tmp_path / "none")


@pytest.mark.parametrize("has_old", [True, False])
@pytest.mark.parametrize("has_new", [True, False])
def test_a_directory_changes_places(tmp_path: Path, way: str, has_old: bool, has_new: bool) -> None:
    root, relative = tmp_path / "root", Path("consumequeue/T/0")
    staging, kept = root / "rmqctl-new", root / "rmqctl-old-1"
    root.mkdir()
    if has_old:
        directory(root / relative, "old")
    if has_new:
        directory(staging / relative, "new")
    swap(root, staging, kept, relative)
    assert (root / relative).exists() == has_new
    assert (kept / relative).exists() == has_old
    assert not (staging / relative).exists()
    if has_new:
        assert (root / relative / "file").read_text() == "new"
    if has_old:
        assert (kept / relative / "file").read_text() == "old"


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_swap_that_fails_leaves_the_old_one(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    root, relative = tmp_path / "root", Path("index")
    directory(root / relative, "old")
    directory(root / "new" / relative, "new")
    done, rename = 0, Path.rename

    def refuses(path: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done == failing:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuses)
    if way == "exchange" and failing == 2:
        monkeypatch.setattr(swaps, "exchange", refuses)
    try:
        swap(root, root / "new", root / "kept", relative)
    except OSError:
        assert (root / relative / "file").read_text() == "old"
        assert (root / "new" / relative / "file").read_text() == "new"
        assert done >= failing
    else:
        assert done < failing
        assert (root / relative / "file").read_text() == "new"


def test_names_that_change_are_forced_to_disk(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, relative = tmp_path / "root", Path("consumequeue/T/0")
    directory(root / relative, "old")
    directory(root / "new" / relative, "new")
    forced: list[Path] = []

    def noted(path: Path) -> None:
        assert (root / relative / "file").read_text() == "new"
        forced.append(path)

    monkeypatch.setattr(swaps, "sync_directory", noted)
    swap(root, root / "new", root / "kept", relative)
    kept = root / "kept"
    assert {root, kept, (root / relative).parent, (kept / relative).parent} <= set(forced)


def test_a_link_that_came_meanwhile_is_not_followed(tmp_path: Path, way: str) -> None:
    root, relative = tmp_path / "root", Path("consumequeue/T/0")
    directory(tmp_path / "elsewhere" / "T" / "0", "old")
    directory(root / "new" / relative, "new")
    (root / "consumequeue").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SymbolicLinkRefused):
        swap(root, root / "new", root / "kept", relative)
    assert (tmp_path / "elsewhere/T/0/file").read_text() == "old"


class Refused(OSError):
    """The system's disk is broken."""


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store whose queues and index a rebuild changes."""
    root = make_small_store(tmp_path / "store")
    for name in ("consumequeue", "index"):
        wrong = next(path for path in sorted((root / name).rglob("*")) if path.is_file())
        wrong.write_bytes(b"\x01" + wrong.read_bytes()[1:])
    return root


def refusing(monkeypatch: pytest.MonkeyPatch, calls: set[int]) -> None:
    """The calls of ``swap`` of these numbers do what they should, and fail then."""
    done = 0

    def fails(*arguments: Path) -> None:
        nonlocal done
        done += 1
        swap(*arguments)
        if done in calls:
            raise Refused(errno.EIO, "Input/output error")

    monkeypatch.setattr(swaps, "swap", fails)


@pytest.mark.parametrize("failing", [1, 2])
def test_what_fails_amid_several_directories_changes_none(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    before = tree_content(damaged)
    refusing(monkeypatch, {failing})
    with pytest.raises(CannotWrite, match="stays valid"):
        rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))
    assert tree_content(damaged) == before


def test_what_can_go_neither_on_nor_back_says_where_all_of_it_is(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = itertools.count(1)

    def refuse(one: Path, other: Path) -> bool:
        if next(done) > 2:
            raise Refused(errno.EIO, "Input/output error")
        return exchange(one, other)

    with monkeypatch.context() as patch:
        refusing(patch, {2})
        patch.setattr(swaps, "exchange", refuse)
        with pytest.raises(SwapCutOff, match=r"consumequeue.*rmqctl-old-"):
            rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))
    rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))
    assert findings_of(damaged)[0] == []


def test_nobody_purges_amid_a_rebuild(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put in place waits for a moment where the former files are kept."""
    rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))
    refused = []

    def amid(*arguments: Path) -> None:
        with pytest.raises(StoreInUse):
            purge(damaged)
        refused.append(kept_directories(damaged))
        swap(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(swaps, "swap", amid)
        rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))
    assert refused[0]
    # What a killed run was to put in place goes, too, and nobody is in the way.
    for name in (swaps.STAGING, swaps.TIMER_STAGING):
        (damaged / name / "index").mkdir(parents=True)
    assert len(purge(damaged)) == 4 and kept_directories(damaged) == []
    assert not [path for path in damaged.iterdir() if path.name.startswith("rmqctl-")]


def test_only_directories_are_purged(damaged: Path) -> None:
    """A note, or a link, that somebody has left under such a name is no former file."""
    (damaged / "rmqctl-old-note").touch()
    (damaged / "rmqctl-old-link").symlink_to(damaged / "index")
    rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))
    (kept,) = kept_directories(damaged)
    assert purge(damaged) == [kept] and not kept.exists()
    assert (damaged / "rmqctl-old-note").exists() and (damaged / "rmqctl-old-link").is_symlink()
    assert any((damaged / "index").iterdir())


def test_what_cannot_be_purged_is_told(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(StoreReadOnly, match="rmqctl-old-"):
        purge(damaged)


def test_who_opens_the_store_before_it_is_in_order(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (damaged / "abort").touch()

    def in_use(*_: object) -> None:
        raise StoreInUse(path=str(damaged), holder="another process")

    monkeypatch.setattr(recovery, "bring_in_order", in_use)
    done = rebuild_in_place(plan_rebuild(damaged, CONFIG, "all"))
    assert len(done.kept) == 1 and "somebody else has opened it" in done.not_in_order


def test_a_queue_that_may_not_be_read_is_told_beside_the_new_index(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CannotRead(path=str(damaged / "consumequeue/T/0"), reason="Permission denied")

    monkeypatch.setattr(recovery, "bring_in_order", refuse)
    done = rebuild_in_place(plan_rebuild(damaged, CONFIG, "index"))
    assert len(done.kept) == 1 and "consumequeue/T/0: Permission denied" in done.not_in_order


_KILLED = """
import os, signal, sys
from pathlib import Path
from rmqctl.operations.mend import swap
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from tests.test_operations.small_store import CONFIG

root, left, can_exchange = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "exchange"

def step(work):
    def stepped(*arguments):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return work(*arguments)
    return stepped

Path.rename = step(Path.rename)
swap.exchange = step(swap.exchange if can_exchange else lambda one, other: False)
rebuild_in_place(plan_rebuild(root, CONFIG, "all"))
"""


def contents(directory: Path) -> list[object]:
    """What the files hold; those of the index are named by the time of their making."""
    return list(tree_content(directory).values())


@pytest.mark.parametrize("can", ["exchange", "two renames"])
def test_a_kill_between_any_two_renames(tmp_path: Path, can: str) -> None:
    sound = make_small_store(tmp_path / "sound")
    names = "consumequeue", "index"
    gone = 0
    for left in range(20):
        root = shutil.copytree(sound, tmp_path / f"store{left}")
        for name in names:  # One wrong byte, so that old and new can be told apart.
            wrong = next(path for path in sorted((root / name).rglob("*")) if path.is_file())
            wrong.write_bytes(b"\x01" + wrong.read_bytes()[1:])
        old = {name: contents(root / name) for name in names}
        done = processes.run("-c", _KILLED, str(root), str(left), can)
        assert done.returncode in (0, -9), done.stderr
        for name in names:
            if (root / name).exists():
                assert contents(root / name) in (old[name], contents(sound / name))
            else:
                gone += 1
        rebuild_in_place(plan_rebuild(root, CONFIG, "all"))
        assert findings_of(root)[0] == []
        assert purge(root) and not kept_directories(root)
        assert {path.name for path in root.iterdir()} - {"lock"} == {
            path.name for path in sound.iterdir()
        } - {"lock"}
        if done.returncode == 0:
            break
    assert done.returncode == 0 and left >= 4
    assert gone == (0 if can == "exchange" else 2)
