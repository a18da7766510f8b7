"""Ctrl-C while directories change places, at any step and more than once: no former file is lost,
and one interrupt leaves all of the directories as they were, or all of them new."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rmqctl.engine.files import durable, owner
from rmqctl.operations.mend import swap as swaps
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.mend.swap import built_aside, swap_all
from tests.golden_data import tree_content
from tests.test_operations.small_store import CONFIG, findings_of, make_small_store

#: The directories that are swapped: whether each has a former one, and a new one.
CASES = {
    "one": {"index": (True, True)},
    "several": {"consumequeue/T/0": (True, True), "consumequeue/T/1": (True, True)},
    "absent": {
        "consumequeue/T/0": (True, True),
        "consumequeue/T/1": (True, False),
        "consumequeue/new/0": (False, True),
        "index": (True, True),
    },
}
#: What the system is asked for on the way.
CALLS = "rename", "mkdir", "rmdir", "fsync", "open", "lstat", "renameat2"


class Interrupts:
    """Raises KeyboardInterrupt before, or after, the steps of these numbers."""

    def __init__(self, at: set[int]) -> None:
        self.at, self.step = at, itertools.count()
        self.left = set(at)

    def __call__(self) -> None:
        number = next(self.step)
        if number in self.left:
            self.left.discard(number)
            raise KeyboardInterrupt

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with a step before it and one after it."""

        def stepped(*arguments: Any, **more: Any) -> Any:
            self()
            result = call(*arguments, **more)
            self()
            return result

        return stepped


class Library:
    """The C library: its ``renameat2`` may be one that cannot exchange."""

    real = ctypes.CDLL(None, use_errno=True)

    def __init__(self, can_exchange: bool, interrupts: Interrupts) -> None:
        self.renameat2 = interrupts.around(self.real.renameat2 if can_exchange else self._cannot)

    def _cannot(self, *_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1


@contextmanager
def interrupted(can_exchange: bool, at: set[int]) -> Iterator[Interrupts]:
    """Inside, the calls of the system that have these numbers are interrupted."""
    interrupts = Interrupts(at)
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS[:-1]:
            patch.setattr(os, name, interrupts.around(getattr(os, name)))
        library = Library(can_exchange, interrupts)
        patch.setattr(ctypes, "CDLL", lambda *_, **__: library)
        yield interrupts


@contextmanager
def traced(at: set[int]) -> Iterator[Interrupts]:
    """Inside, the bytecodes of the swap that have these numbers are interrupted."""
    interrupts, before = Interrupts(at), sys.gettrace()
    files = {module.__file__ for module in (swaps, durable, owner)}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            # A trace function that raises is no longer called: another one takes its place.
            try:
                interrupts()
            except KeyboardInterrupt:
                frame.f_trace = None
                raise
        return trace

    sys.settrace(trace)
    try:
        yield interrupts
    finally:
        sys.settrace(before)


class Place:
    """A store of a few directories, and new ones beside it."""

    def __init__(self, root: Path, case: str) -> None:
        self.root, self.staging, self.kept = root, root / "rmqctl-new", root / "rmqctl-old-1"
        self.case = CASES[case]
        root.mkdir()
        self.staging.mkdir()
        for name, has in self.case.items():
            for base, text, is_there in zip((root, self.staging), ("old", "new"), has, strict=True):
                if is_there:
                    (base / name).mkdir(parents=True)
                    for file in ("0", "1"):
                        (base / name / file).write_text(f"{text} {name} {file}")

    def run(self) -> bool:
        """Swaps. Returns whether it was interrupted."""
        try:
            with built_aside(self.root, self.staging):
                swap_all(self.root, self.staging, self.kept, [Path(name) for name in self.case])
        except KeyboardInterrupt:
            return True
        return False

    def stands(self, base: Path, name: str) -> str | None:
        """Which of the two stands there, whole; None if nothing does."""
        if not (base / name).exists():
            return None
        found = {path.name: path.read_text() for path in (base / name).iterdir()}
        (text,) = {text.split()[0] for text in found.values()}
        assert found == {file: f"{text} {name} {file}" for file in ("0", "1")}
        return text

    def check(self, *, once: bool) -> None:
        """Nothing former is lost. With ``once`` all of them are former, or all are new."""
        now = {name: self.stands(self.root, name) for name in self.case}
        for name, (has_old, _) in self.case.items():
            kept = self.stands(self.kept, name)
            assert not has_old or [now[name], kept].count("old") == 1, (now, kept)
        if once:
            former = {name: "old" if has_old else None for name, (has_old, _) in self.case.items()}
            new = {name: "new" if has_new else None for name, (_, has_new) in self.case.items()}
            assert now in (former, new)
            if now == former:
                assert not (self.root / "consumequeue/new").exists()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_interrupt_at_any_call(tmp_path: Path, case: str, can_exchange: bool) -> None:
    for at in itertools.count():
        place = Place(tmp_path / str(at), case)
        with interrupted(can_exchange, {at}) as interrupts:
            was_interrupted = place.run()
        place.check(once=True)
        if interrupts.left:
            break
        assert was_interrupted
    assert at > 20 and place.stands(place.root, "index") in ("new", None)


@pytest.mark.parametrize("case", ["one", "absent"])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_interrupt_at_any_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(swaps, "exchange", lambda one, other: False)
    for at in itertools.count(0, 1 if case == "one" else 7):
        place = Place(tmp_path / str(at), case)
        with traced({at}) as interrupts:
            place.run()
        place.check(once=True)
        if interrupts.left:
            break
    assert at > 500


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("can_exchange", [True, False])
def test_more_interrupts_while_the_first_one_is_undone(
    tmp_path: Path, case: str, can_exchange: bool
) -> None:
    numbers = itertools.count()
    for first in itertools.count(0, 1 if case == "one" else 5):
        for second, third in itertools.product((1, 2, 3, 5, 8, 13, 21, 34), (0, 1, 4, 9)):
            place = Place(tmp_path / str(next(numbers)), case)
            at = {first, first + second, first + second + third}
            with interrupted(can_exchange, at) as interrupts:
                place.run()
            place.check(once=len(at) - len(interrupts.left) < 2)
        if first in interrupts.left:
            break


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_call_that_is_done_and_fails_all_the_same(tmp_path: Path, can_exchange: bool) -> None:
    """As that of a network file system that has lost the answer."""
    for failing in itertools.count(1):
        place, done = Place(tmp_path / str(failing), "several"), itertools.count(1)

        def fails(call: Callable[..., Any], done: Iterator[int], at: int) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                result = call(*arguments)
                if next(done) == at:
                    raise OSError(errno.EIO, "Input/output error")
                return result

            return run

        exchange = swaps.exchange if can_exchange else lambda one, other: False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "rename", fails(os.rename, done, failing))
            patch.setattr(swaps, "exchange", fails(exchange, done, failing))
            try:
                swap_all(place.root, place.staging, place.kept, [Path(name) for name in place.case])
            except OSError:
                is_done = False
            else:
                is_done = True
        assert [place.stands(place.root, name) for name in place.case] == (
            ["new", "new"] if is_done else ["old", "old"]
        )
        if is_done:
            break
        assert [place.stands(place.staging, name) for name in place.case] == ["new", "new"]
    assert failing > 4


def test_what_is_not_known_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody puts a third directory there, amid the swap."""
    place = Place(tmp_path / "store", "one")
    target = place.root / "index"

    def replaced(directory: Path) -> None:
        target.rename(place.root / "elsewhere")
        target.mkdir()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(swaps, "sync_directory", replaced)
    with pytest.raises(swaps.SwapCutOff, match="something else stands there"):
        swap_all(place.root, place.staging, place.kept, [Path("index")])
    assert list(target.iterdir()) == []
    assert place.stands(place.kept, "index") == "old"


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_rebuild_that_is_interrupted_is_done_again(tmp_path: Path, can_exchange: bool) -> None:
    root = make_small_store(tmp_path / "store")
    sound = tree_content(root)
    for name in ("consumequeue", "index"):
        wrong = next(path for path in sorted((root / name).rglob("*")) if path.is_file())
        wrong.write_bytes(b"\x01" + wrong.read_bytes()[1:])
    before, renames = tree_content(root), os.rename
    for at in itertools.count():
        interrupts = Interrupts({at})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "rename", interrupts.around(renames))
            patch.setattr(
                swaps,
                "exchange",
                interrupts.around(swaps.exchange if can_exchange else lambda one, other: False),
            )
            try:
                rebuild_in_place(plan_rebuild(root, CONFIG, "all"))
            except KeyboardInterrupt:
                assert tree_content(root) == before
                continue
        break
    assert at >= 4 and findings_of(root)[0] == []
    assert {name for name in tree_content(root) if "rmqctl-" not in name} >= {
        name for name in sound if name.startswith("consumequeue")
    }
