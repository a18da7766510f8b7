"""What both engines must have alike after the same puts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Files = list[tuple[str, bytes]]


def files_of(root: Path) -> Files:
    """Every file of a store, in order. Those of the index have their names from the clock of the
    machine, and come without."""
    return [
        (str(path.relative_to(root)) if path.parent.name != "index" else "", path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    ]


def assert_alike(run: Callable[[str], tuple[list[Any], Files]]) -> None:
    """``run(engine)`` gives the same answers and the same files with each engine."""
    answers, files = run("compiled")
    expected, stored = run("pure")
    assert answers == expected
    assert [name for name, _ in files] == [name for name, _ in stored]
    assert files == stored
